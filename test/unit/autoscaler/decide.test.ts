import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ContainerId, QueueName } from '#shared/domain/ids.ts';
import { HostBrakes } from '#scheduler/control/autoscaler/host-brake.ts';
import type { ContainerEntryChange } from '#scheduler/fleet/containers/container-registry.ts';
import type { ContainerState } from '#shared/domain/status.ts';
import { CONTAINER_STATES } from '#shared/domain/status.ts';
import type { ScaleContainer, ScaleInput } from '#scheduler/control/autoscaler/decide.ts';
import { CLOSED_BREAKER } from '#scheduler/control/autoscaler/breaker.ts';
import { QueueHistories, rememberEnds } from '#scheduler/control/autoscaler/history.ts';
import { decideScale, spareContainers, wantedContainers } from '#scheduler/control/autoscaler/decide.ts';
import { stories } from '../../helpers/stories.ts';

const NOW = 1_000_000;
let made = 0;

function aContainer(changes: Partial<ScaleContainer> = {}): ScaleContainer {
  made += 1;
  return {
    id: `c-${made}` as ContainerId,
    state: 'RUNNING',
    attempts: 0,
    idleSinceMs: 0,
    createdAtMs: 0,
    keepWarmMs: 0,
    warmUp: false,
    returned: false,
    found: false,
    ...changes,
  };
}

function anInput(changes: Partial<ScaleInput> = {}): ScaleInput {
  return {
    active: true,
    inFlight: 0,
    waiting: 0,
    tasksPerContainer: 1,
    minContainers: 0,
    maxContainers: 3,
    keepWarmMs: 10_000,
    containers: [],
    breaker: CLOSED_BREAKER,
    wantedInWindow: 0,
    ...changes,
  };
}

const COUNTED: readonly ContainerState[] = ['PENDING', 'ASSIGNED', 'STARTING', 'RUNNING'];

const container = fc
  .record({
    state: fc.constantFrom(...CONTAINER_STATES),
    attempts: fc.nat({ max: 2 }),
    idleSinceMs: fc.integer({ min: NOW - 30_000, max: NOW }),
    createdAtMs: fc.integer({ min: NOW - 60_000, max: NOW }),
    warmUp: fc.boolean(),
    returned: fc.boolean(),
    isAwaited: fc.boolean(),
    found: fc.boolean(),
    keepWarmMs: fc.constantFrom(0, 1000, 600_000),
  })
  .map((one) => ({ ...one, attempts: one.state === 'RUNNING' || one.state === 'DRAINING' ? one.attempts : 0 }));
const input: fc.Arbitrary<ScaleInput> = fc
  .record({
    active: fc.boolean(),
    inFlight: fc.option(fc.nat({ max: 40 }), { nil: undefined }),
    waitingShare: fc.nat({ max: 40 }),
    tasksPerContainer: fc.integer({ min: 1, max: 5 }),
    minContainers: fc.nat({ max: 6 }),
    maxContainers: fc.integer({ min: 1, max: 8 }),
    keepWarmMs: fc.constantFrom(0, 1000, 10_000, Number.POSITIVE_INFINITY),
    containers: fc.array(container, { maxLength: 12 }),
    breaker: fc.record({
      failures: fc.nat({ max: 2 }),
      opened: fc.nat({ max: 5 }),
      coolsUntilMs: fc.integer({ min: NOW - 1000, max: NOW + 1000 }),
      probe: fc.constantFrom(null, 'c-0' as ContainerId),
    }),
    wantedInWindow: fc.nat({ max: 8 }),
    hold: fc.constantFrom<ScaleInput['hold']>(
      undefined,
      undefined,
      { why: 'after_restart', leftMs: 5 },
      { why: 'new_leader', leftMs: 5 },
      { why: 'mass_disconnect' },
    ),
  })
  .map(({ waitingShare, breaker, ...rest }) => ({
    ...rest,
    breaker: { ...CLOSED_BREAKER, ...breaker },
    waiting: Math.min(waitingShare, rest.inFlight ?? 0),
    containers: rest.containers.map((one, index) => ({ ...one, id: `c-${index}` as ContainerId })),
  }));

