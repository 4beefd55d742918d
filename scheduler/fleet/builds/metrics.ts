import type { Registry } from '#shared/metrics.ts';
import { Counter, fromZero, Gauge, Histogram, SLOW_BUCKETS } from '#shared/metrics.ts';

const RESULTS = ['ready', 'failed', 'cut_off'] as const;
const REFUSALS = ['images', 'builds'] as const;

/** Metrics of images from definitions, in this process. */
export class BuildMetrics {
  readonly #builds: Counter<'result'>;
  readonly #refused: Counter<'bound'>;
  readonly #asked: Counter<'exists'>;
  readonly #duration: Histogram<'result'>;

  /** @param active - builds that this process has now */
  constructor(registry: Registry, active: () => number) {
    const registers = [registry];
    this.#builds = new Counter({
      name: 'longshore_scheduler_image_builds_total',
      help: 'Builds of images that ended: ready, failed, cut_off (this process or the machine left; the next caller begins it again).',
      labelNames: ['result'],
      registers,
    });
    fromZero(
      this.#builds,
      RESULTS.map((result) => ({ result })),
    );
    this.#refused = new Counter({
      name: 'longshore_scheduler_image_builds_refused_total',
      help: 'Builds that did not begin because their workspace has its number of images, or of builds at once.',
      labelNames: ['bound'],
      registers,
    });
    fromZero(
      this.#refused,
      REFUSALS.map((bound) => ({ bound })),
    );
    this.#asked = new Counter({
      name: 'longshore_scheduler_image_checks_total',
      help: 'Definitions that were asked for, by whether their image exists.',
      labelNames: ['exists'],
      registers,
    });
    this.#duration = new Histogram({
      name: 'longshore_scheduler_image_build_duration_seconds',
      help: 'Builds from their begin here to their end, with their wait on the machine.',
      labelNames: ['result'],
      buckets: SLOW_BUCKETS,
      registers,
    });
    const gauge: Gauge = new Gauge({
      name: 'longshore_scheduler_image_builds_active',
      help: 'Builds of images that this process has.',
      registers,
      collect: () => gauge.set(active()),
    });
  }

  asked(exists: boolean): void {
    this.#asked.inc({ exists: String(exists) });
  }

  refused(bound: (typeof REFUSALS)[number]): void {
    this.#refused.inc({ bound });
  }

  ended(result: (typeof RESULTS)[number], durationMs: number): void {
    this.#builds.inc({ result });
    this.#duration.observe({ result }, durationMs / 1000);
  }
}
