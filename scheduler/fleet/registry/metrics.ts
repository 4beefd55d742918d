import { Counter, Gauge, fromZero } from '#shared/metrics.ts';
import type { Registry } from '#shared/metrics.ts';

export const REQUEST_RESULTS = ['ok', 'refused', 'missing', 'failed'] as const;

/** Metrics of the managed registry, as the scheduler sees it. */
export class RegistryMetrics {
  readonly requests: Counter<'action' | 'result'>;
  readonly bytes: Counter<'direction'>;
  readonly connections: Gauge;
  readonly pushes: Counter<'result'>;
  readonly rebuilds: Counter<'result'>;
  readonly removed: Counter;

  constructor(registry: Registry) {
    const registers = [registry];
    this.requests = new Counter({
      name: 'longshore_scheduler_registry_requests_total',
      help: 'Requests of machines for the managed registry, by what their token permits (none: without a valid one).',
      labelNames: ['action', 'result'],
      registers,
    });
    fromZero(
      this.requests,
      ['pull', 'push', 'none'].flatMap((action) => REQUEST_RESULTS.map((result) => ({ action, result }))),
    );
    this.bytes = new Counter({
      name: 'longshore_scheduler_registry_bytes_total',
      help: 'Bytes of images that went through this scheduler: in to the registry, out to machines.',
      labelNames: ['direction'],
      registers,
    });
    fromZero(this.bytes, [{ direction: 'in' }, { direction: 'out' }]);
    this.connections = new Gauge({
      name: 'longshore_scheduler_registry_connections',
      help: 'Connections of machines for the managed registry.',
      registers,
    });
    this.pushes = new Counter({
      name: 'longshore_scheduler_image_pushes_total',
      help: 'Pushes of built images to the managed registry, when they end.',
      labelNames: ['result'],
      registers,
    });
    fromZero(
      this.pushes,
      ['ok', 'failed'].map((result) => ({ result })),
    );
    this.rebuilds = new Counter({
      name: 'longshore_scheduler_image_rebuilds_total',
      help: 'Builds of images that a container wanted and no machine had, when they end.',
      labelNames: ['result'],
      registers,
    });
    fromZero(
      this.rebuilds,
      ['ok', 'failed'].map((result) => ({ result })),
    );
    this.removed = new Counter({
      name: 'longshore_scheduler_registry_images_removed_total',
      help: 'Images that left the managed registry because no row has them.',
      registers,
    });
  }
}
