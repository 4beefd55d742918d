// Which ticks of a schedule become tasks now. Pure.
import type { DueTicks } from './ticks.ts';

/** One look makes at most so many tasks of one schedule; what was missed before that is skipped. */
export const MOST_AT_ONCE = 100;

export type TickDecision =
  | { readonly kind: 'nothing_due' }
  | {
      readonly kind: 'tick';
      /** A task each, oldest first. */
      readonly ticks: readonly number[];
      /** No tick up to here is looked at again. */
      readonly tickedToMs: number;
      /** Skipped because so many newer ones were missed with them. */
      readonly tooOld: number;
      /** Skipped because its queue has no room for them. */
      readonly queueFull: number;
    };

/**
 * The newest ticks that the queue has room for.
 * @param room - tasks that its queue takes; below zero it is over full
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
