/**
 * Tests whether the engine can start anything. A refused start is the fault of its container or of the machine; a
 * container of our own image tells which. Called by starts and pause containers. Must stay true: one trial runs at a
 * time, and a
 * success counts for 30 s. A failed trial sets the condition EngineCannotStart with the engine's message, and trials
 * repeat with back-off until one works.
 */
import { randomBytes } from 'node:crypto';
import { backoffMs, sleep } from '#shared/backoff.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { PAUSE_IMAGE, ensurePauseImage } from './pause-image.ts';
import type { ContainerRuntime } from './runtime.ts';
import { EngineError } from './runtime.ts';

const TRIAL_DEADLINE_MS = 30_000;
/** Containers that never start cause at most one trial in this time. */
const WORKED_FOR_MS = 30_000;
const AGAIN = { baseMs: 2_000, capMs: 60_000, floorMs: 1_000 } as const;
const MEMORY_BYTES = 32 * 1024 * 1024;

export interface EngineTrialsParts {
  readonly runtime: ContainerRuntime;
  readonly network: string;
  readonly labels: () => Readonly<Record<string, string>>;
  readonly conditions: { set(name: 'EngineCannotStart', holds: boolean, words?: string): void };
  readonly onTrial: (result: 'ok' | 'failed' | 'unknown') => void;
  readonly log: Log;
  /** Pause between two trials while the engine starts nothing. */
  readonly again?: Parameters<typeof backoffMs>[1];
}

/** Whether the engine itself refused, or refused a part that every container needs. */
export function isRefusal(error: unknown): boolean {
  if (error instanceof EngineError) return error.failure === 'refused';
  return error instanceof Error && error.cause instanceof EngineError && error.cause.failure === 'refused';
}

export class EngineTrials {
  readonly #parts: EngineTrialsParts;
  readonly #abort = new AbortController();
  #words: string | undefined;
  #workedAtMs = Number.NEGATIVE_INFINITY;
  #trying: Promise<void> | undefined;
  #probing: Promise<void> | undefined;

  constructor(parts: EngineTrialsParts) {
    this.#parts = parts;
  }

  async close(): Promise<void> {
    this.#abort.abort();
    await Promise.all([this.#trying, this.#probing]);
  }

  /** @returns the engine's message when it starts nothing at all; undefined: the failure is its container's own */
  async blamed(error: unknown): Promise<string | undefined> {
    if (!isRefusal(error)) return undefined;
    if (this.#words === undefined && performance.now() - this.#workedAtMs > WORKED_FOR_MS) await this.#try();
    return this.#words;
  }

  #try(): Promise<void> {
    this.#trying ??= this.#tryNow().finally(() => (this.#trying = undefined));
    return this.#trying;
  }

  async #tryNow(): Promise<void> {
    const { onTrial, log } = this.#parts;
    try {
      await this.#runTrial();
    } catch (error) {
      // An engine that does not answer has its own condition; a missing image of ours is another fault.
      if (!(error instanceof EngineError) || error.failure === 'unavailable' || error.failure === 'overdue') {
        onTrial('unknown');
        log.info({ err: error }, 'the engine could not be tried');
        return;
      }
      onTrial('failed');
      this.#fails(messageOf(error));
      return;
    }
    onTrial('ok');
    this.#works();
  }

  async #runTrial(): Promise<void> {
    const { runtime, network, labels } = this.#parts;
    await ensurePauseImage(runtime);
    await runtime.ensureNetwork(network);
    const code = await runtime.runOnce(
      {
        name: `c-trial-${randomBytes(6).toString('hex')}`,
        image: PAUSE_IMAGE,
        entrypoint: ['sh', '-c', ':'],
        workingDir: '/',
        env: [],
        labels: labels(),
        mounts: [],
        network,
        memoryBytes: MEMORY_BYTES,
        cpuMillicores: 1000,
      },
      TRIAL_DEADLINE_MS,
    );
    if (code !== 0) throw new EngineError('refused', `a container that does nothing exited with ${code}`);
  }

  #fails(words: string): void {
    const { conditions, log } = this.#parts;
    if (this.#words === undefined)
      log.error({ words }, 'the engine starts no container, not even one of ours: nothing new is taken');
    this.#words = words;
    conditions.set('EngineCannotStart', true, words);
    this.#probing ??= this.#probe().finally(() => (this.#probing = undefined));
  }

  #works(): void {
    const { conditions, log } = this.#parts;
    this.#workedAtMs = performance.now();
    if (this.#words === undefined) return;
    this.#words = undefined;
    conditions.set('EngineCannotStart', false);
    log.info('the engine starts containers again');
  }

  async #probe(): Promise<void> {
    const { signal } = this.#abort;
    for (let tries = 0; this.#words !== undefined; tries += 1) {
      if (!(await sleep(backoffMs(tries, this.#parts.again ?? AGAIN), signal))) return;
      await this.#try();
    }
  }
}