const isCooling = (given: ScaleInput): boolean => given.breaker.opened > 0 && NOW < given.breaker.coolsUntilMs;
const readyOf = (given: ScaleInput): number => live(given).filter((one) => one.state === 'RUNNING').length;
const live = (given: ScaleInput): ScaleContainer[] => given.containers.filter((one) => COUNTED.includes(one.state));
const runs = { numRuns: stories(2_000) };

describe('whatever the input', () => {
  test('scaling up ends exactly at what is wanted, within the bounds', () => {
    fc.assert(
      fc.property(input, (given) => {
        const decision = decideScale(given, NOW);
        if (decision.kind !== 'start') return;
        const after = live(given).length + decision.count;
        const most = Math.max(given.minContainers, given.maxContainers);
        expect(decision.count).toBeGreaterThan(0);
        expect(after).toBeLessThanOrEqual(most);
        expect(given.active).toBe(true);
        if (given.breaker.opened === 0) expect(after).toBe(decision.wanted);
        else expect([decision.count, decision.probe]).toEqual([1, true]);
      }),
      runs,
    );
  });

  test('scaling down stops only live containers without an attempt, each once, and never below what is wanted', () => {
    fc.assert(
      fc.property(input, (given) => {
        const decision = decideScale(given, NOW);
        if (decision.kind !== 'stop') return;
        const byId = new Map(live(given).map((one) => [one.id, one]));
        expect(new Set(decision.containers).size).toBe(decision.containers.length);
        for (const id of decision.containers) expect(byId.get(id)?.attempts).toBe(0);
        const stays = byId.size - decision.containers.length;
        const ready = live(given).filter((one) => one.state === 'RUNNING' && !decision.containers.includes(one.id));
        // While a breaker cools, starting containers go, too; then the ready ones count.
        if (isCooling(given)) expect(ready.length).toBeGreaterThanOrEqual(Math.min(decision.wanted, readyOf(given)));
        else expect(stays).toBeGreaterThanOrEqual(Math.max(decision.wanted, given.active ? given.minContainers : 0));
        if (!given.active || given.hold === undefined) return;
        expect(given.hold.why).toBe('after_restart');
        const stopped = given.containers.filter(({ id }) => decision.containers.includes(id));
        expect(stopped.filter(({ found }) => found)).toEqual([]);
      }),
      runs,
    );
  });

  test('a running container of an active queue goes only after its keep-warm', () => {
    fc.assert(
      fc.property(input, (given) => {
        const decision = decideScale(given, NOW);
        if (decision.kind !== 'stop' || !given.active) return;
        for (const one of live(given)) {
          if (one.state !== 'RUNNING' || one.returned || one.isAwaited || !decision.containers.includes(one.id))
            continue;
          expect(NOW - one.idleSinceMs).toBeGreaterThanOrEqual(Math.max(given.keepWarmMs, one.keepWarmMs));
        }
      }),
      runs,
    );
  });

  test('a failed sample changes nothing', () => {
    fc.assert(
      fc.property(input, (given) => {
        expect(decideScale({ ...given, inFlight: undefined }, NOW)).toMatchObject({ kind: 'hold', why: 'bad_sample' });
      }),
      runs,
    );
  });

  test('a decision carried out leaves nothing more to do at the same moment', () => {
    fc.assert(
      fc.property(input, (given) => {
        const decision = decideScale(given, NOW);
        if (decision.kind === 'hold') return;
        const gone = new Set<ContainerId>(decision.kind === 'stop' ? decision.containers : []);
        const added =
          decision.kind === 'start'
            ? Array.from({ length: decision.count }, () => aContainer({ state: 'PENDING', createdAtMs: NOW }))
            : [];
        const containers = [...given.containers.filter((one) => !gone.has(one.id)), ...added];
        expect(decideScale({ ...given, containers }, NOW).kind).toBe('hold');
      }),
      runs,
    );
  });

  test('with an open breaker nothing starts before its cooldown is over', () => {
    fc.assert(
      fc.property(input, (given) => {
        if (!isCooling(given)) return;
        expect(decideScale(given, NOW).kind).not.toBe('start');
      }),
      runs,
    );
  });

  test('a hold that waits for a time says when, and it is to come', () => {
    fc.assert(
      fc.property(input, (given) => {
        const decision = decideScale(given, NOW);
        if (decision.kind === 'start' || decision.againAtMs === undefined) return;
        expect(decision.againAtMs).toBeGreaterThan(NOW);
      }),
      runs,
    );
  });
});

