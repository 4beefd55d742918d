// Memory of a GPU that is in use by nobody known: the device is given to nobody until it is free again.
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { createLog } from '#shared/log.ts';
import { DeviceTable } from '../../../agent/devices/device-table.ts';
import { idleLimitMib } from '../../../agent/devices/idle-memory.ts';
import { MemoryWatch } from '../../../agent/devices/memory-watch.ts';
import { NO_SLICES, NvidiaSmi } from '../../../agent/devices/nvidia-smi.ts';
import { GpuHost } from '../../helpers/gpu-host.ts';
import type { FakeGpu } from '../../helpers/gpus.ts';
import { aGpu, askFake, gpuUuid } from '../../helpers/gpus.ts';

const [G0, G1] = [gpuUuid(0), gpuUuid(1)];
const using = (mib: number, facts: Readonly<Record<string, unknown>> = {}): readonly FakeGpu[] => [
  aGpu(0, { 'memory.used': mib, ...facts }),
  aGpu(1),
];
const IN_USE = 'memory in use by nobody known';

async function host(gpus: readonly FakeGpu[], before: (host: GpuHost) => void = () => undefined): Promise<GpuHost> {
  const made = new GpuHost({ gpus });
  before(made);
  onTestFinished(() => made.close());
  await made.start();
  return made;
}
const questions = (one: GpuHost): string[] => one.asked.filter((args) => args.includes('uuid,memory.used'));

describe('memory that nobody known has', () => {
  test('takes a device out at a look, and it comes back by a probe when the memory is free', async () => {
    const one = await host(using(4));
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
    one.nvidia.is({ gpus: using(60_000) });
    await one.are({ [G0]: 'unprobed', [G1]: 'healthy' });
    expect(one.gpus.report()[0]).toMatchObject({ state: 'unprobed', why: IN_USE, unhealthy: true });
    expect(await one.runs('c0', G0)).toContain(IN_USE);
    expect(await one.runs('c1', G1)).toBeUndefined();
    expect(one.conditions.words['GpuDegraded']).toBe(`${G0} is unprobed: ${IN_USE}`);
    const unknown = /gpu_memory_unknown_bytes\{gpu_uuid="(\S+)",gpu_model="H100"\} (\S+)/.exec(await one.page());
    expect(unknown?.slice(1)).toEqual([G0, String((60_000 - 4 - 512) * 1024 ** 2)]);
    // The state lasts: no probe ends it as long as the memory is used.
    await one.looks(5);
    expect(one.states()[G0]).toBe('unprobed');
    one.nvidia.is({ gpus: using(4) });
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
    await vi.waitFor(() => expect(one.conditions.names).not.toContain('GpuDegraded'));
  });

  test('is found on a device that nobody has seen empty, before its first lease, and after a restart', async () => {
    const one = await host(using(60_000));
    await one.are({ [G0]: 'unprobed', [G1]: 'healthy' });
    await one.start();
    await one.looks();
    expect(one.states()).toEqual({ [G0]: 'unprobed', [G1]: 'healthy' });
  });

  test('after the end of a container keeps its device from the next, though no process is listed', async () => {
    const one = await host(using(4));
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
    await one.runs('c0', G0);
    one.nvidia.is({ gpus: using(60_000) });
    await one.looks();
    expect(one.states()[G0]).toBe('healthy');
    await one.ends('c0');
    // At once, without another look.
    expect(await one.runs('c1', G0)).toContain(IN_USE);
    one.nvidia.is({ gpus: using(4) });
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
  });

  test('that the driver frees a moment after the end is waited for', async () => {
    const one = await host(using(4), (made) => {
      made.parts = { proofMs: 5000 };
    });
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
    await one.runs('c0', G0);
    one.nvidia.is({ gpus: using(60_000) });
    const ended = one.ends('c0');
    await vi.waitFor(() => expect(questions(one).length).toBeGreaterThan(0));
    one.nvidia.is({ gpus: using(4) });
    await ended;
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
  });

  test('is looked for before a lease where the last answer is old, and only then', async () => {
    const one = await host(using(4));
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
    await one.start({ probeEveryMs: 600_000 });
    expect(one.states()).toEqual({ [G0]: 'healthy', [G1]: 'healthy' });
    one.asked.length = 0;
    await one.gpus.beforeLease([G0, G1]);
    expect(one.asked).toEqual([]);
    const now = vi.spyOn(performance, 'now');
    onTestFinished(() => now.mockRestore());
    const later = performance.now() + 6000;
    now.mockImplementation(() => later);
    one.nvidia.is({ gpus: using(60_000) });
    await one.gpus.beforeLease([G0, G1]);
    expect(questions(one).map((args) => args.split(' ')[0])).toEqual([`--id=${G0}`, `--id=${G1}`]);
    expect(one.gpus.refusal({ containerId: 'c0', epoch: 1, gpuUuids: [G0] })).toMatchObject({
      reason: 'gpu_not_healthy',
      message: `GPU ${G0} is unprobed: ${IN_USE}`,
    });
    expect(one.gpus.refusal({ containerId: 'c1', epoch: 1, gpuUuids: [G1] })).toBeUndefined();
  });
});

