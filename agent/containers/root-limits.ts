// Finds out whether the engine itself limits writes to containers' roots. Some storage drivers can (overlay2 over xfs
// with project quotas); the others refuse to create such a container.
import type { Log } from '#shared/log.ts';
import { PAUSE_IMAGE } from './pause-image.ts';
import type { ContainerRuntime } from './runtime.ts';

export interface RootLimitsParts {
  readonly runtime: Pick<ContainerRuntime, 'canLimitRoots'>;
  readonly labels: () => Readonly<Record<string, string>>;
  readonly wanted: boolean;
  readonly log: Log;
}

export class RootLimits {
  readonly #parts: RootLimitsParts;
  #has = false;

  constructor(parts: RootLimitsParts) {
    this.#parts = parts;
  }

  /** Whether the engine limits roots; false until known. */
  get has(): boolean {
    return this.#has;
  }

  /** Asks the engine, once. Without an engine limit the agent counts the written bytes itself. */
  async ask(): Promise<void> {
    const { runtime, labels, wanted, log } = this.#parts;
    if (!wanted) return;
    try {
      this.#has = await runtime.canLimitRoots(PAUSE_IMAGE, labels());
      if (this.#has) log.info('the engine limits what containers write to their roots');
    } catch (error) {
      log.info({ err: error }, 'it is not known whether the engine can limit roots; what containers write is counted');
    }
  }
}
