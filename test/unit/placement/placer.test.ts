// The placement loop with containers and machines in memory: what is tried again, given up, and written at once.
import { isDeepStrictEqual } from 'node:util';
import { afterEach, describe, expect, test, vi } from 'vitest';
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { Registry } from '#shared/metrics.ts';
import { isTerminalContainer } from '#shared/domain/status.ts';
import type { ContainerState } from '#shared/domain/status.ts';
import { Placer } from '#scheduler/control/placement/placer.ts';
import type { PlacementParts } from '#scheduler/control/placement/placer.ts';
import { PlacementBackoff } from '#scheduler/control/placement/placement-backoff.ts';
import { MachineFacts } from '#scheduler/control/placement/snapshot.ts';
import type { PlacementMachine } from '#scheduler/control/plan/filter.ts';
import type { PossibleVictim } from '#scheduler/control/plan/reclaim.ts';
import { LoopMetrics } from '#scheduler/cluster/loop-metrics.ts';
import { rejectionsOf } from '#scheduler/fleet/containers/container-entry.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import { capacityOf } from '#scheduler/fleet/capacity.ts';
import type { Machine } from '#scheduler/fleet/machine.ts';
import { FleetMetrics } from '#scheduler/fleet/metrics.ts';
import type { ContainerRow } from '#scheduler/stores/store/queries/containers.ts';
import type { WorkspaceShare } from '#scheduler/domain/shares.ts';
import type { Place } from '#scheduler/stores/store/queries/container-placements.ts';
import { TestClock } from '../../helpers/test-clock.ts';
import { waitFor } from '../../helpers/programs.ts';

const GIB = 1024 ** 3;
const W = 'w' as WorkspaceId;
const running: Placer[] = [];
afterEach(() => running.splice(0).forEach((placer) => placer.stop()));

interface Asked {
  readonly gpuCount?: number;
  readonly queue?: string;
  readonly workspaceId?: string;
  readonly image?: string;
}

/** A fleet of machines with one GPU each; rows are objects, and writes change them at once. */
class Fleet {
  readonly clock = new TestClock();
  readonly entries = new Map<ContainerId, ContainerEntry>();
  readonly machines = new Map<MachineId, Machine>();
  readonly given: { readonly id: ContainerId; readonly reason: unknown }[] = [];
  readonly images = new Map<string, { readonly machines: ReadonlySet<MachineId>; readonly inRegistry: boolean }>();
  interruptible: readonly PossibleVictim[] = [];
  limit: number | null = null;
  readonly shares = new Map<string, WorkspaceShare>();
  /** Machines whose rows other processes filled, which takes nothing until the rows are read. */
  readonly taken = new Set<MachineId>();
  /** Containers that end while their place is being written. */
  readonly gone = new Set<ContainerId>();
  /** Reads of facts that fail, by their number. */
  factsFail: readonly number[] = [];
  factsRead = 0;
  whenRead: () => void = () => undefined;
  askedWhoLeads = 0;
  leads = true;
  readonly #registry = new Registry();
  readonly metrics = new FleetMetrics(this.#registry);
  readonly parts: PlacementParts;
  readonly placer: Placer;
  #made = 0;

  constructor(machines: number) {
    for (let n = 0; n < machines; n += 1) this.addMachine();
    const registry = this.#registry;
    const log = createLog({ name: 'test', level: 'silent' });
    const parts = {
      containers: this.#containers(),
      machines: {
        get: (id: MachineId) => this.machines.get(id),
        all: () => this.machines.values(),
        capacity: (machine: Machine) => capacityOf(machine, this.#on(machine.row.id)),
      },
      clock: this.clock,
      log,
      metrics: this.metrics,
      loops: new LoopMetrics(registry, this.clock),
      fence: () => {
        this.askedWhoLeads += 1;
        return this.leads ? 1 : undefined;
      },
      cpuWorkAllowed: () => true,
      isGuarded: () => false,
      reserveGraceMs: 0,
      preemptions: { candidates: () => this.interruptible, carryOut: () => Promise.resolve() },
      bindVolumes: () => Promise.resolve(true),
      volumeHomes: () => Promise.resolve(new Map()),
      imagePlaces: (images: readonly string[]) =>
        Promise.resolve(new Map(images.flatMap((one) => (this.images.has(one) ? [[one, this.images.get(one)]] : [])))),
      quotas: (workspaces: ReadonlySet<WorkspaceId>) => {
        this.factsRead += 1;
        if (this.factsFail.includes(this.factsRead)) return Promise.reject(new Error('the database is away'));
        const quota = { gpus: null, cpuMillicores: null, containers: this.limit };
        const shareOf = (id: string) => (this.shares.has(id) ? { share: this.shares.get(id) } : {});
        const read = [...workspaces].map((id) => [id, { ...quota, ...shareOf(id) }] as const);
        this.whenRead();
        return Promise.resolve(new Map(read));
      },
    };
    this.parts = parts as unknown as PlacementParts;
    this.placer = new Placer(this.parts);
    running.push(this.placer);
  }

  #on(id: MachineId): ContainerEntry[] {
    return [...this.entries.values()].filter(({ row }) => row.machineId === id);
  }

  #containers() {
    return {
      get: (id: ContainerId) => this.entries.get(id),
      all: () => this.entries.values(),
      pending: () => [...this.entries.values()].filter(({ row }) => row.state === 'PENDING'),
      noteRejections: () => Promise.resolve(),
      readMissed: () => {
        this.taken.clear();
        return Promise.resolve();
      },
      assign: (id: ContainerId, place: Place) => {
        if (this.gone.has(id)) {
          this.move(id, 'STOPPED');
          return Promise.resolve('refused');
        }
        if (this.taken.has(place.machineId)) return Promise.resolve('no_room');
        const { machineId, gpuUuids } = place;
        this.move(id, 'ASSIGNED', { machineId, gpuUuids });
        return Promise.resolve('moved');
      },
      transition: (id: ContainerId, _event: string, { change }: { readonly change: { readonly reason: unknown } }) => {
        this.given.push({ id, reason: change.reason });
        this.move(id, 'FAILED');
        return Promise.resolve('moved');
      },
    };
  }

