/**
 * The host goes down, and the machine leaves by itself: the scheduler is told how long what runs may take, places nothing more here, and moves what serves elsewhere.
 * Asked for by the unit that stops before this one. Nothing of it is kept: an agent that starts anew drains nothing.
 */
import { sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { HostDrain as Message } from '#shared/protocol/generated/messages.ts';

const LOOK_EVERY_MS = 250;
const TELL_EVERY_MS = 5_000;

export interface HostDrainParts {
  readonly log: Log;
  /** Tells the scheduler; without a session the next hello says it. */
  readonly send: (message: Message) => void;
  /** Containers that have not ended. */
  readonly live: () => number;
  readonly attempts: () => number;
}

export class HostDrain {
  readonly #parts: HostDrainParts;
  #untilMs: number | undefined;

  constructor(parts: HostDrainParts) {
    this.#parts = parts;
  }

  /** For a hello; undefined: no drain. */
  get message(): Message | undefined {
    if (this.#untilMs === undefined) return undefined;
    return { on: true, secondsLeft: Math.max(0, Math.ceil((this.#untilMs - performance.now()) / 1000)) };
  }

  /** From now on the scheduler places nothing here. */
  begin(seconds: number): void {
    const { log, send, live } = this.#parts;
    this.#untilMs = performance.now() + seconds * 1000;
    log.info({ seconds, containers: live() }, 'host drain begins');
    send({ on: true, secondsLeft: seconds });
  }

  /**
   * Resolves when nothing runs here any more, or the time is over.
   * @param onProgress - told at once and every few seconds
   * @returns how many containers are left
   */
  async drain(seconds: number, onProgress: (text: string) => void, signal: AbortSignal): Promise<number> {
    const { log, live, attempts } = this.#parts;
    this.begin(seconds);
    let toldMs = -Infinity;
    while (this.#untilMs !== undefined && live() > 0 && performance.now() < this.#untilMs) {
      if (performance.now() - toldMs >= TELL_EVERY_MS) {
        toldMs = performance.now();
        onProgress(`${live()} containers left, ${attempts()} tasks run in them`);
      }
      if (!(await sleep(LOOK_EVERY_MS, signal))) break;
    }
    log.info({ containers: live() }, 'host drain is over');
    return live();
  }

  /** The host stays: it takes work again. */
  undrain(): void {
    if (this.#untilMs === undefined) return;
    this.#untilMs = undefined;
    this.#parts.log.info('host drain is taken back');
    this.#parts.send({ on: false, secondsLeft: 0 });
  }
}
