/**
 * Process metrics of a daemon, under the names that Prometheus' own libraries use. They are read when the
 * page is requested. Only the event loop's delay is sampled in between, twice a second (decision 0102).
 */
import { readFile, readdir } from 'node:fs/promises';
import { performance } from 'node:perf_hooks';
import { watchLoopLag } from './loop-lag.ts';
import type { Registry } from './metrics.ts';
import { Counter, Gauge } from './metrics.ts';

/** Finer sampling costs more than a daemon may take at rest. */
const RESOLUTION_MS = 500;

/** @returns a function that ends the sampling */
export function watchProcess(registry: Registry): () => void {
  const registers = [registry];
  let secondsBefore = 0;
  new Counter({
    name: 'process_cpu_seconds_total',
    help: 'Processor time of this process, in user mode and in the kernel.',
    registers,
    collect() {
      const { user, system } = process.cpuUsage();
      const seconds = (user + system) / 1e6;
      this.inc(seconds - secondsBefore);
      secondsBefore = seconds;
    },
  });
  new Gauge({
    name: 'process_start_time_seconds',
    help: 'When this process started.',
    registers,
  }).set(performance.timeOrigin / 1000);
  new Gauge({
    name: 'process_resident_memory_bytes',
    help: 'Memory of this process that is in RAM.',
    registers,
    collect() {
      this.set(process.memoryUsage.rss());
    },
  });
  new Gauge({
    name: 'process_open_fds',
    help: 'Open files and connections of this process.',
    registers,
    async collect() {
      const open = await readdir('/proc/self/fd').catch(() => undefined);
      // The look-up itself has one descriptor open.
      if (open !== undefined) this.set(Math.max(0, open.length - 1));
    },
  });
  new Gauge({
    name: 'process_max_fds',
    help: 'How many files and connections this process may have open.',
    registers,
    async collect() {
      const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '');
      const most = /^Max open files\s+(\d+)/m.exec(limits)?.[1];
      if (most !== undefined) this.set(Number(most));
    },
  });
  watchHeap(registers);
  return watchLoop(registers);
}

function watchHeap(registers: Registry[]): void {
  new Gauge({
    name: 'nodejs_heap_size_used_bytes',
    help: "Memory that the program's objects take.",
    registers,
    collect() {
      this.set(process.memoryUsage().heapUsed);
    },
  });
}

function watchLoop(registers: Registry[]): () => void {
  let before = performance.eventLoopUtilization();
  new Gauge({
    name: 'nodejs_eventloop_utilization',
    help: 'Share of the time in which the event loop was busy, since the page was asked for last.',
    registers,
    collect() {
      const now = performance.eventLoopUtilization();
      this.set(performance.eventLoopUtilization(now, before).utilization);
      before = now;
    },
  });
  const lag = watchLoopLag(RESOLUTION_MS);
  new Gauge({
    name: 'nodejs_eventloop_lag_max_seconds',
    help: 'The longest that the event loop was late, since the page was asked for last; what lasts less than half a second may be missed.',
    registers,
    collect() {
      this.set(lag.takeWorstMs() / 1000);
    },
  });
  return lag.end;
}
