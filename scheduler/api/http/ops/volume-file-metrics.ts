import type { Registry } from '#shared/metrics.ts';
import { Counter, fromZero, Gauge } from '#shared/metrics.ts';

const PURPOSES = ['get', 'put'] as const;
const RESULTS = ['whole', 'cut', 'failed'] as const;

/** Metrics of transfers of volume files at this replica. */
export class VolumeFileMetrics {
  readonly active: Gauge<'purpose'>;
  readonly bytes: Counter<'direction'>;
  readonly ended: Counter<'purpose' | 'result'>;

  constructor(registry: Registry) {
    const registers = [registry];
    this.active = new Gauge({
      name: 'longshore_scheduler_volume_transfers_active',
      help: 'Transfers of volume files whose callers are connected here.',
      labelNames: ['purpose'],
      registers,
    });
    for (const purpose of PURPOSES) this.active.set({ purpose }, 0);
    this.bytes = new Counter({
      name: 'longshore_scheduler_volume_file_bytes_total',
      help: 'Bytes of volume files: in (from callers), out (to callers).',
      labelNames: ['direction'],
      registers,
    });
    fromZero(this.bytes, [{ direction: 'in' }, { direction: 'out' }]);
    this.ended = new Counter({
      name: 'longshore_scheduler_volume_transfers_ended_total',
      help: 'Transfers of volume files: answered whole, cut (either side went away), or failed before an answer.',
      labelNames: ['purpose', 'result'],
      registers,
    });
    fromZero(
      this.ended,
      PURPOSES.flatMap((purpose) => RESULTS.map((result) => ({ purpose, result }))),
    );
  }
}
