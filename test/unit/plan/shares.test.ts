// The order by share, compared with what rows and machines say of each workspace.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import type { Market, PriorityClass, WorkspaceShare } from '#scheduler/domain/shares.ts';
import { DEFAULT_SHARING, HEAD_START_MS } from '#scheduler/domain/shares.ts';
import type { PlacementMachine } from '#scheduler/control/plan/filter.ts';
import type { Wanted } from '#scheduler/control/plan/fit-class.ts';
import { Planner } from '#scheduler/control/plan/planner.ts';
import { stories } from '../../helpers/stories.ts';
import { aMachine, aWanted, gpus, MIB } from './made.ts';
import { Played } from './played.ts';

const WORKSPACES = ['w-1', 'w-2', 'w-3', 'w-4'] as WorkspaceId[];
const MODELS = ['A10G', 'H100'];

/** How a workspace stands in a market, counted from rows. */
function standingOf(played: Played, workspaceId: WorkspaceId, market: Market): { tier: number; share: number } {
  const machines = played.machines().filter(({ isPresent, poolOwner }) => isPresent && poolOwner === null);
  const capacity = { gpus: 0, cpuMillicores: 0, memoryBytes: 0 };
  for (const one of machines) {
    const isIn = market === 'cpu' ? one.gpus.length === 0 || one.cpuWorkAllowed : one.gpus[0]?.model === market;
    if (!isIn) continue;
    capacity.gpus += market === 'cpu' ? 0 : one.gpus.filter(({ healthy }) => healthy).length;
    capacity.cpuMillicores += one.totalCpuMillicores;
    capacity.memoryBytes += one.totalMemoryBytes;
  }
  const use = played.useOf(workspaceId, market);
  const part = (amount: number, all: number): number => (all > 0 ? amount / all : 0);
  const dominant = Math.max(
    part(use.gpus, capacity.gpus),
    part(use.cpuMillicores, capacity.cpuMillicores),
    part(use.memoryBytes, capacity.memoryBytes),
  );
  const all = market === 'cpu' ? capacity.cpuMillicores / 1000 : capacity.gpus;
  const given = WORKSPACES.reduce((sum, id) => sum + (played.shareOf(id).guaranteed[market] ?? 0), 0);
  const { weight, guaranteed } = played.shareOf(workspaceId);
  const kept = part(guaranteed[market] ?? 0, Math.max(all, given));
  return { tier: dominant < kept ? 1 : 2, share: Math.max(0, dominant - kept) / weight };
}

const keyOf = ({ createdAtMs, priority = 'normal' }: Wanted): number => createdAtMs - HEAD_START_MS[priority];

function goesFirst(played: Played, a: Wanted, b: Wanted, market: Market): boolean {
  const [of, than] = [standingOf(played, a.workspaceId, market), standingOf(played, b.workspaceId, market)];
  if (of.tier !== than.tier) return of.tier < than.tier;
  // Sums of parts differ in their last digits.
  if (Math.abs(of.share - than.share) > 1e-9) return of.share < than.share;
  return a.workspaceId === b.workspaceId && keyOf(a) < keyOf(b);
}

const machineOf = (n: number, model: string, devices: number, isPresent = true): PlacementMachine =>
  aMachine({
    machineId: `m-${n}` as MachineId,
    isPresent,
    ready: isPresent,
    cpuWorkAllowed: n % 2 === 0,
    gpus: gpus(
      model,
      Array.from({ length: devices }, () => true),
      `m-${n}`,
    ),
  });

