import { backoffMs, sleep } from '#shared/backoff.ts';

export interface BackoffSettings {
  readonly baseMs: number;
  readonly capMs: number;
}

/** Bound on registries with remembered failures; the oldest goes first. */
const MAX_REGISTRIES = 256;

/** Back-off per registry: after a failure, every pull from that registry waits. */
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

  /** Notes a failure; pulls that fail together count as one. */
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
