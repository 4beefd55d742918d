import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ContainerId } from '#shared/domain/ids.ts';
import type { ContainerState } from '#shared/domain/status.ts';
import { CONTAINER_STATES } from '#shared/domain/status.ts';
import type { ScaleContainer, ScaleInput } from '#scheduler/autoscaler/decide.ts';
import { breakerAfterFailure, CLOSED_BREAKER, decideScale, wantedContainers } from '#scheduler/autoscaler/decide.ts';

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
    scaleInAllowed: true,
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
      closedAtMs: fc.integer({ min: NOW - 1000, max: NOW + 1000 }),
    }),
    scaleInAllowed: fc.boolean(),
  })
  .map(({ waitingShare, ...rest }) => ({
    ...rest,
    waiting: Math.min(waitingShare, rest.inFlight ?? 0),
    containers: rest.containers.map((one, index) => ({ ...one, id: `c-${index}` as ContainerId })),
  }));

const live = (given: ScaleInput): ScaleContainer[] => given.containers.filter((one) => COUNTED.includes(one.state));
const runs = { numRuns: 10_000 };

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
        else expect(after).toBe(1);
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
        const floor = given.active ? given.minContainers : 0;
        expect(byId.size - decision.containers.length).toBeGreaterThanOrEqual(Math.max(decision.wanted, floor));
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
          if (one.state !== 'RUNNING' || !decision.containers.includes(one.id)) continue;
          expect(NOW - one.idleSinceMs).toBeGreaterThanOrEqual(given.keepWarmMs);
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
        if (NOW >= given.breaker.closedAtMs) return;
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
    expect(decideScale(anInput({ inFlight: 1, waiting: 1 }), NOW)).toEqual({ kind: 'start', count: 1, wanted: 1 });
  });

  test('pending, assigned and starting containers count as capacity', () => {
    const containers = (['PENDING', 'ASSIGNED', 'STARTING'] as const).map((state) => aContainer({ state }));
    expect(decideScale(anInput({ inFlight: 3, waiting: 3, containers }), NOW)).toEqual({
      kind: 'hold',
      why: 'at_target',
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
      againAtMs: NOW + 6000,
    });
  });

  test('a keep-warm without end is never looked at again for its sake', () => {
    const containers = [aContainer({ idleSinceMs: 0 })];
    expect(decideScale(anInput({ containers, keepWarmMs: Number.POSITIVE_INFINITY }), NOW)).toEqual({
      kind: 'hold',
      why: 'busy_or_warm',
    });
  });

  test('right after a scheduler start nothing stops for want of work', () => {
    const containers = [aContainer()];
    expect(decideScale(anInput({ containers, scaleInAllowed: false }), NOW)).toMatchObject({
      kind: 'hold',
      why: 'after_restart',
    });
  });
});

describe('the breaker', () => {
  test('opens at the third failure in a row and cools down longer each time, at most fifteen minutes', () => {
    let breaker = CLOSED_BREAKER;
    breaker = breakerAfterFailure(breaker, NOW);
    breaker = breakerAfterFailure(breaker, NOW);
    expect(breaker.closedAtMs).toBe(0);
    const cooldowns: number[] = [];
    for (let probe = 0; probe < 7; probe += 1) {
      breaker = breakerAfterFailure(breaker, NOW);
      cooldowns.push((breaker.closedAtMs - NOW) / 1000);
    }
    expect(cooldowns).toEqual([60, 120, 240, 480, 900, 900, 900]);
  });

  test('after the cooldown one container probes, however many are wanted', () => {
    const breaker = { failures: 2, opened: 1, closedAtMs: NOW - 1 };
    expect(decideScale(anInput({ inFlight: 3, waiting: 3, breaker }), NOW)).toMatchObject({ kind: 'start', count: 1 });
    const containers = [aContainer({ state: 'STARTING' })];
    expect(decideScale(anInput({ inFlight: 3, waiting: 3, breaker, containers }), NOW)).toMatchObject({
      kind: 'hold',
      why: 'cooling_down',
    });
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
