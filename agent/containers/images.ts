import { backoffMs, sleep } from '#shared/backoff.ts';
import { AppError, messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { Limiter } from './limiter.ts';
import type { ContainerRuntime } from './runtime.ts';

const PULLS_AT_ONCE = 3;
const TRIES = 3;
const PULL_DEADLINE_MS = 30 * 60_000;
/** Causes that pass: the registry is busy, or the way to it is. Everything else (not found, no right, bad manifest) is final. */
const PASSING =
  /toomanyrequests|too many requests|\b(429|500|502|503|504)\b|timeout|timed out|connection reset|unexpected EOF|ended before/i;

export interface ImageEvents {
  onPull(result: 'ok' | 'error', seconds: number): void;
}

/** Makes sure images are on this machine. One pull per image at a time, however many ask. */
export class Images {
  readonly #runtime: ContainerRuntime;
  readonly #log: Log;
  readonly #events: ImageEvents;
  readonly #limit = new Limiter(PULLS_AT_ONCE);
  readonly #pulling = new Map<string, Promise<void>>();

  constructor(runtime: ContainerRuntime, log: Log, events: ImageEvents) {
    this.#runtime = runtime;
    this.#log = log;
    this.#events = events;
  }

  /**
   * @param onPulling - called when the image is not here and has to be fetched
   * @throws AppError `image_error` naming the image
   */
  async ensure(reference: string, onPulling: () => void): Promise<'present' | 'pulled'> {
    if (await this.#runtime.hasImage(reference)) return 'present';
    onPulling();
    let pull = this.#pulling.get(reference);
    if (pull === undefined) {
      pull = this.#limit.run(() => this.#pull(reference)).finally(() => this.#pulling.delete(reference));
      this.#pulling.set(reference, pull);
    }
    await pull;
    return 'pulled';
  }

  async #pull(reference: string): Promise<void> {
    const from = performance.now();
    const deadline = AbortSignal.timeout(PULL_DEADLINE_MS);
    for (let attempt = 0; ; attempt += 1) {
      try {
        await this.#runtime.pull(reference, deadline);
        if (!(await this.#runtime.hasImage(reference))) throw new Error('the engine has no such image after the pull');
        const seconds = (performance.now() - from) / 1000;
        this.#events.onPull('ok', seconds);
        this.#log.info({ image: reference, durationMs: Math.round(seconds * 1000) }, 'image pulled');
        return;
      } catch (error) {
        this.#events.onPull('error', (performance.now() - from) / 1000);
        const passing = PASSING.test(messageOf(error)) && attempt + 1 < TRIES && !deadline.aborted;
        this.#log.info({ image: reference, err: error, again: passing }, 'image pull failed');
        if (!passing)
          throw new AppError('image_error', `cannot pull image ${reference}: ${messageOf(error)}`, { cause: error });
        await sleep(backoffMs(attempt, { baseMs: 2000, capMs: 120_000, floorMs: 500 }));
      }
    }
  }
}