describe('how many are wanted', () => {
  test.each([
    [0, 1, 0, 3, 0],
    [1, 1, 0, 3, 1],
    [12, 1, 0, 3, 3],
    [7, 3, 0, 9, 3],
    [0, 1, 2, 3, 2],
    [1, 1, 4, 3, 4],
  ])(
    '%d tasks, %d per container, %d to %d: %d',
    (inFlight, tasksPerContainer, minContainers, maxContainers, wanted) => {
      expect(wantedContainers({ active: true, tasksPerContainer, minContainers, maxContainers }, inFlight)).toBe(
        wanted,
      );
    },
  );

  test('a queue that is not active wants none, whatever its minimum', () => {
    expect(wantedContainers({ active: false, tasksPerContainer: 1, minContainers: 2, maxContainers: 3 }, 9)).toBe(0);
  });
});

describe('containers that count', () => {
  test('the first task starts the first container at once', () => {
    expect(decideScale(anInput({ inFlight: 1, waiting: 1 }), NOW)).toEqual({
      kind: 'start',
      count: 1,
      unplaced: 1,
      wanted: 1,
      probe: false,
    });
  });

  test('pending, assigned and starting containers count as capacity', () => {
    const containers = (['PENDING', 'ASSIGNED', 'STARTING'] as const).map((state) => aContainer({ state }));
    expect(decideScale(anInput({ inFlight: 3, waiting: 3, containers }), NOW)).toEqual({
      kind: 'hold',
      why: 'at_target',
      wanted: 3,
    });
  });

  test('draining, stopping and unknown containers do not', () => {
    const containers = (['DRAINING', 'STOPPING', 'UNKNOWN'] as const).map((state) => aContainer({ state }));
    expect(decideScale(anInput({ inFlight: 1, waiting: 1, containers }), NOW)).toMatchObject({
      kind: 'start',
      count: 1,
    });
  });
});

describe('of many containers that are wanted', () => {
  const many = { inFlight: 100, waiting: 100, maxContainers: 200 };
  const waiting = (count: number) => Array.from({ length: count }, () => aContainer({ state: 'PENDING' }));

  test('sixteen at most are written without a place, beside those that find one', () => {
    expect(decideScale(anInput(many), NOW)).toMatchObject({ kind: 'start', count: 100, unplaced: 16 });
    const some = [...waiting(10), aContainer({ state: 'ASSIGNED' })];
    expect(decideScale(anInput({ ...many, containers: some }), NOW)).toMatchObject({ count: 89, unplaced: 6 });
    expect(decideScale(anInput({ ...many, inFlight: 13, containers: some }), NOW)).toMatchObject({ unplaced: 2 });
  });

  test('the others follow as these are placed', () => {
    const containers = [...waiting(16), aContainer()];
    expect(decideScale(anInput({ ...many, containers }), NOW)).toEqual({ kind: 'hold', why: 'unplaced', wanted: 100 });
    const placed = [...containers.slice(1), aContainer({ state: 'ASSIGNED' })];
    expect(decideScale(anInput({ ...many, containers: placed }), NOW)).toMatchObject({ count: 83, unplaced: 1 });
  });
});

