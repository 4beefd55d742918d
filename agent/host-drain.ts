/**
 * Drain of a host that goes down, started by the host itself. The scheduler hears how long running containers may take,
 * places nothing more here, and moves serving ones elsewhere. Requested by the unit that stops before this one. Nothing
 * of it is stored: a new agent process does not drain.
 */
import { sleep } from '#shared/backoff.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { HostDrain as Message } from '#shared/protocol/generated/messages.ts';

const LOOK_EVERY_MS = 250;
const TELL_EVERY_MS = 5_000;

export interface HostDrainParts {
  readonly log: Log;
  /** Number of containers that have not ended. */
  readonly live: () => number;
  readonly attempts: () => number;
}

export class HostDrain {
  readonly #parts: HostDrainParts;
  readonly #message = new Listeners<[Message]>();
  #untilMs: number | undefined;

  constructor(parts: HostDrainParts) {
    this.#parts = parts;
  }

  /** Told of a message for the scheduler; without a session the next hello carries the drain. */
  onMessage(listener: (message: Message) => void): void {
    this.#message.add(listener);
  }

  /** The drain for a hello; undefined: no drain. */
  get message(): Message | undefined {
    if (this.#untilMs === undefined) return undefined;
    return { on: true, secondsLeft: Math.max(0, Math.ceil((this.#untilMs - performance.now()) / 1000)) };
  }

  /** Begins the drain: from now on the scheduler places nothing here. */
  begin(seconds: number): void {
    const { log, live } = this.#parts;
    this.#untilMs = performance.now() + seconds * 1000;
    log.info({ seconds, containers: live() }, 'host drain begins');
    this.#message.tell({ on: true, secondsLeft: seconds });
  }

  /**
   * Resolves when nothing runs here any more, or the time is over.
   * @param onProgress - called at once and every few seconds
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

  /** Ends the drain: the host stays up and takes work again. */
  undrain(): void {
    if (this.#untilMs === undefined) return;
    this.#untilMs = undefined;
    this.#parts.log.info('host drain is taken back');
    this.#message.tell({ on: false, secondsLeft: 0 });
  }
}
