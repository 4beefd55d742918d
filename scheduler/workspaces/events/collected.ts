// Events that no change of a row brings, such as `llm.route`: they are collected for a moment and written in batches.
// Invariants: whoever tells one never waits for the database. At most some thousand wait; further ones are dropped and
// logged. A process that dies loses those that wait.
import type { Log } from '#shared/log.ts';
import type { Db } from '../../stores/store/db.ts';
import type { EventGiven, EventWriter } from './writer.ts';

const COLLECT_MS = 250;
/** Events of one transaction. */
const BATCH = 500;
/** Most events that wait; the database takes some thousand a second. */
const MOST_WAITING = 5_000;

export interface CollectedEventsParts {
  readonly db: Db;
  readonly writer: Pick<EventWriter, 'transaction'>;
  readonly log: Log;
  readonly collectMs?: number;
  readonly mostWaiting?: number;
}

export class CollectedEvents {
  readonly name = 'collected events';
  readonly #parts: CollectedEventsParts;
  #waiting: EventGiven[] = [];
  #dropped = 0;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> | undefined;

  constructor(parts: CollectedEventsParts) {
    this.#parts = parts;
  }

  /** Tells an event. Never throws and never waits. */
  tell(event: EventGiven): void {
    const { collectMs = COLLECT_MS, mostWaiting = MOST_WAITING } = this.#parts;
    if (this.#waiting.length >= mostWaiting) this.#dropped += 1;
    else this.#waiting.push(event);
    // A batch under way goes on with what came meanwhile.
    if (this.#writing !== undefined) return;
    this.#timer ??= setTimeout(() => void this.stop(), collectMs).unref();
  }

  /** Writes the events that wait. */
  async stop(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#writing ??= this.#write().finally(() => (this.#writing = undefined));
    await this.#writing;
  }

  async #write(): Promise<void> {
    const { db, writer, log } = this.#parts;
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, BATCH);
      try {
        await writer.transaction(db, (_tx, emit) => {
          for (const event of batch) emit(event);
          return Promise.resolve();
        });
      } catch (error) {
        log.warn({ err: error, events: batch.length }, 'events could not be written and are dropped');
      }
    }
    if (this.#dropped > 0) log.warn({ events: this.#dropped }, 'events were dropped: too many wait for the database');
    this.#dropped = 0;
  }
}