describe('what is known of idle memory', () => {
  const driver = (version: string, mib: number) => using(mib, { driver_version: version });

  test('is forgotten with a new driver, of which the idle use is another one', async () => {
    const one = await host(driver('535.1', 1));
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
    one.nvidia.is({ gpus: [driver('570.1', 620)[0] ?? aGpu(0), aGpu(1, { driver_version: '570.1' })] });
    await one.looks();
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
    expect(one.gpus.driver).toBe('570.1');
    // The same over a boot, between whose two sides no agent looked.
    await one.boot({ gpus: [driver('580.1', 1200)[0] ?? aGpu(0), aGpu(1, { driver_version: '580.1' })] });
    await one.looks();
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
  });

  test('outlives a restart and a boot: memory of a program of somebody else does not become idle use', async () => {
    const one = await host(using(4));
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
    one.nvidia.is({ gpus: using(2000) });
    await one.are({ [G0]: 'unprobed', [G1]: 'healthy' });
    let probes = 0;
    one.probe = (uuid) => {
      if (uuid === G0) probes += 1;
      return Promise.resolve({ kind: 'passed', text: '' });
    };
    for (const again of [() => one.start(), () => one.boot()]) {
      await again();
      await one.looks();
      expect(one.gpus.report()[0]).toMatchObject({ state: 'unprobed', why: IN_USE });
    }
    expect(probes).toBe(0);
  });

  test('and what an operator has accepted outlives a restart, too', async () => {
    const one = await host(using(4));
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
    one.nvidia.is({ gpus: using(5000) });
    await one.are({ [G0]: 'unprobed', [G1]: 'healthy' });
    await one.gpus.order(G0, 'return');
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
    for (const again of [() => one.start(), () => one.boot()]) {
      await again();
      await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
      await one.looks();
      expect(one.states()[G0]).toBe('healthy');
    }
  });
});

describe('the first look, before the journal is read', () => {
  test.each(['with its file', 'without its file'])(
    'does not take the memory of a container or a build for that of nobody (%s)',
    async (file) => {
      const one = await host(using(4));
      await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
      await one.runs('c0', G0);
      const owners = one.owners;
      await one.stop();
      if (file === 'without its file') rmSync(join(one.directory, 'gpus.json'));
      one.nvidia.is({ gpus: [aGpu(0, { 'memory.used': 60_000 }), aGpu(1, { 'memory.used': 60_000 })] });
      one.owners = [];
      // As the agent starts: builds that are left are known after the look, containers with the journal.
      one.opened = (gpus) => {
        expect(gpus.report().map(({ why }) => why)).not.toContain(IN_USE);
        gpus.holdForBuild('b1', [G1]);
        one.owners = owners;
      };
      await one.start({ probeEveryMs: 600_000 });
      expect(one.gpus.report().map(({ why }) => why)).not.toContain(IN_USE);
      expect(one.states()[G0]).toBe('healthy');
    },
  );

  test('is judged as soon as the journal is read: memory of nobody is found before a probe', async () => {
    const one = await host(using(4));
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
    await one.stop();
    one.nvidia.is({ gpus: using(60_000) });
    await one.start({ probeEveryMs: 600_000 });
    expect(one.gpus.report()[0]).toMatchObject({ state: 'unprobed', why: IN_USE });
  });
});

describe('is not seen', () => {
  test.each<[string, Readonly<Record<string, unknown>>, number]>([
    ['in the reserves that an older driver counts', {}, 620],
    ['in what persistence mode and monitoring add', {}, 450],
    ['where the driver does not tell, as on GB10', { 'memory.total': '[N/A]' }, Number.NaN],
    ['on a device that drives a display', { display_active: 'Enabled' }, 3000],
  ])('%s', async (_case, facts, mib) => {
    const one = await host(
      using(Number.isNaN(mib) ? 4 : mib, { ...facts, ...(Number.isNaN(mib) ? { 'memory.used': '[N/A]' } : {}) }),
    );
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
    await one.looks();
    expect(one.states()[G0]).toBe('healthy');
  });

  test('while a probe runs, or a container has the device', async () => {
    let end = (): void => undefined;
    const one = await host(using(4));
    await one.stop();
    one.nvidia.is({ gpus: using(4) });
    one.probe = (uuid) =>
      new Promise((resolve) => {
        if (uuid === G1) resolve({ kind: 'passed', text: '' });
        else {
          one.nvidia.is({ gpus: using(9000) });
          end = () => {
            one.nvidia.is({ gpus: using(4) });
            resolve({ kind: 'passed', text: '' });
          };
        }
      });
    await one.boot();
    await one.looks(5);
    expect(one.gpus.report()[0]).toMatchObject({ state: 'unprobed', why: 'no probe has run yet' });
    end();
    await one.are({ [G0]: 'healthy', [G1]: 'healthy' });
    await one.runs('c0', G0);
    one.nvidia.is({ gpus: using(70_000) });
    await one.looks(5);
    expect(one.states()[G0]).toBe('healthy');
  });
});

