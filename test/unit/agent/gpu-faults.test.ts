// Lines of the kernel's log, and answers of the tool, against containers that have devices. Some containers fail and
// others go on, and some devices are offered afterwards. The tool and the log are stand-ins at their outermost edge.
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test as base, vi } from 'vitest';
import { createLog } from '#shared/log.ts';
import type { Log } from '#shared/log.ts';
import { DeviceTable } from '../../../agent/devices/device-table.ts';
import { Gpus } from '../../../agent/devices/gpus.ts';
import type { LeaseOwner } from '../../../agent/devices/leases.ts';
import { NO_SLICES, NvidiaSmi } from '../../../agent/devices/nvidia-smi.ts';
import { GPU_FIELDS, parseListing } from '../../../agent/devices/parse.ts';
import type { GpuRow } from '../../../agent/devices/parse.ts';
import { AgentMetrics } from '../../../agent/telemetry/metrics.ts';
import type { FakeDriver } from '../../helpers/gpus.ts';
import { FakeJournal, FakeNvidia, aGpu } from '../../helpers/gpus.ts';

interface World {
  readonly stateDir: string;
  readonly nvidia: FakeNvidia;
  readonly metrics: AgentMetrics;
  /** Containers with their devices. */
  readonly leaseOwners: LeaseOwner[];
  /** `container: message`, in order. */
  readonly faults: string[];
  readonly notes: string[];
  /** Times that the devices were told anew, and lines of the agent's own log that say `error` or worse. */
  readonly told: { changes: number; errors: number };
  /** An agent on the same state, which has not read its journal; the one before has stopped. */
  readonly open: (driver?: Partial<FakeDriver>, kernelLog?: string) => Promise<Gpus>;
  /** Opens and starts the devices: every free device has passed its probe. */
  readonly start: (driver?: Partial<FakeDriver>, kernelLog?: string) => Promise<Gpus>;
  readonly stop: () => Promise<void>;
}

const test = base.extend('world', async ({ task: _task }, { onCleanup }): Promise<World> => {
  const stateDir = await mkdtemp(join(tmpdir(), 'lsg-'));
  const edge = join(stateDir, 'edge');
  await mkdir(edge);
  const nvidia = new FakeNvidia(edge, { gpus: [aGpu(0), aGpu(1)] });
  const metrics = new AgentMetrics();
  const leaseOwners: LeaseOwner[] = [];
  const faults: string[] = [];
  const notes: string[] = [];
  const told = { changes: 0, errors: 0 };
  let gpus: Gpus | undefined;
  // Stops once, because each stop writes the state.
  const stop = async (): Promise<void> => {
    await gpus?.stop();
    gpus = undefined;
  };
  onCleanup(async () => {
    await stop();
    await rm(stateDir, { recursive: true });
  });
  const world: World = {
    stateDir,
    nvidia,
    metrics,
    leaseOwners,
    faults,
    notes,
    told,
    stop,
    start: async (driver, kernelLog) => {
      const opened = await world.open(driver, kernelLog);
      await opened.rebuild();
      opened.start();
      const isHeld = (uuid: string): boolean => leaseOwners.some(({ gpuUuids }) => gpuUuids.includes(uuid));
      const free = (): string[] =>
        opened.report().flatMap(({ uuid, state }) => (isHeld(uuid ?? '') ? [] : [state ?? '']));
      await vi.waitFor(() => expect(free()).not.toContain('unprobed'), soon);
      return opened;
    },
    open: async (driver = {}, kernelLog = nvidia.kernelLog) => {
      await stop();
      nvidia.is(driver);
      gpus = new Gpus({
        smi: new NvidiaSmi(nvidia.tool),
        stateDir,
        bootId: 'boot',
        excluded: [],
        kernelLog,
        probeEveryMs: 100,
        metrics,
        log: countingErrors(() => (told.errors += 1)),
        leaseOwners: () => leaseOwners,
        running: () => [],
        askInside: () => Promise.resolve({ kind: 'cannot' }),
        probe: () => Promise.resolve({ kind: 'passed', text: '' }),
        reset: () => Promise.resolve(),
        conditions: { set: () => undefined },
        onLook: () => undefined,
      });
      gpus.onChange(() => (told.changes += 1));
      gpus.onFault((containerId, message) => faults.push(`${containerId}: ${message}`));
      gpus.onNote((containerId, message) => notes.push(`${containerId}: ${message}`));
      await gpus.open();
      return gpus;
    },
  };
  return world;
});

