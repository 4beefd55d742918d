// Machines that are kept for containers which need much: such a container gets its place, and others what is left.
import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import * as clearing from '#scheduler/control/plan/clearing.ts';
import type { PlacementMachine } from '#scheduler/control/plan/filter.ts';
import type { Wanted } from '#scheduler/control/plan/fit-class.ts';
import { placeContainer } from '#scheduler/control/plan/place.ts';
import { RecordedPlanner } from '#scheduler/control/plan/recorded-planner.ts';
import type { Reservation } from '#scheduler/control/plan/reservations.ts';
import { DEFAULT_SHARE, DEFAULT_SHARING } from '#scheduler/domain/shares.ts';
import { stories } from '../../helpers/stories.ts';
import { aMachine, aWanted, gpus, ids, MIB } from './made.ts';
import { Played } from './played.ts';
import { Recorded } from './recorded.ts';

const SECOND = 1000;
const AFTER_MS = 60 * SECOND;

const machineOf = (n: number, devices = 8, changes: Partial<PlacementMachine> = {}): PlacementMachine =>
  aMachine({
    machineId: `m-${n}` as MachineId,
    gpus: gpus(
      'H100',
      Array.from({ length: devices }, () => true),
      `m-${n}`,
    ),
    ...changes,
  });
const asks = (gpuCount: number, said: Partial<Wanted> = {}): Wanted =>
  aWanted({
    workspaceId: `w-${gpuCount}` as WorkspaceId,
    gpu: gpuCount === 0 ? [] : ['H100'],
    gpuCount,
    cpuMillicores: 10,
    memoryBytes: MIB,
    createdAtMs: 0,
    ...said,
  });
const WORKSPACES = ['w-0', 'w-1', 'w-2', 'w-3', 'w-4', 'w-7', 'w-8', 'w-much', 'w-a', 'w-b', 'w-c'] as WorkspaceId[];
const reserved = ({ planner }: Played): Reservation[] => [...planner.reservations.all()];
const reservedOn = (played: Played): string[] => reserved(played).map(({ machineId }) => machineId);
/** The container has a place there, as its row says. */
function runs(played: Played, wanted: Wanted, on: string, devices: readonly number[], endsAtMs?: number): void {
  const gpuUuids = devices.map((n) => `${on}-${n}`);
  const machineId = on as MachineId;
  const there = played.planner.machine(machineId);
  played.planner.hold(wanted.id, { ...wanted, machineId, gpuUuids, ...(endsAtMs === undefined ? {} : { endsAtMs }) });
  played.placed.push({ wanted, choice: { machineId, gpuUuids } });
  if (there === undefined) return;
  played.set({
    ...there,
    freeCpuMillicores: there.freeCpuMillicores - wanted.cpuMillicores,
    freeMemoryBytes: there.freeMemoryBytes - wanted.memoryBytes,
    gpus: there.gpus.map((gpu) => (gpuUuids.includes(gpu.uuid) ? { ...gpu, free: false } : gpu)),
  });
}
const ends = (played: Played, wanted: Wanted): void =>
  played.end(played.placed.findIndex((one) => one.wanted.id === wanted.id));
const fleetOf = (...machines: readonly PlacementMachine[]): Played => {
  const played = new Played();
  for (const one of machines) played.set(one);
  for (const id of WORKSPACES) played.planner.setShare(id, DEFAULT_SHARE);
  played.nowMs = AFTER_MS;
  return played;
};

/** A request for a whole machine among requests for one GPU, which keep coming. @returns when it got its place */
function amongOnes(seconds: number, lifeSeconds: number, reserveAfterSeconds: number | null) {
  const played = fleetOf(machineOf(1), machineOf(2));
  played.planner.setSharing({ ...DEFAULT_SHARING, reserveAfterSeconds });
  const endsAt = new Map<ContainerId, number>();
  let [made, ones] = [0, 0];
  const large = asks(8);
  let placedAt: number | undefined;
  for (let second = 0; second < seconds; second += 1) {
    played.nowMs = second * SECOND;
    for (const { wanted } of [...played.placed])
      if ((endsAt.get(wanted.id) ?? Infinity) <= second) ends(played, wanted);
    if (second === 10) played.planner.add({ ...large, createdAtMs: played.nowMs });
    // More wait than there is room for, each of a workspace that holds nothing.
    while ([...played.planner.waiting].length < 20)
      played.planner.add(asks(1, { workspaceId: `one-${(made += 1)}` as WorkspaceId, createdAtMs: played.nowMs }));
    for (const wanted of played.round()) {
      if (wanted.id === large.id) placedAt ??= second;
      else ones += 1;
      // Their ends are spread, so that the GPUs of a machine are never free together.
      endsAt.set(wanted.id, second + 1 + ((ones * 7) % lifeSeconds));
    }
  }
  return { placedAt, ones };
}

