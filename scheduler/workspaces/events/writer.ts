// Writes events with the changes that they tell of: in the same transaction, as its last statement. Live readers are
// told after the commit. A message that is lost costs them only the time of their next look.
import { randomBytes } from 'node:crypto';
import { Listeners } from '#shared/listeners.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Db, Queryable, Transaction } from '../../stores/store/db.ts';
import { appendEvents, MAX_EVENT_BATCH } from '../../stores/store/queries/events.ts';
import type { NewEvent } from '../../stores/store/queries/events.ts';

/** An event as its place of origin gives it; the id is made here unless the change has one of its own. */
export type EventGiven = Omit<NewEvent, 'id'> & { readonly id?: string };

/** Id of an event: four bytes of the time in seconds, and eight random ones, as 24 hex characters. */
export function newEventId(atMs: number): string {
  const bytes = randomBytes(12);
  bytes.writeUInt32BE(Math.floor(atMs / 1000) >>> 0, 0);
  return bytes.toString('hex');
}

export class EventWriter {
  readonly #written = new Listeners<[WorkspaceId, number]>();

  /** Told after each commit: the workspace, and the number of its last event. */
  onWritten(listener: (workspaceId: WorkspaceId, lastSeq: number) => void): void {
    this.#written.add(listener);
  }

  /**
   * Runs a change and writes the events that it emits, in one transaction.
   * @param run - `emit` takes the events, in order; they are written behind its last statement
   */
  async transaction<T>(db: Db, run: (tx: Transaction, emit: (event: EventGiven) => void) => Promise<T>): Promise<T> {
    let written: ReadonlyMap<WorkspaceId, number> = new Map();
    const result = await db.transaction(async (tx) => {
      const events: EventGiven[] = [];
      const value = await run(tx, (event) => events.push(event));
      written = await this.append(tx, events);
      return value;
    });
    this.announce(written);
    return result;
  }

  /**
   * Writes events within a transaction of the caller's, as its last statement.
   * @returns for {@link announce}, after the commit
   */
  async append(tx: Queryable, events: readonly EventGiven[]): Promise<ReadonlyMap<WorkspaceId, number>> {
    const named = events.map((event) => ({ ...event, id: event.id ?? newEventId(event.atMs) }));
    if (named.length <= MAX_EVENT_BATCH) return await appendEvents(tx, named);
    // Several statements lock the counters of workspaces in the order in which one does: by their ids.
    named.sort((a, b) => (a.workspaceId < b.workspaceId ? -1 : a.workspaceId > b.workspaceId ? 1 : 0));
    const written = new Map<WorkspaceId, number>();
    for (let at = 0; at < named.length; at += MAX_EVENT_BATCH) {
      const last = await appendEvents(tx, named.slice(at, at + MAX_EVENT_BATCH));
      for (const [workspaceId, seq] of last) written.set(workspaceId, seq);
    }
    return written;
  }

  /** Tells live readers about events that are committed. */
  announce(written: ReadonlyMap<WorkspaceId, number>): void {
    for (const [workspaceId, lastSeq] of written) this.#written.tell(workspaceId, lastSeq);
  }
}