const share: fc.Arbitrary<WorkspaceShare> = fc.record({
  weight: fc.constantFrom(0.5, 1, 1, 2),
  guaranteed: fc.constantFrom({}, {}, { H100: 2 }, { A10G: 1, cpu: 2 }),
  limits: fc.constantFrom<Readonly<Record<string, number>>>({}, {}, { H100: 3 }, { A10G: 2, cpu: 3 }, { H100: 2 }),
});
const waits = fc.record({
  kind: fc.constant('wait' as const),
  workspaceId: fc.constantFrom(...WORKSPACES),
  model: fc.constantFrom('', ...MODELS, 'A10G|H100', 'H100|A10G'),
  gpuCount: fc.constantFrom(1, 1, 2),
  cpuMillicores: fc.constantFrom(100, 500, 1500),
  memoryBytes: fc.constantFrom(256, 2048).map((mib) => mib * MIB),
  createdAtMs: fc.nat({ max: 3_000_000 }),
  priority: fc.constantFrom<PriorityClass>('high', 'normal', 'normal', 'low'),
  count: fc.integer({ min: 1, max: 4 }),
});
const step = fc.oneof(
  { weight: 8, arbitrary: waits },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('end' as const), at: fc.nat() }) },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('round' as const) }) },
  fc.record({ kind: fc.constant('cancel' as const), at: fc.nat() }),
  fc.record({ kind: fc.constant('share' as const), workspaceId: fc.constantFrom(...WORKSPACES), share }),
  fc.record({ kind: fc.constant('machine' as const), n: fc.nat({ max: 4 }), isPresent: fc.boolean() }),
  fc.record({ kind: fc.constant('sweep' as const) }),
);
const fleet = fc.array(fc.record({ model: fc.constantFrom(...MODELS), devices: fc.integer({ min: 0, max: 4 }) }), {
  minLength: 1,
  maxLength: 5,
});

describe('whatever happens', () => {
  test('the workspace that stands best gets a machine, within its limit, and the ledger has what rows say', () => {
    fc.assert(
      fc.property(fleet, fc.array(step, { maxLength: 60 }), (list, steps) => {
        const played = new Played();
        const { planner } = played;
        const fresh = (n: number, isPresent = true): PlacementMachine =>
          machineOf(n, list[n]?.model ?? '', list[n]?.devices ?? 0, isPresent);
        for (const n of list.keys()) played.set(fresh(n));
        const waiting = new Map<ContainerId, Wanted>();
        const round = (): void => {
          played.round((one, choice) => {
            waiting.delete(one.id);
            const market = played.marketOn(choice.machineId, one) ?? '';
            expect(played.amountWith(one, market)).toBeLessThanOrEqual(
              played.shareOf(one.workspaceId).limits[market] ?? Infinity,
            );
            const there = played.machines().filter(({ machineId }) => machineId === choice.machineId);
            const passedOver = [...waiting.values()].filter(
              (other) =>
                // A container of several models waits in one market. In others it is compared with offered machines.
                other.gpu.length < 2 &&
                played.marketOn(choice.machineId, other) === market &&
                goesFirst(played, other, one, market) &&
                played.hasPlace(other, there),
            );
            expect(passedOver).toEqual([]);
          });
          expect([...waiting.values()].filter((one) => played.hasPlace(one, played.machines()))).toEqual([]);
          const { markets } = planner.ledger;
          for (const market of markets.all)
            for (const id of WORKSPACES)
              expect(markets.useOf(markets.tenant(id), market)).toMatchObject(played.useOf(id, market.name));
        };
        for (const one of [...steps, { kind: 'round' as const }]) {
          if (one.kind === 'round') round();
          else if (one.kind === 'end') played.end(one.at);
          else if (one.kind === 'sweep') planner.forgetBlocks();
          else if (one.kind === 'cancel') {
            const gone = [...waiting.keys()][one.at % Math.max(1, waiting.size)];
            if (gone === undefined) continue;
            waiting.delete(gone);
            planner.remove(gone);
          } else if (one.kind === 'share') {
            played.shares.set(one.workspaceId, one.share);
            planner.shareChanged(one.workspaceId);
          } else if (one.kind === 'machine') {
            const now = planner.candidates.get(`m-${one.n}` as MachineId);
            if (now !== undefined) played.set({ ...now, isPresent: one.isPresent, ready: one.isPresent });
          } else {
            const { kind: _, count, model, gpuCount, ...asked } = one;
            for (let n = 0; n < count; n += 1) {
              const wanted = aWanted({
                ...asked,
                queue: `q-${model}` as QueueName,
                gpu: model === '' ? [] : model.split('|'),
                gpuCount: model === '' ? 0 : gpuCount,
              });
              waiting.set(wanted.id, wanted);
              planner.add(wanted);
            }
          }
        }
      }),
      { numRuns: stories(500) },
    );
  });
});

