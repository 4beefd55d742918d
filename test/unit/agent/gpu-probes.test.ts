// Probes of devices and their consequences: the devices offered, the state kept over a restart, and the machine's own
// report. The tool and the probe's container are stand-ins at their outermost edge.
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test as base, vi } from 'vitest';
import { createLog } from '#shared/log.ts';
import { DeviceTable } from '../../../agent/devices/device-table.ts';
import { Gpus } from '../../../agent/devices/gpus.ts';
import type { LeaseOwner } from '../../../agent/devices/leases.ts';
import { NvidiaSmi } from '../../../agent/devices/nvidia-smi.ts';
import type { ProbeOutcome } from '../../../agent/devices/probe-outcome.ts';
import { Probes } from '../../../agent/devices/probes.ts';
import type { StoredDevice } from '../../../agent/devices/store.ts';
import { Conditions } from '../../../agent/telemetry/conditions.ts';
import { AgentMetrics } from '../../../agent/telemetry/metrics.ts';
import { FakeNvidia, aGpu, gpuUuid } from '../../helpers/gpus.ts';

interface World {
  readonly nvidia: FakeNvidia;
  readonly stateDir: string;
  readonly leaseOwners: LeaseOwner[];
  readonly faults: string[];
  /** Devices that were probed, in order. */
  readonly probed: string[];
  readonly conditions: Conditions;
  bootId: string;
  /** States of the devices at each look of an agent. */
  readonly looks: string[];
  probe: (uuid: string) => Promise<ProbeOutcome>;
  /** Starts another agent on the same state; containers in `leaseOwners` run. */
  readonly start: () => Promise<Gpus>;
  /** Starts another agent after a boot. */
  readonly boot: () => Promise<Gpus>;
  readonly stop: () => Promise<void>;
  readonly are: (...states: readonly string[]) => Promise<void>;
}

const passes = (): Promise<ProbeOutcome> => Promise.resolve({ kind: 'passed', text: '' });
const ends = (kind: Exclude<ProbeOutcome['kind'], 'passed'>, text: string) => (): Promise<ProbeOutcome> =>
  Promise.resolve({ kind, text });
const soon = { timeout: 10_000 };
const [G0, G1] = [gpuUuid(0), gpuUuid(1)];
const has = (containerId: string, ...gpuUuids: string[]): LeaseOwner => ({
  containerId,
  epoch: 1,
  dockerId: undefined,
  gpuUuids,
});

const test = base.extend('world', async ({ task: _task }, { onCleanup }): Promise<World> => {
  const stateDir = await mkdtemp(join(tmpdir(), 'lsg-'));
  await mkdir(join(stateDir, 'edge'));
  let gpus: Gpus | undefined;
  onCleanup(async () => {
    await gpus?.stop();
    await rm(stateDir, { recursive: true });
  });
  const world: World = {
    nvidia: new FakeNvidia(join(stateDir, 'edge'), { gpus: [aGpu(0), aGpu(1)] }),
    stateDir,
    leaseOwners: [],
    faults: [],
    probed: [],
    conditions: new Conditions(),
    bootId: 'boot',
    looks: [],
    probe: passes,
    stop: async () => {
      await gpus?.stop();
      gpus = undefined;
    },
    boot: async () => {
      await world.stop();
      await writeFile(world.nvidia.kernelLog, '');
      world.bootId = 'next';
      return world.start();
    },
    start: async () => {
      await world.stop();
      gpus = new Gpus({
        smi: new NvidiaSmi(world.nvidia.tool),
        stateDir,
        bootId: world.bootId,
        excluded: [],
        kernelLog: world.nvidia.kernelLog,
        probeEveryMs: 100,
        proofMs: 1,
        metrics: new AgentMetrics(),
        log: createLog({ name: 'test', level: 'silent' }),
        leaseOwners: () => world.leaseOwners,
        running: () => [],
        askInside: () => Promise.resolve({ kind: 'cannot' }),
        probe: (uuid) => {
          world.probed.push(uuid);
          return world.probe(uuid);
        },
        reset: () => Promise.resolve(),
        conditions: world.conditions,
        onLook: () => world.looks.push((gpus?.report() ?? []).map(({ state }) => state).join()),
      });
      gpus.onFault((containerId) => world.faults.push(containerId));
      await gpus.open();
      await gpus.rebuild();
      gpus.start();
      return gpus;
    },
    are: (...states) => vi.waitFor(() => expect(gpus?.report().map(({ state }) => state)).toEqual(states), soon),
  };
  return world;
});

