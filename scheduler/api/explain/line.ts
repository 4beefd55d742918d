// The place of a workspace among those that wait for the same GPUs, as sentences. Pure. Others are counted, not named.
import type { PlaceInLine } from '../../control/plan/share-report.ts';
import { CPU_MARKET } from '../../domain/shares.ts';

const ORDINALS = ['first', 'second', 'third', 'fourth', 'fifth', 'sixth', 'seventh', 'eighth', 'ninth', 'tenth'];
const NUMBERS = ['none', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine', 'ten'];

/** `third in line for H100: this workspace holds 12 of its fair share of 16; two are further below theirs` */
export function lineTexts(place: PlaceInLine): readonly string[] {
  const { market, used, fairShare, limit, before, others } = place;
  const of = market === CPU_MARKET ? 'CPU' : market;
  if (limit !== null)
    return [
      `limit of the workspace: it holds ${amountOf(market, used)}${market === CPU_MARKET ? '' : ` of ${of}`} and may hold ${shown(limit)}, so the next container waits until another one of it ends`,
    ];
  if (before === null || others === 0) return [];
  const theirs = before === 1 ? 'one is' : `${NUMBERS[before] ?? before} are`;
  const rest = before === 0 ? '' : `; ${theirs} further below ${before === 1 ? 'its own' : 'theirs'}`;
  return [
    `${ORDINALS[before] ?? `number ${before + 1}`} in line for ${of}: this workspace holds ${shown(used)} of its fair share of ${amountOf(market, fairShare)}${rest}`,
  ];
}

const amountOf = (market: string, amount: number): string =>
  market === CPU_MARKET ? `${shown(amount)} ${amount === 1 ? 'core' : 'cores'}` : shown(amount);

/** At most one decimal. */
const shown = (amount: number): string => String(Math.round(amount * 10) / 10);