describe('who leaves first', () => {
  const pendingOld = aContainer({ state: 'PENDING', createdAtMs: 1 });
  const pendingNew = aContainer({ state: 'PENDING', createdAtMs: 2 });
  const starting = aContainer({ state: 'STARTING', createdAtMs: 3 });
  const idleLong = aContainer({ idleSinceMs: 10 });
  const idleShort = aContainer({ idleSinceMs: 20 });
  const all = [idleShort, starting, pendingOld, idleLong, pendingNew];

  test('pending newest first, then what starts, then the idle, longest first', () => {
    const order: ContainerId[] = [];
    let containers = all;
    for (let minContainers = 4; minContainers >= 0; minContainers -= 1) {
      const decision = decideScale(anInput({ minContainers, containers, keepWarmMs: 0 }), NOW);
      if (decision.kind !== 'stop') throw new Error(`expected a stop, got ${decision.kind}`);
      order.push(...decision.containers);
      containers = containers.filter((one) => !decision.containers.includes(one.id));
    }
    expect(order).toEqual([pendingNew.id, pendingOld.id, starting.id, idleLong.id, idleShort.id]);
  });

  test('one that starts stays while a task waits', () => {
    const containers = [starting, aContainer({ attempts: 1 })];
    expect(decideScale(anInput({ inFlight: 1, waiting: 1, containers }), NOW)).toMatchObject({
      kind: 'hold',
      why: 'busy_or_warm',
    });
    expect(decideScale(anInput({ inFlight: 1, waiting: 0, containers }), NOW)).toMatchObject({
      kind: 'stop',
      containers: [starting.id],
    });
  });

  test('where the deployment is gone, one that starts leaves although tasks wait', () => {
    const decision = decideScale(anInput({ active: false, inFlight: 5, waiting: 5, containers: [starting] }), NOW);
    expect(decision).toMatchObject({ kind: 'stop', containers: [starting.id] });
  });

  test('an idle one is looked at again when its keep-warm runs out', () => {
    const containers = [aContainer({ idleSinceMs: NOW - 4000 }), aContainer({ idleSinceMs: NOW - 1000 })];
    expect(decideScale(anInput({ containers }), NOW)).toEqual({
      kind: 'hold',
      why: 'busy_or_warm',
      wanted: 0,
      againAtMs: NOW + 6000,
    });
  });

  test('a keep-warm without end is never looked at again for its sake', () => {
    const containers = [aContainer({ idleSinceMs: 0 })];
    expect(decideScale(anInput({ containers, keepWarmMs: Number.POSITIVE_INFINITY }), NOW)).toEqual({
      kind: 'hold',
      why: 'busy_or_warm',
      wanted: 0,
    });
  });

  test('what came back with its lost machine goes before others, as soon as it is idle, whatever its keep-warm', () => {
    const replacement = aContainer({ idleSinceMs: 1, createdAtMs: 20 });
    const back = aContainer({ idleSinceMs: NOW, createdAtMs: 10, returned: true });
    const given = anInput({ minContainers: 1, containers: [replacement, back], keepWarmMs: Number.POSITIVE_INFINITY });
    expect(decideScale(given, NOW)).toMatchObject({ kind: 'stop', containers: [back.id] });
    const busy = { ...back, attempts: 1 };
    expect(decideScale({ ...given, containers: [replacement, busy] }, NOW)).toMatchObject({ why: 'busy_or_warm' });
  });

  test('a container whose machine a larger request waits for goes before others that are idle, and not before its work is done', () => {
    const idle = aContainer({ idleSinceMs: 1 });
    const awaited = aContainer({ idleSinceMs: NOW, isAwaited: true });
    const given = anInput({ minContainers: 1, containers: [idle, awaited], keepWarmMs: 0 });
    expect(decideScale(given, NOW)).toMatchObject({ kind: 'stop', containers: [awaited.id] });
    const warm = { ...given, keepWarmMs: Number.POSITIVE_INFINITY };
    expect(decideScale(warm, NOW)).toMatchObject({ kind: 'stop', containers: [awaited.id] });
    expect(decideScale({ ...warm, minContainers: 2 }, NOW)).toMatchObject({ why: 'at_target' });
    expect(decideScale({ ...warm, hold: { why: 'mass_disconnect' } }, NOW)).toMatchObject({ why: 'mass_disconnect' });
    const busy = { ...awaited, attempts: 1 };
    expect(decideScale({ ...warm, containers: [idle, busy] }, NOW)).toMatchObject({ why: 'busy_or_warm' });
  });

  test('within the window the largest number that was wanted stays, but never more than the bounds allow now', () => {
    const containers = [1, 2, 3].map((idleSinceMs) => aContainer({ idleSinceMs }));
    const given = anInput({ containers, keepWarmMs: 0, wantedInWindow: 3, windowEndsMs: NOW + 7000 });
    expect(decideScale(given, NOW)).toEqual({ kind: 'hold', why: 'in_window', wanted: 0, againAtMs: NOW + 7000 });
    expect(decideScale({ ...given, wantedInWindow: 2 }, NOW)).toMatchObject({ containers: [containers[0]?.id] });
    const scaled = { ...given, minContainers: 1, maxContainers: 1 };
    expect(decideScale(scaled, NOW)).toMatchObject({
      kind: 'stop',
      containers: [containers[0]?.id, containers[1]?.id],
    });
  });

  test('at most so many running containers end in a minute for want of work, and the next one when the minute is over', () => {
    const running = [1, 2, 3, 4].map((idleSinceMs) => aContainer({ idleSinceMs }));
    const ids = running.map(({ id }) => id);
    const given = anInput({ containers: running, keepWarmMs: 0, scaleInPerMinute: 2 });
    expect(decideScale(given, NOW)).toEqual({
      kind: 'stop',
      containers: [ids[0], ids[1]],
      wanted: 0,
      againAtMs: NOW + 60_000,
    });
    const endedAtMs = [NOW - 60_000, NOW - 50_000, NOW - 10_000];
    expect(decideScale({ ...given, endedAtMs }, NOW)).toEqual({
      kind: 'hold',
      why: 'scale_in_rate',
      wanted: 0,
      againAtMs: NOW + 10_000,
    });
    expect(decideScale({ ...given, endedAtMs: endedAtMs.slice(0, 2) }, NOW)).toMatchObject({
      containers: [ids[0]],
      againAtMs: NOW + 10_000,
    });
    expect(decideScale({ ...given, endedAtMs, active: false }, NOW)).toMatchObject({ containers: ids });
    const { scaleInPerMinute: _, ...unbound } = given;
    expect(decideScale({ ...unbound, endedAtMs }, NOW)).toMatchObject({ containers: ids });
    // Nobody would miss a container that waits for a place, came back with its machine, or is awaited.
    const pending = aContainer({ state: 'PENDING' });
    const [returned, awaited] = [aContainer({ returned: true }), aContainer({ isAwaited: true })];
    const others = { ...given, containers: [...running, pending, returned, awaited], endedAtMs };
    const decided = decideScale(others, NOW);
    expect(decided).toMatchObject({ kind: 'stop', againAtMs: NOW + 10_000 });
    expect(new Set(decided.kind === 'stop' ? decided.containers : [])).toEqual(
      new Set([pending.id, returned.id, awaited.id]),
    );
    // A busy container is no reason to look again when the minute is over.
    const busy = running.map((one) => ({ ...one, attempts: 1 }));
    expect(decideScale({ ...given, containers: busy, endedAtMs }, NOW)).toMatchObject({ why: 'busy_or_warm' });
    const after = { why: 'after_restart', leftMs: 5000 } as const;
    expect(decideScale({ ...given, hold: after }, NOW)).toMatchObject({ kind: 'stop', containers: [ids[0], ids[1]] });
  });

  test('ends are remembered for a minute, where their number is bounded', () => {
    const history = new QueueHistories().of('q' as QueueName);
    const given = anInput({ containers: [aContainer(), aContainer({ state: 'PENDING' })], scaleInPerMinute: 5 });
    const ids = given.containers.map(({ id }) => id);
    rememberEnds(history, given, ids, NOW - 30_000);
    rememberEnds(history, given, ids, NOW);
    expect(history.endedAtMs).toEqual([NOW - 30_000, NOW]);
    rememberEnds(history, given, [], NOW + 30_000);
    expect(history.endedAtMs).toEqual([NOW]);
    rememberEnds(history, { ...given, active: false }, ids, NOW + 30_000);
    expect(history.endedAtMs).toEqual([NOW]);
  });

  test('ScaleDeployment: n is both bounds; 0 lets the queue decide up to the old maximum', () => {
    expect(decideScale(anInput({ minContainers: 2, maxContainers: 2 }), NOW)).toMatchObject({
      kind: 'start',
      count: 2,
    });
    const toZero = anInput({ minContainers: 0, maxContainers: 3 });
    expect(decideScale(toZero, NOW)).toMatchObject({ kind: 'hold', why: 'at_target' });
    expect(decideScale({ ...toZero, inFlight: 9, waiting: 9 }, NOW)).toMatchObject({ kind: 'start', count: 3 });
  });

  test('a minimum is kept although containers fall', () => {
    const containers = [aContainer(), aContainer({ state: 'FAILED' }), aContainer({ state: 'UNKNOWN' })];
    expect(decideScale(anInput({ minContainers: 2, containers }), NOW)).toMatchObject({ kind: 'start', count: 1 });
  });

  test('right after a scheduler start nothing that it found stops for want of work', () => {
    const containers = [aContainer({ found: true })];
    expect(decideScale(anInput({ containers, hold: { why: 'after_restart', leftMs: 90_000 } }), NOW)).toMatchObject({
      kind: 'hold',
      why: 'after_restart',
      againAtMs: NOW + 90_000,
    });
    expect(decideScale(anInput({ inFlight: 3, waiting: 3, hold: { why: 'mass_disconnect' } }), NOW).kind).toBe('start');
  });

  test('what a scheduler started itself goes right after its start, also beside what it found', () => {
    const hold = { why: 'after_restart', leftMs: 90_000 } as const;
    const [found, own, warm] = [
      aContainer({ found: true }),
      aContainer({ createdAtMs: NOW }),
      aContainer({ idleSinceMs: NOW - 4000 }),
    ];
    const containers = [found, own, warm];
    expect(decideScale(anInput({ containers, hold }), NOW)).toMatchObject({
      kind: 'stop',
      containers: [own.id],
      againAtMs: NOW + 6000,
    });
    // A container that was found may be the one that is wanted.
    const one = anInput({ containers: [found, own], inFlight: 1, hold });
    expect(decideScale(one, NOW)).toMatchObject({ kind: 'stop', containers: [own.id] });
    expect(decideScale(anInput({ containers, hold: { why: 'new_leader', leftMs: 1 } }), NOW).kind).toBe('hold');
    expect(decideScale(anInput({ containers, hold: { why: 'mass_disconnect' } }), NOW).kind).toBe('hold');
  });
});

