import type { Registry } from '#shared/metrics.ts';
import { Counter, fromZero, Gauge } from '#shared/metrics.ts';

/** Metrics of streamed calls at this replica. */
export class StreamMetrics {
  readonly active: Gauge<'protocol'>;
  readonly ended: Counter<'protocol' | 'result'>;
  readonly full: Counter<'bound'>;
  /** Bytes since the last collection: a counter with labels costs too much for each chunk. */
  readonly #passed = { in: 0, out: 0 };

  constructor(registry: Registry) {
    const registers = [registry];
    this.active = new Gauge({
      name: 'longshore_scheduler_streams_active',
      help: 'Streamed calls whose callers are connected here.',
      labelNames: ['protocol'],
      registers,
    });
    for (const protocol of ['http', 'websocket']) this.active.set({ protocol }, 0);
    const passed = this.#passed;
    new Counter({
      name: 'longshore_scheduler_stream_bytes_total',
      help: 'Bytes of bodies and messages of streamed calls: in (from callers), out (to callers).',
      labelNames: ['direction'],
      registers,
      collect() {
        for (const direction of ['in', 'out'] as const) {
          this.inc({ direction }, passed[direction]);
          passed[direction] = 0;
        }
      },
    });
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
  /** Counts bytes of bodies and messages. @param direction - from or to the caller */
  countBytes(direction: 'in' | 'out', count: number): void {
    this.#passed[direction] += count;
  }
}
