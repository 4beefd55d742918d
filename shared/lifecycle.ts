// Parts with a timer, socket or child: started in order, stopped in reverse, each inside a deadline.
import type { Log } from './log.ts';
import { withDeadline } from './backoff.ts';

export interface Part {
  readonly name: string;
  start?(signal: AbortSignal): Promise<void> | void;
  stop?(): Promise<void> | void;
}

/** Starts parts one after another; a failed start stops the started ones and rethrows. */
export class Lifecycle {
  readonly #parts: readonly Part[];
  readonly #log: Log;
  readonly #abort = new AbortController();
  readonly #running: Part[] = [];

  constructor(parts: readonly Part[], log: Log) {
    this.#parts = parts;
    this.#log = log;
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  async start(): Promise<void> {
    for (const part of this.#parts) {
      try {
        await part.start?.(this.#abort.signal);
        this.#running.push(part);
      } catch (error) {
        await this.stop();
        throw error;
      }
    }
  }

  /** Stops every started part, the last one first. A part that fails or exceeds `eachMs` is logged and skipped. */
  async stop(eachMs = 15_000): Promise<void> {
    this.#abort.abort();
    for (;;) {
      const part = this.#running.pop();
      if (part === undefined) return;
      try {
        await withDeadline(
          Promise.resolve(part.stop?.()),
          eachMs,
          () => new Error(`${part.name} did not stop in ${eachMs} ms`),
        );
      } catch (error) {
        this.#log.warn({ err: error, part: part.name }, 'part did not stop cleanly');
      }
    }
  }
}
