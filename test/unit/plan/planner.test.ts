// The plan of placement, compared with a look at every machine for every container that waits.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import type { PlacementMachine } from '#scheduler/control/plan/filter.ts';
import type { SharingOrder } from '#scheduler/domain/shares.ts';
import { DEFAULT_SHARING } from '#scheduler/domain/shares.ts';
import type { Wanted } from '#scheduler/control/plan/fit-class.ts';
import type { Choice } from '#scheduler/control/plan/place.ts';
import { placeContainer } from '#scheduler/control/plan/place.ts';
import { stories } from '../../helpers/stories.ts';
import { aMachine, aWanted, gpus, ids, machine, MIB, named, request } from './made.ts';
import { NO_QUOTA, Played } from './played.ts';
import { Recorded } from './recorded.ts';

/** Mostly machines that are in service and differ in what is free, now and then any. */
const mostly = fc.tuple(machine, fc.nat({ max: 9 })).map(([one, dice]): PlacementMachine =>
  dice === 0
    ? one
    : {
        ...one,
        ready: true,
        intentActive: true,
        blockedBy: [],
        arch: 'x86_64',
        poolOwner: null,
        requiresPoolSelector: false,
        basePythons: dice < 3 ? one.basePythons : null,
        volumeDrivers: dice < 3 ? one.volumeDrivers : new Set(['local', 'shared']),
        registry: dice < 5 ? one.registry : true,
        freeCpuMillicores: dice < 5 ? one.freeCpuMillicores : 1000 * (dice - 5),
        freeMemoryBytes: 2048 * MIB,
        gpus: one.gpus.slice(0, 2).map((gpu) => ({ ...gpu, model: 'A10G', healthy: true })),
      },
);
const fleet = fc.array(mostly, { minLength: 1, maxLength: 6 }).map(named);
const wanted = fc
  .record({
    asked: request,
    dice: fc.nat({ max: 9 }),
    queue: fc.constantFrom('q-1', 'q-2', 'q-3'),
    createdAtMs: fc.nat({ max: 50 }),
    builtImage: fc.constantFrom('', '', '', 'built-1', 'built-2'),
    volumes: fc.constantFrom<readonly string[]>([], [], [], ['v-1'], ['v-1', 'v-2']),
  })
  .map(({ asked, dice, queue, ...rest }): Partial<Wanted> => {
    const {
      avoid: _,
      overQuota: _o,
      fullMarkets: _f,
      siblings: _s,
      seed: _d,
      spreadCounts: _c,
      volumeHomes: _h,
      imageOnlyOn: _i,
      ...kept
    } = asked;
    const plain = { poolName: '', minCuda: '', basePython: '', arch: '', volumeDrivers: [] };
    const small = { cpuMillicores: 500 * (1 + (dice % 3)), memoryBytes: 256 * MIB, gpuCount: dice % 2 };
    return {
      ...kept,
      ...rest,
      workspaceId: asked.workspaceId as WorkspaceId,
      queue: queue as QueueName,
      ...(dice < 2 ? {} : { ...plain, ...small, gpu: dice < 4 ? ['A10G:>=24GiB:cc>=9.0'] : ['A10G'] }),
    };
  });
const someMachines = ids('m-0', 'm-1', 'm-2');
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ kind: fc.constant('wait' as const), one: wanted, count: fc.integer({ min: 1, max: 4 }) }),
  },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('end' as const), at: fc.nat() }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('cancel' as const), at: fc.nat() }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant('machine' as const), at: fc.nat({ max: 7 }), becomes: mostly }),
  },
  fc.record({ kind: fc.constant('gone' as const), at: fc.nat({ max: 7 }) }),
  fc.record({
    kind: fc.constant('limit' as const),
    workspace: fc.constantFrom('w-1', 'w-2'),
    most: fc.constantFrom(null, 0, 1, 3),
  }),
  fc.record({ kind: fc.constant('home' as const), volume: fc.constantFrom('v-1', 'v-2'), at: fc.nat({ max: 3 }) }),
  fc.record({
    kind: fc.constant('image' as const),
    name: fc.constantFrom('built-1', 'built-2'),
    inRegistry: fc.boolean(),
  }),
  fc.record({ kind: fc.constant('doubt' as const), machines: fc.constantFrom(ids(), ids('m-0'), someMachines) }),
  fc.record({ kind: fc.constant('shun' as const), at: fc.nat(), machines: fc.constantFrom(ids('m-0'), someMachines) }),
  fc.record({
    kind: fc.constant('share' as const),
    workspace: fc.constantFrom('w-1', 'w-2'),
    share: fc.record({
      weight: fc.constantFrom(0.5, 1, 3),
      guaranteed: fc.constantFrom({}, { A10G: 1 }),
      limits: fc.constantFrom<Readonly<Record<string, number>>>({}, {}, { A10G: 1 }, { cpu: 1 }, { A10G: 2, H100: 0 }),
    }),
  }),
  fc.record({ kind: fc.constant('sharing' as const), order: fc.constantFrom<SharingOrder>('share', 'arrival') }),
  fc.record({ kind: fc.constant('sweep' as const) }),
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('round' as const) }) },
);

