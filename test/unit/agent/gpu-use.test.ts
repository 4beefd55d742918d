// GPU use of a container: how the devices' numbers become the container's, missing numbers, and the cost of asking.
import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { createLog } from '#shared/log.ts';
import { DeviceTable } from '../../../agent/devices/device-table.ts';
import { deviceSamples, gpuUseOf } from '../../../agent/devices/gpu-use.ts';
import { Gpus } from '../../../agent/devices/gpus.ts';
import { NO_SLICES, NvidiaSmi } from '../../../agent/devices/nvidia-smi.ts';
import { GPU_FIELDS, parseListing, parseSlices } from '../../../agent/devices/parse.ts';
import type { Listing } from '../../../agent/devices/parse.ts';
import { AgentMetrics } from '../../../agent/telemetry/metrics.ts';
import type { FakeGpu } from '../../helpers/gpus.ts';
import { GpuHost } from '../../helpers/gpu-host.ts';
import { FakeNvidia, aGpu, gpuUuid } from '../../helpers/gpus.ts';

const MIB = 1024 * 1024;

/** The tool's listing of these devices. */
function listed(gpus: readonly FakeGpu[]): Listing {
  const rows = gpus.map((gpu, index) => {
    const values: Readonly<Record<string, unknown>> = { index, ...gpu };
    return GPU_FIELDS.map((field) => `${(values[field] as string | number | undefined) ?? '[N/A]'}`).join(', ');
  });
  return parseListing(GPU_FIELDS, { exitCode: 0, stdout: `${rows.join('\n')}\n`, stderr: '' });
}

function tableOf(gpus: readonly FakeGpu[], slices = ''): DeviceTable {
  const table = new DeviceTable([], () => -1);
  table.take(listed(gpus), { found: parseSlices(slices).slices, silent: new Set() }, new Set());
  return table;
}

const useIn = (table: DeviceTable, uuids: readonly string[]) => gpuUseOf(uuids.map((uuid) => table.get(uuid)));
const busy = (index: number, utilization: number, usedMib: number, watts: number): FakeGpu =>
  aGpu(index, { 'utilization.gpu': utilization, 'memory.used': usedMib, 'power.draw': watts });

describe('the GPU use of a container', () => {
  test('is the mean utilization of its devices, and the sums of their memory and power; those of others do not count', () => {
    const table = tableOf([busy(0, 90, 1000, 300.5), busy(1, 35, 3000, 99.5), busy(2, 100, 80_000, 700)]);
    expect(useIn(table, [gpuUuid(0), gpuUuid(1)])).toEqual({
      devices: 2,
      utilizationPct: 62.5,
      memoryUsedBytes: 4000 * MIB,
      memoryTotalBytes: 2 * 81_559 * MIB,
      powerWatts: 400,
    });
  });

  test('is none without a device', () => {
    expect(useIn(tableOf([aGpu(0)]), [])).toBeUndefined();
  });

  test('of an idle device is 0, and of one that does not tell is absent', () => {
    expect(useIn(tableOf([busy(0, 0, 0, 0)]), [gpuUuid(0)])).toMatchObject({ utilizationPct: 0, powerWatts: 0 });
    const silent = { 'utilization.gpu': '[N/A]', 'power.draw': '[Unknown Error]' };
    const table = tableOf([busy(0, 50, 10, 100), aGpu(1, silent)]);
    // Figures for half of the devices are no use of the container.
    expect(useIn(table, [gpuUuid(0), gpuUuid(1)])).toEqual({
      devices: 2,
      memoryUsedBytes: 11 * MIB,
      memoryTotalBytes: 2 * 81_559 * MIB,
    });
  });

  test('of MIG slices is the memory that they have, and nothing else', () => {
    const slices = [
      `GPU 0: NVIDIA H100 (UUID: ${gpuUuid(0)})`,
      '  MIG 3g.40gb     Device  0: (UUID: MIG-a)',
      '  MIG 1g.10gb     Device  1: (UUID: MIG-b)',
    ].join('\n');
    const table = tableOf([aGpu(0, { 'mig.mode.current': 'Enabled', 'utilization.gpu': 70 })], slices);
    expect(useIn(table, ['MIG-a'])).toEqual({ devices: 1, memoryTotalBytes: 40 * 1024 * MIB });
    expect(useIn(table, ['MIG-a', 'MIG-b'])).toEqual({ devices: 2, memoryTotalBytes: 50 * 1024 * MIB });
  });

  test.each<[string, Listing]>([
    ['does not answer', { kind: 'failed', reason: 'timeout', text: 'no answer', broken: [] }],
    ['does not list the device', listed([aGpu(1)])],
  ])('is not that of before when the tool %s', (_case, answer) => {
    const table = tableOf([busy(0, 90, 1000, 300), aGpu(1)]);
    table.take(answer, NO_SLICES, new Set([gpuUuid(0)]));
    expect(useIn(table, [gpuUuid(0)])).toEqual({ devices: 1, memoryTotalBytes: 81_559 * MIB });
  });
});

