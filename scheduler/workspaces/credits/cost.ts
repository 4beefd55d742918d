// Cost of a request in integer micro-units. Sums are exact, and a request is rounded up once. Pure.
import type { ChargeStatus, Prices, TokenUsage } from '../../domain/inference.ts';

const MILLION = 1_000_000n;

/** Most micro-units of one request, one grant or one balance: a thousand million units of the currency. */
export const MOST_MICROS = 1_000_000_000_000_000;

/** Most tokens of one request that are counted. */
export const MOST_TOKENS = 1_000_000_000;

/** A count as the ledger takes it: a safe integer within its bound. Absent or odd values count as nothing. */
export function countOf(tokens: number): number {
  if (!(tokens > 0)) return 0;
  return Math.min(MOST_TOKENS, Math.ceil(tokens));
}

/** Cost of so many tokens. @returns at most {@link MOST_MICROS} */
export function costOf(prices: Prices, usage: Pick<TokenUsage, 'promptTokens' | 'completionTokens'>): number {
  const tokens =
    BigInt(countOf(usage.promptTokens)) * BigInt(prices.promptMicrosPerMillion) +
    BigInt(countOf(usage.completionTokens)) * BigInt(prices.completionMicrosPerMillion);
  const cost = (tokens + MILLION - 1n) / MILLION + BigInt(prices.requestMicros);
  return cost > BigInt(MOST_MICROS) ? MOST_MICROS : Number(cost);
}

/**
 * Cost of a request that ended. A request that failed, or was lost, before any output is free.
 * Source: reference of the inference API, §10.
 */
export function settledCost(
  request: { readonly prices: Prices; readonly isCharged: boolean },
  usage: TokenUsage,
  status: ChargeStatus,
): number {
  if (!request.isCharged) return 0;
  if ((status === 'failed' || status === 'lost') && countOf(usage.completionTokens) === 0) return 0;
  return costOf(request.prices, usage);
}

/** Micro-units of a cent, the hundredth of the currency's unit. */
const MICROS_OF_CENT = 10_000;

/** Whole cents of an amount, rounded down: also what is owed is never shown as less. */
export const centsOf = (micros: number): number => Math.floor(micros / MICROS_OF_CENT);

/** Calendar month of UTC, as `YYYY-MM`. */
export const monthOf = (ms: number): string => new Date(ms).toISOString().slice(0, 7);
