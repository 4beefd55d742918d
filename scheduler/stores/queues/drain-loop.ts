// The loop of a drain, which moves entries from a stream in Redis to the database: it wakes when something was put on
// the stream, collects for a moment, and looks by itself from time to time. A failed round is tried again, later each
// time. Rounds never overlap.
import { backoffMs, sleep } from '#shared/backoff.ts';
import { isDataRefused } from '../store/limits.ts';

export interface DrainLoopOptions<T> {
  /** Drains all entries there are now. */
  readonly drain: (signal: AbortSignal | undefined) => Promise<T>;
  readonly onFailed: (error: unknown, failures: number) => void;
  /** Longest time without a look. */
  readonly sweepMs: number;
  /** Time in which entries are collected into one batch. */
  readonly coalesceMs: number;
}

export class DrainLoop<T> {
  readonly #options: DrainLoopOptions<T>;
  #round: Promise<unknown> = Promise.resolve();
  #isAwake = false;
  #wakeUp: (() => void) | undefined;

  constructor(options: DrainLoopOptions<T>) {
    this.#options = options;
  }

  /** Drains soon, because something was put on the stream. */
  wake(): void {
    this.#isAwake = true;
    this.#wakeUp?.();
  }

  /** Drains until the signal ends it. */
  async run(signal: AbortSignal): Promise<void> {
    let failures = 0;
    signal.addEventListener('abort', () => this.#wakeUp?.(), { once: true });
    while (!signal.aborted) {
      try {
        await this.flush(signal);
        failures = 0;
      } catch (error) {
        failures += 1;
        this.#options.onFailed(error, failures);
        await sleep(backoffMs(failures, { baseMs: 100, capMs: 5_000, floorMs: 50 }), signal);
        continue;
      }
      await this.#rest(signal);
    }
  }

  /** Drains what there is now, behind a round under way. @throws what the drain throws */
  flush(signal?: AbortSignal): Promise<T> {
    const round = this.#round.then(() => {
      this.#isAwake = false;
      return this.#options.drain(signal);
    });
    this.#round = round.catch(() => undefined);
    return round;
  }

  async #rest(signal: AbortSignal): Promise<void> {
    const { sweepMs, coalesceMs } = this.#options;
    if (!this.#isAwake && !signal.aborted) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, sweepMs);
        this.#wakeUp = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#wakeUp = undefined;
    }
    if (this.#isAwake) await sleep(coalesceMs, signal);
  }
}

export interface Halved<T> {
  readonly write: (items: readonly T[]) => Promise<unknown>;
  /** Takes an item that the database refuses, alone. */
  readonly refused: (item: T, error: unknown) => Promise<void>;
  /** Whether the database will never take this data. Absent: by the SQLSTATE. */
  readonly isRefusal?: (error: unknown) => boolean;
}

/** Writes a batch. One that the database refuses is halved until the item at fault stands alone. */
export async function writeHalved<T>(items: readonly T[], { write, refused, isRefusal }: Halved<T>): Promise<void> {
  const [first] = items;
  if (first === undefined) return;
  try {
    await write(items);
  } catch (error) {
    if (!(isRefusal ?? isDataRefused)(error)) throw error;
    if (items.length === 1) return refused(first, error);
    const middle = Math.ceil(items.length / 2);
    for (const half of [items.slice(0, middle), items.slice(middle)])
      await writeHalved(half, { write, refused, ...(isRefusal === undefined ? {} : { isRefusal }) });
  }
}