describe('a request for eight GPUs among requests for one', () => {
  test('never gets its place without a reservation', () => {
    expect(amongOnes(900, 30, null).placedAt).toBeUndefined();
  });

  test('gets it once those have ended that ran there when it had waited for a minute', () => {
    const { placedAt } = amongOnes(900, 30, 60);
    expect(placedAt).toBeGreaterThanOrEqual(70);
    expect(placedAt).toBeLessThanOrEqual(70 + 30 + 1);
  });

  test('costs the others little', () => {
    const [without, beside] = [amongOnes(900, 30, null), amongOnes(900, 30, 60)];
    expect(beside.ones).toBeGreaterThan(0.9 * without.ones);
  });
});

describe('a machine is reserved', () => {
  test('for several GPUs or half of a machine, after a minute by the time of the row', () => {
    for (const [wanted, is] of [
      [asks(2), true],
      [asks(1), false],
      [asks(1, { cpuMillicores: 2000 }), true],
      [asks(1, { memoryBytes: 4096 * MIB }), true],
      [asks(1, { cpuMillicores: 1999 }), false],
    ] as const) {
      const played = fleetOf(machineOf(1, 2));
      const one = asks(1);
      runs(played, one, 'm-1', [0]);
      runs(played, asks(1), 'm-1', [1]);
      played.planner.add(wanted);
      played.nowMs = AFTER_MS - 1;
      played.round();
      expect(reserved(played)).toEqual([]);
      played.nowMs += SECOND;
      played.round();
      expect(reservedOn(played)).toEqual(is ? ['m-1'] : []);
    }
  });

  test('in a large fleet by a search that goes on for several looks, and finds the cheapest of all', () => {
    const count = 600;
    const played = fleetOf(...Array.from({ length: count }, (_, n) => machineOf(n)));
    for (let n = 0; n < count; n += 1) {
      runs(played, asks(4), `m-${n}`, [0, 1, 2, 3]);
      // A single machine has a free GPU.
      runs(played, asks(4), `m-${n}`, n === 550 ? [4, 5, 6] : [4, 5, 6, 7]);
    }
    const compared = vi.spyOn(clearing, 'cheapestClearing');
    played.planner.add(asks(8));
    const looks: number[] = [];
    let nowMs = AFTER_MS;
    for (let again = true; again && looks.length < 10;) {
      compared.mockClear();
      played.round();
      looks.push(compared.mock.calls.length);
      again = reserved(played).length === 0;
      nowMs += 50;
      played.nowMs = nowMs;
    }
    expect(reservedOn(played)).toEqual(['m-550']);
    expect(looks).toEqual([256, 256, 89]);
    expect(Math.max(...looks)).toBeLessThanOrEqual(257);
    // A search for a better machine compares them all, so it comes the more seldom.
    compared.mockClear();
    for (let second = 0; second < 60; second += 1) {
      nowMs += SECOND;
      played.nowMs = nowMs;
      played.round();
    }
    expect(compared.mock.calls.length).toBeLessThanOrEqual(60 * 256);
    compared.mockRestore();
  });

  test('for a container without a GPU that needs half of it', () => {
    const played = fleetOf(aMachine({ machineId: 'c-1' as MachineId }), aMachine({ machineId: 'c-2' as MachineId }));
    for (const on of ['c-1', 'c-2'])
      for (const cpu of [1500, 1500]) runs(played, asks(0, { cpuMillicores: cpu }), on, []);
    played.planner.add(asks(0, { cpuMillicores: 3500 }));
    const small = asks(0, { cpuMillicores: 1000 });
    played.planner.add(small);
    expect(played.round()).toEqual([small]);
    expect(reserved(played)).toHaveLength(1);
    expect(played.placed.at(-1)?.choice.machineId).not.toBe(reservedOn(played)[0]);
    // CPU that is free on the reserved machine is kept, until enough is.
    played.planner.add(asks(0, { cpuMillicores: 1000, createdAtMs: 1 }));
    expect(played.round()).toEqual([]);
  });

  test('that has the fewest GPUs held without a known end, then the soonest end', () => {
    const played = fleetOf(machineOf(1, 4), machineOf(2, 4), machineOf(3, 4), machineOf(4, 4));
    runs(played, asks(4), 'm-1', [0, 1, 2, 3]);
    runs(played, asks(3), 'm-2', [0, 1, 2]);
    runs(played, asks(4, { id: 'c-later' as ContainerId }), 'm-3', [0, 1, 2, 3], 10 * AFTER_MS);
    runs(played, asks(4), 'm-4', [0, 1, 2, 3], 9 * AFTER_MS);
    played.planner.add(asks(4));
    played.round();
    expect(reservedOn(played)).toEqual(['m-4']);
  });

  test('where less is held that nothing may interrupt', () => {
    const firm = fleetOf(machineOf(1, 2), machineOf(2, 2), machineOf(3, 2));
    for (const on of ['m-1', 'm-2', 'm-3'])
      for (const device of [0, 1]) {
        const one = asks(1);
        runs(firm, one, on, [device]);
        // The row tells it once the container has its place.
        const holding = firm.planner.ledger.get(one.id)!;
        firm.planner.hold(one.id, { ...holding, ...(on === 'm-2' ? { interruptible: true } : {}) });
      }
    firm.planner.add(asks(2));
    firm.round();
    expect(reservedOn(firm)).toEqual(['m-2']);
  });

  test('on devices of interruptible containers first', () => {
    const played = fleetOf(machineOf(1, 4));
    for (const device of [0, 1, 2, 3]) {
      const one = asks(1);
      runs(played, one, 'm-1', [device]);
      const holding = played.planner.ledger.get(one.id)!;
      played.planner.hold(one.id, { ...holding, ...(device > 1 ? { interruptible: true } : {}) });
    }
    played.planner.add(asks(2));
    played.round();
    expect([...reserved(played)[0]!.gpuUuids].toSorted()).toEqual(['m-1-2', 'm-1-3']);
  });

  test('by the end of all that its container needs, also of those that hold only CPU there', () => {
    const played = fleetOf(machineOf(1, 2), machineOf(2, 2));
    runs(played, asks(0, { cpuMillicores: 2000 }), 'm-1', []);
    for (const on of ['m-1', 'm-2']) runs(played, asks(1), on, [0], 2 * AFTER_MS);
    played.planner.add(asks(2, { cpuMillicores: 3000 }));
    played.round();
    expect(reservedOn(played)).toEqual(['m-2']);
    // A container that is not in its way is not waited for.
    const [holder, small] = [played.placed.at(-1)!.wanted, asks(0, { id: 'c-small' as ContainerId })];
    const other = fleetOf(machineOf(1, 2));
    runs(other, holder, 'm-1', [0]);
    runs(other, small, 'm-1', []);
    other.planner.add(asks(2, { cpuMillicores: 3000 }));
    other.round();
    const isAwaited = ({ id }: Wanted): boolean => other.planner.reservations.isAwaited(id, 'm-1' as MachineId);
    expect([isAwaited(holder), isAwaited(small)]).toEqual([true, false]);
  });

  test('until it has room for a workspace that has less than is guaranteed to it', () => {
    const played = fleetOf(machineOf(1, 4), machineOf(2, 4));
    for (const on of ['m-1', 'm-2']) for (const device of [0, 1, 2, 3]) runs(played, asks(1), on, [device]);
    const large = asks(4);
    played.planner.add(large);
    played.round();
    expect(reservedOn(played)).toEqual(['m-1']);
    played.end(0);
    const [other, guaranteed] = ['w-a', 'w-b'].map((id) => asks(1, { workspaceId: id as WorkspaceId }));
    played.planner.add(other!);
    played.nowMs = 2 * AFTER_MS;
    expect(played.round()).toEqual([]);
    played.shares.set('w-b', { ...DEFAULT_SHARE, guaranteed: { H100: 1 } });
    played.planner.shareChanged('w-b' as WorkspaceId);
    played.planner.add(guaranteed!);
    played.round();
    played.nowMs += SECOND;
    played.round();
    expect(played.placed.at(-1)).toMatchObject({ wanted: guaranteed, choice: { machineId: 'm-1' } });
    // Then a machine is kept again.
    played.nowMs += 2 * SECOND;
    played.round();
    expect(reserved(played).map(({ item }) => item.wanted.id)).toEqual([large.id]);
    ends(played, played.placed.find(({ choice }) => choice.machineId === reservedOn(played)[0])!.wanted);
    expect(played.round()).toEqual([]);
  });

  test('where its GPUs are linked as the container asks', () => {
    const linked = (islands: readonly number[]) =>
      machineOf(1, 4).gpus.map((gpu, n) => ({ ...gpu, nvlinkIsland: islands[n] ?? 0 }));
    const played = fleetOf({ ...machineOf(1, 4), gpus: linked([1, 1, 2, 2]) });
    runs(played, asks(1), 'm-1', [0]);
    for (const n of [2, 3]) runs(played, asks(1), 'm-1', [n], 2 * AFTER_MS);
    played.planner.add(asks(2, { gpuLink: 'island' }));
    played.round();
    expect([...(reserved(played)[0]?.gpuUuids ?? [])].toSorted()).toEqual(['m-1-2', 'm-1-3']);
  });

  test('not by arrival, not when it is off, and not while nothing may be reserved', () => {
    for (const sharing of [
      { ...DEFAULT_SHARING, order: 'arrival' as const },
      { ...DEFAULT_SHARING, reserveAfterSeconds: null },
    ]) {
      const played = fleetOf(machineOf(1, 2));
      runs(played, asks(1), 'm-1', [0]);
      played.planner.add(asks(2));
      played.round();
      expect(reserved(played)).toHaveLength(1);
      played.planner.setSharing(sharing);
      played.round();
      expect(reserved(played)).toEqual([]);
      const small = asks(1);
      played.planner.add(small);
      expect(played.round()).toEqual([small]);
    }
    const played = fleetOf(machineOf(1, 2));
    runs(played, asks(1), 'm-1', [0]);
    played.planner.add(asks(2));
    played.round();
    played.planner.reserve(null);
    expect(reserved(played)).toEqual([]);
  });

  test('one for each ten machines of a market, in the order in which workspaces stand', () => {
    const machines = Array.from({ length: 20 }, (_none, n) => machineOf(n, 2));
    const played = fleetOf(...machines);
    for (const { machineId } of machines)
      runs(played, asks(1, { workspaceId: 'w-much' as WorkspaceId }), machineId, [0]);
    const waiting = ['w-much', 'w-a', 'w-b', 'w-c'].map((id, n) =>
      asks(2, { workspaceId: id as WorkspaceId, createdAtMs: n }),
    );
    for (const one of waiting) played.planner.add(one);
    for (let n = 0; n < 5; n += 1) {
      played.nowMs = (played.nowMs ?? 0) + SECOND;
      played.round();
    }
    expect(reserved(played).map(({ item }) => item.wanted.workspaceId)).toEqual(['w-a', 'w-b']);
    for (const { machineId } of machines.slice(0, 12).filter((one) => !reservedOn(played).includes(one.machineId)))
      played.delete(machineId);
    played.round();
    expect(reserved(played).map(({ item }) => item.wanted.workspaceId)).toEqual(['w-a']);
  });

  test('one for the containers of a class, and a machine for one of them', () => {
    const devicesOf = (n: number): number => (n === 7 ? 4 : n === 8 || n === 9 ? 3 : 2);
    const machines = Array.from({ length: 40 }, (_none, n) => machineOf(n, devicesOf(n)));
    const played = fleetOf(...machines);
    for (const { machineId } of machines) runs(played, asks(1), machineId, [0]);
    for (const on of ['m-7', 'm-8', 'm-9']) runs(played, asks(1), on, [1]);
    const waiting = [asks(3), asks(3), asks(3, { workspaceId: 'w-2' as WorkspaceId }), asks(4)];
    for (const one of waiting) played.planner.add(one);
    for (let n = 0; n < 5; n += 1) {
      played.nowMs! += SECOND;
      played.round();
    }
    expect(reserved(played).map(({ item, machineId }) => [item.wanted, machineId])).toEqual([
      [waiting[0], 'm-7'],
      [waiting[2], 'm-8'],
    ]);
  });

  test('not while it is in doubt what the machine holds', () => {
    const played = fleetOf(machineOf(1, 2), machineOf(2, 2));
    for (const [on, at] of [
      ['m-1', 2],
      ['m-2', 3],
    ] as const)
      runs(played, asks(1), on, [0], at * AFTER_MS);
    played.planner.doubtful = ids('m-1');
    played.set(played.planner.machine('m-1' as MachineId)!);
    played.planner.add(asks(2));
    played.round();
    expect(reservedOn(played)).toEqual(['m-2']);
  });

  test('not where the workspace has a pool of its own, and not for what no machine ever has', () => {
    const played = fleetOf({ ...machineOf(1, 2), poolOwner: 'w-2' }, machineOf(2, 1));
    runs(played, asks(1), 'm-1', [0]);
    played.planner.add(asks(2));
    played.round();
    expect(reserved(played)).toEqual([]);
  });
});

