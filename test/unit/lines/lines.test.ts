// Synchronous tasks in the memory of one replica: in, out, back, ended, and what it tells others about them.
import { beforeEach, describe, expect, test } from 'vitest';
import { newInstanceId } from '#shared/domain/ids.ts';
import type { InstanceId, LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import type { TaskQueues } from '#scheduler/stores/queues/task-queues.ts';
import type { Head } from '#scheduler/tasks/lines/choose.ts';
import type { LineTask } from '#scheduler/tasks/lines/line.ts';
import { Lines } from '#scheduler/tasks/lines/lines.ts';
import { offeredTo } from '#scheduler/tasks/lines/offers.ts';
import type { Word } from '#scheduler/tasks/lines/offers.ts';

const QUEUE = 'tq-a' as QueueName;
const [self, other, third] = [newInstanceId(), newInstanceId(), newInstanceId()];
const lockOf = (name: string): LockToken => `${self}.${name.padStart(64, '0')}` as LockToken;
const [LOCK, LATER] = [lockOf('1'), lockOf('2')];

/** Lines of one replica whose stores and peers are in memory. */
function aReplica() {
  const asked: string[] = [];
  const elsewhere = { count: 0, waiting: 0, heads: [] as Head[], isFresh: true };
  const absent = new Set<InstanceId>();
  const stall: { atMs: number | null } = { atMs: null };
  const inRedis = { waiting: 0, active: 0, delayed: 0, prioritized: 0, held: 0, soon: 0 } as Awaited<
    ReturnType<TaskQueues['depth']>
  >;
  const queues = new Proxy({} as TaskQueues, {
    get: (_none, name) => (queue: unknown) => {
      asked.push(String(name));
      if (name === 'depth') return Promise.resolve(inRedis);
      if (name === 'depths') return Promise.resolve((queue as readonly QueueName[]).map(() => inRedis));
      return Promise.resolve(name);
    },
  });
  const lines = new Lines({
    queues,
    instance: self,
    isPresent: (replica) => !absent.has(replica),
    stalledAtMs: () => stall.atMs,
  });
  const said: (readonly [InstanceId, TaskId, Word])[] = [];
  lines.connect(
    {
      counts: () => elsewhere,
      heads: () => elsewhere.heads,
      requireFresh: () => {
        if (!elsewhere.isFresh) throw new AppError('queues_unavailable', 'silent');
      },
    },
    (to, { taskId }, word) => void said.push([to, taskId, word]),
  );
  const told = { waiting: [] as QueueName[], unsure: 0, changed: 0 };
  lines.onWaiting((queue) => void told.waiting.push(queue));
  lines.onUnsure(() => void (told.unsure += 1));
  lines.onChange(() => void (told.changed += 1));
  return { lines, asked, elsewhere, absent, stall, inRedis, said, told };
}

let numbers = 0;
const aJob = (replica: InstanceId = self): TaskJob => ({ taskId: `t${(numbers += 1)}` as TaskId, replica }) as TaskJob;
type Replica = ReturnType<typeof aReplica>;

/** Takes a task in. */
function entered({ lines }: Replica): TaskJob {
  const job = aJob();
  if (lines.enter(QUEUE, job, 1_000) === undefined) throw new Error('full');
  return job;
}
const taskOf = ({ lines }: Replica, { taskId }: TaskJob): LineTask => {
  const task = lines.line.get(taskId);
  if (task === undefined) throw new Error('not here');
  return task;
};
const placeOf = (replica: Replica, job: TaskJob) => taskOf(replica, job).place;
/** Hands the task out, and sends it. */
function began(replica: Replica, job = entered(replica), lock = LOCK): TaskJob {
  replica.lines.begin(taskOf(replica, job), lock);
  replica.lines.sent(job.taskId);
  return job;
}
/** Offers the task to another replica. */
function offered(replica: Replica, job = entered(replica), to = other): TaskJob {
  replica.lines.moveTo(taskOf(replica, job), offeredTo(placeOf(replica, job), to, performance.now()));
  return job;
}

let one: Replica;
beforeEach(() => {
  one = aReplica();
});

describe('in', () => {
  test('as many enter as may be open, those elsewhere included; one too many is not in', () => {
    one.elsewhere.count = 2;
    expect([aJob(), aJob()].map((job) => one.lines.enter(QUEUE, job, 4))).toEqual([3, 4]);
    const late = aJob();
    expect(one.lines.enter(QUEUE, late, 4)).toBeUndefined();
    expect(one.lines.line.get(late.taskId)).toBeUndefined();
    expect(one.lines.count(QUEUE)).toBe(2);
    one.elsewhere.count = 1;
    expect(one.lines.enter(QUEUE, late, 4)).toBe(4);
  });

  test('those that run count until their callers are answered', () => {
    const job = began(one);
    expect(one.lines.enter(QUEUE, aJob(), 1)).toBeUndefined();
    one.lines.leave(job.taskId);
    expect(one.lines.enter(QUEUE, aJob(), 1)).toBe(1);
  });
});

describe('out', () => {
  test('the oldest goes first, under the number of its next attempt, and under its lock', async () => {
    const [first, second] = [entered(one), entered(one)];
    const next = one.lines.next(QUEUE);
    if (next.kind !== 'own') throw new Error('nobody');
    expect(next.task.job).toBe(first);
    expect(one.lines.begin(next.task, LOCK)).toMatchObject({ job: first, starts: 1 });
    expect(one.lines.next(QUEUE)).toMatchObject({ kind: 'own', task: { job: second } });
    expect(one.lines.order(first.taskId)).toMatchObject({ queue: QUEUE, attempt: 1, lock: LOCK, isCallerless: false });
    expect(await one.lines.lockOf(QUEUE, first.taskId)).toBe(LOCK);
    expect(await one.lines.lockOf(QUEUE, second.taskId)).toBeUndefined();
    expect(placeOf(one, first)).toEqual({ kind: 'here', attempt: 1 });
    expect(one.asked).toEqual([]);
  });

  test('a slot is for another replica’s task that has waited longer by more than a moment', () => {
    expect(one.lines.mayHave(QUEUE)).toBe(false);
    one.elsewhere.heads = [{ replica: other, ageMs: 5_000 }];
    expect(one.lines.mayHave(QUEUE)).toBe(true);
    expect(one.lines.next(QUEUE)).toEqual({ kind: 'room', replica: other });
    const own = entered(one);
    expect(one.lines.next(QUEUE)).toEqual({ kind: 'room', replica: other });
    one.elsewhere.heads = [{ replica: other, ageMs: 1 }];
    expect(one.lines.next(QUEUE)).toMatchObject({ kind: 'own', task: { job: own } });
  });

  test('one that another replica offers is taken, remembered, and not in this line', async () => {
    const job = aJob(other);
    expect(one.lines.take(QUEUE, job, 3, LOCK)).toMatchObject({ job, starts: 3 });
    expect(one.lines.known.get(job.taskId)).toMatchObject({ attempt: 3, what: { kind: 'taken' } });
    one.lines.sent(job.taskId);
    expect(one.lines.known.get(job.taskId)).toMatchObject({ attempt: 3, what: { kind: 'sent' } });
    expect(one.lines.count(QUEUE)).toBe(0);
    expect(await one.lines.read(QUEUE, job.taskId)).toBe(job);
    expect(await one.lines.placeOf(QUEUE, job.taskId)).toEqual({ kind: 'active' });
    expect(await one.lines.remove(QUEUE, job.taskId)).toBe(false);
  });

  test('one that its caller’s replica has again is dropped, if it is that attempt', () => {
    const [job, own] = [aJob(other), began(one)];
    one.lines.take(QUEUE, job, 2, LOCK);
    one.lines.dropTaken(job.taskId, 1);
    expect(one.lines.order(job.taskId)).toBeDefined();
    one.lines.dropTaken(job.taskId, 2);
    expect(one.lines.order(job.taskId)).toBeUndefined();
    one.lines.dropTaken(own.taskId, 1);
    expect(one.lines.order(own.taskId)).toBeDefined();
  });
});

describe('back', () => {
  test('one that was not sent waits again, at its place and under the next number', () => {
    const [first, second] = [entered(one), entered(one)];
    one.lines.begin(taskOf(one, first), LOCK);
    one.lines.return(first.taskId, LOCK, false);
    expect(placeOf(one, first)).toEqual({ kind: 'waiting', attempt: 1 });
    expect([one.told.waiting, one.told.unsure]).toEqual([[QUEUE], 0]);
    expect([...one.lines.line.waiting(QUEUE)].map(({ job }) => job)).toEqual([first, second]);
    expect(one.lines.begin(taskOf(one, first), LATER).starts).toBe(2);
  });

  test('one that was sent waits for its row first', () => {
    const job = began(one);
    one.lines.return(job.taskId, LOCK, true);
    expect(placeOf(one, job)).toEqual({ kind: 'unsure', attempt: 1 });
    expect([one.told.waiting, one.told.unsure]).toEqual([[], 1]);
    expect(one.lines.next(QUEUE)).toEqual({ kind: 'nobody' });
    one.lines.moveTo(taskOf(one, job), { kind: 'waiting', attempt: 1 });
    expect(one.told.waiting).toEqual([QUEUE]);
    expect(one.lines.next(QUEUE)).toMatchObject({ kind: 'own' });
  });

  test('an attempt that lost its lock returns nothing', () => {
    const job = began(one);
    one.lines.return(job.taskId, LATER, false);
    expect(placeOf(one, job)).toEqual({ kind: 'here', attempt: 1 });
    expect(one.lines.order(job.taskId)?.lock).toBe(LOCK);
  });

  test('one of another replica’s caller is returned there, and remembered', () => {
    const job = aJob(other);
    one.lines.take(QUEUE, job, 2, LOCK);
    one.lines.return(job.taskId, LOCK, true);
    expect(one.said).toEqual([[other, job.taskId, { kind: 'returned', attempt: 2, wasSent: true }]]);
    expect(one.lines.known.get(job.taskId)?.what).toEqual({ kind: 'back', wasSent: true });
    expect(one.lines.order(job.taskId)).toBeUndefined();
  });
});

describe('the word of another replica', () => {
  test('refused, or returned unsent: the task waits again; returned after it was sent: its row is read', () => {
    const [refused, unsent, sent] = [offered(one), offered(one), offered(one)];
    one.lines.heard(refused.taskId, { kind: 'refused', attempt: 1 }, other);
    one.lines.heard(unsent.taskId, { kind: 'returned', attempt: 1, wasSent: false }, other);
    one.lines.heard(sent.taskId, { kind: 'returned', attempt: 1, wasSent: true }, other);
    expect([refused, unsent, sent].map((job) => placeOf(one, job).kind)).toEqual(['waiting', 'waiting', 'unsure']);
  });

  test('about an earlier attempt, or of a replica that was not asked, changes nothing', () => {
    const job = offered(one);
    one.lines.heard(job.taskId, { kind: 'refused', attempt: 1 }, third);
    one.lines.heard(job.taskId, { kind: 'returned', attempt: 0, wasSent: false }, other);
    expect(placeOf(one, job)).toMatchObject({ kind: 'offered', to: other });
    one.lines.heard('t-gone' as TaskId, { kind: 'refused', attempt: 1 }, other);
  });

  test('that a third one has the task: that one is asked from now on', () => {
    const job = offered(one);
    one.lines.heard(job.taskId, { kind: 'has', attempt: 1, owner: third }, other);
    expect(placeOf(one, job)).toMatchObject({ kind: 'away', to: third });
    expect([one.lines.line.outTo(QUEUE, other), one.lines.line.outTo(QUEUE, third)]).toEqual([0, 1]);
  });

  test('that an order of this replica never began drops the order: nothing more is decided about it', async () => {
    const job = began(one);
    one.lines.heard(job.taskId, { kind: 'returned', attempt: 1, wasSent: true }, other);
    expect(placeOf(one, job).kind).toBe('unsure');
    expect(one.lines.order(job.taskId)).toBeUndefined();
    expect(await one.lines.complete(QUEUE, job.taskId, LOCK)).toEqual({ kind: 'gone' });
  });
});

describe('an attempt whose machine moved', () => {
  test('is adopted for a caller here, who waits for this replica again', () => {
    const job = offered(one);
    one.lines.adopt({ queue: QUEUE, job, attempt: 1, lock: LOCK });
    expect(placeOf(one, job)).toEqual({ kind: 'here', attempt: 1 });
    expect(one.said).toEqual([]);
  });

  test('is adopted for a caller elsewhere, who is told; it counts there, or here if that replica is gone', () => {
    const [job, orphan] = [aJob(other), aJob(third)];
    one.lines.adopt({ queue: QUEUE, job, attempt: 2, lock: LOCK });
    expect(one.said).toEqual([[other, job.taskId, { kind: 'has', attempt: 2, owner: self }]]);
    expect(one.lines.count(QUEUE)).toBe(0);
    one.absent.add(third);
    one.lines.adopt({ queue: QUEUE, job: orphan, attempt: 1, lock: LATER });
    one.lines.adopt({ queue: QUEUE, job: orphan, attempt: 1, lock: LATER });
    expect(one.lines.count(QUEUE)).toBe(1);
    void one.lines.complete(QUEUE, orphan.taskId, LATER);
    expect(one.lines.count(QUEUE)).toBe(0);
  });

  test('goes to the other replica: it has no order here, is asked for there, and ends nothing here', async () => {
    const [own, taken] = [began(one), aJob(other)];
    one.lines.take(QUEUE, taken, 1, LATER);
    one.lines.movedTo(own.taskId, LATER, third);
    expect(placeOf(one, own).kind).toBe('here');
    one.lines.movedTo(own.taskId, LOCK, third);
    one.lines.movedTo(taken.taskId, LATER, third);
    expect(placeOf(one, own)).toMatchObject({ kind: 'away', to: third, attempt: 1 });
    for (const { taskId } of [own, taken]) {
      expect(one.lines.order(taskId)).toBeUndefined();
      expect(one.lines.known.get(taskId)?.what).toEqual({ kind: 'moved', to: third });
    }
    expect(await one.lines.complete(QUEUE, own.taskId, LOCK)).toEqual({ kind: 'gone' });
  });
});

describe('an end', () => {
  test('is fenced by the lock of the order, and counts once', async () => {
    const job = began(one);
    expect(await one.lines.complete(QUEUE, job.taskId, LATER)).toEqual({ kind: 'superseded' });
    expect(await one.lines.fail(QUEUE, job.taskId, LOCK, 'x')).toEqual({ kind: 'done' });
    expect(placeOf(one, job).kind).toBe('ending');
    expect(await one.lines.complete(QUEUE, job.taskId, LOCK)).toEqual({ kind: 'gone' });
    expect(await one.lines.read(QUEUE, job.taskId)).toBeUndefined();
    expect(one.asked).toEqual([]);
  });

  test('takes out what waits, and nothing that may be in a container', async () => {
    const [waits, runs, away] = [entered(one), began(one), offered(one)];
    expect(await one.lines.remove(QUEUE, waits.taskId)).toBe(true);
    expect(await one.lines.remove(QUEUE, waits.taskId)).toBe(false);
    for (const { taskId } of [runs, away]) expect(await one.lines.remove(QUEUE, taskId)).toBe(false);
    expect(one.lines.next(QUEUE)).toEqual({ kind: 'nobody' });
  });

  test('that was not written has the task wait for its row again; one that runs stays where it is', async () => {
    const [waits, runs] = [entered(one), began(one)];
    await one.lines.remove(QUEUE, waits.taskId);
    for (const { taskId } of [waits, runs]) one.lines.putBack(taskId);
    expect(placeOf(one, waits)).toEqual({ kind: 'unsure', attempt: 0 });
    expect(placeOf(one, runs).kind).toBe('here');
    expect(one.told.unsure).toBe(1);
  });

  test('of a task that is not here is that of its queue', async () => {
    const taskId = 't-async' as TaskId;
    const { lines } = one;
    await lines.complete(QUEUE, taskId, LOCK);
    await lines.fail(QUEUE, taskId, LOCK, 'x');
    await lines.remove(QUEUE, taskId);
    await lines.lockOf(QUEUE, taskId);
    await lines.read(QUEUE, taskId);
    await lines.placeOf(QUEUE, taskId);
    await lines.giveBack(QUEUE, taskId, LOCK);
    await lines.delay(QUEUE, taskId, LOCK, 0);
    await lines.obliterate(QUEUE);
    expect(one.asked).toEqual([
      ...['complete', 'fail', 'remove', 'lockOf', 'read', 'placeOf', 'giveBack', 'delay', 'obliterate'],
    ]);
  });
});

describe('after this process stood still', () => {
  test('no task that waited is sent before its row was read; what comes later is', () => {
    const [waits, runs] = [entered(one), began(one)];
    one.stall.atMs = performance.now();
    expect(one.lines.mayHave(QUEUE)).toBe(false);
    expect(one.told.unsure).toBe(1);
    expect([placeOf(one, waits).kind, placeOf(one, runs).kind]).toEqual(['unsure', 'here']);
    const later = entered(one);
    expect(one.lines.next(QUEUE)).toMatchObject({ kind: 'own', task: { job: later } });
    expect(one.told.unsure).toBe(1);
    one.stall.atMs = performance.now();
    expect(one.lines.next(QUEUE)).toEqual({ kind: 'nobody' });
    expect(placeOf(one, later).kind).toBe('unsure');
  });

  test('a task that was offered before, and is refused now, waits for its row, too', () => {
    const before = offered(one);
    one.stall.atMs = performance.now();
    const after = offered(one);
    for (const { taskId } of [before, after]) one.lines.heard(taskId, { kind: 'refused', attempt: 1 }, other);
    expect([placeOf(one, before).kind, placeOf(one, after).kind]).toEqual(['unsure', 'waiting']);
  });
});

describe('the depth of a queue', () => {
  test('is that of Redis, with the synchronous tasks of all replicas', async () => {
    Object.assign(one.inRedis, { waiting: 10, active: 20 });
    Object.assign(one.elsewhere, { count: 5, waiting: 2 });
    entered(one);
    began(one);
    offered(one);
    one.absent.add(third);
    one.lines.adopt({ queue: QUEUE, job: aJob(third), attempt: 1, lock: LATER });
    const expected = { waiting: 10 + 1 + 2, active: 20 + 3 + 3 };
    expect(await one.lines.depth(QUEUE)).toMatchObject(expected);
    expect(await one.lines.depths([QUEUE])).toEqual([expect.objectContaining(expected)]);
  });

  test('cannot be told for scaling while a present replica is silent', async () => {
    one.elsewhere.isFresh = false;
    await expect(one.lines.depths([QUEUE])).rejects.toMatchObject({ code: 'queues_unavailable' });
    expect(await one.lines.depth(QUEUE)).toMatchObject({ waiting: 0, active: 0 });
  });

  test('says the place in line: those that wait in their order, and of no other a number', async () => {
    const [first, second, third] = [entered(one), entered(one), entered(one)];
    const places = (): Promise<unknown[]> =>
      Promise.all([first, second, third].map(({ taskId }) => one.lines.placeOf(QUEUE, taskId)));
    expect(await places()).toEqual([1, 2, 3].map((position) => ({ kind: 'waiting', position })));
    one.lines.begin(taskOf(one, first), LOCK);
    one.lines.moveTo(taskOf(one, second), { kind: 'unsure', attempt: 0 });
    expect(await places()).toEqual([
      { kind: 'active' },
      { kind: 'waiting', position: undefined },
      { kind: 'waiting', position: 1 },
    ]);
  });
});

test('nothing is left of a task whose caller was answered', () => {
  const job = began(one);
  void one.lines.complete(QUEUE, job.taskId, LOCK);
  one.lines.leave(job.taskId);
  expect([one.lines.line.size, one.lines.count(QUEUE), one.lines.known.size]).toEqual([0, 0, 0]);
  expect(one.lines.order(job.taskId)).toBeUndefined();
});
