// The adds of one turn of the event loop share one reading of the depth: what each of them saw. Pure. What must stay true: never less than the jobs that stand before it and itself, or the bound on
// pending tasks gives way; so adds that failed do not count as having come after it.
import { isAnswerLost } from './answers.ts';
import { totalOf } from './task-queues.ts';
import type { QueueDepth } from './task-queues.ts';

/** Adds of one turn, and the one depth that is read behind them. */
export interface Adds {
  readonly answers: Promise<unknown>[];
  /** The depth after each of them, or why it is not known. Never rejects. */
  readonly depths: Promise<readonly AddSeen[]>;
}
export type AddSeen =
  | { readonly kind: 'depth'; readonly depth: number }
  | { readonly kind: 'failed'; readonly error: unknown; readonly mayBeThere: boolean };

/** Each add's own depth is the one behind all of them, less those that came after it. */
export function depthsAfter(
  counted: PromiseSettledResult<QueueDepth>,
  added: readonly PromiseSettledResult<unknown>[],
): readonly AddSeen[] {
  const seen: AddSeen[] = [];
  let after = 0;
  for (const one of added.toReversed()) {
    if (one.status === 'rejected') {
      seen.push({ kind: 'failed', error: one.reason, mayBeThere: isAnswerLost(one.reason) });
    } else if (counted.status === 'rejected') {
      seen.push({ kind: 'failed', error: counted.reason, mayBeThere: true });
    } else {
      seen.push({ kind: 'depth', depth: totalOf(counted.value) - after });
      after += 1;
    }
  }
  return seen.reverse();
}