/** A log that prints nothing. */
function countingErrors(count: () => void): Log {
  const log = createLog({ name: 'test', level: 'silent' });
  return Object.assign(log, { error: count });
}

const has = (containerId: string, ...gpuUuids: string[]): LeaseOwner => ({
  containerId,
  epoch: 1,
  dockerId: undefined,
  gpuUuids,
  deploymentId: `d-${containerId}`,
});
/** A device as the tool lists it. */
const ROW = ((): GpuRow => {
  const gpu: Readonly<Record<string, unknown>> = { index: 0, ...aGpu(0) };
  const stdout = GPU_FIELDS.map((field) => `${(gpu[field] ?? '[N/A]') as string | number}`).join(', ');
  const listing = parseListing(GPU_FIELDS, { exitCode: 0, stdout: `${stdout}\n`, stderr: '' });
  const row = listing.kind === 'listed' ? listing.rows[0] : undefined;
  if (row === undefined) throw new Error('no row');
  return row;
})();
const states = (gpus: Gpus): string[] => gpus.report().map(({ state }) => state ?? '');
const soon = { timeout: 10_000 };

describe('an error of a MIG slice', () => {
  const [S7, S9] = ['MIG-00000000-0000-4000-8000-000000000007', 'MIG-00000000-0000-4000-8000-000000000009'];
  const divided = aGpu(0, {
    'mig.mode.current': 'Enabled',
    slices: [
      { profile: '3g.40gb', uuid: S7, instance: 7 },
      { profile: '1g.10gb', uuid: S9, instance: 9 },
    ],
  });

  test('fails the container of that slice alone, and counts for that slice', async ({ world }) => {
    world.leaseOwners.push(has('c7', S7), has('c9', S9));
    const gpus = await world.start({ gpus: [divided] });
    world.nvidia.xid(0, 94, 'pid=1, Contained: CE User Channel (0x9).', ' GPU-I:09');
    await vi.waitFor(() => expect(world.faults).toHaveLength(1), soon);
    expect(world.faults[0]).toMatch(/^c9: GPU MIG-\S+9: Xid 94/);
    expect(world.notes.map((note) => note.slice(0, 2))).toEqual(['c9']);
    // The slice's container is gone, so the slice is probed.
    expect(states(gpus)).toEqual(['healthy', 'unprobed']);
    const page = await world.metrics.registry.metrics();
    expect(page).toContain(`gpu_faults_total{gpu_uuid="${S9}",effect="container"} 1`);
    expect(page).toContain(`gpu_faults_total{gpu_uuid="${S7}",effect="container"} 0`);
    expect(page).toContain(
      `gpu_lease_info{gpu_uuid="${S9}",gpu_device="${aGpu(0).uuid}",gpu_instance="9",deployment_id="d-c9"} 1`,
    );
    expect(page).toContain(`gpu_xid_errors_total{gpu_uuid="${S9}",xid="94"} 1`);
    expect(page).toContain(`gpu_xid_errors_total{gpu_uuid="${S7}",xid="94"} 0`);
  });

  test('that needs a reset takes every slice of the device out, and fails the container of its own only', async ({
    world,
  }) => {
    world.leaseOwners.push(has('c7', S7), has('c9', S9));
    const gpus = await world.start({ gpus: [divided] });
    world.nvidia.xid(0, 48, 'pid=1, DBE', ' GPU-I:07 GPU-CI:00');
    await vi.waitFor(() => expect(states(gpus)).toEqual(['unhealthy', 'unhealthy']), soon);
    expect(world.faults.map((fault) => fault.slice(0, 2))).toEqual(['c7']);
  });

  test('of a slice that nobody knows, or of the whole device, is every slice’s', async ({ world }) => {
    world.leaseOwners.push(has('c7', S7), has('c9', S9));
    await world.start({ gpus: [divided] });
    world.nvidia.xid(0, 94, 'pid=1', ' GPU-I:03');
    world.nvidia.xid(0, 94, 'pid=2');
    await vi.waitFor(
      () => expect(world.faults.map((fault) => fault.slice(0, 2))).toEqual(['c7', 'c9', 'c7', 'c9']),
      soon,
    );
  });
});

