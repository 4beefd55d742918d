// Hosts with eight GPUs, or with MIG slices, and a broken device of each kind, are replayed through ends and starts of
// containers, restarts of the engine and of the agent, and reboots. Only the broken device may be lost, and it must be
// visible.
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { outcomeOf } from '../../../agent/devices/probe-outcome.ts';
import { GpuHost } from '../../helpers/gpu-host.ts';
import type { FakeDriver, FakeGpu } from '../../helpers/gpus.ts';
import { aGpu, gpuUuid } from '../../helpers/gpus.ts';

const BAD = 3;
const COUNT = 8;
const SOON = { timeout: 15_000, interval: 5 };
type Host = 'whole' | 'mig';

const sliceUuid = (index: number, number: number): string => `MIG-00000000-0000-4000-8000-00000000${index}00${number}`;
const gpuOf = (kind: Host, index: number, facts: Readonly<Record<string, unknown>> = {}): FakeGpu => ({
  index,
  ...aGpu(index),
  ...(kind === 'whole'
    ? {}
    : {
        'mig.mode.current': 'Enabled',
        slices: [1, 2].map((number) => ({ profile: '3g.40gb', uuid: sliceUuid(index, number), instance: number })),
      }),
  ...facts,
});
const all = (kind: Host): readonly FakeGpu[] => Array.from({ length: COUNT }, (_, index) => gpuOf(kind, index));
const without = (kind: Host): readonly FakeGpu[] => all(kind).filter((_, index) => index !== BAD);
const with_ = (kind: Host, facts: Readonly<Record<string, unknown>>): readonly FakeGpu[] =>
  all(kind).map((gpu, index) => (index === BAD ? { ...gpu, ...facts } : gpu));
const bus = (index: number): string => String(aGpu(index)['pci.bus_id']);
const devicesOf = (kind: Host, index: number): readonly string[] =>
  kind === 'whole' ? [gpuUuid(index)] : [sliceUuid(index, 1), sliceUuid(index, 2)];

interface Fault {
  readonly name: string;
  /** Answers of the tool from then on. */
  readonly driver?: (kind: Host) => Partial<FakeDriver>;
  /** A line of the kernel's log. */
  readonly xid?: readonly [number, string];
  /** A boot does not end it. */
  readonly survivesBoot: boolean;
}

const FAULTS: readonly Fault[] = [
  {
    name: 'off the bus, and nvidia-smi fails as a whole',
    driver: (kind) => ({ gpus: without(kind), brokenAll: bus(BAD) }),
    survivesBoot: true,
  },
  { name: 'listed no more', driver: (kind) => ({ gpus: without(kind) }), survivesBoot: true },
  { name: 'where nvidia-smi hangs', driver: () => ({ hangOne: [gpuUuid(BAD)] }), survivesBoot: true },
  {
    name: 'whose row says ERR!',
    driver: (kind) => ({ gpus: with_(kind, { name: 'ERR!', uuid: '[Unknown Error]' }) }),
    survivesBoot: true,
  },
  {
    name: 'that the driver wants reset, as for rows that wait to be remapped',
    driver: (kind) => ({ gpus: with_(kind, { gpu_recovery_action: 'Drain and Reset' }) }),
    survivesBoot: true,
  },
  ...([48, 79, 95, 109, 119, 155] as const).map((xid): Fault => ({
    name: `with Xid ${xid}`,
    xid: [xid, 'pid=1, name=python3'],
    survivesBoot: false,
  })),
  {
    name: 'with Xid 154 that names a reset',
    xid: [154, 'GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)'],
    // Tools of drivers before 560 or so do not tell the action, and a later answer without it ends it.
    driver: () => ({ unknownFields: ['gpu_recovery_action'] }),
    survivesBoot: false,
  },
];

async function host(kind: Host): Promise<GpuHost> {
  const made = new GpuHost({ gpus: all(kind) });
  onTestFinished(() => made.close());
  await made.start();
  await vi.waitFor(() => {
    expect(Object.keys(made.states())).toHaveLength(COUNT * devicesOf(kind, 0).length);
    expect(new Set(Object.values(made.states()))).toEqual(new Set(['healthy']));
  }, SOON);
  return made;
}

const isBad = (kind: Host, uuid: string): boolean => devicesOf(kind, BAD).includes(uuid);

/** Every other device is healthy, and on each of them a container starts and ends. */
async function othersServe(one: GpuHost, kind: Host, moment: string): Promise<void> {
  await vi.waitFor(() => {
    const others = Object.entries(one.states()).filter(([uuid]) => !isBad(kind, uuid));
    expect(others, moment).toHaveLength((COUNT - 1) * devicesOf(kind, 0).length);
    expect(
      others.filter(([, state]) => state !== 'healthy'),
      moment,
    ).toEqual([]);
  }, SOON);
  for (const index of [0, 1, 7]) {
    const [uuid = ''] = devicesOf(kind, index);
    expect(await one.runs(`${moment}-${index}`, uuid), moment).toBeUndefined();
    await one.ends(`${moment}-${index}`);
    expect(one.states()[uuid], moment).toBe('healthy');
  }
}