describe('whatever happens', () => {
  test('by arrival the oldest that any machine takes is placed; in any order, no machine takes one that waits then', () => {
    fc.assert(
      fc.property(fleet, fc.array(step, { maxLength: 60 }), fc.boolean(), (list, steps, byShare) => {
        const recorded = new Recorded();
        const played = new Played([], recorded);
        const { planner } = played;
        let order: SharingOrder = byShare ? 'share' : 'arrival';
        planner.setSharing({ ...DEFAULT_SHARING, order });
        for (const one of list) played.set(one);
        const waiting = new Map<ContainerId, Wanted>();
        const at = (index: number): Wanted | undefined => [...waiting.values()][index % Math.max(1, waiting.size)];
        const round = (): void => {
          played.round((one, choice) => {
            const now = played.machines();
            const refused = [...waiting.values()].filter((other) => other.createdAtMs < one.createdAtMs);
            if (order === 'arrival') expect(refused.filter((other) => played.hasPlace(other, now))).toEqual([]);
            const there = now.filter(({ machineId }) => machineId === choice.machineId);
            expect(placeContainer(played.requestOf(one), there)).toMatchObject({ kind: 'placed', ...choice });
            const shunned = played.shunned.get(one.id);
            if (shunned?.has(choice.machineId) === true)
              expect(
                played.hasPlace(
                  one,
                  now.filter(({ machineId }) => !shunned.has(machineId)),
                ),
              ).toBe(false);
            waiting.delete(one.id);
          });
          const now = played.machines();
          expect([...waiting.values()].filter((one) => played.hasPlace(one, now))).toEqual([]);
          expect([...planner.waiting].map((item) => item.wanted.id).toSorted()).toEqual([...waiting.keys()].toSorted());
        };
        for (const one of [...steps, { kind: 'round' as const }]) {
          if (one.kind === 'wait')
            for (let count = 0; count < one.count; count += 1) {
              const { createdAtMs } = one.one;
              const next = aWanted({ ...one.one, ...(createdAtMs === undefined ? {} : { createdAtMs }) });
              waiting.set(next.id, next);
              planner.add(next);
            }
          else if (one.kind === 'end') played.end(one.at);
          else if (one.kind === 'cancel') {
            const gone = at(one.at);
            if (gone === undefined) continue;
            waiting.delete(gone.id);
            planner.remove(gone.id);
          } else if (one.kind === 'machine') {
            const [becomes] = named([one.becomes]);
            const machineId = `m-${one.at}` as MachineId;
            if (becomes !== undefined) played.set({ ...becomes, machineId });
          } else if (one.kind === 'gone') played.delete(`m-${one.at}` as MachineId);
          else if (one.kind === 'limit') {
            played.quotas.set(one.workspace, { ...NO_QUOTA, containers: one.most });
            planner.limitsChanged(one.workspace as WorkspaceId);
          } else if (one.kind === 'home') {
            // Nothing tells of a home that is another one now; the next sweep finds it.
            played.homes.set(one.volume, `m-${one.at}` as MachineId);
            planner.forgetBlocks();
          } else if (one.kind === 'image') {
            played.images.set(one.name, { machines: someMachines, inRegistry: one.inRegistry });
            planner.imagesChanged();
          } else if (one.kind === 'doubt') {
            const settled = planner.doubtful;
            planner.doubtful = one.machines;
            for (const now of played.machines()) if (settled.has(now.machineId)) planner.setMachine(now);
          } else if (one.kind === 'shun') {
            const some = at(one.at);
            if (some !== undefined) played.shunned.set(some.id, one.machines);
          } else if (one.kind === 'share') {
            played.shares.set(one.workspace, one.share);
            planner.shareChanged(one.workspace as WorkspaceId);
          } else if (one.kind === 'sharing') planner.setSharing({ ...DEFAULT_SHARING, order: (order = one.order) });
          else if (one.kind === 'sweep') planner.forgetBlocks();
          else round();
        }
        expect(recorded.replayed()).toBeUndefined();
      }),
      { numRuns: stories(500) },
    );
  });
});