describe('a reservation ends', () => {
  const kept = (): {
    readonly played: Played;
    readonly large: Wanted;
    readonly one: Wanted;
    readonly small: Wanted;
  } => {
    const played = fleetOf(machineOf(1, 2));
    const [one, large, small] = [asks(1), asks(2), asks(1, { createdAtMs: 1 })];
    runs(played, one, 'm-1', [0]);
    for (const wanted of [large, small]) played.planner.add(wanted);
    expect(played.round()).toEqual([]);
    expect(reservedOn(played)).toEqual(['m-1']);
    expect(played.planner.refusalsOf(played.planner.classOf(small), 0)).toEqual({ reserved: 1 });
    expect(played.planner.refusalsOf(played.planner.classOf(large), 0)).toEqual({ gpu_count: 1 });
    return { played, large, one, small };
  };

  test('with its container placed, which goes first, though another workspace has less', () => {
    const { played, large, one, small } = kept();
    ends(played, one);
    expect(played.planner.isBusy).toBe(true);
    expect(played.round()).toEqual([large]);
    expect(reserved(played)).toEqual([]);
    ends(played, large);
    expect(played.round()).toEqual([small]);
  });

  test('with its container placed elsewhere, and what was kept is given to others', () => {
    const { played, large, small } = kept();
    played.set(machineOf(2, 2));
    expect(played.round()).toEqual([large, small]);
    expect(played.placed.map(({ choice }) => choice.machineId)).toEqual(['m-1', 'm-2', 'm-1']);
    expect(reserved(played)).toEqual([]);
  });

  test('with its container gone', () => {
    const { played, large, small } = kept();
    played.planner.remove(large.id);
    expect(reserved(played)).toEqual([]);
    expect(played.round()).toEqual([small]);
  });

  test('with its machine gone, cordoned, smaller than needed or without a device', () => {
    const becomes: readonly ((now: PlacementMachine) => PlacementMachine | undefined)[] = [
      () => undefined,
      (now) => ({ ...now, intentActive: false }),
      (now) => ({ ...now, isPresent: false, ready: false }),
      (now) => ({ ...now, freeCpuMillicores: 0, totalCpuMillicores: 15 }),
      (now) => ({ ...now, gpus: now.gpus.map((gpu) => ({ ...gpu, healthy: gpu.uuid === 'm-1-0' })) }),
    ];
    for (const change of becomes) {
      const { played } = kept();
      // The market has other machines still.
      played.set(machineOf(2, 1));
      played.planner.add(asks(1));
      played.round();
      expect(reservedOn(played)).toEqual(['m-1']);
      const now = change(played.planner.machine('m-1' as MachineId)!);
      if (now === undefined) played.delete('m-1' as MachineId);
      else played.set(now.totalCpuMillicores === 15 ? { ...now, gpus: now.gpus.slice(0, 1) } : now);
      played.round();
      expect(reserved(played)).toEqual([]);
    }
  });

  test('not with a moment of silence of its machine', () => {
    const { played } = kept();
    played.set({ ...played.planner.machine('m-1' as MachineId)!, ready: false });
    played.round();
    expect(reservedOn(played)).toEqual(['m-1']);
  });

  test('with the limit of its workspace, and with a machine that its container must not have', () => {
    const { played, large, small } = kept();
    played.planner.setShare(large.workspaceId, { ...DEFAULT_SHARE, limits: { H100: 1 } });
    played.nowMs! += SECOND;
    expect(played.round()).toEqual([small]);
    expect(reserved(played)).toEqual([]);
    const told = kept();
    told.played.shares.set('w-2', { ...DEFAULT_SHARE, limits: { H100: 1 } });
    told.played.planner.shareChanged(told.large.workspaceId);
    told.played.round();
    told.played.nowMs! += SECOND;
    expect(told.played.round()).toEqual([told.small]);
    // The machine has room already when the limit is read: others get it in that round.
    const free = kept();
    ends(free.played, free.one);
    free.played.shares.set('w-2', { ...DEFAULT_SHARE, limits: { H100: 1 } });
    free.played.planner.shareChanged(free.large.workspaceId);
    expect(free.played.round()).toEqual([free.small]);
    expect(reserved(free.played)).toEqual([]);
    const other = kept();
    other.played.shunned.set(other.large.id, ids('m-1'));
    other.played.nowMs! += SECOND;
    expect(other.played.round()).toEqual([other.small]);
  });

  test('not with doubt about its machine, nor with a quota, and its container is not placed then', () => {
    const { played, one, large } = kept();
    played.planner.doubtful = ids('m-1');
    ends(played, one);
    expect(played.round()).toEqual([]);
    expect(reservedOn(played)).toEqual(['m-1']);
    played.planner.doubtful = ids();
    played.set(played.planner.machine('m-1' as MachineId)!);
    played.quotas.set('w-2', { gpus: 1, cpuMillicores: null });
    expect(played.round()).toEqual([]);
    played.quotas.delete('w-2');
    expect(played.round()).toEqual([large]);
  });

  test('for another machine only when that is cheaper by a quarter', () => {
    for (const [free, on] of [
      [1, 'm-1'],
      [2, 'm-2'],
    ] as const) {
      const played = fleetOf(machineOf(1, 8), machineOf(2, 8));
      for (const n of [0, 1, 2, 3]) runs(played, asks(1), 'm-1', [n]);
      const others = [0, 1, 2, 3, 4].map((n) => {
        const one = asks(1);
        runs(played, one, 'm-2', [n]);
        return one;
      });
      played.planner.add(asks(8));
      played.round();
      expect(reservedOn(played)).toEqual(['m-1']);
      // Four are held on the first one, then four or three on the second one.
      for (const one of others.slice(0, free)) ends(played, one);
      played.nowMs! += SECOND;
      played.round();
      expect(reservedOn(played)).toEqual([on]);
    }
  });
});

