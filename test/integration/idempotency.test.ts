// Calls with an Idempotency-Key, on real Redis and a real database. Each key gives one task, from any caller at any
// replica, and despite any death in between.
import { describe, expect } from 'vitest';
import { newId, newInstanceId, queueNameOf } from '#shared/domain/ids.ts';
import type { DeploymentId, TaskId } from '#shared/domain/ids.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { databaseOutcomeUnknown } from '#scheduler/stores/store/limits.ts';
import { deleteEndedBefore } from '#scheduler/stores/store/queries/retention.ts';
import { insertAcceptedTasks } from '#scheduler/stores/store/queries/tasks.ts';
import { IdempotencyKeys } from '#scheduler/tasks/admission/idempotency-keys.ts';
import { acceptedTaskOf, finalOf } from '#scheduler/tasks/records/recording.ts';
import type { Call, CallKey, Submission } from '#scheduler/tasks/admission/calls.ts';
import { seenByCaller } from '../helpers/seen-by-caller.ts';
import { waitFor } from '../helpers/services.ts';
import { reaches, sent } from '../helpers/submissions.ts';
import { aDb } from './store-fixture.ts';
import { withoutAdds } from './queueing-faults.ts';
import type { Process } from './tasks-fixture.ts';
import { aTarget, PlayedLink, quiet } from './tasks-fixture.ts';
import { aQueueTarget, drained, test as base } from './tasks-world.ts';
import type { Options, World } from './tasks-world.ts';

type Bounds = ConstructorParameters<typeof IdempotencyKeys>[0]['bounds'];
const keysIn = (db: Db, bounds?: Bounds): IdempotencyKeys =>
  new IdempotencyKeys({ db, log: quiet, ...(bounds === undefined ? {} : { bounds }) });

const test = base.extend('replica', async ({ start, db }, { onCleanup }) => {
  onCleanup(async () => void (await db.query('delete from idempotency_keys')));
  return (options: Options & { readonly bounds?: Bounds } = {}): Promise<World> =>
    start({ ...options, more: { idempotencyKeys: keysIn(db, options.bounds), ...options.more } });
});

const aKey = (changes: Partial<CallKey> = {}): CallKey => ({
  key: 'k-1',
  fingerprint: 'same',
  asksNewest: true,
  callerScope: '',
  isOwn: true,
  ...changes,
});
const call = (one: Process, target: Target, key: Partial<CallKey> = {}, more: Partial<Call> = {}) =>
  one.submissions.submit(target, { input: '{"x":1}', idempotency: aKey(key), ...more });
const isQueued = (...processes: readonly Process[]) =>
  waitFor(() => processes.every(({ queueing }) => queueing.size === 0), 'what was accepted is in its queue');
type Accepted = Extract<Submission, { kind: 'accepted' }>;
const taken = async (submission: Promise<Submission>): Promise<Accepted> => {
  const settled = await submission;
  if (settled.kind !== 'accepted') throw new Error(`not accepted: ${JSON.stringify(settled)}`);
  return settled;
};
const rows = async (db: Db): Promise<readonly { task_id: string; is_accepted: boolean }[]> =>
  (await db.query<{ task_id: string; is_accepted: boolean }>('select task_id, is_accepted from idempotency_keys')).rows;
/** A claim whose process died before its next step, half a minute ago. */
const aDeadClaim = async (db: Db, target: Target, taskId: TaskId, isAccepted = false): Promise<void> => {
  const { workspaceId, stubId, deploymentId } = target;
  const place = { workspaceId, scope: `stub/${stubId}`, key: 'k-1', fingerprint: 'same' };
  await keysIn(db).insert({ ...place, isOwn: true, taskId, deploymentId });
  await db.query(`update idempotency_keys set claimed_at = now() - interval '31 s', is_accepted = $1`, [isAccepted]);
};
const jobOf = (target: Target, taskId: TaskId): TaskJob => ({
  v: 1,
  taskId,
  workspaceId: target.workspaceId,
  stubId: target.stubId,
  deploymentId: null,
  kind: 'taskqueue',
  sync: false,
  replica: newInstanceId(),
  timeoutMs: 1_000,
  deadlineMs: 1,
  createdAtMs: 1,
  attempts: 0,
  retries: 0,
  retriesUsed: 0,
});
const versionOf = (target: Target, version: number): Target => {
  const deploymentId = newId<DeploymentId>();
  return { ...target, deploymentId, version, queue: queueNameOf(deploymentId, target.stubId) };
};