  addMachine(): Machine {
    const id = `m-${this.machines.size}` as MachineId;
    const gpu = { uuid: `${id}-gpu`, model: 'A10G', numaNode: 0, unhealthy: false };
    const inventory = { arch: 'x86_64', cpuMillicores: 8000, memoryBytes: 16 * GIB, gpus: [gpu], images: [] };
    const reserved = { reservedCpuCores: null, reservedMemoryMib: null };
    const settings = {
      ...reserved,
      requiresPoolSelector: false,
      priority: 0,
      cpuOvercommit: 1,
      cpuWorkOnGpuMachines: null,
    };
    const row = {
      id,
      poolName: 'default',
      poolWorkspaceId: null,
      labels: {},
      poolSettings: settings,
      intent: 'active',
    };
    const machine = {
      row: { ...row, hostDrainUntilMs: null, systemCordon: false },
      health: 'READY',
      inventory,
      conditions: [],
      orphans: new Map(),
      diskFreeBytes: null,
    } as unknown as Machine;
    this.machines.set(id, machine);
    return machine;
  }

  wants({ gpuCount = 1, queue = 'q', workspaceId = W, image = 'registry.test/app:1' }: Asked = {}): ContainerEntry {
    const id = `c-${(this.#made += 1)}` as ContainerId;
    const entry = {
      row: {
        id,
        workspaceId,
        state: 'PENDING',
        machineId: null,
        gpuUuids: [],
        epoch: 0,
        rejections: null,
        createdAtMs: this.clock.nowMs() + this.#made,
      },
      spec: {
        queue: queue as QueueName,
        poolName: '',
        cpuMillicores: 1000,
        memoryBytes: GIB,
        gpu: gpuCount === 0 ? [] : ['A10G'],
        gpuCount,
        wire: { image, volumes: [] },
      },
      tail: Promise.resolve(),
    } as unknown as ContainerEntry;
    this.entries.set(id, entry);
    this.#tell(entry, null);
    return entry;
  }

  move(id: ContainerId, to: ContainerState, change: Partial<ContainerRow> = {}): void {
    const entry = this.entries.get(id);
    if (entry === undefined) throw new Error(`there is no ${id}`);
    const before = entry.row;
    entry.row = { ...before, state: to, ...(to === 'PENDING' ? { machineId: null, gpuUuids: [] } : {}), ...change };
    if (isTerminalContainer(to)) this.entries.delete(id);
    this.#tell(entry, before);
  }