/** Machines that count how often their amounts are compared. */
function counting(list: readonly PlacementMachine[]) {
  const counts = { looks: 0 };
  const machines = list.map((one) =>
    Object.defineProperty({ ...one }, 'freeDiskBytes', {
      enumerable: true,
      get: () => {
        counts.looks += 1;
        return null;
      },
    }),
  );
  return { counts, machines };
}

describe('on a full fleet', () => {
  const full = (count: number, gpu = 'A10G'): PlacementMachine[] =>
    Array.from({ length: count }, (_none, index) =>
      aMachine({ machineId: `${gpu}-${index}` as MachineId, gpus: gpus(gpu, [false], `${gpu}-${index}`) }),
    );
  const classes = (count: number, each: number, gpu = 'A10G'): Wanted[] =>
    Array.from({ length: count * each }, (_none, index) =>
      aWanted({ gpu: [gpu], gpuCount: 1, cpuMillicores: 100 + (index % count) }),
    );
  const freed = (one: PlacementMachine): PlacementMachine => ({
    ...one,
    gpus: one.gpus.map((gpu) => ({ ...gpu, free: true })),
  });
  const waitFor = (machines: readonly PlacementMachine[], list: readonly Wanted[]): Played => {
    const played = new Played(machines);
    for (const one of list) played.planner.add(one);
    expect(played.round()).toEqual([]);
    return played;
  };

  test('a machine that is free again gets the oldest container, and a class is asked about alone', () => {
    const list = classes(10, 3);
    const [first = aMachine()] = full(1);
    const played = waitFor(full(20), list);
    played.asked = 0;
    played.planner.setMachine(freed(first));
    expect(played.round()).toEqual(list.slice(0, 1));
    expect(played.asked).toBeLessThanOrEqual(10);
    expect(played.planner.isBusy).toBe(false);
  });

  test('that costs no more looks with more containers, more machines, or more classes for other machines', () => {
    const looks = (machines: number, each: number, others: number): number => {
      const { counts, machines: list } = counting([...full(machines), ...full(machines, 'H100')]);
      const played = waitFor(list, [...classes(20, each), ...classes(others, 1, 'H100')]);
      counts.looks = 0;
      for (const one of list.slice(0, 10)) {
        played.planner.setMachine(Object.defineProperties({ ...one }, Object.getOwnPropertyDescriptors(freed(one))));
        expect(played.round()).toHaveLength(1);
      }
      return counts.looks;
    };
    const few = looks(50, 1, 20);
    expect(looks(500, 1, 20)).toBeLessThanOrEqual(few);
    expect(looks(50, 50, 20)).toBeLessThanOrEqual(few);
    expect(looks(50, 1, 400)).toBeLessThanOrEqual(few);
  });

  test('a further container of a class that no machine takes is not tried, and a refused class not looked for', () => {
    const { counts, machines } = counting(full(500));
    const played = waitFor(machines, classes(5, 1));
    counts.looks = 0;
    for (const one of classes(5, 100)) played.planner.add(one);
    expect(played.planner.isBusy).toBe(false);
    expect(played.round()).toEqual([]);
    expect(counts.looks).toBe(0);
  });

  test('when many machines are free again at once, as many containers get a place, the oldest first', () => {
    const list = classes(7, 40);
    const played = waitFor(full(200), list);
    for (const one of full(100)) played.planner.setMachine(freed(one));
    const placed = played.round();
    expect(placed).toEqual(list.slice(0, 100));
    expect(new Set(played.placed.map(({ choice }) => choice.machineId)).size).toBe(100);
  });

  test('containers of a new class come after older ones, and before younger ones', () => {
    const [first = aMachine(), second = aMachine()] = full(2);
    const list = classes(2, 2);
    const [older, middle, younger] = [list.slice(0, 1), aWanted({ gpu: ['A10G'], gpuCount: 1 }), classes(2, 1)];
    const played = waitFor(full(2), [...older, ...younger.slice(0, 1)]);
    played.planner.setMachine(freed(first));
    played.planner.setMachine(freed(second));
    played.planner.add(middle);
    expect(played.round()).toEqual([...older, middle]);
  });

  test('one that comes back is as old as before, also while a machine is offered', () => {
    const [first = aMachine()] = full(1);
    const list = classes(2, 1);
    const played = waitFor(full(1), list);
    played.planner.setMachine(freed(first));
    expect(played.planner.isBusy).toBe(true);
    const back = aWanted({ ...list[1], id: 'c-back' as ContainerId, createdAtMs: 0 });
    played.planner.add(back);
    expect(played.round()).toEqual([back]);
  });

  test('the oldest container of all offered machines goes first', () => {
    const [old, young] = [aWanted({ gpu: ['H100'], gpuCount: 1 }), aWanted({ gpu: ['A10G'], gpuCount: 1 })];
    const played = waitFor([...full(1), ...full(1, 'H100')], [young, old]);
    for (const one of [...full(1), ...full(1, 'H100')]) played.planner.setMachine(freed(one));
    expect(played.round()).toEqual([old, young]);
  });

  test('a machine that is taken again before the round is not chosen', () => {
    const [first = aMachine()] = full(1);
    const played = waitFor(full(3), classes(2, 2));
    played.planner.setMachine(freed(first));
    played.planner.setMachine(first);
    expect(played.round()).toEqual([]);
  });

  test('a class that nobody waited for in between is searched for anew', () => {
    const list = full(3);
    const [first, next] = classes(1, 2);
    const played = waitFor(list, [first!]);
    played.planner.remove(first!.id);
    for (const one of list) played.planner.setMachine(freed(one));
    expect(played.round()).toEqual([]);
    played.planner.add(next!);
    expect(played.round()).toEqual([next]);
  });

  test('a full disk refuses code, but not to a queue whose code is there', () => {
    const code = { diskBytes: 50 * MIB, cpuMillicores: 1 };
    const there = aWanted({ ...code, queue: 'q-2' as QueueName });
    const played = new Played([aMachine({ freeDiskBytes: 50 * MIB })]);
    played.planner.add(there);
    expect(played.round()).toEqual([there]);
    played.planner.setMachine({
      ...played.planner.candidates.get(played.placed[0]!.choice.machineId)!,
      freeDiskBytes: 0,
    });
    const [other, same] = [
      aWanted({ ...code, queue: 'q-1' as QueueName }),
      aWanted({ ...there, id: 'c' as ContainerId }),
    ];
    played.planner.add(other);
    played.planner.add(same);
    expect(played.round()).toEqual([same]);
  });

  test('machines to avoid are chosen only where no other has room, and those in doubt never', () => {
    const list = full(3);
    const played = waitFor(list, classes(1, 2));
    const [first, second] = [...played.planner.waiting].map(({ wanted }) => wanted);
    for (const one of list) played.planner.setMachine(freed(one));
    for (const one of [first!, second!]) played.shunned.set(one.id, ids('A10G-0', 'A10G-1'));
    played.planner.doubtful = ids('A10G-1');
    expect(played.round()).toEqual([first, second]);
    expect(played.placed.map(({ choice }) => choice.machineId)).toEqual(['A10G-2', 'A10G-0']);
  });

  test.for(['cordoned', 'gone'])('a machine that is %s before the round is not chosen', (how) => {
    const [first = aMachine()] = full(1);
    const played = waitFor(full(3), classes(2, 2));
    played.planner.setMachine(freed(first));
    if (how === 'gone') played.planner.deleteMachine(first.machineId);
    else played.planner.setMachine({ ...freed(first), intentActive: false });
    expect(played.round()).toEqual([]);
  });

  test('all classes are tried again after a sweep, or when images built here are elsewhere', () => {
    const played = new Played(full(1).map(freed));
    const wanted = aWanted({ gpu: ['A10G'], gpuCount: 1, builtImage: 'built' });
    played.planner.add(wanted);
    expect(played.round()).toEqual([]);
    played.images.set('built', { machines: new Set(), inRegistry: true });
    expect(played.round()).toEqual([]);
    played.planner.imagesChanged();
    expect(played.round()).toEqual([wanted]);
    played.end(0);
    played.images.clear();
    const next = { ...wanted, id: 'c-next' as ContainerId };
    played.planner.add(next);
    expect(played.round()).toEqual([]);
    played.images.set('built', { machines: new Set(), inRegistry: true });
    played.planner.forgetBlocks();
    expect(played.round()).toEqual([next]);
  });

  test('machines that differ in what lasts are told apart', () => {
    const [first = aMachine(), second = aMachine()] = full(2);
    const differing: Partial<PlacementMachine>[] = [
      { basePythons: null },
      { totalCpuMillicores: 5000, freeCpuMillicores: 5000 },
      { totalMemoryBytes: 9000 * MIB, freeMemoryBytes: 9000 * MIB },
      { volumeDrivers: new Set(['local', 'shared']) },
      { requiresPoolSelector: false },
      { gpuDriver: '570.86.15' },
      { arch: 'x86_64' },
      { gpus: gpus('A10G', [true], 'large').map((gpu) => ({ ...gpu, memoryBytes: 23_028 * MIB })) },
      { gpus: gpus('A10G', [true], 'new').map((gpu) => ({ ...gpu, computeCap: '9.0' })) },
    ];
    for (const differs of differing) {
      const lacking = { basePythons: [], gpuDriver: '535.183.01', requiresPoolSelector: true, arch: 'arm64' };
      const [wanted] = classes(1, 1).map((one): Wanted => ({
        ...one,
        basePython: 'basePythons' in differs ? '3.13' : '',
        cpuMillicores: 'totalCpuMillicores' in differs ? 5000 : 1,
        memoryBytes: 'totalMemoryBytes' in differs ? 9000 * MIB : 1,
        volumeDrivers: 'volumeDrivers' in differs ? ['shared'] : [],
        minCuda: 'gpuDriver' in differs ? '12.8' : '',
        arch: 'arch' in differs ? 'x86_64' : 'arm64',
        poolName: 'requiresPoolSelector' in differs ? '' : 'default',
        gpu: differs.gpus?.[0]?.computeCap === '9.0' ? ['any:cc>=9.0'] : differs.gpus ? ['any:>=24GiB'] : one.gpu,
      }));
      if (wanted === undefined) throw new Error('none');
      const played = waitFor([{ ...first, ...lacking }], [wanted]);
      const last = { ...freed(second), ...lacking, ...differs };
      played.planner.setMachine({ ...last, ...('arch' in differs ? {} : { arch: 'arm64' }) });
      expect(played.round()).toEqual([wanted]);
    }
  });

  test('machines whose GPUs are linked otherwise are told apart', () => {
    const machineOf = (...islands: readonly number[]): PlacementMachine =>
      aMachine({
        gpus: gpus('A10G', [true, true, true, true], `i${islands.join('')}`).map((gpu, at) => ({
          ...gpu,
          nvlinkIsland: islands[at] ?? 0,
        })),
      });
    const played = new Played();
    for (const one of [machineOf(0, 0, 0, 0), machineOf(1, 1, 2, 2)]) played.set(one);
    const [two, three] = [2, 3].map((gpuCount) => aWanted({ gpu: ['A10G'], gpuCount, gpuLink: 'island' }));
    for (const one of [two, three]) if (one !== undefined) played.planner.add(one);
    expect(played.round()).toEqual([two]);
    played.set(machineOf(3, 0, 3, 3));
    expect(played.round()).toEqual([three]);
  });

  test('containers of a deployment are spread over a label while there is room, and a changed label is an offer', () => {
    const spread = { require: {}, forbid: {}, prefer: {}, spread: 'zone' };
    const played = new Played();
    for (const zone of ['a', 'a', 'a', 'b'])
      played.set(aMachine({ labels: { zone }, freeCpuMillicores: 2000, totalCpuMillicores: 4000 }));
    const four = Array.from({ length: 4 }, () => aWanted({ labels: spread }));
    for (const one of four) played.planner.add(one);
    played.round();
    const zoneOf = ({ choice }: { choice: Choice }) =>
      played.planner.candidates.get(choice.machineId)?.labels?.['zone'];
    expect(played.placed.map((one) => zoneOf(one) ?? '').toSorted()).toEqual(['a', 'a', 'b', 'b']);
    const last = aWanted({ labels: { ...spread, require: { zone: ['c'] }, spread: '' } });
    played.planner.add(last);
    expect(played.round()).toEqual([]);
    const [other = aMachine()] = played.machines();
    played.set({ ...other, freeCpuMillicores: 4000, labels: { zone: 'c' } });
    expect(played.round()).toEqual([last]);
  });

  test('a workspace at its limits gets no place; when a container of it ends, the oldest one goes first', () => {
    const mine = classes(3, 2).map((one): Wanted => ({ ...one, workspaceId: 'w-2' as WorkspaceId }));
    const played = waitFor(full(5), mine);
    played.quotas.set('w-2', { ...NO_QUOTA, containers: 1 });
    for (const one of full(5)) played.planner.setMachine(freed(one));
    expect(played.round()).toEqual(mine.slice(0, 1));
    played.planner.release(mine[0]!.id, 'w-2' as WorkspaceId);
    expect(played.round()).toEqual(mine.slice(1, 2));
  });
});