describe('a freed machine', () => {
  const full = (n: number, devices: number): PlacementMachine => {
    const { gpus: all, ...rest } = machineOf(n, 'H100', devices);
    return { ...rest, gpus: all.map((gpu) => ({ ...gpu, free: false })) };
  };
  const freed = (one: PlacementMachine): PlacementMachine => ({
    ...one,
    gpus: one.gpus.map((gpu) => ({ ...gpu, free: true })),
  });
  const asks = (workspaceId: string, gpuCount: number, said: Partial<Wanted> = {}): Wanted =>
    aWanted({
      workspaceId: workspaceId as WorkspaceId,
      gpu: ['H100'],
      gpuCount,
      cpuMillicores: 1,
      memoryBytes: 1,
      ...said,
    });
  /** A container that has GPUs of the machine. */
  const holds = (played: Played, wanted: Wanted, machineId: string): void =>
    played.planner.hold(wanted.id, { ...wanted, machineId: machineId as MachineId });
  const given = (changes: Partial<WorkspaceShare>): WorkspaceShare => ({
    weight: 1,
    guaranteed: {},
    limits: {},
    ...changes,
  });

  test('goes to another workspace once the first one has a larger share', () => {
    const played = new Played([full(1, 2), full(2, 1)]);
    const waiting = [asks('w-1', 2), asks('w-1', 1), asks('w-2', 1)];
    for (const one of waiting) played.planner.add(one);
    expect(played.round()).toEqual([]);
    for (const one of [full(1, 2), full(2, 1)]) played.planner.setMachine(freed(one));
    expect(played.round()).toEqual([waiting[0], waiting[2]]);
  });

  test('goes to a workspace that has less than when the machine was freed', () => {
    const played = new Played([full(1, 1), full(2, 1)]);
    const held = asks('w-2', 1);
    holds(played, held, 'm-2');
    const waiting = [asks('w-1', 1), asks('w-2', 1, { createdAtMs: 0 })];
    for (const one of waiting) played.planner.add(one);
    expect(played.round()).toEqual([]);
    played.planner.setMachine(freed(full(1, 1)));
    expect(played.planner.isBusy).toBe(true);
    played.planner.release(held.id, held.workspaceId);
    expect(played.round()).toEqual([waiting[1]]);
  });

  test('goes by guarantees as they are now', () => {
    const played = new Played([full(1, 4)]);
    for (const id of ['w-1', 'w-1', 'w-2']) holds(played, asks(id, 1), 'm-1');
    played.shares.set('w-1', given({ guaranteed: { H100: 3 } }));
    const waiting = [asks('w-1', 1), asks('w-2', 1)];
    for (const one of waiting) played.planner.add(one);
    played.round();
    played.planner.forgetBlocks();
    const [one] = full(1, 4).gpus;
    played.planner.setMachine({ ...full(1, 4), gpus: [{ ...one!, free: true }, ...full(1, 4).gpus.slice(1)] });
    // So much is promised to others that little of the promise to the first one holds.
    played.planner.setShare('w-3' as WorkspaceId, given({ guaranteed: { H100: 21 } }));
    expect(played.round()).toEqual([waiting[1]]);
  });

  test('that a workspace may not have waits for it until a container of the workspace ends', () => {
    const played = new Played([full(1, 2), full(2, 1), full(3, 2)]);
    played.shares.set('w-1', given({ limits: { H100: 4 } }));
    const held = [asks('w-1', 1), asks('w-1', 1)];
    for (const one of held) holds(played, one, 'm-3');
    const [large, small] = [asks('w-1', 2), asks('w-1', 1)];
    played.planner.add(large);
    expect(played.round()).toEqual([]);
    played.planner.add(small);
    played.planner.setMachine(freed(full(2, 1)));
    expect(played.round()).toEqual([small]);
    played.planner.setMachine(freed(full(1, 2)));
    expect(played.round()).toEqual([]);
    played.planner.release(held[0]!.id, held[0]!.workspaceId);
    expect(played.round()).toEqual([large]);
  });

  test('of a model that both want less is given in the order of that model', () => {
    const other = { ...freed(machineOf(2, 'A10G', 1)) };
    const played = new Played([full(1, 1), { ...other, gpus: other.gpus.map((gpu) => ({ ...gpu, free: false })) }]);
    holds(played, asks('w-1', 1), 'm-2');
    const [first, second] = [asks('w-1', 1, { gpu: ['A10G', 'H100'] }), asks('w-2', 1, { gpu: ['A10G'] })];
    played.planner.add(first);
    played.planner.add(second);
    expect(played.round()).toEqual([]);
    played.planner.setMachine(freed(full(1, 1)));
    played.planner.setMachine(other);
    expect(played.round()).toEqual([second, first]);
    expect(played.placed.map(({ choice }) => choice.machineId)).toEqual(['m-2', 'm-1']);
  });

  test('of a model that one wants less is given in the order of that model when all are searched for', () => {
    const played = new Played([full(1, 1), full(3, 2), machineOf(2, 'A10G', 1)]);
    const there = machineOf(2, 'A10G', 1);
    played.planner.setMachine({ ...there, gpus: there.gpus.map((gpu) => ({ ...gpu, free: false })) });
    holds(played, asks('w-1', 1), 'm-3');
    const [first, second] = [asks('w-1', 1, { gpu: ['A10G', 'H100'] }), asks('w-2', 1)];
    played.planner.add(first);
    played.planner.add(second);
    played.planner.setMachine(freed(full(1, 1)));
    played.planner.forgetBlocks();
    expect(played.round()).toEqual([second]);
  });

  test('of an own pool goes to the workspace whatever its limit, and counts in no market', () => {
    const played = new Played([{ ...freed(full(1, 1)), poolOwner: 'w-1' }, freed(full(2, 1))]);
    played.shares.set('w-1', given({ limits: { H100: 0 } }));
    const waiting = [asks('w-1', 1), asks('w-1', 1)];
    for (const one of waiting) played.planner.add(one);
    expect(played.round()).toEqual([waiting[0]]);
    expect(played.placed[0]?.choice.machineId).toBe('m-1');
    expect(played.planner.shares(0).flatMap(({ rows }) => rows)).toMatchObject([{ used: 0, waiting: 1 }]);
  });
});