  #tell(entry: ContainerEntry, before: ContainerRow | null): void {
    const machineBefore = before?.machineId ?? null;
    const [from, to] = [before?.state ?? null, entry.row.state];
    this.placer.containerChanged({ entry, from, to, machineBefore, before });
  }

  set(machine: Machine, intent: 'active' | 'cordoned'): void {
    machine.row = { ...machine.row, intent };
    this.placer.machineChanged(machine);
  }
}

const isPlaced = (entry: ContainerEntry) => waitFor(() => entry.row.state === 'ASSIGNED', `${entry.row.id} is placed`);
const isRefused = (entry: ContainerEntry, reason: string) =>
  waitFor(() => (rejectionsOf(entry)?.[reason] ?? 0) > 0, `${entry.row.id} is refused: ${reason}`);
/** A fleet whose GPUs are all taken, with the containers that have them. */
async function aFull(
  machines: number,
): Promise<{ readonly fleet: Fleet; readonly holders: readonly ContainerEntry[] }> {
  const fleet = new Fleet(machines);
  fleet.placer.start();
  const holders = Array.from({ length: machines }, () => fleet.wants({ queue: 'holders' }));
  await Promise.all(holders.map(isPlaced));
  return { fleet, holders };
}

describe('what waits', () => {
  test('gets what an ended container left, the oldest first', async () => {
    const { fleet, holders } = await aFull(2);
    const list = [fleet.wants({ queue: 'a' }), fleet.wants({ queue: 'b' }), fleet.wants({ queue: 'a' })];
    await isRefused(list[2]!, 'gpu_count');
    for (const [index, one] of holders.entries()) {
      fleet.move(one.row.id, 'STOPPED');
      await isPlaced(list[index]!);
    }
    expect(list[2]?.row.state).toBe('PENDING');
    fleet.set(fleet.addMachine(), 'active');
    await isPlaced(list[2]!);
  });

  test('and was there before the loop began is placed, too', async () => {
    const fleet = new Fleet(1);
    const [first, second] = [fleet.wants(), fleet.wants()];
    fleet.placer.start();
    await isPlaced(first);
    await isRefused(second, 'gpu_count');
  });

  test('comes back to its place in the line after its back-off, and avoids the machine that sent it back', async () => {
    const { fleet, holders } = await aFull(2);
    const waiting = fleet.wants();
    fleet.move(holders[0]!.row.id, 'PENDING');
    await isPlaced(waiting);
    fleet.move(holders[1]!.row.id, 'STOPPED');
    await isPlaced(holders[0]!);
    expect(holders[0]?.row.machineId).not.toBe(waiting.row.machineId);
  });

  test('at the limits of its workspace goes when another container of it ends, or when they are raised', async () => {
    const fleet = new Fleet(4);
    fleet.limit = 1;
    fleet.placer.start();
    const [first, second, third] = [fleet.wants({ queue: 'a' }), fleet.wants(), fleet.wants({ queue: 'a' })];
    await isPlaced(first);
    await isRefused(second, 'quota');
    fleet.move(first.row.id, 'STOPPED');
    await isPlaced(second);
    await isRefused(third, 'quota');
    fleet.limit = 2;
    fleet.placer.limitsChanged(W);
    await isPlaced(third);
  });

  test('counts what has a place already, and does not count one that came back', async () => {
    const fleet = new Fleet(2);
    const first = fleet.wants();
    fleet.move(first.row.id, 'RUNNING', { machineId: 'm-0' as MachineId, gpuUuids: ['m-0-gpu'] });
    fleet.limit = 1;
    fleet.placer.start();
    const second = fleet.wants({ queue: 'b' });
    await isRefused(second, 'quota');
    fleet.move(second.row.id, 'STOPPED');
    fleet.move(first.row.id, 'PENDING');
    await isPlaced(first);
  });

  test('for an image that was built here goes when a machine has it', async () => {
    const fleet = new Fleet(1);
    const wanted: string[] = [];
    fleet.placer.onImageAway(({ spec }) => void wanted.push(spec.wire.image ?? ''));
    fleet.placer.start();
    const image = `longshore.internal/${'a'.repeat(32)}`;
    const entry = fleet.wants({ image });
    await isRefused(entry, 'image_unavailable');
    expect(wanted).toEqual([image]);
    fleet.images.set(image, { machines: new Set(fleet.machines.keys()), inRegistry: false });
    fleet.placer.imagesChanged();
    await isPlaced(entry);
  });

  test('is tried again when facts about it could not be read, and what was chosen meanwhile is not lost', async () => {
    const fleet = new Fleet(1);
    fleet.limit = 1;
    fleet.factsFail = [2];
    const first = fleet.wants();
    const others: ContainerEntry[] = [];
    // The first one is chosen when facts about the other are read.
    fleet.whenRead = () => {
      if (others.length === 0) others.push(fleet.wants({ workspaceId: 'other' }));
    };
    fleet.placer.start();
    await isPlaced(first);
    await isRefused(others[0]!, 'gpu_count');
    expect(fleet.factsRead).toBeGreaterThan(2);
  });

  test('finds another machine where rows that nobody knew hold the chosen one', async () => {
    const fleet = new Fleet(2);
    fleet.taken.add('m-0' as MachineId);
    fleet.placer.start();
    const list = [fleet.wants(), fleet.wants()];
    await Promise.all(list.map(isPlaced));
    expect(new Set(list.map(({ row }) => row.machineId)).size).toBe(2);
  });

  test('is left to another leader', async () => {
    const fleet = new Fleet(1);
    fleet.leads = false;
    fleet.placer.start();
    const entry = fleet.wants();
    await waitFor(() => fleet.askedWhoLeads > 0, 'a round is asked for');
    expect(entry.row.state).toBe('PENDING');
    fleet.leads = true;
    fleet.placer.wake();
    await isPlaced(entry);
  });
});