/** At the moment of the commit, another caller has the key. */
class Late extends IdempotencyKeys {
  readonly #db: Db;

  constructor(db: Db) {
    super({ db, log: quiet });
    this.#db = db;
  }

  override async commit(task: Parameters<IdempotencyKeys['commit']>[0]): Promise<boolean> {
    await this.#db.query('delete from idempotency_keys');
    return super.commit(task);
  }
}

test('a call that has lost its key before its commit is refused alone: the next call is let in', async ({
  start,
  db,
}) => {
  const one = await start({ more: { idempotencyKeys: new Late(db) } });
  const target = aQueueTarget();
  expect(await call(one, target)).toMatchObject({ kind: 'unavailable' });
  expect(await one.submissions.submit(target, { input: '{}' })).toMatchObject({ kind: 'accepted' });
});

describe('an asynchronous call', () => {
  test('has one task, however often and at however many replicas it comes at once', async ({ replica, db }) => {
    const [one, two] = [await replica(), await replica()];
    const target = aQueueTarget();
    const calls = [one, two, one, two, two, one].map((at) => taken(call(at, target)));
    const ids = new Set((await Promise.all(calls)).map(({ taskId }) => taskId));
    expect(ids.size).toBe(1);
    await isQueued(one, two);
    expect((await one.queues.depth(target.queue)).waiting).toBe(1);
    expect((await db.query('select id from tasks')).rowCount).toBe(1);
    expect(await rows(db)).toEqual([{ task_id: [...ids][0], is_accepted: true }]);
    const again = await taken(call(two, target));
    expect(again).toMatchObject({ isReplay: true, isAsync: true });
    expect(ids).toContain(again.taskId);
    const another = await taken(call(two, target, { key: 'k-2' }));
    expect(ids).not.toContain(another.taskId);
    expect(another.isReplay).toBeUndefined();
  });

  test('keeps its key when Redis loses everything, and when its task has ended', async ({ replica }) => {
    const one = await replica();
    const target = aQueueTarget();
    const { taskId } = await taken(call(one, target));
    await isQueued(one);
    await one.client.flushall();
    expect((await taken(call(one, target))).taskId).toBe(taskId);
    const link = new PlayedLink();
    one.container(target.queue, link);
    await one.queues.open(target.queue);
    const { taskId: next } = await taken(call(one, target, { key: 'k-2' }));
    await one.result(await sent(link));
    await reaches(one, next, 'COMPLETE');
    expect((await taken(call(one, target, { key: 'k-2' }))).taskId).toBe(next);
  });

  test('with another body or other query parameters is refused, here and at another replica', async ({ replica }) => {
    const [one, two] = [await replica(), await replica()];
    const target = aQueueTarget();
    const first = call(one, target);
    expect(await call(one, target, { fingerprint: 'other' })).toEqual({ kind: 'key_reused' });
    await first;
    for (const at of [one, two])
      expect(await call(at, target, { fingerprint: 'other' })).toEqual({ kind: 'key_reused' });
    await isQueued(one, two);
    expect((await one.queues.depth(target.queue)).waiting).toBe(1);
  });

  test('that is refused leaves no key: the retry works', async ({ replica, db }) => {
    let isActive = false;
    const one = await replica({ more: { isActive: () => isActive } });
    const target = aQueueTarget();
    expect(await call(one, target)).toMatchObject({ kind: 'unavailable', reason: 'deployment_stopped' });
    expect(await rows(db)).toEqual([]);
    isActive = true;
    const full = { ...target, config: { ...target.config, maxPendingTasks: 0 } };
    expect(await call(one, full)).toMatchObject({ kind: 'queue_full' });
    expect(await rows(db)).toEqual([]);
    expect(await taken(call(one, target))).not.toHaveProperty('isReplay');
  });

  test('whose commit fails is not queued, and its key is free', async ({ replica, db }) => {
    const keys = keysIn(db);
    let fails = true;
    const commit = keys.commit.bind(keys);
    keys.commit = (task) => (fails ? Promise.reject(new Error('the database is away')) : commit(task));
    const one = await replica({ more: { idempotencyKeys: keys } });
    const target = aQueueTarget();
    expect(await call(one, target)).toMatchObject({ kind: 'unavailable' });
    expect((await one.queues.depth(target.queue)).waiting).toBe(0);
    await waitFor(async () => (await rows(db)).length === 0, 'the key is released');
    fails = false;
    const retried = await waitFor(async () => {
      const submission = await call(one, target);
      return submission.kind === 'accepted' && submission;
    }, 'admission is open again');
    expect(retried).not.toHaveProperty('isReplay');
  });

  test('whose commit is made and not answered is the key’s task: whoever was given it meanwhile keeps it', async ({
    replica,
    db,
  }) => {
    const keys = keysIn(db);
    const two = await replica();
    const target = aQueueTarget();
    const given: TaskId[] = [];
    const commit = keys.commit.bind(keys);
    keys.commit = async (task) => {
      await commit(task);
      given.push((await taken(call(two, target))).taskId);
      throw databaseOutcomeUnknown();
    };
    const one = await replica({ more: { idempotencyKeys: keys } });
    expect(await call(one, target)).toMatchObject({ kind: 'unavailable', reason: 'not_recorded' });
    expect((await taken(call(two, target))).taskId).toBe(given[0]);
    const link = new PlayedLink();
    one.container(target.queue, link);
    expect((await sent(link)).taskId).toBe(given[0]);
    expect(await one.queues.depth(target.queue)).toMatchObject({ waiting: 0, active: 1 });
  });
});