describe('what is told late', () => {
  test('a guarantee among a hundred workspaces is read before a machine goes to another one', () => {
    const played = new Played();
    const waiting = Array.from({ length: 100 }, (_none, n) =>
      aWanted({ workspaceId: `w-${n}` as WorkspaceId, gpu: ['H100'], gpuCount: 1 }),
    );
    played.shares.set('w-99', { weight: 1, guaranteed: { H100: 1 }, limits: {} });
    for (const one of waiting) played.planner.add(one);
    played.set(machineOf(1, 'H100', 1));
    expect(played.round()).toEqual([waiting[99]]);
  });

  test('containers count in the market of their machine once it is known, and until they end', () => {
    const planner = new Planner();
    const { markets } = planner.ledger;
    const held = aWanted({ gpu: ['any'], gpuCount: 1 });
    const used = (): Record<string, number> =>
      Object.fromEntries(
        [...markets.all].map((market) => [market.name, markets.useOf(markets.tenant(held.workspaceId), market).gpus]),
      );
    planner.hold(held.id, { ...held, machineId: 'm-1' as MachineId });
    expect(used()).toEqual({ cpu: 0 });
    planner.setMachine(machineOf(1, 'H100', 2));
    expect(used()).toEqual({ cpu: 0, H100: 1 });
    planner.setMachine(machineOf(1, 'A10G', 2));
    expect(used()).toEqual({ cpu: 0, A10G: 1 });
    planner.deleteMachine('m-1' as MachineId);
    expect(used()).toEqual({ cpu: 0, A10G: 1 });
    planner.release(held.id, held.workspaceId);
    expect(used()).toEqual({ cpu: 0 });
  });
});