test('a recording that begins between two looks is replayed', () => {
  const [recorded, planner] = [new Recorded(), new RecordedPlanner()];
  const look = (): void => {
    planner.setShare('w-2' as WorkspaceId, DEFAULT_SHARE);
    const { gpus: devices, ...rest } = machineOf(1, 2);
    planner.setMachine({ ...rest, gpus: devices.map((gpu, n) => ({ ...gpu, free: n > 0 })) });
    planner.add(asks(2));
    planner.reserve(AFTER_MS);
  };
  look();
  planner.record(recorded);
  look();
  expect([...planner.reservations.all()]).toHaveLength(1);
  expect(recorded.replayed()).toBeUndefined();
});

describe('beside a reservation', () => {
  /** A machine with five GPUs: a container holds one and half of CPU and memory, another one wants most of these. */
  const short = () => {
    const amounts = {
      freeCpuMillicores: 1000,
      totalCpuMillicores: 1000,
      freeMemoryBytes: 1000,
      totalMemoryBytes: 1000,
    };
    const played = fleetOf(machineOf(1, 5, amounts));
    const [before, large] = [
      asks(1, { cpuMillicores: 500, memoryBytes: 500 }),
      asks(2, { cpuMillicores: 900, memoryBytes: 900 }),
    ];
    runs(played, before, 'm-1', [0]);
    played.planner.add(large);
    return { played, before, large };
  };
  const beside = (cpuMillicores: number, memoryBytes = 0): Wanted =>
    asks(1, { cpuMillicores, memoryBytes, createdAtMs: 1 });

  test('others get devices that it does not need, and amounts beyond what it will need', () => {
    const { played } = short();
    const [tooMuch, tooLarge, fits, another] = [beside(101), beside(0, 101), beside(60, 60), beside(50)];
    for (const one of [tooMuch, tooLarge, fits, another]) played.planner.add(one);
    // Two of the four free GPUs are kept, and 900 of the 1000 millicores.
    expect(played.round()).toEqual([fits]);
    expect(reserved(played)[0]?.gpuUuids.size).toBe(2);
    expect(played.planner.machine('m-1' as MachineId)?.freeCpuMillicores).toBe(440);
  });

  test('a container that came later is not waited for, and holds nothing up when those before it have ended', () => {
    const { played, before, large } = short();
    const [fits, another] = [beside(100, 100), beside(10)];
    for (const one of [fits, another]) played.planner.add(one);
    expect(played.round()).toEqual([fits]);
    ends(played, before);
    expect(played.round()).toEqual([large]);
  });
});