describe('slices', () => {
  const [S1, S2] = ['MIG-00000000-0000-4000-8000-000000000001', 'MIG-00000000-0000-4000-8000-000000000002'];
  const divided = (used: number, first: number, second: number): readonly FakeGpu[] => [
    aGpu(0, {
      'mig.mode.current': 'Enabled',
      'memory.used': used,
      slices: [
        { profile: '3g.40gb', uuid: S1, instance: 1, used: first },
        { profile: '3g.40gb', uuid: S2, instance: 2, used: second },
      ],
    }),
  ];

  test('are judged each by its own memory: the neighbour serves on', async () => {
    const one = await host(divided(60, 20, 20));
    await one.are({ [S1]: 'healthy', [S2]: 'healthy' });
    await one.runs('c1', S1);
    one.nvidia.is({ gpus: divided(30_060, 30_000, 20) });
    await one.looks();
    expect(one.states()).toEqual({ [S1]: 'healthy', [S2]: 'healthy' });
    expect(await one.runs('c2', S2)).toBeUndefined();
    await one.ends('c1');
    await one.are({ [S1]: 'unprobed', [S2]: 'healthy' });
    expect(one.gpus.report()[0]?.why).toBe(IN_USE);
    one.nvidia.is({ gpus: divided(60, 20, 20) });
    await one.are({ [S1]: 'healthy', [S2]: 'healthy' });
  });

  test('cost no long answer while their device uses little', async () => {
    const one = await host(divided(60, 20, 20));
    await one.are({ [S1]: 'healthy', [S2]: 'healthy' });
    await one.runs('c1', S1);
    await one.ends('c1');
    one.asked.length = 0;
    await one.looks(5);
    expect(one.asked.filter((args) => args.includes('-x'))).toEqual([]);
  });
});

describe('the look before a lease', () => {
  /** A tool of which questions beside the use of memory hang. @returns times and devices of the questions */
  const slow = (used: number) => {
    const asked: string[] = [];
    const smi = new NvidiaSmi((args, id, deadlineMs) => {
      const all = args.join(' ');
      asked.push(`${id} ${all}`);
      if (all.includes('memory.used'))
        return Promise.resolve({ kind: 'done', exitCode: 0, stdout: `${id || G0}, ${used}\n`, stderr: '' });
      return new Promise((resolve) => setTimeout(() => resolve({ kind: 'timeout' }), deadlineMs));
    }, 100);
    return { smi, asked };
  };

  test('asks for the wanted devices alone, and not for slices, which takes long', async () => {
    const { smi, asked } = slow(30_000);
    const slice = { uuid: 'MIG-1', parentUuid: G0, busId: '0000:1b:00.0' };
    expect(await smi.memory([slice], 5000)).toEqual(new Map());
    expect(asked).toEqual([`${G0} --query-gpu=uuid,memory.used --format=csv,noheader,nounits`]);
  });

  test('ends within its deadline, though devices and a display of each are asked for', async () => {
    const devices = Array.from({ length: 20 }, (_, index) => aGpu(index));
    const { smi, asked } = slow(30_000);
    const table = new DeviceTable([], () => -1);
    table.take(await new NvidiaSmi(askFake(() => ({ gpus: devices }))).list(), NO_SLICES, new Set());
    for (const { uuid } of devices) {
      table.event(uuid, { kind: 'doubted', why: '' });
      table.event(uuid, { kind: 'probed', why: '' });
    }
    const watch = new MemoryWatch({
      table,
      smi,
      inUse: () => new Set(),
      probedAtMs: () => undefined,
      onIdle: () => undefined,
      log: createLog({ name: 'test', level: 'silent' }),
    });
    const from = performance.now();
    expect(await watch.beforeLease(devices.map(({ uuid }) => uuid))).toBe(true);
    expect(performance.now() - from).toBeLessThan(1000);
    expect(asked.filter((args) => args.includes('display_active'))).toHaveLength(20);
  });
});

test('the idle use of a device is the lowest that was seen, with room for monitoring, and has a bound', () => {
  expect(idleLimitMib(81_559, 4)).toBe(516);
  expect(idleLimitMib(81_559, undefined)).toBeCloseTo(81_559 * 0.02 + 512);
  expect(idleLimitMib(24_000, undefined)).toBe(1536);
  expect(idleLimitMib(24_000, 60_000)).toBe(1536);
  expect(idleLimitMib(0, undefined)).toBe(1536);
});

test('the counters of frequent errors begin at 0 with the first look at a device', async () => {
  const one = await host(using(4));
  const page = await one.page();
  for (const xid of [13, 31, 43, 63, 79, 94])
    expect(page).toContain(`gpu_xid_errors_total{gpu_uuid="${G0}",xid="${xid}"} 0`);
});
