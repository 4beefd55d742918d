// Depths for the adds of one turn of the event loop, which share one reading of it. Pure.
// Invariant: a depth is never less than the jobs before an add and the add itself, or the
// bound on pending tasks could be exceeded. So a failed add does not count as a later one.
import { totalOf } from './task-queues.ts';
import type { QueueDepth } from './task-queues.ts';

/** Adds of one turn, and the one depth that is read after them. */
export interface Adds {
  readonly answers: Promise<unknown>[];
  /** Depth after each of the adds, or why it is not known. Never rejects. */
  readonly depths: Promise<readonly AddSeen[]>;
}
export type AddSeen =
  | { readonly kind: 'depth'; readonly depth: number }
  | { readonly kind: 'failed'; readonly error: unknown };

/** Depth of each add: the depth after all of them, less the adds that came later. */
export function depthsAfter(
  counted: PromiseSettledResult<QueueDepth>,
  added: readonly PromiseSettledResult<unknown>[],
): readonly AddSeen[] {
  const seen: AddSeen[] = [];
  let after = 0;
  for (const one of added.toReversed()) {
    if (one.status === 'rejected') {
      seen.push({ kind: 'failed', error: one.reason });
    } else if (counted.status === 'rejected') {
      seen.push({ kind: 'failed', error: counted.reason });
    } else {
      seen.push({ kind: 'depth', depth: totalOf(counted.value) - after });
      after += 1;
    }
  }
  return seen.reverse();
}