const STORED: StoredDevice = {
  uuid: G0,
  model: 'H100',
  memoryBytes: 0,
  busId: '00000000:1b:00.0',
  index: 0,
  numaNode: -1,
  parentUuid: '',
  state: 'unprobed',
  why: '',
  resetAsked: false,
  probeCures: false,
  awaited: false,
  occupied: false,
  excluded: false,
  unproven: false,
  lastDockerIds: [],
};
const refusal = (gpus: Gpus, uuid: string): string | undefined =>
  gpus.refusal({ containerId: 'c9', epoch: 1, gpuUuids: [uuid] })?.message;

describe('a device that no program has tried', () => {
  test('is leased to nobody before its probe has passed', async ({ world }) => {
    let pass = (_outcome: ProbeOutcome): void => undefined;
    world.probe = (uuid) => (uuid === G0 ? new Promise((resolve) => (pass = resolve)) : passes());
    const gpus = await world.start();
    await world.are('unprobed', 'healthy');
    expect(refusal(gpus, G0)).toContain('is unprobed: no probe has run yet');
    expect(refusal(gpus, G1)).toBeUndefined();
    expect(gpus.report()[0]).toMatchObject({ unhealthy: true });
    // The first seconds of a probe are no condition for an operator.
    expect(world.conditions.names).toEqual([]);
    pass({ kind: 'passed', text: '' });
    await world.are('healthy', 'healthy');
    expect(world.probed).toEqual([G0, G1]);
  });

  test('is offered by the next agent of this boot and driver, without a probe; after a boot or with another driver it is probed', async ({
    world,
  }) => {
    await world.start();
    await world.are('healthy', 'healthy');
    let gpus = await world.start();
    expect(gpus.report().map(({ state }) => state)).toEqual(['healthy', 'healthy']);
    gpus = await world.boot();
    await world.are('healthy', 'healthy');
    expect(world.probed).toHaveLength(4);
    const driver_version = '590.1';
    world.nvidia.is({ gpus: [aGpu(0, { driver_version }), aGpu(1, { driver_version })] });
    await vi.waitFor(() => expect(world.probed).toHaveLength(6), soon);
    await world.are('healthy', 'healthy');
    gpus = await world.start();
    expect(gpus.report().map(({ state }) => state)).toEqual(['healthy', 'healthy']);
    expect(world.probed).toHaveLength(6);
  });

  test('and that a container has is let be: also by an agent whose predecessor’s file was lost', async ({ world }) => {
    await world.start();
    await world.are('healthy', 'healthy');
    await world.stop();
    world.probed.length = 0;
    await rm(join(world.stateDir, 'gpus.json'));
    world.leaseOwners.push(has('c0', G0));
    await world.start();
    await world.are('healthy', 'healthy');
    expect(world.probed).toEqual([G1]);
    expect(world.faults).toEqual([]);
  });

  test('is probed when it comes back', async ({ world }) => {
    await world.start();
    await world.are('healthy', 'healthy');
    world.nvidia.is({ gpus: [aGpu(0)] });
    await world.are('healthy', 'lost');
    world.nvidia.is({ gpus: [aGpu(0), aGpu(1)] });
    await world.are('healthy', 'healthy');
    expect(world.probed).toEqual([G0, G1, G1]);
  });
});

