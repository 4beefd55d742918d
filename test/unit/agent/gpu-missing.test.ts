// A GPU that a host should have and does not show: it is told of all the time, over boots and restarts, until it is
// back or an operator says otherwise. The others serve on.
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { loadAgentConfig } from '../../../agent/config.ts';
import { readPciGpus } from '../../../agent/devices/pci.ts';
import { missingGpus } from '../../../agent/preflight/missing-gpus.ts';
import { GpuHost } from '../../helpers/gpu-host.ts';
import type { FakeDriver, FakeGpu } from '../../helpers/gpus.ts';
import { aGpu, gpuUuid } from '../../helpers/gpus.ts';
import { tempDirectory } from '../../helpers/programs.ts';

const EIGHT: readonly FakeGpu[] = Array.from({ length: 8 }, (_, index) => ({ index, ...aGpu(index) }));
const busOf = (index: number): string => String(EIGHT[index]?.['pci.bus_id']).toLowerCase().slice(4);
const without = (...gone: number[]) => EIGHT.filter((_, index) => !gone.includes(index));
const all = (state: string, except: Readonly<Record<number, string>> = {}): Record<string, string> =>
  Object.fromEntries(EIGHT.map(({ uuid }, index) => [uuid, except[index] ?? state]));
const onPci = EIGHT.map((_, index) => ({ busId: busOf(index), driver: 'nvidia' }));

async function host(driver: FakeDriver, before: (host: GpuHost) => void = () => undefined): Promise<GpuHost> {
  const made = new GpuHost(driver);
  before(made);
  onTestFinished(() => made.close());
  await made.start(made.parts);
  return made;
}
const degraded = (one: GpuHost): string | undefined =>
  one.conditions.names.includes('GpuDegraded') ? (one.conditions.words['GpuDegraded'] ?? '') : undefined;

test('a GPU that does not come back from a boot stays lost over boots, with its condition and its series', async () => {
  const one = await host({ gpus: EIGHT });
  await one.are(all('healthy'));
  expect(degraded(one)).toBeUndefined();
  one.nvidia.is({ gpus: without(3) });
  await one.are(all('healthy', { 3: 'lost' }));
  for (let boots = 0; boots < 3; boots += 1) {
    await one.boot();
    expect(degraded(one)).toContain(`${gpuUuid(3)} is lost: the driver does not list it any more`);
    await one.are(all('healthy', { 3: 'lost' }));
    expect(await one.page()).toContain(`gpu_state{gpu_uuid="${gpuUuid(3)}",gpu_model="H100",state="lost"} 1`);
    expect(await one.runs(`c${boots}`, gpuUuid(0))).toBeUndefined();
  }
  await one.start();
  expect(one.states()[gpuUuid(3)]).toBe('lost');
  await one.boot({ gpus: EIGHT });
  await one.are(all('healthy'));
  await vi.waitFor(() => expect(degraded(one)).toBeUndefined());
});

test('a GPU that was unhealthy before the boot, and is gone after it, does not vanish either', async () => {
  const one = await host({ gpus: EIGHT });
  await one.are(all('healthy'));
  one.nvidia.xid(3, 79, 'GPU has fallen off the bus.');
  await one.are(all('healthy', { 3: 'unhealthy' }));
  await one.boot({ gpus: without(3) });
  await one.are(all('healthy', { 3: 'lost' }));
  expect(degraded(one)).toContain(gpuUuid(3));
});

test('slices of a GPU that a boot did not bring back stay lost, and slices of others are as their division is', async () => {
  const slice = (index: number, number: number) => ({
    profile: '3g.40gb',
    uuid: `MIG-00000000-0000-4000-8000-00000000${index}00${number}`,
    instance: number,
  });
  const divided = [0, 1].map((index) => ({
    ...EIGHT[index],
    ...aGpu(index, { index, 'mig.mode.current': 'Enabled', slices: [slice(index, 1), slice(index, 2)] }),
  }));
  const one = await host({ gpus: divided });
  const uuids = divided.flatMap((_, index) => [slice(index, 1).uuid, slice(index, 2).uuid]);
  await one.are(Object.fromEntries(uuids.map((uuid) => [uuid, 'healthy'])));
  // After the boot the first device has another division, and the second one is gone.
  await one.boot({ gpus: [{ ...aGpu(0, { 'mig.mode.current': 'Enabled', slices: [slice(0, 5)] }), index: 0 }] });
  await one.are({ [slice(0, 5).uuid]: 'healthy', [slice(1, 1).uuid]: 'lost', [slice(1, 2).uuid]: 'lost' });
  expect(degraded(one)).toContain(slice(1, 1).uuid);
});

