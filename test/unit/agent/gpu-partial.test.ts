// nvidia-smi tells of some GPUs and stops at a bad one, or refuses as a whole because of it: the others are asked by
// themselves, and only the own answer of a device makes it lost.
import { describe, expect, onTestFinished, test } from 'vitest';
import { conditionOf } from '#shared/domain/conditions.ts';
import { NvidiaSmi } from '../../../agent/devices/nvidia-smi.ts';
import type { AskTool } from '../../../agent/devices/smi-program.ts';
import { GpuHost } from '../../helpers/gpu-host.ts';
import { aGpu, askFake, gpuUuid } from '../../helpers/gpus.ts';

const EIGHT = Array.from({ length: 8 }, (_, index) => aGpu(index));
const BAD = 3;
const BUS = String(EIGHT[BAD]?.['pci.bus_id']);
const states = (bad: string): Record<string, string> =>
  Object.fromEntries(EIGHT.map(({ uuid }, index) => [uuid, index === BAD ? bad : 'healthy']));

interface Fault {
  readonly exitCode: number;
  readonly words: string;
  /** Rows of the devices before the bad one are printed. */
  readonly rows: boolean;
  /** The message goes to the standard output. */
  readonly out?: boolean;
  /** No message at all. */
  readonly mute?: boolean;
}

/** A host of eight whose tool has that fault from `breaks` on. */
async function host(fault: Fault, gpus: readonly (typeof EIGHT)[number][] = EIGHT) {
  const made = new GpuHost({ gpus });
  const whole = made.nvidia;
  let isBroken = false;
  const say = `Unable to determine the device handle for GPU${BUS}: ${fault.words}\n`;
  const ask: AskTool = async (args, id, deadlineMs) => {
    const answer = await askFake(
      () => whole.now,
      (all) => made.asked.push(all.join(' ')),
    )(args, id, deadlineMs);
    if (!isBroken || answer.kind !== 'done') return answer;
    const end = (exitCode: number, rows: string) =>
      ({
        kind: 'done',
        exitCode,
        stdout: fault.out === true ? rows + say : rows,
        stderr: fault.out === true || fault.mute === true ? '' : say,
      }) as const;
    if (id === gpuUuid(BAD))
      return fault.mute === true ? { ...end(6, 'No devices were found\n') } : end(fault.exitCode || 255, '');
    if (id !== '') return answer;
    const lines = answer.stdout.split('\n');
    const at = args.includes('-L') ? lines.findIndex((line) => line.startsWith(`GPU ${BAD}:`)) : BAD;
    return end(fault.exitCode, fault.rows ? `${lines.slice(0, at).join('\n')}\n` : '');
  };
  made.parts = { smi: new NvidiaSmi(ask) };
  onTestFinished(() => made.close());
  await made.start();
  return { host: made, breaks: (broken = true) => (isBroken = broken) };
}

describe('one GPU at which nvidia-smi stops', () => {
  test.each<[string, Fault, string]>([
    ['with 255', { exitCode: 255, words: 'Unknown Error', rows: true }, 'lost'],
    ['with 15', { exitCode: 15, words: 'GPU is lost.  Reboot the system to recover this GPU', rows: true }, 'lost'],
    ['with 0 and a message', { exitCode: 0, words: 'Unknown Error', rows: true, out: true }, 'lost'],
    ['with 0 and no message', { exitCode: 0, words: '', rows: true, mute: true }, 'lost'],
    ['with 1 and no message', { exitCode: 1, words: '', rows: true, mute: true }, 'lost'],
    [
      'with 4 for a device node of one card',
      { exitCode: 4, words: 'Insufficient Permissions', rows: false },
      'suspect',
    ],
    ['with 4 after rows', { exitCode: 4, words: 'Insufficient Permissions', rows: true }, 'suspect'],
    ['with 9 and its bus id', { exitCode: 9, words: 'Driver Not Loaded', rows: false }, 'lost'],
  ])('%s is out alone, and containers of the others go on', async (_name, fault, bad) => {
    const { host: one, breaks } = await host(fault);
    await one.are(states('healthy'));
    for (const index of [0, 5]) expect(await one.runs(`c${index}`, gpuUuid(index))).toBeUndefined();
    breaks();
    await one.are(states(bad));
    await one.looks(20);
    expect(one.states()).toEqual(states(bad));
    expect(one.faults).toEqual([]);
    await one.ends('c5');
    expect(await one.runs('next', gpuUuid(5), gpuUuid(6))).toBeUndefined();
    breaks(false);
    await one.are(states('healthy'));
  });

  test('leaves the slices of the others healthy', async () => {
    const slices = (index: number) =>
      [1, 2].map((number) => ({
        profile: '3g.40gb',
        uuid: `MIG-00000000-0000-4000-8000-00000000${index}00${number}`,
        instance: number,
      }));
    const divided = EIGHT.map((gpu, index) => ({ ...gpu, 'mig.mode.current': 'Enabled', slices: slices(index) }));
    const all = (bad: string) =>
      Object.fromEntries(
        divided.flatMap((gpu, index) => gpu.slices.map(({ uuid }) => [uuid, index === BAD ? bad : 'healthy'])),
      );
    const { host: one, breaks } = await host({ exitCode: 0, words: 'Unknown Error', rows: true, out: true }, divided);
    await one.are(all('healthy'));
    await one.runs('c5', slices(5)[0]?.uuid ?? '');
    breaks();
    await one.are(all('lost'));
    await one.looks(20);
    expect(one.states()).toEqual(all('lost'));
    expect(one.faults).toEqual([]);
  });
});