describe('while starts fail in a row', () => {
  const cooling = { ...CLOSED_BREAKER, failures: 3, opened: 1, coolsUntilMs: NOW + 500 };
  const over = { ...cooling, coolsUntilMs: NOW };

  test('nothing is started, not even what `minContainers` asks for', () => {
    const given = anInput({ minContainers: 2, inFlight: 9, waiting: 9, breaker: cooling });
    expect(decideScale(given, NOW)).toEqual({
      kind: 'hold',
      why: 'cooling_down',
      wanted: 3,
      againAtMs: cooling.coolsUntilMs,
    });
  });

  test('what waits for a place goes, what starts goes when no task waits for it, what is ready stays', () => {
    const pending = aContainer({ state: 'PENDING' });
    const starting = aContainer({ state: 'STARTING' });
    const ready = aContainer();
    const given = anInput({ inFlight: 3, waiting: 2, breaker: cooling, containers: [ready, starting, pending] });
    expect(decideScale(given, NOW)).toMatchObject({ kind: 'stop', containers: [pending.id] });
    expect(decideScale({ ...given, waiting: 0 }, NOW)).toMatchObject({ containers: [pending.id, starting.id] });
    expect(decideScale({ ...given, containers: [ready] }, NOW)).toMatchObject({ why: 'cooling_down' });
  });

  test('what a warm-up asked for is not spared', () => {
    const containers = [aContainer({ state: 'PENDING', warmUp: true })];
    expect(decideScale(anInput({ containers }), NOW).kind).toBe('hold');
    expect(decideScale(anInput({ containers, breaker: cooling }), NOW)).toMatchObject({ kind: 'stop' });
  });

  test('after the cooldown exactly one probes, beside what is ready, until it is proved or fails', () => {
    const ready = aContainer();
    const given = anInput({ inFlight: 3, waiting: 3, breaker: over, containers: [ready] });
    expect(decideScale(given, NOW)).toEqual({ kind: 'start', count: 1, unplaced: 1, wanted: 3, probe: true });
    const probe = aContainer({ state: 'PENDING' });
    for (const state of ['PENDING', 'ASSIGNED', 'STARTING', 'RUNNING'] as const) {
      const containers = [ready, { ...probe, state }];
      const probing = { ...given, containers, breaker: { ...over, probe: probe.id } };
      expect(decideScale(probing, NOW)).toEqual({ kind: 'hold', why: 'probing', wanted: 3 });
    }
  });
});