describe('slices that a boot does not bring back', () => {
  const slices = [1, 2].map((number) => ({
    profile: '3g.40gb',
    uuid: `MIG-00000000-0000-4000-8000-00000000000${number}`,
    instance: number,
  }));
  const [S1 = '', S2 = ''] = slices.map(({ uuid }) => uuid);
  const divided = (...left: readonly (typeof slices)[number][]): readonly FakeGpu[] => [
    aGpu(0, { 'mig.mode.current': 'Enabled', slices: left }),
  ];

  test.each<[string, readonly FakeGpu[], Readonly<Record<string, string>>, string]>([
    ['with all of them', divided(), { [S1]: 'lost', [S2]: 'lost' }, `${gpuUuid(0)} has MIG on and no slice`],
    [
      'with one of them',
      divided(...slices.slice(0, 1)),
      { [S1]: 'healthy', [S2]: 'lost' },
      `${S2} of ${gpuUuid(0)} is lost`,
    ],
    [
      'with the division',
      [aGpu(0)],
      { [S1]: 'lost', [S2]: 'lost', [gpuUuid(0)]: 'healthy' },
      `${S1} of ${gpuUuid(0)} is lost`,
    ],
  ])('%s stay lost until an operator forgets them or they return', async (_case, gpus, states, words) => {
    const one = await host({ gpus: divided(...slices) });
    await one.are({ [S1]: 'healthy', [S2]: 'healthy' });
    // The driver comes up late, and the agent starts again meanwhile.
    await one.boot({ gpus: [], fail: { exitCode: 9, stdout: 'NVIDIA-SMI has failed\n' } });
    await one.looks();
    const { fail: _fail, ...works } = one.nvidia.now;
    one.nvidia.now = { ...works, gpus };
    await one.start();
    await one.are(states);
    await one.start();
    await one.looks();
    await one.are(states);
    await vi.waitFor(() => expect(degraded(one)).toContain(words));
    expect(await one.page()).toContain(`gpu_state{gpu_uuid="${S2}",gpu_model="H100-MIG-3g.40gb",state="lost"} 1`);
    await one.gpus.order(S2, 'forget');
    expect(one.states()[S2]).toBeUndefined();
    one.nvidia.is({ gpus: divided(...slices) });
    await one.are({ [S1]: 'healthy', [S2]: 'healthy' });
    await vi.waitFor(() => expect(degraded(one)).toBeUndefined());
  });

  test('and those that an operator took away without one are forgotten, while a GPU without any is a fault', async () => {
    const one = await host({ gpus: divided(...slices) });
    await one.are({ [S1]: 'healthy', [S2]: 'healthy' });
    one.nvidia.is({ gpus: divided(...slices.slice(0, 1)) });
    await one.are({ [S1]: 'healthy' });
    await vi.waitFor(() => expect(degraded(one)).toBeUndefined());
    one.nvidia.is({ gpus: divided() });
    await one.are({});
    await vi.waitFor(() => expect(degraded(one)).toContain(`${gpuUuid(0)} has MIG on and no slice`));
    one.excluded = [gpuUuid(0)];
    await one.start();
    await one.looks();
    expect(degraded(one)).toBeUndefined();
  });
});

describe('on a fresh host', () => {
  test('a dead card that nvidia-smi names, and for which it fails as a whole, is told; the others serve', async () => {
    const one = await host({ gpus: without(3), brokenAll: `0000${busOf(3)}` }, (made) => {
      made.pci = onPci;
    });
    await one.are(Object.fromEntries(without(3).map(({ uuid }) => [uuid, 'healthy'])));
    expect(degraded(one)).toBe(`the driver cannot reach the GPU at ${busOf(3)}`);
    expect(await one.page()).toContain('longshore_agent_gpus_unlisted 1');
    expect(await one.runs('c0', gpuUuid(0))).toBeUndefined();
  });

  test('a card that PCI shows and the driver does not list is told, until it is there', async () => {
    const one = await host({ gpus: without(3) }, (made) => {
      made.pci = onPci;
    });
    await one.looks();
    expect(degraded(one)).toBe(`the driver does not list the GPU that PCI shows at ${busOf(3)}`);
    one.nvidia.is({ gpus: EIGHT });
    await one.are(all('healthy'));
    await vi.waitFor(() => expect(degraded(one)).toBeUndefined());
    expect(await one.page()).toContain('longshore_agent_gpus_unlisted 0');
  });

  test('a driver that fails for all is told of by the cards that it should serve', async () => {
    const one = await host({ gpus: [], fail: { exitCode: 9, stdout: 'NVIDIA-SMI has failed\n' } }, (made) => {
      made.pci = onPci.slice(0, 2);
    });
    await one.looks();
    expect(degraded(one)).toContain(busOf(0));
  });

  test.each([
    ['is passed to a virtual machine', { driver: 'vfio-pci' }, []],
    ['is excluded by its bus id', {}, [`0000${busOf(3)}`]],
  ])('a card that %s is not missed', async (_case, facts, excluded) => {
    const one = await host({ gpus: without(3) }, (made) => {
      made.pci = onPci.map((pci, index) => (index === 3 ? { ...pci, ...facts } : pci));
      made.excluded = excluded;
    });
    await one.looks();
    expect(degraded(one)).toBeUndefined();
  });

  test('a graphics card without the tool is no GPU that is missed', async () => {
    const one = await host({ gpus: [] }, (made) => {
      made.pci = onPci;
      made.parts = { smi: made.withoutTool() };
    });
    await one.looks();
    expect(degraded(one)).toBeUndefined();
    expect(await one.page()).not.toMatch(/^longshore_agent_gpus_/m);
  });
});