const step = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constant('wait' as const),
      workspaceId: fc.constantFrom('w-1', 'w-2', 'w-3'),
      gpuCount: fc.constantFrom(0, 1, 1, 1, 2, 3, 4),
      cpuMillicores: fc.constantFrom(100, 500, 2500),
      count: fc.integer({ min: 1, max: 4 }),
    }),
  },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('end' as const), at: fc.nat() }) },
  { weight: 8, arbitrary: fc.record({ kind: fc.constant('round' as const), ms: fc.constantFrom(0, 500, 20_000) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('cancel' as const), at: fc.nat() }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('machine' as const),
      n: fc.nat({ max: 4 }),
      becomes: fc.constantFrom('gone', 'silent', 'cordoned', 'well'),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('limit' as const),
      workspaceId: fc.constantFrom('w-1', 'w-2', 'w-3'),
      most: fc.constantFrom(1, 4, 99),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('doubt' as const), machines: fc.constantFrom(ids(), ids('m-0')) }),
  },
  fc.record({ kind: fc.constant('sweep' as const) }),
  fc.record({ kind: fc.constant('guard' as const) }),
);
const fleet = fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 5 });
const LAST = Array.from({ length: 3 }, () => ({ kind: 'round' as const, ms: SECOND }));
type Steps = readonly (typeof step extends fc.Arbitrary<infer One> ? One : never)[];