describe('a process that dies', () => {
  test('between the claim and the queue leaves a key that the next call has', async ({ replica, db }) => {
    const one = await replica();
    for (const target of [aQueueTarget(), aTarget()]) {
      const dead = newId<TaskId>();
      await aDeadClaim(db, target, dead);
      const { taskId, isReplay } = await taken(call(one, target));
      expect([taskId === dead, isReplay]).toEqual([false, undefined]);
      expect((await rows(db)).map((row) => row.task_id)).toEqual([taskId]);
      await db.query('delete from idempotency_keys');
    }
  });

  test('between the commit and the queue leaves a task that is the key’s, and that the leader queues', async ({
    replica,
  }) => {
    const dead = await replica({ queues: withoutAdds });
    const one = await replica({ alive: (replica) => replica !== dead.instance });
    const target = aQueueTarget();
    const { taskId } = await taken(call(dead, target));
    expect(await taken(call(one, target))).toMatchObject({ taskId, isReplay: true });
    expect(await one.missing.round()).toBe(1);
    const link = new PlayedLink();
    one.container(target.queue, link);
    expect((await sent(link)).taskId).toBe(taskId);
    expect(await one.missing.round()).toBe(0);
  });

  test('under a claim of a moment ago is waited for: released, the key is free', async ({ replica, db }) => {
    const one = await replica();
    const target = aQueueTarget();
    const dead = newId<TaskId>();
    await aDeadClaim(db, target, dead);
    await db.query('update idempotency_keys set claimed_at = now()');
    const waiting = call(one, target);
    expect(await Promise.race([waiting, one.client.ping()])).toBe('PONG');
    await db.query('delete from idempotency_keys');
    expect((await taken(waiting)).taskId).not.toBe(dead);
  });

  test('is waited for by 250 calls of its workspace at the most: those of another one find room', async ({
    replica,
    db,
  }) => {
    const one = await replica();
    const [target, theirs] = [aQueueTarget(), aQueueTarget()];
    const keys = Array.from({ length: 251 }, (_, at) => `k-${at}`);
    for (const key of keys) {
      const { workspaceId, stubId, deploymentId } = target;
      const place = { workspaceId, scope: `stub/${stubId}`, key, fingerprint: 'same' };
      await keysIn(db).insert({ ...place, isOwn: true, taskId: newId<TaskId>(), deploymentId });
    }
    // A claim is given up some seconds after it was made, however long the others took to make.
    await db.query('update idempotency_keys set claimed_at = now()');
    const calls = keys.map((key) => call(one, target, { key }));
    expect(await Promise.race(calls)).toMatchObject({ kind: 'unavailable', retryAfterSeconds: 1 });
    await aDeadClaim(db, theirs, newId<TaskId>());
    await db.query('update idempotency_keys set claimed_at = now()');
    const waiting = call(one, theirs);
    await db.query('delete from idempotency_keys where workspace_id = $1', [theirs.workspaceId]);
    expect((await waiting).kind).toBe('accepted');
    await db.query('delete from idempotency_keys');
    await Promise.all(calls);
  });

  test('and takes the answer of a synchronous task along: its next caller is told, and it does not run again', async ({
    replica,
    db,
  }) => {
    const one = await replica();
    const target = aTarget();
    await aDeadClaim(db, target, newId<TaskId>(), true);
    expect(seenByCaller(await (await taken(call(one, target))).finished)).toMatchObject({
      status: 'ERROR',
      httpStatus: 502,
    });
    expect((await one.lines.depth(target.queue)).waiting).toBe(0);
  });

  test.for(['has it and no row names it yet', 'is silent'])(
    'while a synchronous task runs on: its next caller waits as long as a present replica %s',
    async (what, { replica, db }) => {
      const target = aTarget();
      const running = newId<TaskId>();
      const job = { ...jobOf(target, running), sync: true };
      let asked = 0;
      const other = await replica({ peers: {} });
      const silent = newInstanceId();
      const present = () => {
        asked += 1;
        if (asked === 3) void one.records.append(ended);
        return [what === 'is silent' ? silent : other.instance];
      };
      const one = await replica({ peers: { present, silentMs: 50 } });
      const ended = finalOf(job, target.queue, 1, 'COMPLETE', Date.now(), { result: '"done"' });
      await aDeadClaim(db, target, running, true);
      if (what !== 'is silent') other.lines.enter(target.queue, job, 1);
      const { taskId, finished } = await taken(call(one, target));
      expect([taskId, (await finished).body, asked >= 3]).toEqual([running, '"done"', true]);
    },
  );

  test('and whose claim another call took over commits nothing under it', async ({ db }) => {
    const target = aQueueTarget();
    const dead = newId<TaskId>();
    await aDeadClaim(db, target, dead);
    const keys = keysIn(db);
    const place = { workspaceId: target.workspaceId, scope: `stub/${target.stubId}`, key: 'k-1' };
    const next = newId<TaskId>();
    const held = { ...place, taskId: dead, isAccepted: false };
    expect(await keys.move(held, { taskId: next, deploymentId: null })).toBe(true);
    expect(await keys.move(held, { taskId: newId<TaskId>(), deploymentId: null })).toBe(false);
    expect(await keys.commit({ ...acceptedTaskOf(jobOf(target, dead), target.queue), key: place })).toBe(false);
    expect((await db.query('select id from tasks')).rowCount).toBe(0);
    expect(await keys.commit({ ...acceptedTaskOf(jobOf(target, next), target.queue), key: place })).toBe(true);
    expect((await db.query('select id from tasks')).rowCount).toBe(1);
  });

  test('and whose commit comes before another call takes it over keeps its task, the only one', async ({ db }) => {
    const target = aQueueTarget();
    const slow = newId<TaskId>();
    await aDeadClaim(db, target, slow);
    const keys = keysIn(db);
    const place = { workspaceId: target.workspaceId, scope: `stub/${target.stubId}`, key: 'k-1' };
    const held = { ...place, taskId: slow, isAccepted: false };
    expect(await keys.commit({ ...acceptedTaskOf(jobOf(target, slow), target.queue), key: place })).toBe(true);
    const next = newId<TaskId>();
    expect(await keys.move(held, { taskId: next, deploymentId: null })).toBe(false);
    expect(await keys.commit({ ...acceptedTaskOf(jobOf(target, next), target.queue), key: place })).toBe(false);
    const { rows } = await db.query('select id from tasks where stub_id = $1', [target.stubId]);
    expect(rows).toEqual([{ id: slow }]);
  });
});