describe('after an error', () => {
  test('that the device survives it is probed once its container is gone, and not before', async ({ world }) => {
    world.leaseOwners.push(has('c0', G0));
    await world.start();
    await world.are('healthy', 'healthy');
    world.probed.length = 0;
    world.nvidia.xid(0, 94, 'Contained error');
    await vi.waitFor(() => expect(world.faults).toEqual(['c0']), soon);
    await world.are('unprobed', 'healthy');
    for (let looks = 0; looks < 3; looks += 1) await readFile(world.nvidia.kernelLog);
    expect(world.probed).toEqual([]);
    world.leaseOwners.length = 0;
    await world.are('healthy', 'healthy');
    expect(world.probed).toEqual([G0]);
  });

  test('the driver’s reset, once it asks no more, is followed by a probe; a device that fails it stays out until one passes', async ({
    world,
  }) => {
    await world.start();
    await world.are('healthy', 'healthy');
    world.nvidia.is({ gpus: [aGpu(0, { gpu_recovery_action: 'Reset' }), aGpu(1)] });
    await world.are('unhealthy', 'healthy');
    world.probe = ends('failed', 'CUDA error 214 at copy');
    world.nvidia.is({ gpus: [aGpu(0), aGpu(1)] });
    await vi.waitFor(() => expect(world.probed).toHaveLength(3), soon);
    const gpus = await world.start();
    expect(gpus.report()[0]).toMatchObject({ state: 'unhealthy', why: 'probe_failed: CUDA error 214 at copy' });
    expect(refusal(gpus, G0)).toContain('probe_failed: CUDA error 214');
    expect(world.conditions.names).toEqual(['GpuDegraded']);
    // A new agent tries at once.
    world.probe = passes;
    await world.start();
    await world.are('healthy', 'healthy');
    expect(world.conditions.names).toEqual([]);
  });

  test('of the fabric of its switches a device is probed, and its container goes on', async ({ world }) => {
    const fabric = (state: string): void => world.nvidia.is({ gpus: [aGpu(0, { 'fabric.state': state }), aGpu(1)] });
    fabric('Completed');
    world.leaseOwners.push(has('c1', G1));
    await world.start();
    await world.are('healthy', 'healthy');
    world.probe = ends('host', 'CUDA error 802 at init');
    fabric('In Progress');
    await world.are('unprobed', 'healthy');
    await vi.waitFor(() => expect(world.conditions.words['GpusUnusable']).toContain('802'), soon);
    expect(world.faults).toEqual([]);
  });

  test('for which the driver asks nothing the device rests, and is then one that a probe may bring back', async ({
    world,
  }) => {
    await world.start();
    await world.are('healthy', 'healthy');
    world.nvidia.xid(0, 48, 'DBE');
    await world.are('unhealthy', 'healthy');
    const saved = async (): Promise<string> => readFile(join(world.stateDir, 'gpus.json'), 'utf8');
    await vi.waitFor(async () => expect(await saved()).toContain('"probeCures":true'), soon);
    expect(world.probed).toHaveLength(2);
    // The next agent keeps that state; a boot ends it.
    const gpus = await world.start();
    for (let looks = 0; looks < 20; looks += 1) await saved();
    expect(gpus.report()[0]).toMatchObject({ state: 'unhealthy', why: 'Xid 48: DBE' });
    expect(world.probed).toHaveLength(2);
    await world.boot();
    await world.are('healthy', 'healthy');
  });

  test('a driver that tells no recovery gives nothing back without a boot', async ({ world }) => {
    world.nvidia.is({ unknownFields: ['gpu_recovery_action'] });
    await world.start();
    await world.are('healthy', 'healthy');
    world.nvidia.xid(0, 48, 'DBE');
    await world.are('unhealthy', 'healthy');
    await world.start();
    await world.are('unhealthy', 'healthy');
    expect(world.probed).toHaveLength(2);
    await world.boot();
    await world.are('healthy', 'healthy');
  });
});