test('a GPU with a container is lost after two looks that do not show it, and one look is no fault', async () => {
  const one = new GpuHost({ gpus: EIGHT });
  onTestFinished(() => one.close());
  await one.start();
  await one.are(states('healthy'));
  await one.runs('c3', gpuUuid(BAD));
  const smi = one.smi();
  let gone = 0;
  const list = smi.list.bind(smi);
  smi.list = async (known) => {
    const listing = await list(known);
    if (gone === 0 || listing.kind !== 'listed') return listing;
    gone -= 1;
    return { ...listing, rows: listing.rows.filter(({ uuid }) => uuid !== gpuUuid(BAD)) };
  };
  await one.start({ smi });
  for (const times of [1, 1]) {
    gone = times;
    await one.looks(4);
    expect(one.states()).toEqual(states('healthy'));
  }
  expect(one.faults).toEqual([]);
  gone = 2;
  await one.looks(6);
  expect(one.faults).toEqual(['c3']);
});

test('applications that break two GPUs of a host close it for nobody else', async () => {
  const one = new GpuHost({ gpus: EIGHT });
  onTestFinished(() => one.close());
  await one.start();
  await one.are(states('healthy'));
  await one.runs('c0', gpuUuid(0), gpuUuid(1));
  for (const index of [0, 1]) one.nvidia.xid(index, 48);
  await one.are({ ...states('healthy'), [gpuUuid(0)]: 'unhealthy', [gpuUuid(1)]: 'unhealthy' });
  expect(one.conditions.names.filter((name) => conditionOf(name)?.blocks !== false)).toEqual([]);
});

describe('a row of which fields cannot be read', () => {
  const slices = [1, 2].map((number) => ({
    profile: '3g.40gb',
    uuid: `MIG-00000000-0000-4000-8000-00000000000${number}`,
    instance: number,
  }));
  const [S1 = '', S2 = ''] = slices.map(({ uuid }) => uuid);
  const divided = (mode: string) => [aGpu(0, { 'mig.mode.current': mode, slices }), aGpu(1)];

  test.each(['[Unknown Error]', '[Insufficient Permissions]', 'ERR!', 'Enab'])(
    'of its division as %s keeps its slices, with what is known of them',
    async (mode) => {
      const one = new GpuHost({ gpus: divided('Enabled') });
      onTestFinished(() => one.close());
      await one.start();
      await one.are({ [S1]: 'healthy', [S2]: 'healthy', [gpuUuid(1)]: 'healthy' });
      await one.runs('c1', S1);
      await one.runs('c2', S2);
      one.nvidia.is({ processes: [{ gpu_uuid: S2, pid: 4_194_000 }] });
      await one.ends('c2');
      expect(one.states()[S2]).toBe('quarantined');
      one.nvidia.is({ gpus: divided(mode) });
      await one.looks(8);
      expect(one.states()).toEqual({ [S1]: 'suspect', [S2]: 'quarantined', [gpuUuid(1)]: 'healthy' });
      one.nvidia.is({ gpus: divided('Enabled') });
      await one.are({ [S1]: 'healthy', [S2]: 'quarantined', [gpuUuid(1)]: 'healthy' });
      expect(one.faults).toEqual([]);
    },
  );

  test.each(['[N/A]', '[Not Supported]', '[Function Not Found]'])(
    'because the GPU has no such thing: %s',
    async (mode) => {
      const one = new GpuHost({ gpus: EIGHT.map((gpu) => ({ ...gpu, 'mig.mode.current': mode })) });
      onTestFinished(() => one.close());
      await one.start();
      await one.are(states('healthy'));
    },
  );

  test.each(['[GPU is lost]', '[GPU requires reset]'])('%s means that the GPU is out alone', async (lost) => {
    const one = new GpuHost({ gpus: EIGHT });
    onTestFinished(() => one.close());
    await one.start();
    await one.are(states('healthy'));
    await one.runs('c3', gpuUuid(BAD));
    const fields = ['memory.total', 'memory.used', 'utilization.gpu', 'mig.mode.current', 'gpu_recovery_action'];
    const bad = Object.fromEntries(fields.map((field) => [field, lost]));
    one.nvidia.is({ gpus: EIGHT.map((gpu, index) => (index === BAD ? { ...gpu, ...bad } : gpu)) });
    await one.are(states('lost'));
    expect(one.faults).toEqual(['c3']);
    // A sensor that fails on a device that works is no fault of the device.
    one.nvidia.is({ gpus: EIGHT.map((gpu) => ({ ...gpu, 'power.draw': '[Unknown Error]' })) });
    await one.ends('c3');
    await one.are(states('healthy'));
  });
});