describe('a synchronous call', () => {
  test('shares the task while it runs, at every replica, and has its answer afterwards', async ({ replica }) => {
    const [one, two] = [await replica(), await replica()];
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link, 3);
    const first = await taken(call(one, target));
    const order = await sent(link);
    const here = await taken(call(one, target));
    const there = taken(call(two, target));
    expect(here).toMatchObject({ taskId: first.taskId, isReplay: true });
    await one.result(order, '{"answer":42}');
    const later = await taken(call(two, target));
    for (const submission of [first, here, await there, later]) {
      expect(submission.taskId).toBe(first.taskId);
      expect(seenByCaller(await submission.finished)).toEqual({
        status: 'COMPLETE',
        httpStatus: 200,
        body: '{"answer":42}',
      });
    }
    await drained(one);
    await one.client.flushall();
    expect(await (await taken(call(two, target))).finished).toMatchObject({ body: '{"answer":42}' });
    expect(link.orders).toHaveLength(1);
  });

  test('has the failure of its task again, too', async ({ replica }) => {
    const one = await replica();
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const first = await taken(call(one, target));
    await one.result(await sent(link), '{"error":"KeyError"}', 'error');
    const answer = await first.finished;
    expect(seenByCaller(answer)).toMatchObject({ status: 'ERROR', httpStatus: 500, body: '{"error":"KeyError"}' });
    expect(await (await taken(call(one, target))).finished).toEqual(answer);
    expect(link.orders).toHaveLength(1);
  });

  test('whose caller leaves before a container has it gives its key back; with others waiting it stays', async ({
    replica,
  }) => {
    const one = await replica();
    const target = aTarget();
    const first = await taken(call(one, target));
    const second = await taken(call(one, target));
    first.callerLeft();
    first.callerLeft();
    const link = new PlayedLink();
    expect(one.replies.has(first.taskId)).toBe(true);
    second.callerLeft();
    const third = taken(call(one, target));
    await second.finished;
    expect((await third).taskId).not.toBe(first.taskId);
    one.container(target.queue, link);
    await one.result(await sent(link), '{"n":3}');
    expect(await (await third).finished).toMatchObject({ body: '{"n":3}' });
    expect(link.orders).toHaveLength(1);
  });
});

