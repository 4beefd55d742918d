// Flow control of queues on a real Redis: the queue hands out no more tasks of a key than its bound. The sweep mends
// what is left when a process is killed, or Redis loses its data.
import type { Redis } from 'ioredis';
import { describe, expect } from 'vitest';
import type { InstanceId, LockToken, QueueName, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { lockTokenOf, newAttemptToken, newId, newInstanceId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { openTaskQueues } from '#scheduler/stores/queues/bullmq.ts';
import { FlowBook } from '#scheduler/stores/queues/flow-book.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import { FlowPaces } from '#scheduler/stores/queues/flow-paces.ts';
import type { PaceAnswer } from '#scheduler/stores/queues/flow-paces.ts';
import { keysOf } from '#scheduler/stores/queues/keys.ts';
import type { TaskQueues } from '#scheduler/stores/queues/task-queues.ts';
import { FlowSweep } from '#scheduler/tasks/maintenance/flow-sweep.ts';
import { test as base, waitFor } from '../helpers/services.ts';
import { aTaskJob } from '../helpers/task-job.ts';

const instance: InstanceId = newInstanceId();
const quiet = createLog({ name: 'test', level: 'silent' });
const aLock = (): LockToken => lockTokenOf(instance, newAttemptToken());
const aQueue = (): QueueName => `tq-${newId<StubId>()}` as QueueName;
const HOUR_MS = 3_600_000;

let made = 0;
function aJob(key: string, most: number, changes: Partial<TaskJob> = {}): TaskJob {
  made += 1;
  const [flow, nowMs] = [{ key, most }, Date.now()];
  const times = { deadlineMs: nowMs + HOUR_MS, createdAtMs: nowMs + made };
  return aTaskJob({ replica: instance, input: '{}', flow, ...times, ...changes });
}

interface World {
  readonly queues: TaskQueues;
  readonly book: FlowBook;
  readonly eye: Redis;
  readonly client: Redis;
  /** Tasks that count as running although they have no job. */
  readonly running: Set<TaskId>;
  readonly controlled: Set<QueueName>;
  readonly sweep: FlowSweep;
}

const test = base.extend('world', { scope: 'file' }, async ({ redis }, { onCleanup }): Promise<World> => {
  const client = redis.connect({ maxRetriesPerRequest: 1, enableOfflineQueue: false, commandTimeout: 2000 });
  const queues = await openTaskQueues({ client, log: quiet });
  onCleanup(() => queues.close());
  const running = new Set<TaskId>();
  const controlled = new Set<QueueName>();
  const sweep = new FlowSweep({
    queues,
    leases: { heldAmong: (ids) => Promise.resolve(new Set(ids.filter((id) => running.has(id)))) },
    controlled: () => Promise.resolve([...controlled].map((queue) => ({ queue, flow: { concurrency: 1 } }))),
    log: quiet,
  });
  return { queues, book: new FlowBook(client, keysOf()), eye: redis.connect(), client, running, controlled, sweep };
});

async function addAll(queues: TaskQueues, queue: QueueName, jobs: readonly TaskJob[]): Promise<void> {
  for (const job of jobs) await queues.add(queue, job);
}

/** Ids of the next jobs, with their locks. */
async function fetchAll(queues: TaskQueues, queue: QueueName): Promise<Map<TaskId, LockToken>> {
  const found = new Map<TaskId, LockToken>();
  for (;;) {
    const lock = aLock();
    const { job } = await queues.fetch(queue, lock);
    if (job === undefined) return found;
    found.set(job.taskId, lock);
  }
}

const ready = async (queues: TaskQueues, queue: QueueName): Promise<number> => (await queues.depth(queue)).waiting;

describe('concurrency by key', () => {
  test('at most so many of a key are ready, and each end hands out the oldest that waits', async ({ world }) => {
    const { queues } = world;
    const queue = aQueue();
    const jobs = [aJob('a', 2), aJob('a', 2), aJob('a', 2), aJob('a', 2), aJob('b', 2)];
    const [first, second, third, fourth, other] = jobs.map(({ taskId }) => taskId);
    await addAll(queues, queue, jobs);
    expect(await queues.depth(queue)).toEqual({ waiting: 3, active: 0, delayed: 0, prioritized: 0, held: 2, soon: 0 });
    const got = await fetchAll(queues, queue);
    expect([...got.keys()]).toEqual([first, second, other]);

    await queues.complete(queue, first as TaskId, got.get(first as TaskId) as LockToken);
    await waitFor(async () => (await ready(queues, queue)) === 1, 'the next task is ready');
    expect([...(await fetchAll(queues, queue)).keys()]).toEqual([third]);
    await queues.fail(queue, second as TaskId, got.get(second as TaskId) as LockToken, 'failed');
    await waitFor(async () => (await ready(queues, queue)) === 1, 'the next task is ready');
    expect([...(await fetchAll(queues, queue)).keys()]).toEqual([fourth]);
    expect(await queues.depth(queue)).toMatchObject({ active: 3, held: 0 });
  });

  test('a place tells the key, its slots and how many wait', async ({ world: { queues } }) => {
    const queue = aQueue();
    const jobs = [aJob('c:17', 1), aJob('c:17', 1), aJob('c:17', 1)];
    await addAll(queues, queue, jobs);
    expect(await queues.placeOf(queue, (jobs[2] as TaskJob).taskId)).toEqual({
      kind: 'held',
      control: { name: `key:${queue}:c:17`, most: 1, running: 1, waiting: 2 },
    });
    expect(await queues.controls(`key:${queue}:`, 10)).toEqual([{ name: `key:${queue}:c:17`, running: 1, waiting: 2 }]);
  });

  test('a held task that is cancelled leaves nothing; a ready one hands its slot on', async ({ world }) => {
    const { queues, book } = world;
    const queue = aQueue();
    const [first, held, last] = [aJob('a', 1), aJob('a', 1), aJob('a', 1)];
    await addAll(queues, queue, [first, held, last]);
    expect(await queues.remove(queue, held.taskId)).toBe(true);
    await waitFor(async () => (await queues.depth(queue)).held === 1, 'the held task is gone');
    expect(await book.look(held.taskId)).toBeUndefined();
    expect(await queues.remove(queue, first.taskId)).toBe(true);
    await waitFor(async () => (await ready(queues, queue)) === 1, 'the next task is ready');
    expect([...(await fetchAll(queues, queue)).keys()]).toEqual([last.taskId]);
  });

  test('a task that is given back keeps its slot', async ({ world: { queues } }) => {
    const queue = aQueue();
    const [first, held] = [aJob('a', 1), aJob('a', 1)];
    await addAll(queues, queue, [first, held]);
    const lock = (await fetchAll(queues, queue)).get(first.taskId) as LockToken;
    await queues.giveBack(queue, first.taskId, lock);
    expect(await queues.depth(queue)).toMatchObject({ waiting: 1, held: 1 });
    expect([...(await fetchAll(queues, queue)).keys()]).toEqual([first.taskId]);
  });

  test('a task that waits for its retry frees its slot, and waits for another one when it is due', async ({
    world,
  }) => {
    const { queues } = world;
    const queue = aQueue();
    const [first, next] = [aJob('a', 1), aJob('a', 1)];
    await addAll(queues, queue, [first, next]);
    const lock = (await fetchAll(queues, queue)).get(first.taskId) as LockToken;
    await queues.delay(queue, first.taskId, lock, Date.now() - 1);
    await waitFor(async () => (await queues.depth(queue)).held === 0, 'the next task is ready');
    const got = await fetchAll(queues, queue);
    expect([...got.keys()]).toEqual([next.taskId]);
    expect(await queues.depth(queue)).toMatchObject({ active: 1, held: 1, delayed: 0, waiting: 0 });
    await queues.complete(queue, next.taskId, got.get(next.taskId) as LockToken);
    await waitFor(async () => (await ready(queues, queue)) === 1, 'the next task is ready');
    expect([...(await fetchAll(queues, queue)).keys()]).toEqual([first.taskId]);
  });

  test('a held task is fetched at its deadline, by whoever ends it', async ({ world: { queues, book } }) => {
    const queue = aQueue();
    const [first, held] = [aJob('a', 1), aJob('a', 1, { deadlineMs: Date.now() + 200 })];
    await addAll(queues, queue, [first, held]);
    const [lock] = (await fetchAll(queues, queue)).values();
    const late = await waitFor(async () => {
      const other = aLock();
      const { job } = await queues.fetch(queue, other);
      return job === undefined ? undefined : { job, lock: other };
    }, 'the held task is due');
    expect(late.job.taskId).toBe(held.taskId);
    expect(late.job.deadlineMs).toBeLessThanOrEqual(Date.now());
    await queues.fail(queue, held.taskId, late.lock, 'expired');
    await waitFor(async () => (await book.look(held.taskId)) === undefined, 'its place is free');
    expect(await book.look(first.taskId)).toMatchObject({ heldBy: undefined });
    await queues.complete(queue, first.taskId, lock as LockToken);
  });

  test('an external runner may begin no held task, and holds its slot until it says that it is done', async ({
    world: { queues },
  }) => {
    const queue = aQueue();
    const [first, held] = [aJob('a', 1), aJob('a', 1)];
    await addAll(queues, queue, [first, held]);
    expect(await queues.mayBegin(queue, held)).toBe(false);
    expect(await queues.mayBegin(queue, first)).toBe(true);
    expect(await queues.remove(queue, first.taskId, true)).toBe(true);
    expect(await queues.depth(queue)).toMatchObject({ waiting: 0, held: 1 });
    await queues.release(first.taskId);
    await waitFor(async () => (await ready(queues, queue)) === 1, 'the next task is ready');
  });

  test('held tasks go on by their head starts', async ({ world: { queues } }) => {
    const queue = aQueue();
    const jobs = [0, 0, 600].map((headStart) => aJob('a', 1, { flow: { key: 'a', most: 1, headStart } }));
    await addAll(queues, queue, jobs);
    const [[first, lock] = []] = await fetchAll(queues, queue);
    await queues.complete(queue, first as TaskId, lock as LockToken);
    await waitFor(async () => (await queues.depth(queue)).prioritized === 1, 'the next task is ready');
    expect([...(await fetchAll(queues, queue)).keys()]).toEqual([jobs[2]?.taskId]);
  });

  test('a higher limit of later tasks lets more of the key run', async ({ world: { queues } }) => {
    const queue = aQueue();
    await addAll(queues, queue, [aJob('a', 1), aJob('a', 2), aJob('a', 2)]);
    expect(await queues.depth(queue)).toMatchObject({ waiting: 2, held: 1 });
  });

  test('over any order of events no more of a key run than may, and every task ends', async ({ world: { queues } }) => {
    for (let seed = 1; seed <= 40; seed += 1) {
      let state = seed;
      const random = (below: number): number => {
        state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
        return Math.floor((state / 2 ** 32) * below);
      };
      const queue = aQueue();
      const most = 1 + random(3);
      const keyOf = new Map<TaskId, string>();
      const held = new Map<TaskId, LockToken>();
      let left = 12;
      let ended = 0;
      for (let step = 0; ended < 12 && step < 2_000; step += 1) {
        const what = random(6);
        if (what === 0 && left > 0) {
          const job = aJob(`k${random(2)}`, most);
          keyOf.set(job.taskId, job.flow?.key ?? '');
          await queues.add(queue, job);
          left -= 1;
        } else if (what < 3) {
          const lock = aLock();
          const { job } = await queues.fetch(queue, lock);
          if (job !== undefined) held.set(job.taskId, lock);
        } else {
          const [taskId, lock] = [...held][random(Math.max(1, held.size))] ?? [];
          if (taskId === undefined || lock === undefined) continue;
          held.delete(taskId);
          if (what === 3) await queues.giveBack(queue, taskId, lock);
          else if (what === 4) await queues.delay(queue, taskId, lock, Date.now());
          else {
            await queues.complete(queue, taskId, lock);
            ended += 1;
          }
        }
        for (const key of ['k0', 'k1'])
          expect([...held.keys()].filter((id) => keyOf.get(id) === key).length).toBeLessThanOrEqual(most);
      }
      expect(ended).toBe(12);
      await waitFor(async () => (await queues.controls(`key:${queue}:`, 10)).length === 0, 'all slots are free');
    }
  });
});

describe('limits of a workspace', () => {
  const workspaceId = newId<WorkspaceId>();
  const limited = (name: string, most: number, key?: number): TaskJob =>
    aJob('', 1, {
      workspaceId,
      flow: { key: 'k', limits: { [name]: most }, ...(key === undefined ? {} : { most: key }) },
    });

  test('count tasks of all queues, and the one that waits longest goes first', async ({ world: { queues } }) => {
    const [a, b] = [aQueue(), aQueue()];
    const [first, second, third] = [limited('api', 1), limited('api', 1), limited('api', 1)];
    await queues.add(a, first);
    await queues.add(b, second);
    await queues.add(a, third);
    expect(await queues.controlsNamed([`limit:${workspaceId}:api`])).toEqual([{ running: 1, waiting: 2 }]);
    expect([await queues.depth(a), await queues.depth(b)]).toMatchObject([{ waiting: 1, held: 1 }, { held: 1 }]);
    const [lock] = (await fetchAll(queues, a)).values();
    await queues.complete(a, first.taskId, lock as LockToken);
    await waitFor(async () => (await ready(queues, b)) === 1, 'the oldest task is ready');
    expect([await queues.depth(a), await queues.depth(b)]).toMatchObject([{ waiting: 0, held: 1 }, { held: 0 }]);
    // Another workspace has limits of its own.
    await queues.add(a, { ...limited('api', 1), workspaceId: newId<WorkspaceId>() });
    expect(await ready(queues, a)).toBe(1);
  });

  test('a task with a key and a limit runs when both have a slot', async ({ world: { queues } }) => {
    const [a, b] = [aQueue(), aQueue()];
    const [runs, ofKey, other] = [limited('both', 2, 1), limited('both', 2, 1), limited('both', 2, 1)];
    await queues.add(a, runs);
    await queues.add(a, ofKey);
    await queues.add(b, other);
    // The second task of the key waits for it, and takes no place of the limit.
    expect([await ready(queues, a), await ready(queues, b)]).toEqual([1, 1]);
    const last = limited('both', 2, 1);
    await queues.add(b, last);
    const [lock] = (await fetchAll(queues, a)).values();
    await queues.complete(a, runs.taskId, lock as LockToken);
    await waitFor(async () => (await ready(queues, a)) === 1, 'the next task of the key is ready');
    expect(await queues.controlsNamed([`limit:${workspaceId}:both`, `key:${b}:k`])).toEqual([
      { running: 2, waiting: 0 },
      { running: 1, waiting: 1 },
    ]);
  });
});

describe('a throttle', () => {
  const paced = (everyMs: number, changes: Partial<NonNullable<TaskJob['flow']>> = {}): TaskJob =>
    aJob('', 1, { workspaceId, flow: { key: 'k', everyMs, ...changes } });
  const workspaceId = newId<WorkspaceId>();

  test('a task whose turn comes later asks for no container, and is handed out at its turn', async ({ world }) => {
    const { queues } = world;
    const queue = aQueue();
    const told: number[] = [];
    queues.onDelayed((of, dueMs) => void (of === queue && told.push(dueMs)));
    const atMs = Date.now() + HOUR_MS / 2;
    await queues.add(queue, paced(1_000, { atMs }));
    expect(await queues.depth(queue)).toMatchObject({ waiting: 0, delayed: 1, soon: 0, held: 0 });
    expect(await queues.fetch(queue, aLock())).toEqual({ job: undefined, starts: 0, nextDueMs: atMs });
    expect(told).toEqual([atMs]);
    const soon = paced(1_000, { atMs: Date.now() + 300 });
    await queues.add(queue, soon);
    const got = await waitFor(async () => (await queues.fetch(queue, aLock())).job, 'its turn comes');
    expect(got?.taskId).toBe(soon.taskId);
    expect(Date.now()).toBeGreaterThanOrEqual(soon.flow?.atMs ?? Infinity);
  });

  test('tasks that are ready together start one after the other, in their order', async ({ world: { queues } }) => {
    const queue = aQueue();
    const jobs = [paced(200), paced(200), paced(200), paced(200)];
    await addAll(queues, queue, jobs);
    const got: (readonly [TaskId, number])[] = [];
    await waitFor(async () => {
      const { job } = await queues.fetch(queue, aLock());
      if (job !== undefined) got.push([job.taskId, Date.now()]);
      return got.length === jobs.length;
    }, 'all have started');
    expect(got.map(([taskId]) => taskId)).toEqual(jobs.map(({ taskId }) => taskId));
    // The pace holds from the first start to the last, give or take the tenth that a turn may come early.
    expect((got[3]?.[1] ?? 0) - (got[0]?.[1] ?? Infinity)).toBeGreaterThanOrEqual(3 * 200 - 20 - 1);
  });

  test('keys have paces of their own, and others may have the slots of a task that waits', async ({ world }) => {
    const { queues } = world;
    const queue = aQueue();
    const limits = { paced: 1 };
    const [first, second, other] = [
      paced(HOUR_MS),
      paced(HOUR_MS, { limits }),
      aJob('', 1, { workspaceId, flow: { key: 'other', everyMs: HOUR_MS, limits } }),
    ];
    await addAll(queues, queue, [first, second, other]);
    expect(await queues.depth(queue)).toMatchObject({ waiting: 2, held: 1 });
    const got: TaskId[] = [];
    await waitFor(async () => {
      got.push(...(await fetchAll(queues, queue)).keys());
      return got.length === 2;
    }, 'the slot went on');
    expect(got).toEqual([first.taskId, other.taskId]);
    expect(await queues.depth(queue)).toMatchObject({ active: 2, delayed: 1, soon: 0, held: 0 });
  });

  test('a held task that has its slots and waits for its turn is held no more', async ({ world: { book, eye } }) => {
    const queue = aQueue();
    expect(await book.take(queue, paced(HOUR_MS, { most: 1 }), 'start')).toBe('yes');
    const held = paced(HOUR_MS, { most: 1 });
    expect(await book.take(queue, held, 'add')).toBe('held');
    const counted = async (): Promise<string | null> => await eye.hget(keysOf().flow[3], queue);
    expect(await counted()).toBe('1');
    const raised = { ...held, flow: { ...held.flow, key: 'k', most: 2 } };
    expect(await book.take(queue, raised, 'start')).toMatchObject({ turnMs: expect.any(Number) as number });
    expect(await counted()).toBeNull();
  });

  test('an external runner that asks again and again moves no turn', async ({ world: { queues } }) => {
    const queue = aQueue();
    const [first, second] = [paced(300, { key: 'external' }), paced(300, { key: 'external' })];
    await addAll(queues, queue, [first, second]);
    expect(await queues.mayBegin(queue, first)).toBe(true);
    expect(await queues.mayBegin(queue, second)).toBe(false);
    await waitFor(() => queues.mayBegin(queue, second), 'its turn comes while it is asked for');
  });
});

describe('turns of keys', () => {
  const fair = (key: string, weight = 1): TaskJob => aJob('', 1, { flow: { key: '', fair: { key, weight } } });
  const order = async (queues: TaskQueues, queue: QueueName, jobs: readonly TaskJob[]): Promise<string> => {
    const keys = new Map(jobs.map((job) => [job.taskId, job.flow?.fair?.key ?? '']));
    return [...(await fetchAll(queues, queue)).keys()].map((taskId) => keys.get(taskId)).join('');
  };

  test('a key with many tasks lets others begin, each in its own order', async ({ world: { queues } }) => {
    const queue = aQueue();
    const jobs = 'aaaabbc'.split('').map((key) => fair(key));
    await addAll(queues, queue, jobs);
    expect(await order(queues, queue, jobs)).toBe('abcabaa');
  });

  test('a weight gives a key so many turns for one of others', async ({ world: { queues } }) => {
    const queue = aQueue();
    const jobs = 'bbbaaaaaa'.split('').map((key) => fair(key, key === 'a' ? 3 : 1));
    await addAll(queues, queue, jobs);
    expect(await order(queues, queue, jobs)).toBe('baaabaaab');
  });

  test('an older task that begins late takes no turn of the queue back', async ({ world: { book } }) => {
    const queue = aQueue();
    await book.begun(queue, 5);
    await book.begun(queue, 2);
    expect((await book.inTurn(queue, fair('z'))).flow?.turn).toBe(5);
  });

  test('a key that comes late begins at the turn of the queue, and owes nothing for before', async ({ world }) => {
    const { queues } = world;
    const queue = aQueue();
    const early = 'aaaaaa'.split('').map((key) => fair(key));
    await addAll(queues, queue, early);
    for (let count = 0; count < 3; count += 1) await queues.fetch(queue, aLock());
    const late = 'bbb'.split('').map((key) => fair(key));
    await addAll(queues, queue, late);
    expect(await order(queues, queue, [...early, ...late])).toMatch(/^(ab|ba){3}$/);
    // Who was served alone for long is not behind those who come then.
    const again = 'ab'.split('').map((key) => fair(key));
    await addAll(queues, queue, again);
    expect((await order(queues, queue, again)).length).toBe(2);
  });
});

describe('paces of calls', () => {
  const hourly = { count: 2, perMs: HOUR_MS };

  test('so many calls of a key are taken at once, and then at the pace; all schedulers count together', async ({
    world: { client },
    redis,
  }) => {
    const paces = [new FlowPaces(client, keysOf()), new FlowPaces(redis.connect(), keysOf())] as const;
    const of = { workspaceId: newId<WorkspaceId>(), queue: aQueue(), key: 'a', rate: { count: 10, perMs: HOUR_MS } };
    const nowMs = Date.now();
    const answers = await Promise.all(
      Array.from({ length: 40 }, (_none, at) => paces[at % 2 === 0 ? 0 : 1].take(of, nowMs)),
    );
    expect(answers.filter(({ kind }) => kind === 'taken').length).toBe(10);
    expect(await paces[0].take(of, nowMs)).toEqual({ kind: 'too_often', afterMs: HOUR_MS / 10 });
    expect(await paces[0].take({ ...of, key: 'b' }, nowMs)).toMatchObject({ kind: 'taken', atMs: undefined });
    expect(await paces[1].take(of, nowMs + HOUR_MS / 10)).toMatchObject({ kind: 'taken', atMs: undefined });
    expect(await paces[0].take(of, nowMs + HOUR_MS / 10)).toMatchObject({ kind: 'too_often' });
  });

  test('turns of a throttle are even, and behind starts that came late', async ({ world: { queues, client } }) => {
    const paces = new FlowPaces(client, keysOf());
    const [workspaceId, queue, nowMs] = [newId<WorkspaceId>(), aQueue(), Date.now()];
    const of = { workspaceId, queue, key: 'k', everyMs: HOUR_MS };
    const turns: PaceAnswer[] = [];
    for (let at = 0; at < 3; at += 1) turns.push(await paces.take(of, nowMs));
    expect(turns).toMatchObject(
      [undefined, nowMs + HOUR_MS, nowMs + 2 * HOUR_MS].map((atMs) => ({ kind: 'taken', atMs })),
    );
    // The last turn goes back, and no earlier one, because those behind it have theirs.
    for (const turn of turns.slice(1)) if (turn.kind === 'taken') await paces.giveBack(of, turn.next);
    expect(await paces.take(of, nowMs)).toMatchObject({ atMs: nowMs + 2 * HOUR_MS });
    const [, second] = turns;
    if (second?.kind === 'taken') await paces.giveBack(of, second.next);
    expect(await paces.take(of, nowMs)).toMatchObject({ atMs: nowMs + 3 * HOUR_MS });
    // A start moves the next turn, where all turns that were given are over.
    const job = aJob('', 1, { workspaceId, flow: { key: 'late', everyMs: HOUR_MS } });
    await queues.add(queue, job);
    await fetchAll(queues, queue);
    const next = await paces.take({ ...of, key: 'late' }, nowMs);
    expect(next).toMatchObject({ kind: 'taken' });
    expect(next.kind === 'taken' ? next.atMs : 0).toBeGreaterThanOrEqual(nowMs + HOUR_MS);
  });

  test('a workspace has a bound of keys in use, and keys that are not in use any more make room', async ({
    world: { client },
  }) => {
    const paces = new FlowPaces(client, keysOf(), 2);
    const of = { workspaceId: newId<WorkspaceId>(), queue: aQueue(), rate: hourly };
    const nowMs = Date.now();
    for (const key of ['a', 'b']) expect(await paces.take({ ...of, key }, nowMs)).toMatchObject({ kind: 'taken' });
    expect(await paces.take({ ...of, key: 'c' }, nowMs)).toEqual({ kind: 'too_many_keys' });
    expect(await paces.take({ ...of, key: 'a' }, nowMs)).toMatchObject({ kind: 'taken' });
    expect(await paces.take({ ...of, workspaceId: newId<WorkspaceId>(), key: 'c' }, nowMs)).toMatchObject({
      kind: 'taken',
    });
    expect(await paces.take({ ...of, key: 'c' }, nowMs + HOUR_MS)).toMatchObject({ kind: 'taken' });
    // Paces that nobody asks for any more go by themselves.
    const left = await client.pttl(keysOf().flowPaces(of.workspaceId));
    expect(left).toBeGreaterThan(0);
    expect(left).toBeLessThanOrEqual(2 * HOUR_MS + 60_000);
  });
});

describe('the sweep', () => {
  test('frees the slot of a task whose process was killed before its add', async ({ world }) => {
    const { queues, book, sweep } = world;
    const queue = aQueue();
    const [lost, held] = [aJob('a', 1), aJob('a', 1)];
    expect(await book.take(queue, lost, 'add')).toBe('yes');
    await queues.add(queue, held);
    await sweep.round();
    // The add may be under way.
    expect(await book.look(lost.taskId)).toBeDefined();
    await sweep.round();
    await waitFor(async () => (await ready(queues, queue)) === 1, 'the next task is ready');
    expect(await book.look(lost.taskId)).toBeUndefined();
  });

  test('makes a task ready whose process was killed between its slot and its promotion', async ({ world }) => {
    const { queues, book, sweep } = world;
    const queue = aQueue();
    const [first, held] = [aJob('a', 1), aJob('a', 1)];
    await addAll(queues, queue, [first, held]);
    await fetchAll(queues, queue);
    expect(await book.free(first.taskId)).toMatchObject([{ taskId: held.taskId }]);
    expect(await ready(queues, queue)).toBe(0);
    await sweep.round();
    expect([...(await fetchAll(queues, queue)).keys()]).toEqual([held.taskId]);
  });

  test('keeps the slot of a task that runs without a job', async ({ world }) => {
    const { queues, book, sweep, running } = world;
    const queue = aQueue();
    const [first, held] = [aJob('a', 1), aJob('a', 1)];
    running.add(first.taskId);
    await queues.countRunning([{ queue, job: first }]);
    await queues.add(queue, held);
    for (let rounds = 0; rounds < 3; rounds += 1) await sweep.round();
    expect(await queues.depth(queue)).toMatchObject({ waiting: 0, held: 1 });
    running.clear();
    await sweep.round();
    await sweep.round();
    await waitFor(async () => (await ready(queues, queue)) === 1, 'the next task is ready');
    expect(await book.look(first.taskId)).toBeUndefined();
  });

  test('finds held and running jobs that lost their places, by their data', async ({ world }) => {
    const { queues, eye, sweep, controlled } = world;
    const queue = aQueue();
    controlled.add(queue);
    const jobs = [aJob('a', 1), aJob('a', 1), aJob('a', 1)];
    await addAll(queues, queue, jobs);
    const got = await fetchAll(queues, queue);
    await eye.del(...keysOf().flow);
    await sweep.round();
    expect(await queues.depth(queue)).toMatchObject({ active: 1, waiting: 0, delayed: 0, held: 2 });
    expect(await queues.controls(`key:${queue}:`, 10)).toMatchObject([{ running: 1, waiting: 2 }]);
    for (const [taskId, lock] of got) await queues.complete(queue, taskId, lock);
    await waitFor(async () => (await ready(queues, queue)) === 1, 'the next task is ready');
  });

  test('counts held tasks by kind of control', async ({ world: { queues, sweep } }) => {
    const queue = aQueue();
    await sweep.round();
    const before = sweep.held.get('concurrency') ?? 0;
    await addAll(queues, queue, [aJob('a', 1), aJob('a', 1), aJob('a', 1)]);
    await sweep.round();
    expect(sweep.held.get('concurrency')).toBe(before + 2);
  });

  test('a Redis without its data gives no slot twice: running tasks are counted first', async ({ world }) => {
    const { queues, eye } = world;
    const queue = aQueue();
    const [runs, first, second] = [aJob('a', 2), aJob('a', 2), aJob('a', 2)];
    await addAll(queues, queue, [runs]);
    await fetchAll(queues, queue);
    await eye.flushall();
    await queues.countRunning([{ queue, job: runs }]);
    await queues.reopenAll();
    await addAll(queues, queue, [first, second]);
    expect(await queues.depth(queue)).toMatchObject({ waiting: 1, held: 1 });
    // The job is gone with the data, and the end of its task hands the slot on all the same.
    await queues.complete(queue, runs.taskId, aLock());
    await waitFor(async () => (await ready(queues, queue)) === 2, 'the next task is ready');
  });

  test('frees the slot of a task that waits for its retry, and does not begin it earlier', async ({ world }) => {
    const { queues, book, sweep } = world;
    const queue = aQueue();
    const job = aJob('a', 1);
    await addAll(queues, queue, [job]);
    const lock = (await fetchAll(queues, queue)).get(job.taskId) as LockToken;
    await queues.delay(queue, job.taskId, lock, Date.now() + HOUR_MS / 2);
    await waitFor(async () => (await book.look(job.taskId)) === undefined, 'its slot is free');
    // The process was killed between the delay and that.
    await book.take(queue, job, 'force');
    await sweep.round();
    expect(await book.look(job.taskId)).toBeUndefined();
    expect(await queues.depth(queue)).toMatchObject({ waiting: 0, delayed: 1 });
  });

  test('counts all running tasks of a key that lost their places, also beyond its limit', async ({ world }) => {
    const { queues, book, sweep, controlled } = world;
    const queue = aQueue();
    const jobs = [aJob('a', 1), aJob('a', 2), aJob('a', 3)];
    await addAll(queues, queue, jobs);
    expect((await fetchAll(queues, queue)).size).toBe(3);
    for (const { taskId } of jobs) await book.free(taskId);
    controlled.add(queue);
    // Where nothing had flow control, queues are looked for in one of eight rounds.
    for (let rounds = 0; rounds < 8; rounds += 1) await sweep.round();
    controlled.delete(queue);
    expect(await queues.controls(`key:${queue}:`, 10)).toMatchObject([{ running: 3, waiting: 0 }]);
  });
});