test('a container that a warm-up asked for is spared until it is ready', () => {
  const warming = aContainer({ state: 'STARTING', warmUp: true });
  const input = anInput({ inFlight: 0, waiting: 0, keepWarmMs: 0, containers: [warming] });
  expect(decideScale(input, NOW).kind).toBe('hold');
  const ready = aContainer({ state: 'RUNNING', warmUp: true });
  expect(decideScale({ ...input, containers: [ready] }, NOW).kind).toBe('stop');
});

test('a container whose last task asked for longer stays for it, beside a shorter keep-warm of its stub', () => {
  const asked = aContainer({ idleSinceMs: NOW - 5000, keepWarmMs: 60_000 });
  const input = anInput({ inFlight: 0, waiting: 0, keepWarmMs: 1000, containers: [asked] });
  expect(decideScale(input, NOW)).toMatchObject({ kind: 'hold', againAtMs: NOW + 55_000 });
  expect(decideScale(input, NOW + 55_000).kind).toBe('stop');
});

describe('an exclusive container on a lost machine', () => {
  const held = (heldUntilMs: number) => aContainer({ state: 'UNKNOWN', heldUntilMs });

  test('is not replaced before its agent must have stopped it, and then at once', () => {
    const containers = [held(NOW + 5_000), held(NOW + 3_000)];
    const asked = anInput({ inFlight: 2, waiting: 2, containers });
    const hold = { kind: 'hold', why: 'exclusive_on_lost', wanted: 2, againAtMs: NOW + 3_000 };
    expect(decideScale(asked, NOW)).toEqual(hold);
    expect(decideScale(asked, NOW + 2_999)).toEqual(hold);
    expect(decideScale(asked, NOW + 3_000)).toMatchObject({ kind: 'start', count: 1 });
    expect(decideScale(asked, NOW + 5_000)).toMatchObject({ kind: 'start', count: 2 });
  });

  test('keeps no other from starting that is wanted besides', () => {
    const asked = anInput({ inFlight: 3, waiting: 3, containers: [held(NOW + 5_000)] });
    expect(decideScale(asked, NOW)).toMatchObject({ kind: 'start', count: 2 });
  });

  test('is nothing that could be stopped, and no reason to stop what is ready', () => {
    const ready = aContainer({ idleSinceMs: NOW - 60_000 });
    const containers = [held(NOW + 5_000), ready];
    expect(decideScale(anInput({ minContainers: 1, containers }), NOW)).toMatchObject({ why: 'at_target' });
    expect(decideScale(anInput({ containers }), NOW)).toMatchObject({ kind: 'stop', containers: [ready.id] });
    expect(decideScale(anInput({ containers: [held(NOW + 5_000)] }), NOW)).toMatchObject({ why: 'at_target' });
  });

  test('any other on a lost machine is replaced at once', () => {
    const asked = anInput({ inFlight: 1, waiting: 1, containers: [aContainer({ state: 'UNKNOWN' })] });
    expect(decideScale(asked, NOW)).toMatchObject({ kind: 'start', count: 1 });
  });
});