/** Plays a story. @param check - called after each round */
function play(
  played: Played,
  devices: readonly number[],
  steps: Steps,
  check: (waiting: ReadonlyMap<ContainerId, Wanted>) => void = () => undefined,
): void {
  const { planner } = played;
  const fresh = (n: number): PlacementMachine => machineOf(n, devices[n] ?? 0, { cpuWorkAllowed: true });
  for (const n of devices.keys()) played.set(fresh(n));
  // Most devices are held when the story begins.
  for (const [n, count] of devices.entries())
    for (let at = 0; at < count - 1; at += 1)
      runs(played, asks(1, { id: `held-${n}-${at}` as ContainerId }), `m-${n}`, [at]);
  const waiting = new Map<ContainerId, Wanted>();
  let nowMs = 0;
  let made = 0;
  for (const one of [...steps, { kind: 'round' as const, ms: AFTER_MS }, ...LAST]) {
    if (one.kind === 'wait') {
      for (let n = 0; n < one.count; n += 1) {
        const wanted = asks(one.gpuCount, {
          id: `c-${(made += 1)}` as ContainerId,
          queue: `q-${one.gpuCount}` as QueueName,
          workspaceId: one.workspaceId as WorkspaceId,
          cpuMillicores: one.cpuMillicores,
          createdAtMs: nowMs,
        });
        waiting.set(wanted.id, wanted);
        planner.add(wanted);
      }
    } else if (one.kind === 'end') played.end(one.at);
    else if (one.kind === 'cancel') {
      const wanted = [...waiting.values()][one.at % Math.max(1, waiting.size)];
      if (wanted === undefined) continue;
      waiting.delete(wanted.id);
      planner.remove(wanted.id);
    } else if (one.kind === 'machine') {
      const id = `m-${one.n}` as MachineId;
      const now = planner.machine(id);
      if (now === undefined) {
        // A machine that comes back has what runs there.
        if (one.n < devices.length) played.set(withHeld(played, fresh(one.n)));
      } else if (one.becomes === 'gone') played.delete(id);
      else
        played.set({
          ...now,
          ready: one.becomes !== 'silent',
          intentActive: one.becomes !== 'cordoned',
        });
    } else if (one.kind === 'limit') {
      played.shares.set(one.workspaceId, { ...DEFAULT_SHARE, limits: { H100: one.most } });
      planner.shareChanged(one.workspaceId as WorkspaceId);
    } else if (one.kind === 'doubt') {
      const before = planner.doubtful;
      planner.doubtful = one.machines;
      for (const id of before.union(one.machines)) {
        const machine = planner.machine(id);
        if (machine !== undefined) played.set(machine);
      }
    } else if (one.kind === 'sweep') planner.forgetBlocks();
    else if (one.kind === 'guard') {
      if (played.nowMs !== undefined) planner.reserve(null);
    } else {
      nowMs += one.ms;
      if (played.nowMs !== undefined) played.nowMs = nowMs;
      for (const wanted of played.round()) waiting.delete(wanted.id);
      check(waiting);
    }
  }
}