describe('the scope of a key', () => {
  test('a retry at `latest` means the task of the first call, whatever is the newest by then; versions have keys of their own', async ({
    replica,
  }) => {
    const one = await replica();
    const target = aQueueTarget();
    const [first, second] = [versionOf(target, 1), versionOf(target, 2)];
    const { taskId } = await taken(call(one, first));
    expect((await taken(call(one, second))).taskId).toBe(taskId);
    expect((await taken(call(one, first, { asksNewest: false }))).taskId).toBe(taskId);
    const own = await taken(call(one, second, { asksNewest: false }));
    expect(own.taskId).not.toBe(taskId);
    expect((await taken(call(one, second, { asksNewest: false }))).taskId).toBe(own.taskId);
    expect((await taken(call(one, second))).taskId).toBe(taskId);
  });

  test('is the workspace, the deployment and, for strangers, who calls', async ({ replica }) => {
    const one = await replica();
    const target = versionOf(aQueueTarget(), 1);
    const calls = [
      call(one, target),
      call(one, { ...versionOf(target, 1), deploymentName: 'another' }),
      call(one, { ...versionOf(target, 1), workspaceId: aTarget().workspaceId }),
      call(one, target, { callerScope: 'anybody/', isOwn: false }),
      call(one, target, { callerScope: 'w-2/', isOwn: false }),
    ];
    const ids = new Set((await Promise.all(calls.map(taken))).map(({ taskId }) => taskId));
    expect(ids.size).toBe(calls.length);
  });

  test('a workspace has a bounded number of keys; expired ones do not count, and are deleted by retention', async ({
    replica,
    db,
  }) => {
    const bounds = { most: 3, mostOfOthers: 1, keptSeconds: 86_400 };
    const one = await replica({ bounds });
    const target = aQueueTarget();
    const stranger = { callerScope: 'anybody/', isOwn: false };
    await taken(call(one, target, { ...stranger, key: 'a' }));
    expect(await call(one, target, { ...stranger, key: 'b' })).toMatchObject({ kind: 'keys_exhausted' });
    await taken(call(one, target, { key: 'c' }));
    await taken(call(one, target, { key: 'd' }));
    expect(await call(one, target, { key: 'e' })).toMatchObject({ kind: 'keys_exhausted' });
    expect((await one.queues.depth(target.queue)).waiting).toBe(3);
    // A key that is known needs no room, and other workspaces have their own.
    expect(await taken(call(one, target, { key: 'd' }))).toMatchObject({ isReplay: true });
    await taken(call(one, aQueueTarget(), { key: 'e' }));
    await db.query(`update idempotency_keys set expires_at = now() where key in ('c', 'd')`);
    const { isReplay } = await taken(call(one, target, { key: 'd' }));
    expect(isReplay).toBeUndefined();
    expect(await deleteEndedBefore(db, 'idempotency_keys', Date.now() + 60_000, 100)).toBe(1);
    expect(await rows(db)).toHaveLength(3);
  });
});