describe('a queue whose starts fail by causes of hosts', () => {
  const hostBrake = { failures: 3, untilMs: NOW + 60_000 };
  test('starts nothing in its pause, and then one container at a time', () => {
    const input = anInput({ inFlight: 3, hostBrake });
    expect(decideScale(input, NOW)).toMatchObject({ kind: 'hold', why: 'host_causes', againAtMs: NOW + 60_000 });
    expect(decideScale(input, NOW + 60_000)).toMatchObject({ kind: 'start', count: 1, probe: false });
    const containers = [aContainer({ state: 'STARTING' })];
    expect(decideScale({ ...input, containers }, NOW + 60_000)).toMatchObject({ kind: 'hold', why: 'host_causes' });
  });

  test('waits longer each time, within a bound, until a container is ready', () => {
    const brakes = new HostBrakes();
    const end = (to: string, reason: string, nowMs: number): void =>
      brakes.containerChanged(
        { entry: { row: { reason, startedAtMs: null }, spec: { queue: 'q' } }, to } as unknown as ContainerEntryChange,
        nowMs,
      );
    const waits: number[] = [];
    let nowMs = NOW;
    for (let at = 0; at < 10; at += 1) {
      end('FAILED', 'registry_busy', nowMs);
      end('FAILED', 'registry_busy', nowMs);
      waits.push((brakes.of('q' as QueueName)?.untilMs ?? 0) - nowMs);
      nowMs = brakes.of('q' as QueueName)?.untilMs ?? 0;
    }
    expect(waits.slice(0, 3)).toEqual([15_000, 30_000, 60_000]);
    expect(waits.at(-1)).toBe(15 * 60_000);
    end('RUNNING', '', nowMs);
    for (const reason of ['lost', 'host_reboot', 'image_error']) end('FAILED', reason, nowMs);
    expect(brakes.of('q' as QueueName)).toBeUndefined();
  });
});

