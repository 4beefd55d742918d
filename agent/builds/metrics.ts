import type { Registry } from '#shared/metrics.ts';
import { Counter, fromZero, Gauge, Histogram, SLOW_BUCKETS } from '#shared/metrics.ts';

export const BUILD_RESULTS = ['built', 'failed', 'ended'] as const;
export type BuildResult = (typeof BUILD_RESULTS)[number];

/** Facts that are read when the page is asked for. */
export interface BuildCounts {
  readonly running: number;
  readonly waiting: number;
  readonly packagesBytes: number;
}

/** Metrics of builds on this machine. */
export class BuildMetrics {
  readonly #builds: Counter<'result'>;
  readonly #duration: Histogram<'result'>;
  readonly #wait: Histogram;
  #counts: () => BuildCounts = () => ({ running: 0, waiting: 0, packagesBytes: 0 });

  constructor(registry: Registry) {
    const registers = [registry];
    const gauge = (name: string, help: string, read: (counts: BuildCounts) => number): Gauge => {
      const made: Gauge = new Gauge({
        name: `longshore_agent_${name}`,
        help,
        registers,
        collect: () => made.set(read(this.#counts())),
      });
      return made;
    };
    this.#builds = new Counter({
      name: 'longshore_agent_builds_total',
      help: 'Builds of images that ended: built, failed (a step, a bound or the machine), ended (the scheduler or this agent left)',
      labelNames: ['result'],
      registers,
    });
    fromZero(
      this.#builds,
      BUILD_RESULTS.map((result) => ({ result })),
    );
    this.#duration = new Histogram({
      name: 'longshore_agent_build_duration_seconds',
      help: 'Builds of images from their turn to their end',
      labelNames: ['result'],
      buckets: SLOW_BUCKETS,
      registers,
    });
    this.#wait = new Histogram({
      name: 'longshore_agent_build_wait_seconds',
      help: 'Builds of images from their order to their turn',
      buckets: SLOW_BUCKETS,
      registers,
    });
    gauge('builds_active', 'Builds of images that run', ({ running }) => running);
    gauge('builds_waiting', 'Builds of images that wait for their turn', ({ waiting }) => waiting);
    gauge(
      'build_packages_bytes',
      'Downloaded packages that are kept for builds, as of the end of the last build',
      ({ packagesBytes }) => packagesBytes,
    );
  }

  /** Sets the function that is called at each request of the page. */
  onCollect(counts: () => BuildCounts): void {
    this.#counts = counts;
  }

  began(waitedMs: number): void {
    this.#wait.observe(waitedMs / 1000);
  }

  ended(result: BuildResult, durationMs: number): void {
    this.#builds.inc({ result });
    this.#duration.observe({ result }, durationMs / 1000);
  }
}
