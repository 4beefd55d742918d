// Choice of the ticks of a schedule that become tasks now. Pure.
import type { DueTicks } from '../../domain/ticks.ts';

/** Most tasks that one look makes of a schedule; older missed ticks are skipped. */
export const MOST_AT_ONCE = 100;

export type TickDecision =
  | { readonly kind: 'nothing_due' }
  | {
      readonly kind: 'tick';
      /** Ticks that become a task each, oldest first. */
      readonly ticks: readonly number[];
      /** Time up to which no tick is looked at again. */
      readonly tickedToMs: number;
      /** Ticks skipped because too many newer ones were missed with them. */
      readonly tooOld: number;
      /** Ticks skipped because the queue has no room for them. */
      readonly queueFull: number;
    };

/**
 * Chooses the newest ticks that the queue has room for.
 * @param room - tasks that the queue still takes; below zero the queue is over its bound
 */
export function decideTicks(due: DueTicks, room: number): TickDecision {
  const newestMs = due.ticks.at(-1);
  if (newestMs === undefined) return { kind: 'nothing_due' };
  const taken = Math.min(due.ticks.length, Math.max(0, room));
  return {
    kind: 'tick',
    ticks: due.ticks.slice(due.ticks.length - taken),
    tickedToMs: newestMs,
    tooOld: due.older,
    queueFull: due.ticks.length - taken,
  };
}