describe('containers that warmth alone keeps', () => {
  const warm = (count: number, changes: Partial<ScaleContainer> = {}) =>
    Array.from({ length: count }, () => aContainer({ idleSinceMs: NOW, ...changes }));

  test('are idle ones beyond the demand, the window and the least number', () => {
    const containers = warm(5);
    const some = (changes: Partial<ScaleInput>) => spareContainers(anInput({ containers, ...changes }), NOW).length;
    expect(some({})).toBe(5);
    expect(some({ inFlight: 1 })).toBe(4);
    expect(some({ minContainers: 2 })).toBe(3);
    expect(some({ wantedInWindow: 3 })).toBe(2);
    expect(some({ keepWarmMs: Infinity })).toBe(5);
  });

  test('are none while nothing is stopped, nor one that works or waits for the first call of a rollout', () => {
    const containers = [...warm(1, { attempts: 1 }), ...warm(1, { awaitsFirstCall: true })];
    expect(spareContainers(anInput({ containers }), NOW)).toEqual([]);
    const input = anInput({ containers: warm(2) });
    for (const changes of [
      { hold: { why: 'mass_disconnect' } },
      { inFlight: undefined },
      { limitsUnknown: true },
      { active: false },
    ] as const)
      expect(spareContainers({ ...input, ...changes }, NOW), JSON.stringify(changes)).toEqual([]);
  });

  test('are stopped as soon as somebody awaits their end', () => {
    fc.assert(
      fc.property(input, (one) => {
        const spare = new Set(spareContainers(one, NOW));
        if (spare.size === 0) return;
        const containers = one.containers.map((each) => (spare.has(each.id) ? { ...each, isAwaited: true } : each));
        const decision = decideScale({ ...one, containers }, NOW);
        const stopped = decision.kind === 'stop' ? decision.containers : [];
        for (const id of spare) expect(stopped).toContain(id);
      }),
    );
  });
});
