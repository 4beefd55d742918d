import type { Registry } from '#shared/metrics.ts';
import { Counter, fromZero, Gauge } from '#shared/metrics.ts';

/** Metrics of streamed calls at this replica. */
export class StreamMetrics {
  readonly active: Gauge<'protocol'>;
  readonly bytes: Counter<'direction'>;
  readonly ended: Counter<'protocol' | 'result'>;
  readonly full: Counter<'bound'>;

  constructor(registry: Registry) {
    const registers = [registry];
    this.active = new Gauge({
      name: 'longshore_scheduler_streams_active',
      help: 'Streamed calls whose callers are connected here.',
      labelNames: ['protocol'],
      registers,
    });
    for (const protocol of ['http', 'websocket']) this.active.set({ protocol }, 0);
    this.bytes = new Counter({
      name: 'longshore_scheduler_stream_bytes_total',
      help: 'Bytes of bodies and messages of streamed calls: in (from callers), out (to callers).',
      labelNames: ['direction'],
      registers,
    });
    fromZero(this.bytes, [{ direction: 'in' }, { direction: 'out' }]);
    this.ended = new Counter({
      name: 'longshore_scheduler_streams_ended_total',
      help: 'Streamed calls that ended: whole, cut (either side went away), or answered by the platform itself.',
      labelNames: ['protocol', 'result'],
      registers,
    });
    fromZero(
      this.ended,
      ['http', 'websocket'].flatMap((protocol) => ['whole', 'cut', 'answered'].map((result) => ({ protocol, result }))),
    );
    this.full = new Counter({
      name: 'longshore_scheduler_websockets_full_total',
      help: 'WebSockets closed with 1013, since messages of callers had reached a bound.',
      labelNames: ['bound'],
      registers,
    });
    fromZero(this.full, [{ bound: 'connection' }, { bound: 'workspace' }, { bound: 'process' }]);
  }
}
