// The share of a workspace as it is stored and changed: absent parts have their defaults. Pure.
import { ANY_GPU, knownGpu, knownSlice } from '#shared/domain/gpus.ts';
import { isRecord } from '#shared/json.ts';
import { CPU_MARKET, DEFAULT_SHARE } from './shares.ts';
import type { Market, MarketAmounts, WorkspaceShare } from './shares.ts';

/** A share as it was given; an absent part has its default. */
export interface GivenShare {
  readonly weight?: number;
  readonly guaranteed?: MarketAmounts;
  readonly limits?: MarketAmounts;
}

/** Value of the column `workspaces.share`. */
export interface StoredShare extends GivenShare {
  /** The pools file that declares the share; absent: commands change it. */
  readonly declaredIn?: string;
}

type Amounts = Readonly<Record<Market, number | null>>;

/** A change; an absent part stays, and null puts the part or the market back to its default. */
export interface ShareChange {
  readonly weight?: number | null;
  readonly guaranteed?: Amounts | null;
  readonly limits?: Amounts | null;
}

export const WEIGHT = { least: 0.01, most: 1000 } as const;
/** Most GPUs or cores of a market. */
export const MOST_OF_MARKET = 1_000_000;
export const MAX_MARKETS = 32;
const MAX_PROBLEMS = 10;
const PARTS = ['weight', 'guaranteed', 'limits'] as const;

/** The share in effect. An unreadable part counts as not given. */
export function shareOf(stored: unknown): WorkspaceShare {
  if (!isRecord(stored)) return DEFAULT_SHARE;
  const { weight } = stored;
  return {
    weight: typeof weight === 'number' && weight > 0 ? weight : DEFAULT_SHARE.weight,
    guaranteed: amountsOf(stored['guaranteed']),
    limits: amountsOf(stored['limits']),
  };
}

const amountsOf = (stored: unknown): MarketAmounts =>
  Object.fromEntries(
    Object.entries(isRecord(stored) ? stored : {}).filter(
      (entry): entry is [string, number] => typeof entry[1] === 'number',
    ),
  );

export type ReadShare =
  | { readonly kind: 'read'; readonly change: ShareChange }
  | { readonly kind: 'wrong'; readonly problems: readonly string[] };

/** Reads a change that was sent or written. Each problem begins with the name of its field. */
export function readShareChange(sent: unknown): ReadShare {
  if (!isRecord(sent)) return { kind: 'wrong', problems: ['share must be an object'] };
  const problems: string[] = [];
  const change: { weight?: number | null; guaranteed?: Amounts | null; limits?: Amounts | null } = {};
  for (const [name, value] of Object.entries(sent)) {
    if (name === 'weight') {
      if (value === null || isWeight(value)) change.weight = value;
      else problems.push(`weight must be a number from ${WEIGHT.least} to ${WEIGHT.most}, or null for the default`);
    } else if (name === 'guaranteed' || name === 'limits') {
      const read = readAmounts(name, value);
      problems.push(...read.problems);
      change[name] = read.amounts;
    } else problems.push(`${name.slice(0, 80)} is no part of a share; there are ${PARTS.join(', ')}`);
  }
  return problems.length > 0 ? { kind: 'wrong', problems: problems.slice(0, MAX_PROBLEMS) } : { kind: 'read', change };
}

const isWeight = (value: unknown): value is number =>
  typeof value === 'number' && value >= WEIGHT.least && value <= WEIGHT.most;

function readAmounts(
  part: string,
  sent: unknown,
): { readonly amounts: Amounts | null; readonly problems: readonly string[] } {
  if (sent === null) return { amounts: null, problems: [] };
  if (!isRecord(sent)) return { amounts: null, problems: [`${part} must be an object such as {"H100": 16}, or null`] };
  const amounts = new Map<Market, number | null>();
  const problems: string[] = [];
  for (const [name, value] of Object.entries(sent)) {
    const field = `${part}.${name.slice(0, 80)}`;
    const market = marketOf(name);
    if (market === undefined) problems.push(`${field} is no market; name a GPU model such as H100, or cpu`);
    else if (amounts.has(market)) problems.push(`${field} names ${market} a second time`);
    else if (value === null || isAmount(value)) amounts.set(market, value);
    else
      problems.push(
        `${field} must be a whole number of ${market === CPU_MARKET ? 'cores' : 'GPUs'} from 0 to ${MOST_OF_MARKET}, or null for none`,
      );
  }
  return { amounts: Object.fromEntries(amounts), problems };
}

const isAmount = (value: unknown): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= MOST_OF_MARKET;

/** The market of that name, in the spelling of machines; undefined: there can be none. */
export function marketOf(name: string): Market | undefined {
  if (name.toLowerCase() === CPU_MARKET) return CPU_MARKET;
  const known = knownGpu(name);
  if (known !== undefined) return known === ANY_GPU ? undefined : known;
  return knownSlice(name) ?? (/^[A-Za-z0-9.][A-Za-z0-9.-]{0,63}$/.test(name) ? name : undefined);
}

export type ChangedShare =
  | { readonly kind: 'changed'; readonly share: GivenShare | null }
  | { readonly kind: 'wrong'; readonly problems: readonly string[] };

/** The next value of the column; null: all of it is the default. */
export function changedShare(stored: unknown, { weight, guaranteed, limits }: ShareChange): ChangedShare {
  const before = isRecord(stored) ? stored : {};
  const next = {
    weight: weight === undefined ? before['weight'] : weight,
    guaranteed: merged(before['guaranteed'], guaranteed),
    limits: merged(before['limits'], limits),
  };
  const problems: string[] = [];
  for (const part of ['guaranteed', 'limits'] as const)
    if (Object.keys(next[part]).length > MAX_MARKETS) problems.push(`${part} must name at most ${MAX_MARKETS} markets`);
  for (const [market, limit] of Object.entries(next.limits)) {
    const least = Object.hasOwn(next.guaranteed, market) ? (next.guaranteed[market] ?? 0) : 0;
    if (limit < least) problems.push(`limits.${market} is ${limit}, less than guaranteed.${market}, which is ${least}`);
  }
  if (problems.length > 0) return { kind: 'wrong', problems: problems.slice(0, MAX_PROBLEMS) };
  const share: GivenShare = {
    ...(isWeight(next.weight) ? { weight: next.weight } : {}),
    ...(Object.keys(next.guaranteed).length > 0 ? { guaranteed: next.guaranteed } : {}),
    ...(Object.keys(next.limits).length > 0 ? { limits: next.limits } : {}),
  };
  return { kind: 'changed', share: Object.keys(share).length > 0 ? share : null };
}

function merged(before: unknown, change: Amounts | null | undefined): MarketAmounts {
  if (change === null) return {};
  return amountsOf({ ...amountsOf(before), ...change });
}