describe('the share of a workspace', () => {
  const guaranteed = (amount: number): WorkspaceShare => ({ weight: 2, guaranteed: { A10G: amount }, limits: {} });

  test('is known where nothing of it waits: when the process begins to lead, and after a change', async () => {
    const fleet = new Fleet(2);
    const held = fleet.wants();
    fleet.move(held.row.id, 'RUNNING', { machineId: 'm-0' as MachineId, gpuUuids: ['m-0-gpu'] });
    fleet.shares.set(W, guaranteed(1));
    fleet.placer.start();
    const isReported = (share: object) =>
      waitFor(() => {
        // A report is good for a second.
        fleet.clock.aheadMs += 1000;
        return isDeepStrictEqual(
          fleet.placer.shareReport().map(({ weight, guaranteed: amount }) => ({ weight, amount })),
          [share],
        );
      }, 'the report has the share');
    await isReported({ weight: 2, amount: 1 });
    fleet.shares.set(W, guaranteed(2));
    fleet.placer.limitsChanged(W);
    await isReported({ weight: 2, amount: 2 });
    // The share changes once more while it is read.
    fleet.shares.set(W, guaranteed(3));
    fleet.whenRead = () => {
      fleet.whenRead = () => undefined;
      fleet.shares.set(W, guaranteed(4));
      fleet.placer.limitsChanged(W);
    };
    fleet.placer.limitsChanged(W);
    await isReported({ weight: 2, amount: 4 });
  });
});

describe('what is counted', () => {
  test('is corrected by the rows, where a change was not told', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    try {
      const { fleet, holders } = await aFull(2);
      const corrected = vi.spyOn(fleet.metrics.ledgerFaults, 'inc');
      fleet.limit = 2;
      fleet.placer.limitsChanged(W);
      // Nobody hears that one has ended.
      fleet.entries.delete(holders[0]!.row.id);
      const waiting = fleet.wants();
      await isRefused(waiting, 'quota');
      vi.advanceTimersByTime(30_000);
      await isPlaced(waiting);
      expect(corrected.mock.calls).toEqual([[1]]);
      // Nobody hears that one runs elsewhere.
      const [first] = fleet.machines.keys();
      waiting.row = { ...waiting.row, machineId: `${first}-other` as MachineId };
      vi.advanceTimersByTime(30_000);
      await waitFor(() => corrected.mock.calls.length === 2, 'it is corrected');
      vi.advanceTimersByTime(30_000);
      fleet.move(waiting.row.id, 'STOPPED');
      await isPlaced(fleet.wants());
      expect(corrected).toHaveBeenCalledTimes(2);
    } finally {
      vi.useRealTimers();
    }
  });
});