describe('new containers', () => {
  test('get places at once within the limit of their workspace', () => {
    const planner = new Planner();
    planner.setMachine(machineOf(1, 'H100', 4));
    planner.setShare('w-1' as WorkspaceId, { weight: 1, guaranteed: {}, limits: { H100: 2 } });
    const wanted = Array.from({ length: 3 }, () => aWanted({ gpu: ['H100'], gpuCount: 1 }));
    expect(planner.chooseNew(wanted, undefined).map((choice) => choice !== undefined)).toEqual([true, true, false]);
  });
});

describe('order by arrival', () => {
  test('knows neither shares nor priorities, and a change of the order holds for all that wait', () => {
    const played = new Played([machineOf(1, 'H100', 0)]);
    const low = aWanted({ priority: 'low', createdAtMs: 1 });
    const high = aWanted({ priority: 'high', createdAtMs: 2 });
    for (const one of [high, low]) played.planner.add(one);
    played.planner.setSharing({ ...DEFAULT_SHARING, order: 'arrival' });
    expect(played.round()).toEqual([low, high]);
    const [next, last] = [aWanted({ priority: 'low', createdAtMs: 3 }), aWanted({ priority: 'high', createdAtMs: 4 })];
    for (const one of [next, last]) played.planner.add(one);
    played.planner.setSharing({ ...DEFAULT_SHARING, order: 'share' });
    expect(played.round()).toEqual([last, next]);
  });
});

describe('containers that wait', () => {
  test('are counted for a report by their classes, with the oldest of each priority', () => {
    const planner = new Planner();
    planner.setMachine(machineOf(1, 'H100', 4));
    let looks = 0;
    for (let n = 0; n < 1000; n += 1) {
      const priority = n % 2 === 0 ? ('high' as const) : ('normal' as const);
      const wanted = aWanted({ gpu: ['H100'], gpuCount: 2, createdAtMs: 5000 - n, priority });
      planner.add(
        Object.defineProperty(wanted, 'createdAtMs', {
          get: () => {
            looks += 1;
            return 5000 - n;
          },
        }),
      );
    }
    looks = 0;
    const report = planner.shares(10_000).find(({ market }) => market === 'H100');
    expect(report).toMatchObject({ rows: [{ waiting: 1000, oldestWaitMs: 5999 }] });
    expect([...(report?.oldestAtMs ?? [])]).toEqual([
      ['high', 4002],
      ['normal', 4001],
    ]);
    expect(looks).toBeLessThan(10);
  });

  /** Steps of rounds for each of 200 containers that end on a full fleet. */
  function stepsForAnEnd(waiting: number): number {
    const played = new Played();
    const machines = Array.from({ length: 50 }, (_none, n) => {
      const id = `m-${n}` as MachineId;
      return aMachine({ machineId: id, gpus: gpus('A10G', [true, true], id), freeCpuMillicores: 64_000 });
    });
    for (const one of machines) played.set(one);
    for (let n = 0; n < waiting + 100; n += 1)
      played.planner.add(
        aWanted({
          id: `c-${n}` as ContainerId,
          workspaceId: `w-${n % 50}` as WorkspaceId,
          queue: `q-${n % 100}` as QueueName,
          gpu: ['A10G'],
          gpuCount: 1,
          // Kinds of requests are as many in both cases.
          memoryBytes: 1024 + (n % 100),
        }),
      );
    played.round();
    expect(played.placed).toHaveLength(100);
    let steps = 0;
    const { planner } = played;
    const next = planner.next.bind(planner);
    planner.next = () => {
      steps += 1;
      return next();
    };
    for (let n = 0; n < 200; n += 1) {
      played.end(n);
      expect(played.round()).toHaveLength(1);
    }
    return steps / 200;
  }

  test('cost no more decisions for each container that ends when a hundred times as many wait', () => {
    const few = stepsForAnEnd(1000);
    expect(few).toBeLessThan(6);
    expect(stepsForAnEnd(100_000)).toBeLessThanOrEqual(1.2 * few);
  });
});
