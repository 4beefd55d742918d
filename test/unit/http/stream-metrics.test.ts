import { expect, test } from 'vitest';
import { StreamMetrics } from '../../../scheduler/api/http/streams/metrics.ts';
import { Registry } from '#shared/metrics.ts';

const bytesOf = async (registry: Registry): Promise<string[]> =>
  (await registry.metrics()).split('\n').filter((line) => line.startsWith('longshore_scheduler_stream_bytes_total'));

test('bytes are shown from zero, and each once however often they are collected', async () => {
  const registry = new Registry();
  const metrics = new StreamMetrics(registry);
  expect(await bytesOf(registry)).toEqual([
    'longshore_scheduler_stream_bytes_total{direction="in"} 0',
    'longshore_scheduler_stream_bytes_total{direction="out"} 0',
  ]);
  metrics.countBytes('in', 5);
  metrics.countBytes('in', 7);
  metrics.countBytes('out', 3);
  await bytesOf(registry);
  metrics.countBytes('out', 1);
  expect(await bytesOf(registry)).toEqual([
    'longshore_scheduler_stream_bytes_total{direction="in"} 12',
    'longshore_scheduler_stream_bytes_total{direction="out"} 4',
  ]);
});
