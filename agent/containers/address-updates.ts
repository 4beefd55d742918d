/**
 * Closes new addresses of this machine to containers that run. A Docker network that somebody makes gives the machine
 * an address, on which its services listen. The engine's events tell of networks at once; a look every 15 s finds all
 * other addresses. A program in each pause container then replaces the closed ranges of its filter.
 */
import { backoffMs, sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import { Limiter } from './limiter.ts';
import type { FilterTable } from './network-filter.ts';
import type { ContainerRuntime } from './runtime.ts';

const LOOK_MS = 15_000;
const UPDATE_DEADLINE_MS = 10_000;
/** Updates at once: they must not compete with starts of containers. */
const UPDATES_AT_ONCE = 2;
/** The text of the rules is the program's own name, `$0`. */
const PROGRAM = ['sh', '-c', 'printf %s "$0" | nft -f -'];

/** A pause container whose filter can be behind. */
export interface Filtered {
  readonly dockerId: string;
  /** A key of the closed ranges in its filter. */
  closed: string;
  readonly tables: readonly FilterTable[];
}

export interface AddressUpdatesParts {
  readonly runtime: Pick<ContainerRuntime, 'exec' | 'watchNetworks'>;
  readonly log: Log;
  /** The key of the ranges that are closed now. */
  readonly closedNow: () => string;
  /** Pause containers of workloads. */
  readonly serving: () => readonly Filtered[];
  /** The transaction that brings this pause container's filter up to date. */
  readonly update: (one: Filtered) => string;
}

/** Runs a transaction of `nft` in a pause container. @throws Error where it was refused: nothing has changed then */
export async function setRules(runtime: Pick<ContainerRuntime, 'exec'>, dockerId: string, text: string): Promise<void> {
  const { exitCode, output } = await runtime.exec(dockerId, [...PROGRAM, text], UPDATE_DEADLINE_MS);
  if (exitCode !== 0) throw new Error(output.slice(0, 500) || `nft ended with code ${exitCode}`);
}

export class AddressUpdates {
  readonly #parts: AddressUpdatesParts;
  readonly #abort = new AbortController();
  readonly #limiter = new Limiter(UPDATES_AT_ONCE);
  #running: Promise<void> | undefined;
  #again = false;
  #work: Promise<unknown> = Promise.resolve();

  constructor(parts: AddressUpdatesParts) {
    this.#parts = parts;
  }

  start(): void {
    const { signal } = this.#abort;
    this.#work = Promise.all([this.look(), this.#lookOften(signal), this.#watch(signal)]);
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    await Promise.all([this.#work, this.#running]);
  }

  /** Brings every filter up to date. A call during another one is one more round after it. */
  async look(): Promise<void> {
    this.#again = true;
    this.#running ??= this.#rounds()
      .catch((error: unknown) => this.#parts.log.warn({ err: error }, 'addresses of this machine could not be read'))
      .finally(() => (this.#running = undefined));
    await this.#running;
  }

  async #rounds(): Promise<void> {
    while (this.#again && !this.#abort.signal.aborted) {
      this.#again = false;
      const { closedNow, serving } = this.#parts;
      const closed = closedNow();
      const behind = serving().filter((one) => one.closed !== closed);
      await Promise.all(behind.map((one) => this.#limiter.run(() => this.#bring(one, closed))));
    }
  }

  async #bring(one: Filtered, closed: string): Promise<void> {
    const { runtime, serving, update, log } = this.#parts;
    try {
      await setRules(runtime, one.dockerId, update(one));
      one.closed = closed;
      log.info({ holder: one.dockerId }, 'new addresses of this machine are closed to a container');
    } catch (error) {
      // The container has ended meanwhile, or the next look tries again.
      if (serving().includes(one))
        log.warn({ err: error, holder: one.dockerId }, 'new addresses of this machine are still open to a container');
    }
  }

  async #lookOften(signal: AbortSignal): Promise<void> {
    while (await sleep(LOOK_MS, signal)) await this.look();
  }

  /** Follows networks of the engine. A gap is followed by a look. */
  async #watch(signal: AbortSignal): Promise<void> {
    for (let tries = 0; !signal.aborted; tries += 1) {
      const from = performance.now();
      const look = (): void => void this.look();
      try {
        await this.#parts.runtime.watchNetworks(look, signal);
      } catch (error) {
        if (!signal.aborted) this.#parts.log.info({ err: error }, "the engine's stream of networks ended");
      }
      if (performance.now() - from > LOOK_MS) tries = 0;
      if (!(await sleep(backoffMs(tries, { baseMs: 200, capMs: 10_000, floorMs: 100 }), signal))) return;
      look();
    }
  }
}
