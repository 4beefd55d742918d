import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { Registry } from '#shared/metrics.ts';
import { watchProcess } from '#shared/process-metrics.ts';

const DOCS = readFileSync(join(resolve(import.meta.dirname, '..', '..', '..'), 'docs', 'metrics.md'), 'utf8');

test('a page says what its process takes, in few series, and the documents name each of them', async () => {
  const registry = new Registry();
  const end = watchProcess(registry);
  try {
    await registry.metrics();
    const untilMs = performance.now() + 50;
    while (performance.now() < untilMs);
    const series = new Map(
      (await registry.metrics())
        .split('\n')
        .filter((line) => line !== '' && !line.startsWith('#'))
        .map((line): [string, number] => [line.split(' ')[0] ?? '', Number(line.split(' ')[1])]),
    );
    const { user, system } = process.cpuUsage();
    expect(series.get('process_cpu_seconds_total')).toBeCloseTo((user + system) / 1e6, 0);
    expect(series.get('process_start_time_seconds')).toBeLessThanOrEqual(Date.now() / 1000);
    expect(series.get('process_start_time_seconds')).toBeGreaterThan(Date.now() / 1000 - 86_400);
    expect(series.get('process_resident_memory_bytes')).toBeGreaterThan(1e7);
    expect(series.get('process_open_fds')).toBeGreaterThan(2);
    expect(series.get('process_max_fds')).toBeGreaterThan(series.get('process_open_fds') ?? 0);
    expect(series.get('nodejs_heap_size_used_bytes')).toBeGreaterThan(1e6);
    // The process was busy for nearly all of the time since the page before.
    expect(series.get('nodejs_eventloop_utilization')).toBeGreaterThan(0.5);
    expect(series.get('nodejs_eventloop_lag_max_seconds')).toBeGreaterThanOrEqual(0);
    expect(series.size).toBeLessThanOrEqual(10);
    for (const name of series.keys()) expect(DOCS).toContain(`| \`${name}\` |`);
  } finally {
    end();
  }
});