describe('memory', () => {
  test('keeps no times of devices whose machine is gone', () => {
    const told: PlacementMachine[] = [];
    const fleet = new Fleet(1);
    const facts = new MachineFacts(fleet.parts, {
      machine: () => told.at(-1),
      setMachine: (one) => void told.push(one),
      deleteMachine: () => undefined,
    });
    const [[id, machine] = []] = fleet.machines;
    const leasedAtMs = (): unknown => {
      facts.touch(id!);
      facts.refresh(() => false);
      return told.at(-1)?.gpus[0]?.leasedAtMs;
    };
    facts.leased(['m-0-gpu'], 7);
    expect(leasedAtMs()).toBe(7);
    fleet.machines.delete(id!);
    leasedAtMs();
    fleet.machines.set(id!, machine!);
    expect(leasedAtMs()).toBe(0);
  });

  test('keeps no back-off of a container that ended while its place was written', async () => {
    const rest = vi.spyOn(PlacementBackoff.prototype, 'rest');
    const fleet = new Fleet(2);
    const entry = fleet.wants();
    fleet.gone.add(entry.row.id);
    fleet.placer.start();
    await waitFor(() => entry.row.state === 'STOPPED', 'it has ended');
    const next = fleet.wants();
    await isPlaced(next);
    expect(rest).not.toHaveBeenCalled();
    rest.mockRestore();
  });
});

describe('giving up', () => {
  test('also ends the wait of containers whose class no machine takes, unless a machine is on its way', async () => {
    const { fleet } = await aFull(1);
    const list = [fleet.wants(), fleet.wants(), fleet.wants()];
    await isRefused(list[2]!, 'gpu_count');
    const awaited = list[1]!.row.id;
    fleet.placer.growsBy({ isAwaited: (id) => id === awaited, isLimited: () => false });
    fleet.clock.aheadMs += 21 * 60_000;
    fleet.placer.wake();
    await waitFor(() => fleet.given.length === 2, 'two have given up');
    expect(fleet.given.map(({ id }) => id)).toEqual([list[0]!.row.id, list[2]!.row.id]);
    expect(fleet.given[0]?.reason).toBe('gpu_unavailable');
    expect(list[1]?.row.state).toBe('PENDING');
    fleet.clock.aheadMs += 40 * 60_000;
    fleet.placer.wake();
    await waitFor(() => fleet.given.length === 3, 'the third has given up');
  });

  test('asks why pools do not grow for those alone that give up, not for those that others could end for', async () => {
    const { fleet, holders } = await aFull(1);
    fleet.interruptible = [{ id: holders[0]!.row.id, sinceMs: 0 }];
    const asked = { awaited: 0, limited: 0 };
    fleet.placer.growsBy({
      isAwaited: () => (asked.awaited += 1) < 0,
      isLimited: () => (asked.limited += 1) < 0,
    });
    const entry = fleet.wants();
    await isRefused(entry, 'gpu_count');
    fleet.clock.aheadMs += 60_000;
    fleet.placer.wake();
    await waitFor(() => asked.awaited > 0, 'containers that may end are looked for');
    expect(asked.limited).toBe(0);
    fleet.clock.aheadMs += 21 * 60_000;
    fleet.placer.wake();
    await waitFor(() => fleet.given.length === 1, 'it has given up');
    expect(asked.limited).toBe(1);
  });

  test('ends the wait of one that machines always send back', async () => {
    const fleet = new Fleet(1);
    fleet.placer.start();
    const entry = fleet.wants();
    for (let times = 0; times < 3; times += 1) {
      await isPlaced(entry);
      fleet.move(entry.row.id, 'PENDING');
      fleet.clock.aheadMs += 60_000;
      fleet.placer.wake();
    }
    await isPlaced(entry);
    fleet.clock.aheadMs += 20 * 60_000;
    fleet.move(entry.row.id, 'PENDING');
    fleet.clock.aheadMs += 60_000;
    fleet.placer.wake();
    await waitFor(() => fleet.given.length === 1, 'it has given up');
    expect(fleet.given[0]?.reason).toBe('machine_rejected');
  });
});
