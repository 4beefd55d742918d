// A dead GPU among eight, for which the tool fails as a whole: each device is judged by its own answer.
import { describe, expect, onTestFinished, test } from 'vitest';
import { NvidiaSmi } from '../../../agent/devices/nvidia-smi.ts';
import { GpuHost } from '../../helpers/gpu-host.ts';
import type { FakeDriver } from '../../helpers/gpus.ts';
import { aGpu, askFake, gpuUuid } from '../../helpers/gpus.ts';

const EIGHT = Array.from({ length: 8 }, (_, index) => aGpu(index));
const DEAD = 3;
const busOf = (index: number): string => String(EIGHT[index]?.['pci.bus_id']);
const without = (index: number) => EIGHT.map((gpu, at) => ({ index: at, ...gpu })).filter((_, at) => at !== index);
const states = (dead: string): Record<string, string> =>
  Object.fromEntries(EIGHT.map(({ uuid }, index) => [uuid, index === DEAD ? dead : 'healthy']));
const slicesOf = (index: number) =>
  [1, 2].map((number) => ({
    profile: '3g.40gb',
    uuid: `MIG-00000000-0000-4000-8000-00000000${index}00${number}`,
    instance: number,
  }));

async function host(driver: FakeDriver): Promise<GpuHost> {
  const made = new GpuHost(driver);
  onTestFinished(() => made.close());
  await made.start();
  return made;
}

describe('one GPU off the bus, for which nvidia-smi fails as a whole', () => {
  test('containers that end on the others give healthy devices back, one by one', async () => {
    const one = await host({ gpus: EIGHT });
    await one.are(states('healthy'));
    for (const index of [0, 1, 2, 4]) expect(await one.runs(`c${index}`, gpuUuid(index))).toBeUndefined();
    one.nvidia.is({ gpus: without(DEAD), brokenAll: busOf(DEAD) });
    await one.are(states('lost'));
    for (const index of [0, 1, 2, 4]) await one.ends(`c${index}`);
    await one.looks();
    expect(one.states()).toEqual(states('lost'));
    expect(await one.runs('next', gpuUuid(0), gpuUuid(1))).toBeUndefined();
    expect(one.faults).toEqual([]);
  });

  test('a process that is left on one device keeps that device alone', async () => {
    const one = await host({ gpus: EIGHT });
    await one.are(states('healthy'));
    await one.runs('c0', gpuUuid(0));
    await one.runs('c1', gpuUuid(1));
    one.nvidia.is({
      gpus: without(DEAD),
      brokenAll: busOf(DEAD),
      processes: [{ gpu_uuid: gpuUuid(1), pid: 4_194_000 }],
    });
    await one.are(states('lost'));
    await one.ends('c0');
    await one.ends('c1');
    await one.looks();
    expect(one.states()).toEqual({ ...states('lost'), [gpuUuid(1)]: 'quarantined' });
    one.nvidia.is({ processes: [] });
    await one.are(states('lost'));
  });

  test('slices of the healthy devices stay healthy, and those of the dead one are lost', async () => {
    const divided = EIGHT.map((gpu, index) => ({ ...gpu, 'mig.mode.current': 'Enabled', slices: slicesOf(index) }));
    const one = await host({ gpus: divided });
    const all = (dead: string): Record<string, string> =>
      Object.fromEntries(
        divided.flatMap(({ slices }, index) => slices.map(({ uuid }) => [uuid, index === DEAD ? dead : 'healthy'])),
      );
    await one.are(all('healthy'));
    const [first] = slicesOf(0);
    await one.runs('c0', first?.uuid ?? '');
    one.nvidia.is({ gpus: divided.filter((_, index) => index !== DEAD), brokenAll: busOf(DEAD) });
    await one.are(all('lost'));
    await one.ends('c0');
    await one.looks();
    expect(one.states()).toEqual(all('lost'));
  });
});

test('a GPU at which nvidia-smi hangs is suspect alone, and containers end on the others', async () => {
  const one = await host({ gpus: EIGHT });
  await one.are(states('healthy'));
  await one.runs('c0', gpuUuid(0));
  one.nvidia.is({ hangOne: [gpuUuid(DEAD)] });
  await one.are(states('suspect'));
  await one.ends('c0');
  await one.looks();
  expect(one.states()).toEqual(states('suspect'));
  one.nvidia.is({ hangOne: [] });
  await one.are(states('healthy'));
});

test('a tool that hangs for every device makes them suspect, and none is lost', async () => {
  const one = await host({ gpus: EIGHT });
  await one.are(states('healthy'));
  one.nvidia.is({ hang: true });
  await one.are(Object.fromEntries(EIGHT.map(({ uuid }) => [uuid, 'suspect'])));
  await one.looks();
  one.nvidia.is({ hang: false });
  await one.are(states('healthy'));
});

describe('asked one by one', () => {
  const known = Array.from({ length: 40 }, (_, index) => ({ uuid: gpuUuid(index), busId: `0000:${index + 10}:00.0` }));

  test('devices have a deadline each and all together, however many hang', async () => {
    const deadlines: number[] = [];
    const smi = new NvidiaSmi((_args, id, deadlineMs) => {
      if (id !== '') deadlines.push(deadlineMs);
      return new Promise((resolve) => setTimeout(() => resolve({ kind: 'timeout' }), deadlineMs));
    }, 60);
    const from = performance.now();
    expect(await smi.list(known)).toMatchObject({ kind: 'failed', reason: 'timeout', broken: [] });
    expect(performance.now() - from).toBeLessThan(60 * 4);
    expect(deadlines).toHaveLength(32);
    expect(Math.max(...deadlines)).toBeLessThanOrEqual(20);
  });

  test('a device that was not asked, or gave no readable answer, is silent and not gone', async () => {
    const gpus = known.map(({ uuid, busId }, index) => aGpu(index, { uuid, 'pci.bus_id': busId }));
    const smi = new NvidiaSmi(askFake(() => ({ gpus, brokenAll: known[0]?.busId ?? '', hangOne: [gpuUuid(5)] })));
    const listing = await smi.list(known);
    if (listing.kind !== 'listed') throw new Error(listing.kind);
    expect(listing.rows.length).toBe(31);
    expect([...(listing.silent ?? [])].toSorted()).toEqual(
      [known[5], ...known.slice(32)].map((one) => one?.busId ?? '').toSorted(),
    );
  });
});
