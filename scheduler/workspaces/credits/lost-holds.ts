// Settles requests whose replica died: their holds lapse, and the last usage that was noted goes on the ledger with the
// status `lost`. The leader looks. If the replica lives after all, its own entry replaces that row.
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { CreditBook } from '../../stores/queues/credit-book.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { entryOf, entryText, parseHold, parseUsage } from './entries.ts';

const AT_ONCE = 200;

export interface LostHoldsParts {
  readonly book: Pick<CreditBook, 'lapsed' | 'end'>;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly log: Log;
}

/** Settles holds that have lapsed. @returns their number */
export async function settleLostHolds({ book, clock, log }: LostHoldsParts): Promise<number> {
  let settled = 0;
  for (;;) {
    const lapsed = await book.lapsed(AT_ONCE);
    for (const { requestId, hold: text, usage } of lapsed) {
      const held = parseHold(text);
      if (held === undefined) {
        // A deadline without its hold: nothing is held for it.
        await book.end({ requestId, workspaceId: '' as WorkspaceId, micros: 0 }, undefined, 'overdue');
        continue;
      }
      const { request, micros } = held;
      const entry = entryOf(request, parseUsage(usage), 'lost', clock.nowMs());
      const hold = { requestId, workspaceId: request.workspaceId, micros };
      const isSettled = await book.end(hold, { text: entryText(entry), micros: entry.costMicros }, 'overdue');
      if (!isSettled) continue;
      settled += 1;
      log.warn({ requestId, model: request.model }, 'a request to a model was lost with its replica, and is settled');
    }
    if (lapsed.length < AT_ONCE) return settled;
  }
}