test('a change of the recovery action is what it changes to: none and a remapped row leave the device in use', async ({
  world,
}) => {
  const [first, second] = [aGpu(0).uuid, aGpu(1).uuid];
  world.leaseOwners.push(has('c0', first), has('c1', second));
  // The tool of this driver reports no recovery action; the kernel's log alone does.
  const gpus = await world.start({ unknownFields: ['gpu_recovery_action'] });
  world.nvidia.xid(0, 63, 'Row Remapper: New row marked for remapping, reset gpu to activate.');
  world.nvidia.xid(0, 154, 'GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)');
  world.nvidia.xid(1, 154, 'GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)');
  await vi.waitFor(() => expect(states(gpus)).toEqual(['healthy', 'unhealthy']), soon);
  expect(world.notes).toHaveLength(3);
  expect(world.faults).toEqual([]);
  world.nvidia.xid(0, 154, 'GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)');
  await vi.waitFor(() => expect(states(gpus)).toEqual(['unhealthy', 'unhealthy']), soon);
  expect(world.faults.map((fault) => fault.slice(0, 2))).toEqual(['c0']);
});

describe('a recovery that the driver asks for', () => {
  test.each([
    ['Reset', ['c0']],
    ['Reboot', ['c0']],
    ['Drain P2P', []],
    ['Drain and Reset', []],
  ])('%s: the device takes no new work until it is asked no more; containers that fail: %j', async (action, failed) => {
    const table = new DeviceTable([], () => 0);
    const listed = (recovery: string | undefined): ReturnType<DeviceTable['take']> =>
      table.take({ kind: 'listed', rows: [{ ...ROW, recovery }], broken: [], unreadable: 0 }, NO_SLICES, new Set());
    const probed = (): void => table.event(ROW.uuid, { kind: 'probed', why: '' });
    expect(listed('None')).toEqual([]);
    probed();
    expect(listed(action).map(() => 'c0')).toEqual(failed);
    expect(table.all()[0]?.health).toMatchObject({ state: 'unhealthy', why: `the driver asks for: ${action}` });
    expect(listed(action)).toEqual([]);
    listed(undefined);
    expect(table.leasable(ROW.uuid)?.state).toBe('unhealthy');
    probed();
    expect(table.leasable(ROW.uuid)?.state).toBe('unhealthy');
    listed('None');
    expect(table.leasable(ROW.uuid)?.state).toBe('unprobed');
    probed();
    expect(table.leasable(ROW.uuid)?.state).toBe('healthy');
    // The action has the same effect in every other state: a device that is back, and one that a process may still use.
    table.take({ kind: 'listed', rows: [], broken: [], unreadable: 0 }, NO_SLICES, new Set());
    listed(action);
    expect(table.leasable(ROW.uuid)?.state).toBe('unhealthy');
    listed('None');
    probed();
    table.quarantine(ROW.uuid, ['d1'], 'left');
    listed(action);
    expect(table.leasable(ROW.uuid)?.state).toBe('quarantined');
    table.event(ROW.uuid, { kind: 'proved_free' });
    expect(table.leasable(ROW.uuid)?.state).toBe('unhealthy');
  });

  test('while no agent ran fails the container when the journal has been read', async ({ world }) => {
    await world.start();
    await world.stop();
    const gpus = await world.open({ gpus: [aGpu(0, { gpu_recovery_action: 'Reboot' }), aGpu(1)] });
    expect(states(gpus)).toEqual(['unhealthy', 'healthy']);
    world.leaseOwners.push(has('c0', aGpu(0).uuid), has('c1', aGpu(1).uuid));
    await gpus.rebuild();
    expect(world.faults).toEqual([`c0: GPU ${aGpu(0).uuid}: the driver asks for: Reboot`]);
  });
});

test('errors that came while no agent ran wait until the journal has been read', async ({ world }) => {
  await world.start();
  await world.stop();
  world.nvidia.xid(0, 94);
  const gpus = await world.open();
  // A reader that runs already would have read the line in this time.
  for (let reads = 0; reads < 50; reads += 1) await readFile(world.nvidia.kernelLog);
  world.leaseOwners.push(has('c0', aGpu(0).uuid));
  await gpus.rebuild();
  gpus.start();
  await vi.waitFor(() => expect(world.faults).toHaveLength(1), soon);
});

test('a reset that was done while no agent ran leaves the device in use: the driver had asked, and asks no more', async ({
  world,
}) => {
  await world.start();
  await world.stop();
  world.nvidia.xid(0, 79, 'GPU has fallen off the bus.');
  world.nvidia.xid(0, 154, 'GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)');
  world.nvidia.xid(1, 79, 'GPU has fallen off the bus.');
  const gpus = await world.start();
  await vi.waitFor(() => expect(states(gpus)).toEqual(['healthy', 'unhealthy']), soon);
  await vi.waitFor(async () => {
    const page = await world.metrics.registry.metrics();
    expect(page).toContain(`gpu_xid_errors_total{gpu_uuid="${aGpu(0).uuid}",xid="154"} 1`);
  }, soon);
  await vi.waitFor(() => expect(states(gpus)).toEqual(['healthy', 'unhealthy']), soon);
});

