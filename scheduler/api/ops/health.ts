// Whether traffic may come here: every store is asked, at most
// once in a while. The routes are in http/ops/health-page.ts.
import type { Clock } from '#shared/clock.ts';
import { systemClock } from '#shared/clock.ts';
import { withDeadline } from '#shared/backoff.ts';

export type HealthChecks = Readonly<Record<string, () => Promise<unknown>>>;

const CHECK_DEADLINE_MS = 2_000;
/** Life of an answer, so that probes cost nothing. */
const FRESH_MS = 1_000;

export class Readiness {
  readonly #checks: HealthChecks;
  readonly #clock: Clock;
  #last: { readonly atMs: number; readonly failing: Promise<readonly string[]> } | undefined;

  constructor(checks: HealthChecks, clock: Clock = systemClock) {
    this.#checks = checks;
    this.#clock = clock;
  }

  /** Names of the stores that do not answer; empty: ready. */
  failing(): Promise<readonly string[]> {
    const nowMs = this.#clock.monotonicMs();
    if (this.#last !== undefined && nowMs - this.#last.atMs < FRESH_MS) return this.#last.failing;
    this.#last = { atMs: nowMs, failing: this.#ask() };
    return this.#last.failing;
  }

  async #ask(): Promise<readonly string[]> {
    const entries = Object.entries(this.#checks);
    const results = await Promise.allSettled(
      entries.map(([name, check]) => withDeadline(check(), CHECK_DEADLINE_MS, () => new Error(`${name} is silent`))),
    );
    return entries.filter((_entry, index) => results[index]?.status === 'rejected').map(([name]) => name);
  }
}
