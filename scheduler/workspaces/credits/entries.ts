// Entries of the ledger and holds of requests as text in Redis. Pure.
import type { ChargeRequest, ChargeStatus, TokenUsage } from '../../domain/inference.ts';
import type { LedgerEntry } from '../../stores/store/queries/credits.ts';
import { countOf, settledCost } from './cost.ts';

/** Most characters of an id of the catalog, of a token or of a request that the ledger keeps. */
const MOST_TEXT = 256;

/** Row of a request that ended. */
export function entryOf(
  request: ChargeRequest,
  usage: TokenUsage,
  status: ChargeStatus,
  endedAtMs: number,
): LedgerEntry {
  const { prices } = request;
  return {
    ...EMPTY,
    requestId: request.requestId,
    kind: 'request',
    workspaceId: request.workspaceId,
    tokenId: request.tokenId,
    model: request.model.slice(0, MOST_TEXT),
    type: request.type,
    promptTokens: countOf(usage.promptTokens),
    completionTokens: countOf(usage.completionTokens),
    promptMicrosPerMillion: prices.promptMicrosPerMillion,
    completionMicrosPerMillion: prices.completionMicrosPerMillion,
    requestMicros: prices.requestMicros,
    costMicros: settledCost(request, usage, status),
    stream: request.stream,
    status,
    estimated: usage.estimated,
    createdAtMs: endedAtMs,
  };
}

/** Fields that entries of other kinds do not have. */
export const EMPTY = {
  tokenId: null,
  model: null,
  type: null,
  promptTokens: 0,
  completionTokens: 0,
  promptMicrosPerMillion: 0,
  completionMicrosPerMillion: 0,
  requestMicros: 0,
  costMicros: 0,
  grantMicros: 0,
  stream: false,
  estimated: false,
  containerId: null,
  stubId: null,
  containerMs: 0,
  gpuMs: 0,
  note: '',
} as const;

/** Text of a hold: the request, and the amount that is held for it. */
export const holdText = (request: ChargeRequest, micros: number): string => JSON.stringify({ request, micros });

export function parseHold(
  text: string | null,
): { readonly request: ChargeRequest; readonly micros: number } | undefined {
  return parsed(text, (value) => typeof value['micros'] === 'number' && typeof value['request'] === 'object');
}

export const usageText = (usage: TokenUsage | undefined): string => (usage === undefined ? '' : JSON.stringify(usage));

export const parseUsage = (text: string | null): TokenUsage =>
  parsed<TokenUsage>(text, (value) => typeof value['promptTokens'] === 'number') ?? NO_USAGE;

const NO_USAGE: TokenUsage = { promptTokens: 0, completionTokens: 0, estimated: true };

export const entryText = (entry: LedgerEntry): string => JSON.stringify(entry);

export const parseEntry = (text: string): LedgerEntry | undefined =>
  parsed(
    text,
    (value) =>
      typeof value['requestId'] === 'string' &&
      typeof value['workspaceId'] === 'string' &&
      Number.isSafeInteger(value['costMicros']),
  );

function parsed<T>(text: string | null, isOne: (value: Record<string, unknown>) => boolean): T | undefined {
  if (text === null) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && isOne(value as Record<string, unknown>)
      ? (value as T)
      : undefined;
  } catch {
    return undefined;
  }
}
