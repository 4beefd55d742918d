import { sleep } from '#shared/backoff.ts';
import type { RunnerSlots } from './slots.ts';

/** Time for runners to dial again after a restart of the agent; until then nothing is reported about attempts. */
const REDIAL_WAIT_MS = 1500;

/** Runner processes of containers that an earlier agent started: they dial again. */
export class AdoptedRunners {
  readonly #slots: RunnerSlots;
  #connected: Promise<void> = Promise.resolve();

  constructor(slots: RunnerSlots) {
    this.#slots = slots;
  }

  /** Begins to wait for the runner processes of these containers. */
  await(containerIds: readonly string[], signal: AbortSignal): void {
    this.#connected = this.#dialled(containerIds, signal);
  }

  /** Resolves when they have dialled again, or the time for that is over. */
  get connected(): Promise<void> {
    return this.#connected;
  }

  async #dialled(containerIds: readonly string[], signal: AbortSignal): Promise<void> {
    const until = performance.now() + REDIAL_WAIT_MS;
    while (!this.#slots.areRunnersConnected(containerIds) && performance.now() < until && (await sleep(20, signal)));
  }
}