async function isVisible(one: GpuHost, kind: Host, moment: string): Promise<void> {
  await vi.waitFor(async () => {
    expect(one.conditions.names, moment).toContain('GpuDegraded');
    const page = await one.page();
    for (const uuid of devicesOf(kind, BAD)) {
      expect(one.states()[uuid], moment).not.toBe('healthy');
      expect(page, moment).toMatch(new RegExp(`gpu_healthy\\{gpu_uuid="${uuid}",gpu_model="\\S+"\\} 0`));
    }
  }, SOON);
}

describe.each(['whole', 'mig'] as const)('of eight GPUs (%s) one is broken:', (kind) => {
  test.concurrent.each(FAULTS.map((fault) => [fault.name, fault] as const))('%s', async (_name, fault) => {
    const one = await host(kind);
    const [first = ''] = devicesOf(kind, 0);
    await one.runs('before', first);
    if (fault.driver !== undefined) one.nvidia.is(fault.driver(kind));
    if (fault.xid !== undefined) one.nvidia.xid(BAD, ...fault.xid);
    await isVisible(one, kind, 'broken');
    await one.ends('before');
    await othersServe(one, kind, 'ends');
    await one.runs('over a restart', first);
    for (const live of [true, false]) {
      const moment = live ? 'engine with live-restore' : 'engine';
      await one.engineRestarts(live);
      expect(
        one.owners.map(({ containerId }) => containerId),
        moment,
      ).toEqual(live ? ['over a restart'] : []);
      await isVisible(one, kind, moment);
      if (!live) await othersServe(one, kind, moment);
    }
    await one.start();
    await isVisible(one, kind, 'restart');
    await othersServe(one, kind, 'restart');
    await one.boot();
    if (fault.survivesBoot) await isVisible(one, kind, 'boot');
    await othersServe(one, kind, 'boot');
    expect(one.faults).toEqual([]);
  });
});

test('of eight divided GPUs one comes back from a boot without its slices', async () => {
  const one = await host('mig');
  await one.boot({ gpus: with_('mig', { slices: [] }) });
  for (const moment of ['boot', 'restart', 'second boot'] as const) {
    if (moment === 'restart') await one.start();
    if (moment === 'second boot') await one.boot();
    await isVisible(one, 'mig', moment);
    expect(devicesOf('mig', BAD).map((uuid) => one.states()[uuid])).toEqual(['lost', 'lost']);
    await othersServe(one, 'mig', moment);
  }
  one.nvidia.is({ gpus: all('mig') });
  await vi.waitFor(() => expect(new Set(Object.values(one.states()))).toEqual(new Set(['healthy'])), SOON);
  await vi.waitFor(() => expect(one.conditions.names).not.toContain('GpuDegraded'), SOON);
  expect(one.faults).toEqual([]);
});

test('a restart of the engine that ends probes, or keeps them from beginning, blames no GPU', async () => {
  const one = new GpuHost({ gpus: all('whole') });
  onTestFinished(() => one.close());
  let probes = 0;
  // An engine that stops ends its containers by TERM.
  one.probe = async () => {
    probes += 1;
    one.isEngineAway = probes >= 2;
    return outcomeOf({ exitCode: 143, lines: ['load', 'context'] });
  };
  await one.start();
  await vi.waitFor(() => expect(one.isEngineAway).toBe(true), SOON);
  await one.looks();
  expect(new Set(Object.values(one.states()))).toEqual(new Set(['unprobed']));
  expect(one.conditions.names).not.toContain('GpuDegraded');
  one.isEngineAway = false;
  one.probe = () => Promise.resolve({ kind: 'passed', text: '' });
  await one.start();
  await vi.waitFor(() => expect(new Set(Object.values(one.states()))).toEqual(new Set(['healthy'])), SOON);
});

test('an error that the device survives leaves every device in use, or brings it back by a probe', async () => {
  const one = await host('whole');
  one.nvidia.xid(BAD, 63, 'Row Remapper: New row marked for remapping');
  one.nvidia.xid(BAD, 94, 'Contained error');
  await vi.waitFor(async () => expect(await one.page()).toMatch(/gpu_xid_errors_total\{\S+xid="94"\} 1/), SOON);
  await vi.waitFor(() => expect(new Set(Object.values(one.states()))).toEqual(new Set(['healthy'])), SOON);
});

test('a driver of another version than the tool makes every device suspect, and none is lost', async () => {
  const one = await host('whole');
  const mismatch = { exitCode: 18, stdout: 'Failed to initialize NVML: Driver/library version mismatch\n' };
  one.nvidia.is({ fail: mismatch });
  await vi.waitFor(() => expect(new Set(Object.values(one.states()))).toEqual(new Set(['suspect'])), SOON);
  expect(one.conditions.names).toContain('GpuDegraded');
  await one.looks();
  const { fail: _fail, ...works } = one.nvidia.now;
  one.nvidia.now = works;
  await vi.waitFor(() => expect(new Set(Object.values(one.states()))).toEqual(new Set(['healthy'])), SOON);
});