describe('an expected count', () => {
  test('is compared with what is there: a card that is off the bus altogether is told', async () => {
    const one = await host({ gpus: without(3) }, (made) => {
      made.parts = { expected: 8 };
    });
    await one.looks();
    expect(degraded(one)).toBe('7 of 8 expected GPUs are here');
    const page = await one.page();
    expect(page).toContain('longshore_agent_gpus_present 7');
    expect(page).toContain('longshore_agent_gpus_expected 8');
  });

  test('counts each divided device once, also one without slices, and excluded ones, too', async () => {
    const gpus = [aGpu(0), aGpu(1, { 'mig.mode.current': 'Enabled' }), aGpu(2)];
    const one = await host({ gpus }, (made) => {
      made.excluded = [gpuUuid(2)];
      made.parts = { expected: 3 };
    });
    await one.looks();
    expect(degraded(one)).not.toContain('expected');
  });

  test('holds on a host whose tool is gone', async () => {
    const one = await host({ gpus: [] }, (made) => {
      made.parts = { expected: 1, smi: made.withoutTool() };
    });
    await one.looks();
    expect(degraded(one)).toBe('0 of 1 expected GPUs are here');
  });
});

test('a lost GPU whose place another card has was replaced: it is forgotten', async () => {
  const one = await host({ gpus: EIGHT });
  await one.are(all('healthy'));
  await one.boot({ gpus: without(3) });
  await one.are(all('healthy', { 3: 'lost' }));
  const card = { ...aGpu(3), index: 3, uuid: gpuUuid(33) };
  await one.boot({ gpus: [...without(3), card] });
  const { [gpuUuid(3)]: _gone, ...others } = all('healthy');
  await one.are({ ...others, [gpuUuid(33)]: 'healthy' });
  await vi.waitFor(() => expect(degraded(one)).toBeUndefined());
});

test('functions on PCI are NVIDIA’s display controllers: no audio, no switch, no virtual function, no other vendor', async () => {
  const directory = tempDirectory('pci');
  const { path } = directory;
  onTestFinished(() => directory.remove());
  const add = (busId: string, vendor: string, kind: string, links: Readonly<Record<string, string>> = {}): void => {
    mkdirSync(join(path, busId));
    writeFileSync(join(path, busId, 'vendor'), `${vendor}\n`);
    writeFileSync(join(path, busId, 'class'), `${kind}\n`);
    for (const [name, to] of Object.entries(links)) symlinkSync(to, join(path, busId, name));
  };
  add('0000:3b:00.0', '0x10de', '0x030200', { driver: '../../../bus/pci/drivers/nvidia' });
  add('0000:04:00.0', '0x10de', '0x030000', { driver: '../../../bus/pci/drivers/vfio-pci' });
  add('0000:05:00.0', '0x10de', '0x030200');
  add('0000:04:00.1', '0x10de', '0x040300');
  add('0000:06:00.0', '0x10de', '0x068000');
  add('0000:3b:00.4', '0x10de', '0x030200', { physfn: '../0000:3b:00.0' });
  add('0000:07:00.0', '0x8086', '0x030000');
  expect(await readPciGpus(path)).toEqual([
    { busId: '0000:04:00.0', driver: 'vfio-pci' },
    { busId: '0000:05:00.0', driver: '' },
    { busId: '0000:3b:00.0', driver: 'nvidia' },
  ]);
  expect(await readPciGpus(join(path, 'none'))).toEqual([]);
});

test('the checks of a host name what the agent remembers, what PCI shows, and what is expected', async () => {
  const one = await host({ gpus: EIGHT });
  await one.are(all('healthy'));
  await one.stop();
  const data = tempDirectory('data');
  onTestFinished(() => data.remove());
  symlinkSync(one.directory, join(data.path, 'agent'));
  const config = loadAgentConfig({ LONGSHORE_DATA_DIR: data.path, LONGSHORE_EXPECTED_GPUS: '9' });
  one.nvidia.is({ gpus: without(3) });
  const listing = await one.smi().list();
  expect(await missingGpus(config, listing, [{ busId: '0000:99:00.0', driver: '' }])).toEqual([
    `${gpuUuid(3)} at ${busOf(3)} was here before and does not answer`,
    'the driver does not list the GPU that PCI shows at 0000:99:00.0',
    '7 of 9 expected GPUs are here',
  ]);
});