describe('limits of a workspace', () => {
  const asks = (said: Partial<Wanted> = {}): Wanted =>
    aWanted({ gpu: ['A10G'], gpuCount: 1, cpuMillicores: 1, memoryBytes: 1, ...said });
  const room = (count: number, model = 'A10G'): PlacementMachine =>
    aMachine({
      machineId: `m-${model}` as MachineId,
      gpus: gpus(
        model,
        Array.from({ length: count }, () => true),
        model,
      ),
    });
  const atMost = (played: Played, containers: number): void =>
    void played.quotas.set('w-1', { ...NO_QUOTA, containers });

  test('cost an end no more decisions the more classes they keep back', () => {
    const stepsForAnEnd = (classes: number): number => {
      const played = new Played([room(50)]);
      atMost(played, 4);
      for (let n = 0; n < classes; n += 1) played.planner.add(asks({ memoryBytes: 1 + n }));
      expect(played.round()).toHaveLength(4);
      let steps = 0;
      const { planner } = played;
      const next = planner.next.bind(planner);
      planner.next = () => {
        steps += 1;
        return next();
      };
      for (let n = 0; n < 10; n += 1) {
        played.end(0);
        expect(played.round()).toHaveLength(1);
      }
      return steps / 10;
    };
    expect(stepsForAnEnd(200)).toBeLessThanOrEqual(stepsForAnEnd(20));
  });

  test('let each class follow whose turn comes, when several containers end, one is cancelled or fits nowhere', () => {
    const played = new Played([room(3)]);
    atMost(played, 3);
    const held = [asks(), asks(), asks()];
    for (const one of held) played.planner.add(one);
    expect(played.round()).toEqual(held);
    const cancelled = asks({ memoryBytes: 2 });
    const nowhere = asks({ gpu: ['H100'] });
    const [first, second, third] = [3, 4, 5].map((memoryBytes) => asks({ memoryBytes }));
    for (const one of [cancelled, nowhere, first!, second!, third!]) played.planner.add(one);
    expect(played.round()).toEqual([]);
    played.end(0);
    played.planner.remove(cancelled.id);
    played.end(0);
    expect(played.round()).toEqual([first, second]);
    played.end(0);
    expect(played.round()).toEqual([third]);
  });

  test('in a market count no container whose machine is of another market now', () => {
    const played = new Played();
    played.shares.set('w-1', { weight: 1, guaranteed: {}, limits: { A10G: 1 } });
    const [there, other] = [
      room(1),
      { ...room(1), machineId: 'm-other' as MachineId, gpus: gpus('A10G', [true], 'o') },
    ];
    played.set(there);
    const [first, second] = [asks(), asks()];
    played.planner.add(first);
    expect(played.round()).toEqual([first]);
    played.planner.add(second);
    played.set(other);
    expect(played.round()).toEqual([]);
    // The machine is of the workspace itself from now on.
    played.set({ ...played.planner.machine(there.machineId)!, poolOwner: 'w-1' });
    expect(played.round()).toEqual([second]);
  });
});

test('a share that may be another one since it was read is read before it decides', () => {
  const played = new Played([aMachine()]);
  const { planner } = played;
  const [first, second] = [aWanted(), aWanted({ workspaceId: 'w-2' as WorkspaceId })];
  for (const one of [first, second]) planner.add(one);
  planner.forgetFacts();
  const asked = planner.next();
  if (asked?.kind !== 'ask') throw new Error('facts are known');
  for (const one of asked.classes) planner.know(one, { quota: undefined, volumeHomes: new Set(), image: null });
  planner.shareChanged('w-2' as WorkspaceId);
  expect(planner.next()).toMatchObject({ kind: 'ask' });
  expect(planner.unread(1)).toEqual(new Set(['w-2']));
});