test('each device has a sample of its own, without what the tool does not tell', () => {
  const table = tableOf([busy(0, 82, 40_000, 512.4), aGpu(1, { 'utilization.gpu': '[N/A]', 'power.draw': '[N/A]' })]);
  expect(deviceSamples(table.all())).toEqual([
    {
      uuid: gpuUuid(0),
      utilizationPermille: 820,
      memoryUsedBytes: 40_000 * MIB,
      powerWatts: 512,
      temperatureCelsius: 31,
    },
    { uuid: gpuUuid(1), memoryUsedBytes: MIB, temperatureCelsius: 31 },
  ]);
});

test('samples of devices are told once after each look', async () => {
  const host = new GpuHost({ gpus: [aGpu(0), aGpu(1)] });
  onTestFinished(() => host.close());
  await host.start();
  const told = await vi.waitFor(() => {
    const samples = host.gpus.newSamples();
    expect(samples).toHaveLength(2);
    return samples;
  });
  expect(told.map(({ uuid }) => uuid)).toEqual([gpuUuid(0), gpuUuid(1)]);
  host.nvidia.is({ gpus: [aGpu(0, { 'utilization.gpu': 50 }), aGpu(1)] });
  await vi.waitFor(() => expect(host.gpus.newSamples()[0]).toMatchObject({ utilizationPermille: 500 }));
  await host.gpus.stop();
  host.gpus.newSamples();
  expect(host.gpus.newSamples()).toEqual([]);
});

test('the tool runs once for each look at eight GPUs, however often their use is asked for', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'lsg-'));
  const edge = join(directory, 'edge');
  await mkdir(edge);
  const nvidia = new FakeNvidia(edge, { gpus: Array.from({ length: 8 }, (_, index) => aGpu(index)) });
  const uuids = nvidia.now.gpus.map(({ uuid }) => uuid);
  const metrics = new AgentMetrics();
  const gpus = new Gpus({
    smi: new NvidiaSmi(nvidia.tool),
    stateDir: directory,
    bootId: 'boot',
    excluded: [],
    kernelLog: nvidia.kernelLog,
    probeEveryMs: 50,
    metrics,
    log: createLog({ name: 'test', level: 'silent' }),
    leaseOwners: () => uuids.map((uuid) => ({ containerId: uuid, epoch: 1, dockerId: uuid, gpuUuids: [uuid] })),
    running: () => [],
    askInside: () => Promise.resolve({ kind: 'cannot' }),
    probe: () => Promise.resolve({ kind: 'passed', text: '' }),
    onLook: () => undefined,
    reset: () => Promise.resolve(),
    conditions: { set: () => undefined },
  });
  try {
    await gpus.open();
    gpus.start();
    const looks = async (): Promise<number> => {
      for (const uuid of uuids) expect(gpus.useOf([uuid])).toMatchObject({ devices: 1, utilizationPct: 0 });
      return Number(/gpu_probe_duration_seconds_count (\d+)/.exec(await metrics.registry.metrics())?.[1]);
    };
    await vi.waitFor(async () => expect(await looks()).toBeGreaterThanOrEqual(3), { timeout: 20_000 });
    await gpus.stop();
    const all = (await readFile(nvidia.calls, 'utf8')).trim().split('\n');
    // The links of the devices are asked for once.
    const calls = all.filter((call) => call !== 'topo -m');
    expect(all.length - calls.length).toBe(1);
    expect(calls.length - (await looks())).toBeLessThanOrEqual(1);
    for (const call of calls) expect(call).toMatch(/^--query-gpu=\S+ --format=csv,noheader,nounits$/);
  } finally {
    await gpus.stop();
    await rm(directory, { recursive: true });
  }
});

test('the compute capability is reported and outlives a restart; an old driver does not tell it', async () => {
  const gpus = [aGpu(0, { compute_cap: '9.0' }), aGpu(1, { compute_cap: '[N/A]' })];
  const host = new GpuHost({ gpus });
  onTestFinished(() => host.close());
  const caps = () => host.gpus.report().map(({ computeCap }) => computeCap);
  await host.start();
  expect(caps()).toEqual(['9.0', '']);
  host.nvidia.is({ hang: true });
  await host.start();
  expect(caps()).toEqual(['9.0', '']);
  host.nvidia.is({ hang: false, unknownFields: ['compute_cap'] });
  await host.start();
  expect(caps()).toEqual(['', '']);
});