describe('a device whose last container may still use it', () => {
  /** A process that is in no cgroup any more, and that the driver still has on the first device. */
  const LEFT = [{ gpu_uuid: G0, pid: 4_000_000 }];
  const gives = async (world: World, gpus: Gpus): Promise<void> => {
    world.nvidia.is({ processes: LEFT });
    world.leaseOwners.length = 0;
    await gpus.release([G0], 'd0');
  };
  /** Expects the states to stay the same over several looks. */
  const stays = async (world: World, states: string): Promise<void> => {
    const from = world.looks.length;
    await vi.waitFor(() => expect(world.looks.length).toBeGreaterThan(from + 3), soon);
    expect(new Set(world.looks.slice(from + 1))).toEqual(new Set([states]));
  };

  test('and that has an error besides is probed only once no process is left there, also by another agent', async ({
    world,
  }) => {
    world.leaseOwners.push(has('c0', G0));
    await world.start();
    await world.are('healthy', 'healthy');
    world.probe = ends('failed', 'CUDA error 999 at init');
    world.nvidia.is({ gpus: [aGpu(0, { gpu_recovery_action: 'Reset' }), aGpu(1)] });
    await world.are('unhealthy', 'healthy');
    await gives(world, await world.start());
    world.probe = passes;
    world.probed.length = 0;
    world.nvidia.is({ gpus: [aGpu(0), aGpu(1)] });
    await world.are('quarantined', 'healthy');
    await stays(world, 'quarantined,healthy');
    await world.start();
    await stays(world, 'quarantined,healthy');
    expect(world.probed).toEqual([]);
    world.nvidia.is({ processes: [] });
    await world.are('healthy', 'healthy');
    expect(world.probed).toEqual([G0]);
  });

  test('and that an error takes out meanwhile is kept after it', async ({ world }) => {
    world.leaseOwners.push(has('c0', G0));
    const gpus = await world.start();
    await world.are('healthy', 'healthy');
    await gives(world, gpus);
    await world.are('quarantined', 'healthy');
    world.nvidia.xid(0, 48, 'DBE');
    await world.are('unhealthy', 'healthy');
    // The driver asks for a reset, and then no more.
    world.nvidia.is({ gpus: [aGpu(0, { gpu_recovery_action: 'Reset' }), aGpu(1)] });
    await vi.waitFor(() => expect(gpus.report()[0]?.why).toContain('Xid 48'), soon);
    await stays(world, 'unhealthy,healthy');
    world.nvidia.is({ gpus: [aGpu(0), aGpu(1)] });
    await world.are('quarantined', 'healthy');
    await stays(world, 'quarantined,healthy');
    world.nvidia.is({ processes: [] });
    await world.are('healthy', 'healthy');
  });

  test('and that the driver does not list is not free because the driver lists nothing there', async ({ world }) => {
    world.leaseOwners.push(has('c0', G0));
    const gpus = await world.start();
    await world.are('healthy', 'healthy');
    world.nvidia.is({ gpus: [aGpu(1)] });
    await world.are('lost', 'healthy');
    world.leaseOwners.length = 0;
    await gpus.release([G0], 'd0');
    await stays(world, 'lost,healthy');
    world.nvidia.is({ processes: LEFT, gpus: [aGpu(0), aGpu(1)] });
    await world.are('quarantined', 'healthy');
    await stays(world, 'quarantined,healthy');
    world.nvidia.is({ processes: [] });
    await world.are('healthy', 'healthy');
  });

  test('and that vanishes before it is given back is looked at once it returns', async ({ world }) => {
    world.leaseOwners.push(has('c0', G0));
    const gpus = await world.start();
    await world.are('healthy', 'healthy');
    world.nvidia.is({ gpus: [aGpu(1)] });
    world.leaseOwners.length = 0;
    // No look has said yet that it is lost, and the driver names no process of a device that it does not have.
    await gpus.release([G0], 'd0');
    await world.are('lost', 'healthy');
    world.nvidia.is({ processes: LEFT, gpus: [aGpu(0), aGpu(1)] });
    await world.are('quarantined', 'healthy');
    await stays(world, 'quarantined,healthy');
    world.nvidia.is({ processes: [] });
    await world.are('healthy', 'healthy');
  });

  test('is not free because a probe that hung there ended at last', async () => {
    vi.useFakeTimers();
    try {
      const table = new DeviceTable([], () => -1);
      table.restore([{ ...STORED, uuid: G0 }], false, '580.126.09');
      const outcomes: ProbeOutcome[] = [
        { kind: 'stuck', text: 'no answer' },
        { kind: 'unable', text: 'the engine is away' },
        { kind: 'passed', text: '' },
      ];
      const probes = new Probes({
        table,
        held: () => new Set(),
        probe: () => Promise.resolve(outcomes.shift() ?? { kind: 'passed', text: '' }),
        conditions: new Conditions(),
        metrics: new AgentMetrics(),
        log: createLog({ name: 'test', level: 'silent' }),
        onResult: () => undefined,
      });
      probes.prober.start();
      await vi.advanceTimersByTimeAsync(0);
      expect([table.get(G0)?.health.state, probes.isStuck(G0)]).toEqual(['quarantined', true]);
      table.quarantine(G0, ['d0'], 'its last container may still use it');
      await vi.advanceTimersByTimeAsync(60_000);
      expect([outcomes.length, probes.isStuck(G0)]).toEqual([1, true]);
      await vi.advanceTimersByTimeAsync(60_000);
      expect([table.get(G0)?.health.state, probes.isStuck(G0)]).toEqual(['quarantined', false]);
      expect(table.get(G0)?.lastDockerIds).toEqual(['d0']);
      await probes.prober.stop();
    } finally {
      vi.useRealTimers();
    }
  });
});