function withHeld(played: Played, machine: PlacementMachine): PlacementMachine {
  const there = played.placed.filter(({ choice }) => choice.machineId === machine.machineId);
  const taken = new Set(there.flatMap(({ choice }) => choice.gpuUuids));
  const sum = (of: (wanted: Wanted) => number): number => there.reduce((all, { wanted }) => all + of(wanted), 0);
  return {
    ...machine,
    freeCpuMillicores: machine.freeCpuMillicores - sum(({ cpuMillicores }) => cpuMillicores),
    freeMemoryBytes: machine.freeMemoryBytes - sum(({ memoryBytes }) => memoryBytes),
    gpus: machine.gpus.map((gpu) => ({ ...gpu, free: !taken.has(gpu.uuid) })),
  };
}

describe('whatever happens', () => {
  test('a reserved machine has room for its container once those end who were there before; others find no place more', () => {
    let seen = 0;
    fc.assert(
      fc.property(fleet, fc.array(step, { maxLength: 60 }), (devices, steps) => {
        const recorded = new Recorded();
        const played = new Played([], recorded);
        const { planner } = played;
        played.nowMs = 0;
        planner.setSharing({ ...DEFAULT_SHARING, reserveAfterSeconds: 10 });
        play(played, devices, steps, (waiting) => {
          const all = reserved(played);
          seen += all.length;
          const present = played.machines().filter(({ isPresent }) => isPresent);
          for (const [market, some] of Map.groupBy(all, ({ market: { name } }) => name)) {
            const offered = market === 'cpu' ? present.length : present.filter((one) => one.gpus.length > 0).length;
            expect(some.length).toBeLessThanOrEqual(Math.max(1, Math.floor(offered / 10)));
          }
          for (const { item, machineId, awaited } of all) {
            expect(waiting.has(item.wanted.id)).toBe(true);
            const machine = planner.machine(machineId)!;
            const request = { ...played.requestOf(item.wanted), fullMarkets: new Set<string>(), avoid: ids() };
            const rest = played.placed.filter(
              ({ wanted, choice }) => choice.machineId === machineId && !awaited.has(wanted.id),
            );
            const only = new Played();
            only.placed.push(...rest);
            const cleared = withHeld(only, {
              ...machineOf(Number(machineId.slice(2)), machine.gpus.length, { cpuWorkAllowed: true }),
            });
            expect(placeContainer(request, [cleared]).kind).toBe('placed');
            if (machine.ready && !planner.doubtful.has(machineId))
              expect(placeContainer(request, [machine]).kind).toBe('rejected');
          }
          expect(new Set(all.map(({ item }) => item.fitClass)).size).toBe(all.length);
          const now = played.machines();
          expect([...waiting.values()].filter((one) => played.hasPlace(one, now))).toEqual([]);
        });
        for (const { item } of reserved(played)) expect([...played.fullMarkets(item.wanted)]).toEqual([]);
        expect(recorded.replayed()).toBeUndefined();
      }),
      { numRuns: stories(400) },
    );
    expect(seen).toBeGreaterThan(stories(400) / 2);
  });

  test('without reservations each decision is as if there were none', () => {
    fc.assert(
      fc.property(fleet, fc.array(step, { maxLength: 60 }), (devices, steps) => {
        const [off, never] = [new Played(), new Played()];
        off.nowMs = 0;
        off.planner.setSharing({ ...DEFAULT_SHARING, reserveAfterSeconds: null });
        const told = [off, never].map((played) => {
          play(played, devices, steps);
          return played.placed.map(({ wanted, choice }) => [wanted.id, choice]);
        });
        expect(told[0]).toEqual(told[1]);
      }),
      { numRuns: stories(200) },
    );
  });
});
