// A loop that claims rows of the database and works on them, as many at once as it has places. It looks when it is
// woken, soon after a place is free again, and now and then. The claim decides who has a row: this loop keeps nothing.
import { sleep } from '#shared/backoff.ts';

/** Time in which free places are gathered for one claim. */
const FREED_MS = 25;

export interface RowWorkerOptions<Row> {
  /** Rows worked on at once. */
  readonly places: number;
  /** Longest time between two looks. */
  readonly lookMs: number;
  /** Claims at most so many rows. */
  readonly claim: (most: number) => Promise<readonly Row[]>;
  /** Works on a claimed row; never rejects. */
  readonly work: (row: Row) => Promise<void>;
  /** Told when a claim took every free place, so that others may look for more. Absent: nobody is. */
  readonly onFull?: () => void;
  readonly onFailed: (error: unknown) => void;
}

export class RowWorker<Row> {
  readonly #options: RowWorkerOptions<Row>;
  readonly #stopping = new AbortController();
  readonly #running = new Set<Promise<void>>();
  #rest = new AbortController();
  #freed: NodeJS.Timeout | undefined;
  #looping: Promise<void> | undefined;

  constructor(options: RowWorkerOptions<Row>) {
    this.#options = options;
  }

  start(): void {
    this.#looping = this.#loop();
  }

  /** Claims nothing any more, and waits for the work under way; its owner ends it. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#rest.abort();
    await this.#looping;
    await Promise.all(this.#running);
    clearTimeout(this.#freed);
  }

  /** Looks now, or when that time has passed. */
  wake(afterMs = 0): void {
    if (afterMs <= 0) this.#rest.abort();
    else if (afterMs < this.#options.lookMs) setTimeout(() => this.#rest.abort(), afterMs).unref();
  }

  /** Looks once, and resolves when no row is worked on any more. @throws when rows cannot be claimed */
  async look(): Promise<void> {
    await this.#fill();
    await Promise.all(this.#running);
  }

  async #loop(): Promise<void> {
    const { lookMs, onFailed } = this.#options;
    while (!this.#stopping.signal.aborted) {
      this.#rest = new AbortController();
      try {
        await this.#fill();
      } catch (error) {
        onFailed(error);
      }
      await sleep(lookMs, this.#rest.signal);
    }
  }

  #afterFreed(): void {
    this.#freed = undefined;
    this.wake();
  }

  async #fill(): Promise<void> {
    const { places, claim, work, onFull } = this.#options;
    const room = places - this.#running.size;
    if (room <= 0 || this.#stopping.signal.aborted) return;
    const rows = await claim(room);
    for (const row of rows) {
      const one = work(row).finally(() => {
        this.#running.delete(one);
        this.#freed ??= setTimeout(() => this.#afterFreed(), FREED_MS);
      });
      this.#running.add(one);
    }
    if (rows.length === room) onFull?.();
  }
}