describe('where only the journal can be read', () => {
  const PATH = process.env['PATH'];
  afterEach(() => {
    process.env['PATH'] = PATH;
  });
  const XID = (index: number, xid: number): string =>
    `NVRM: Xid (PCI:0000:${(0x1b + index).toString(16)}:00): ${xid}, pid=1`;

  test('errors that come while the agent is away are seen by the next one, once', async ({ world }) => {
    const journal = new FakeJournal(world.stateDir);
    process.env['PATH'] = `${journal.directory}:${PATH}`;
    const none = join(world.stateDir, 'no-kmsg');
    world.leaseOwners.push(has('c0', aGpu(0).uuid), has('c1', aGpu(1).uuid));
    // The error was written before any agent ran here, so a later repair is possible.
    journal.add(XID(0, 79), 1);
    let gpus = await world.start({}, none);
    journal.add('usb 1-1: new device');
    journal.add(XID(0, 94));
    journal.add([...Buffer.from(`${XID(1, 94)}, name=`), 0xff]);
    await vi.waitFor(() => expect(world.faults.map((fault) => fault.slice(0, 2))).toEqual(['c0', 'c1']), soon);
    await world.stop();
    journal.add(XID(1, 95));
    gpus = await world.start({}, none);
    await vi.waitFor(() => expect(states(gpus)).toEqual(['unprobed', 'unhealthy']), soon);
    expect(world.faults).toHaveLength(3);
    const calls = (await readFile(journal.calls, 'utf8')).trim().split('\n');
    expect(calls[0]).not.toContain('--after-cursor');
    expect(calls.at(-1)).toContain('--after-cursor=c4');
  });

  test('errors of before do not count for an agent whose predecessor’s file was lost', async ({ world }) => {
    const journal = new FakeJournal(world.stateDir);
    process.env['PATH'] = `${journal.directory}:${PATH}`;
    const none = join(world.stateDir, 'no-kmsg');
    await world.start({}, none);
    await world.stop();
    await rm(join(world.stateDir, 'gpus.json'));
    world.leaseOwners.push(has('c0', aGpu(0).uuid));
    journal.add(XID(0, 79), 1);
    journal.add(XID(1, 48));
    const gpus = await world.start({}, none);
    await vi.waitFor(() => expect(states(gpus)).toEqual(['healthy', 'unhealthy']), soon);
    expect(world.faults).toEqual([]);
  });

  test('a cursor that the journal does not know has the whole boot read again', async ({ world }) => {
    const journal = new FakeJournal(world.stateDir);
    process.env['PATH'] = `${journal.directory}:${PATH}`;
    const none = join(world.stateDir, 'no-kmsg');
    await world.start({}, none);
    await world.stop();
    const path = join(world.stateDir, 'gpus.json');
    const stored = JSON.parse(await readFile(path, 'utf8')) as Record<string, unknown>;
    await writeFile(path, JSON.stringify({ ...stored, journalCursor: 'bad' }));
    // The first line is from before the write of that file, the second from after it.
    journal.add(XID(1, 48), 1);
    journal.add(XID(0, 48));
    const gpus = await world.start({}, none);
    await vi.waitFor(() => expect(states(gpus)).toEqual(['unhealthy', 'healthy']), soon);
  });
});

test('errors of switches are counted by how bad they are, and take no GPU out by themselves', async ({ world }) => {
  const gpus = await world.start();
  world.nvidia.line(
    'nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error',
  );
  for (let times = 0; times < 100; times += 1)
    world.nvidia.line('nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30 LTSSM Fault Up');
  await vi.waitFor(async () => {
    const page = await world.metrics.registry.metrics();
    expect(page).toContain('gpu_switch_errors_total{severity="fatal"} 100');
    expect(page).toContain('gpu_switch_errors_total{severity="non_fatal"} 1');
  }, soon);
  expect(states(gpus)).toEqual(['healthy', 'healthy']);
  // A burst of them is neither written line by line nor told to the scheduler.
  expect(world.told.errors).toBeLessThan(10);
  expect(world.told.changes).toBeLessThan(10);
});