describe('a probe that does not pass', () => {
  test('for the host’s reasons: the devices wait, the machine says why, and all return', async ({ world }) => {
    world.probe = ends('host', 'CUDA error 802 at init: the fabric');
    const gpus = await world.start();
    await vi.waitFor(() => expect(world.conditions.words['GpusUnusable']).toContain('802'), soon);
    await vi.waitFor(() => expect(gpus.report().every(({ why }) => why?.includes('802'))).toBe(true), soon);
    expect(gpus.report().map(({ state }) => state)).toEqual(['unprobed', 'unprobed']);
    // The two devices do not count as broken, nor the host as suspect.
    expect(world.conditions.names).toEqual(['GpusUnusable']);
    // The first retry waits for seconds; another agent waits for none.
    world.probe = passes;
    await world.start();
    await world.are('healthy', 'healthy');
    expect(world.conditions.names).toEqual([]);
  });

  test('on two devices makes the host suspect, as any two broken ones do', async ({ world }) => {
    world.probe = ends('failed', 'CUDA error 999 at init');
    await world.start();
    await world.are('unhealthy', 'unhealthy');
    expect(world.conditions.names).toEqual(['GpuDegraded', 'SuspectHost']);
  });

  test('because it does not end keeps its device quarantined, whatever the tool says of processes there', async ({
    world,
  }) => {
    world.probe = (uuid) => (uuid === G0 ? ends('stuck', 'no answer')() : passes());
    const gpus = await world.start();
    await world.are('quarantined', 'healthy');
    const from = world.looks.length;
    await vi.waitFor(() => expect(world.looks.length).toBeGreaterThan(from + 3), soon);
    expect(new Set(world.looks.slice(from))).toEqual(new Set(['quarantined,healthy']));
    expect(gpus.report()[0]?.why).toBe('probe_failed: no answer');
    world.probe = passes;
    await world.start();
    await world.are('healthy', 'healthy');
  });

  test('because this copy of the program has none leaves GPUs in use, and says so', async ({ world }) => {
    world.probe = ends('absent', 'no probe');
    await world.start();
    await world.are('healthy', 'healthy');
    expect(world.conditions.names).toEqual(['GpuProbeMissing']);
  });

  test('for want of a program gives back no device that has an error', async ({ world }) => {
    world.probe = ends('failed', 'CUDA error 999 at init');
    await world.start();
    await world.are('unhealthy', 'unhealthy');
    const failed = world.probed.length;
    world.probe = ends('absent', 'no probe');
    await world.start();
    await vi.waitFor(() => expect(world.conditions.names).toContain('GpuProbeMissing'), soon);
    expect(world.probed.length).toBeGreaterThan(failed);
    await world.are('unhealthy', 'unhealthy');
  });
});