test('a call without a key asks the database for its commit alone, and for nothing where its caller waits', async ({
  replica,
  db,
}) => {
  let statements = 0;
  const counted = new Proxy(db, {
    get: (whole, name) => {
      const value: unknown = Reflect.get(whole, name);
      if (name === 'query') statements += 1;
      return typeof value === 'function' ? value.bind(whole) : value;
    },
  });
  const one = await replica({
    commit: (batch) => insertAcceptedTasks(counted, batch),
    more: { idempotencyKeys: keysIn(counted) },
  });
  const link = new PlayedLink();
  const target = aTarget();
  one.container(target.queue, link);
  const { finished } = await taken(one.submissions.submit(target, { input: '{}' }));
  await one.result(await sent(link));
  await finished;
  expect(statements).toBe(0);
  await taken(one.submissions.submit(aQueueTarget(), { input: '{}' }));
  expect(statements).toBe(1);
});

test('a real Postgres lets one of many claims of a key win, and commits the winner alone', async ({
  onTestFinished,
}) => {
  const opened = await aDb('postgres');
  onTestFinished(() => opened.stop());
  const { db } = opened;
  const target = aQueueTarget();
  const keys = keysIn(db);
  const place = { workspaceId: target.workspaceId, scope: 's', key: 'k' };
  const ids = Array.from({ length: 30 }, () => newId<TaskId>());
  const claim = (taskId: TaskId) =>
    keys.insert({ ...place, isOwn: true, fingerprint: 'same', taskId, deploymentId: null });
  const won = await Promise.all(ids.map(claim));
  expect(won.filter(Boolean)).toHaveLength(1);
  const commit = (taskId: TaskId) =>
    keys.commit({ ...acceptedTaskOf(jobOf(target, taskId), target.queue), key: place });
  expect(await Promise.all(ids.map(commit))).toEqual(won);
  expect((await db.query('select id from tasks')).rowCount).toBe(1);
  await db.query('update idempotency_keys set expires_at = now()');
  const again = await Promise.all(ids.map(claim));
  expect(again.filter(Boolean)).toHaveLength(1);
  expect(await rows(db)).toEqual([{ task_id: ids[again.indexOf(true)], is_accepted: false }]);
});
