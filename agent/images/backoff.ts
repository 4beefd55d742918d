import { backoffMs, sleep } from '#shared/backoff.ts';

export interface BackoffSettings {
  readonly baseMs: number;
  readonly capMs: number;
}

/** Registries whose failures are remembered; the oldest goes first. */
const MAX_REGISTRIES = 256;

/** A registry that failed is left alone for a while, by every pull from it. */
export class RegistryBackoff {
  readonly #settings: BackoffSettings;
  readonly #failed = new Map<string, { tries: number; untilMs: number }>();

  constructor(settings: BackoffSettings) {
    this.#settings = settings;
  }

  /** Returns when the registry may be asked again. */
  async pass(registry: string, signal: AbortSignal): Promise<void> {
    for (;;) {
      const waitMs = (this.#failed.get(registry)?.untilMs ?? 0) - performance.now();
      if (waitMs <= 0 || signal.aborted) return;
      await sleep(waitMs, signal);
    }
  }

  /** Pulls that fail together are one failure. */
  failed(registry: string): void {
    const nowMs = performance.now();
    const before = this.#failed.get(registry);
    if (before !== undefined && before.untilMs > nowMs) return;
    const tries = before?.tries ?? 0;
    this.#failed.delete(registry);
    this.#failed.set(registry, { tries: tries + 1, untilMs: nowMs + backoffMs(tries, this.#settings) });
    const [oldest] = this.#failed.keys();
    if (this.#failed.size > MAX_REGISTRIES && oldest !== undefined) this.#failed.delete(oldest);
  }

  worked(registry: string): void {
    this.#failed.delete(registry);
  }
}
