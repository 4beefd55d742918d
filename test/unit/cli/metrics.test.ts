// `longshore metrics`: ranges as people write them, and the tables that they get.
import { describe, expect, test } from 'vitest';
import { bar, bucketRow, poolRows, rangeOf, HEADINGS, POOL_HEADINGS } from '#cli/commands/metrics.ts';
import { CliError } from '#cli/errors.ts';
import { formatTable } from '#cli/print.ts';

const NOW = Date.parse('2026-01-01T12:00:00Z');

describe('a range', () => {
  test.for([
    ['5m', '5s', '2026-01-01T11:55:00.000Z'],
    ['30m', '30s', '2026-01-01T11:30:00.000Z'],
    ['1h', '1m', '2026-01-01T11:00:00.000Z'],
    ['24h', '1h', '2025-12-31T12:00:00.000Z'],
    ['1d', '1h', '2025-12-31T12:00:00.000Z'],
    ['8d', '6h', '2025-12-24T12:00:00.000Z'],
  ] as const)('of %s has rows of %s', ([since, interval, start]) => {
    expect(rangeOf({ since }, NOW)).toEqual({ start, end: '2026-01-01T12:00:00.000Z', interval });
  });

  test('has the interval that was given, which the scheduler judges', () => {
    expect(rangeOf({ since: '1h', interval: '7s' }, NOW).interval).toBe('7s');
  });

  test.for(['', '5', '0s', '-1h', 'yesterday', '1d2h'])('of %j is none', (since) => {
    expect(() => rangeOf({ since }, NOW)).toThrow(CliError);
  });
});

const values = (metrics: Readonly<Record<string, number>>): Readonly<Record<string, unknown>> =>
  Object.fromEntries(Object.entries(metrics).map(([name, value]) => [name, { value }]));
const GIB = 1024 ** 3;
const BUCKETS = [
  {
    key: NOW,
    doc_count: 24,
    ...values({
      container_count: 2,
      cpu_used_avg: 531.4,
      cpu_total_avg: 1000,
      memory_rss_bytes_avg: 0.75 * GIB,
      memory_total_bytes_avg: 2 * GIB,
      gpu_memory_used_bytes_avg: 40 * GIB,
      gpu_memory_total_bytes_avg: 80 * GIB,
      disk_read_bytes_per_second_avg: 0,
      disk_write_bytes_per_second_avg: 1536,
      network_recv_bytes_per_second_avg: 1024 ** 2,
      network_sent_bytes_per_second_avg: 12.4,
    }),
  },
  { key: NOW + 60_000, doc_count: 12, ...values({ container_count: 1, cpu_total_avg: 1000 }) },
];

test('a table of containers is the same for every reader, and has bars for a person', () => {
  const table = formatTable(
    HEADINGS,
    BUCKETS.map((bucket) => bucketRow(bucket, false)),
  );
  expect(`\n${table}\n`).toBe(`
TIME                  CONTAINERS  CPU EACH   MEMORY EACH           GPU MEMORY EACH       DISK READ/S  DISK WRITTEN/S  RECEIVED/S  SENT/S
2026-01-01T12:00:00Z  2           0.53 of 1  768.0 MiB of 2.0 GiB  40.0 GiB of 80.0 GiB  0 B          1.5 KiB         1.0 MiB     12 B
2026-01-01T12:01:00Z  1           0 of 1     0 B of 0 B            -                     0 B          0 B             0 B         0 B
`);
  expect(bucketRow(BUCKETS[0] ?? {}, true).slice(2, 4)).toEqual([
    '0.53 of 1 ████░░░░',
    '768.0 MiB of 2.0 GiB ███░░░░░',
  ]);
  expect([bar(0), bar(0.5), bar(1), bar(7), bar(-1)]).toEqual([
    '░░░░░░░░',
    '████░░░░',
    '████████',
    '████████',
    '░░░░░░░░',
  ]);
});

test('a table of pools', () => {
  const pool = {
    workspace_id: '',
    pool_name: 'gpu',
    machine_count: 2,
    container_count: 5,
    gpu_count: 8,
    free_gpu_count: 3,
    cpu_utilization_pct: 41.6,
    memory_utilization_pct: 12.4,
    gpu_utilization_pct: 62.5,
    disk_usage_pct: 80,
    hourly_cost: 6,
    estimated_cost: 0.1,
  };
  const point = { timestamp: NOW, pools: [pool, { ...pool, pool_name: 'default', gpu_count: 0 }] };
  expect(`\n${formatTable(POOL_HEADINGS, poolRows(point, false))}\n`).toBe(`
TIME                  POOL     MACHINES  CONTAINERS  CPU   MEMORY  DISK  GPUS FREE  COST/H  COST
2026-01-01T12:00:00Z  gpu      2         5           42 %  12 %    80 %  3 of 8     6       0.1
2026-01-01T12:00:00Z  default  2         5           42 %  12 %    80 %  -          6       0.1
`);
});
