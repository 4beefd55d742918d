// Workspaces beside each other in the scaling loop: who asks for much delays nobody, and no start is older than what
// asked for it.
import { expect, test } from 'vitest';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { CREATION_MS, Played } from './played.ts';

const [A, B, C] = ['a', 'b', 'c'] as unknown as [WorkspaceId, WorkspaceId, WorkspaceId];
const many = (count: number, work: () => unknown): void => {
  for (let times = 0; times < count; times += 1) work();
};

test('the first task of a workspace starts among the first, while another workspace asks for a thousand', async () => {
  const world = new Played();
  many(1_000, () => world.asks(A));
  await world.pass(100);
  const before = world.begun.length;
  const other = world.asks(B);
  await world.pass(2 + 2 * CREATION_MS);
  const began = world.begun.findIndex(({ queue }) => queue === other);
  expect(began).toBeGreaterThanOrEqual(0);
  // Starts that were under way, and one turn of them at most.
  expect(began - before).toBeLessThanOrEqual(16);
  expect(world.begun.length).toBeLessThan(1_000);
  await world.pass(10_000);
  expect(world.begun).toHaveLength(1_001);
  expect(world.mostUnderWay).toBe(8);
});

test('workspaces take turns, and the queues of one start in the order in which they asked', async () => {
  const world = new Played();
  world.creationMs = 100;
  const first = Array.from({ length: 12 }, () => world.asks(A));
  await world.pass(50);
  const others = [world.asks(B), world.asks(C), world.asks(B)];
  await world.pass(10_000);
  const [b1, c1, b2] = others;
  expect(world.begun.map(({ queue }) => queue)).toEqual([
    ...first.slice(0, 9),
    b1,
    c1,
    first[9],
    b2,
    ...first.slice(10),
  ]);
});

test('a queue that asks for a hundred gets them in parts, and delays no other of its workspace for long', async () => {
  const world = new Played();
  const large = world.asks(A, 100);
  const small = world.asks(A);
  await world.pass(10_000);
  expect(world.begun.map(({ queue, count }) => [queue, count])).toEqual([
    [large, 32],
    [small, 1],
    [large, 32],
    [large, 32],
    [large, 4],
  ]);
});

test('nothing starts for a queue that is empty by its turn, and one read tells so for all that waited', async () => {
  const world = new Played();
  world.creationMs = 400;
  many(500, () => world.asks(A));
  await world.pass(900);
  const begun = world.begun.length;
  for (const queue of world.targets.keys()) world.waiting.set(queue, 0);
  const samples = world.samples.length;
  await world.pass(10_000);
  expect(world.begun).toHaveLength(begun);
  expect(world.samples.slice(samples).filter((queues) => queues > 100)).toHaveLength(1);
});

test('slow answers of Redis do not keep a queue from starting', async () => {
  const world = new Played();
  world.sampleMs = 3_000;
  const queue = world.asks(A);
  await world.pass(3_010);
  expect(world.begun).toMatchObject([{ queue }]);
});

test('a queue is not decided while its start is under way, and none starts twice', async () => {
  const world = new Played();
  world.creationMs = 1_000;
  const queue = world.asks(A, 3);
  await world.pass(10);
  many(5, () => world.autoscaler.wake(queue));
  await world.pass(500);
  world.waiting.set(queue, 4);
  world.autoscaler.wake(queue);
  await world.pass(10_000);
  expect(world.begun.map(({ count }) => count)).toEqual([3, 1]);
});

test('nor while its depth is on its way when the start begins', async () => {
  const world = new Played();
  world.creationMs = 30;
  world.sampleMs = 20;
  const queues = [world.asks(A), world.asks(B)];
  for (let steps = 0; steps < 100; steps += 1) {
    for (const queue of queues) world.autoscaler.wake(queue);
    await world.pass(7);
  }
  expect(world.begun).toHaveLength(2);
});

test('a creation that fails is tried again, and the others go on meanwhile', async () => {
  const world = new Played();
  world.failures = 1;
  const queues = [world.asks(A), world.asks(A), world.asks(B)];
  await world.pass(50);
  expect(new Set(world.begun.map(({ queue }) => queue))).toEqual(new Set(queues.slice(1)));
  await world.pass(1_100);
  expect(new Set(world.begun.map(({ queue }) => queue))).toEqual(new Set(queues));
});

test('who leads no more begins nothing, and goes on with what waited when it leads again', async () => {
  const world = new Played();
  world.creationMs = 100;
  many(20, () => world.asks(A));
  await world.pass(50);
  world.leads = false;
  await world.pass(5_000);
  expect(world.begun).toHaveLength(8);
  world.leads = true;
  world.autoscaler.leads();
  await world.pass(5_000);
  expect(world.begun).toHaveLength(20);
});

test('nothing starts for a deployment that is gone by its turn', async () => {
  const world = new Played();
  world.creationMs = 100;
  many(8, () => world.asks(A));
  await world.pass(50);
  const queue = world.asks(A);
  await world.pass(10);
  world.targets.delete(queue);
  await world.pass(1_000);
  expect(world.begun).toHaveLength(8);
});

test('limits that are not read yet hold a queue, and what is beyond the read ones leaves', async () => {
  const world = new Played();
  world.limit = undefined;
  const queue = world.asks(A, 20, 100);
  world.has(queue, 10);
  await world.pass(50);
  const held = await world.autoscaler.explain(queue);
  expect([held.decision, world.begun, world.stopped]).toMatchObject([{ kind: 'hold', why: 'limits_unknown' }, [], []]);
  world.limit = 5;
  world.limitRead();
  await world.pass(50);
  expect((await world.autoscaler.explain(queue)).decision).toMatchObject({ wanted: 5 });
  expect(world.begun).toEqual([]);
});

test('containers of a stopped deployment leave, also while limits are not read', async () => {
  const world = new Played();
  world.limit = undefined;
  const queue = world.asks(A, 0);
  const target = world.targets.get(queue);
  if (target !== undefined) world.targets.set(queue, { ...target, active: false });
  world.has(queue, 2, 'STARTING');
  world.autoscaler.wake(queue);
  await world.pass(50);
  expect(world.stopped).toHaveLength(2);
});

test('what finds no place is a number beyond sixteen containers, and each placement lets another follow', async () => {
  const world = new Played();
  world.room = 30;
  const queue = world.asks(A, 100);
  await world.pass(100);
  expect([world.count(queue, 'ASSIGNED'), world.count(queue, 'PENDING'), world.autoscaler.followOf(queue)]).toEqual([
    30, 16, 54,
  ]);
  expect((await world.autoscaler.explain(queue)).decision).toMatchObject({ why: 'unplaced', wanted: 100 });
  world.places(queue);
  await world.pass(100);
  expect([world.count(queue, 'ASSIGNED'), world.count(queue, 'PENDING'), world.autoscaler.followOf(queue)]).toEqual([
    31, 16, 53,
  ]);
  world.waiting.set(queue, 40);
  world.autoscaler.wake(queue);
  await world.pass(100);
  expect([world.count(queue, 'PENDING'), world.autoscaler.followOf(queue)]).toEqual([9, 0]);
});
