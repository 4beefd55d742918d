// Schedules on a real database and a real Redis, with a clock that the test sets.
// Ticks are missed, doubled, stopped, or lost half-way.
import { describe, expect } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import { newId, queueNameOf, tickTaskId } from '#shared/domain/ids.ts';
import type { DeploymentId, StubId, TaskId } from '#shared/domain/ids.ts';
import { Registry } from '#shared/metrics.ts';
import { Deployments } from '#scheduler/workspaces/deployments/deployments.ts';
import type { DeploymentsParts } from '#scheduler/workspaces/deployments/deployments.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import { totalOf } from '#scheduler/stores/queues/task-queues.ts';
import { ScheduleMetrics } from '#scheduler/tasks/schedules/metrics.ts';
import { Ticker } from '#scheduler/tasks/schedules/service.ts';
import {
  deleteDeployment,
  insertDeployment,
  setDeploymentActive,
} from '#scheduler/stores/store/queries/deployments.ts';
import {
  advanceSchedule,
  listSchedules,
  MOST_AHEAD_MS,
  stopVersionsBefore,
} from '#scheduler/stores/store/queries/schedules.ts';
import { deleteTasksEndedBefore } from '#scheduler/stores/store/queries/retention.ts';
import { insertStub } from '#scheduler/stores/store/queries/stubs.ts';
import { targetOfDeployment } from '#scheduler/stores/store/queries/targets.ts';
import { listTasks, taskById } from '#scheduler/stores/store/queries/tasks.ts';
import { unansweredCommit } from '../helpers/unanswered-commit.ts';
import { waitFor } from '../helpers/services.ts';
import { reaches, sent } from '../helpers/submissions.ts';
import { aStub, aWorkspace } from './store-fixture.ts';
import { aTarget, PlayedLink, quiet } from './tasks-fixture.ts';
import { callerOf, drained, test } from './tasks-world.ts';
import type { World } from './tasks-world.ts';

const EVERY_SECOND = { when: '* * * * * *', timezone: 'UTC' };
/** A whole second, long ago, so that no clock of this machine comes into it. */
const T0 = Date.UTC(2026, 0, 10, 12);

interface Scheduled {
  readonly id: DeploymentId;
  readonly target: Target;
  /** Ids of its tasks, as the database has them. */
  taskIds(): Promise<readonly TaskId[]>;
  tickedTo(ms: number): Promise<void>;
}

/** A deployed schedule that has ticked up to T0. */
async function aSchedule(one: World, changes: Partial<Target['config']> = {}): Promise<Scheduled> {
  const { db } = one;
  const workspace = await aWorkspace(db);
  const plain = await aStub(db, workspace.id);
  const stub = await insertStub(db, {
    id: newId<StubId>(),
    workspaceId: workspace.id,
    appId: plain.appId,
    name: 'night',
    type: 'schedule/deployment',
    objectId: null,
    config: { schedule: EVERY_SECOND },
    configHash: 'c',
    public: false,
  });
  const id = newId<DeploymentId>();
  await insertDeployment(db, {
    id,
    workspaceId: workspace.id,
    appId: plain.appId,
    stubId: stub.id,
    name: 'night',
    stubType: stub.type,
    subdomain: 'night',
  });
  const tickedTo = async (ms: number): Promise<void> => {
    await db.query('update deployments set ticked_to = $2 where id = $1', [id, new Date(ms)]);
  };
  await tickedTo(T0);
  const target: Target = {
    ...aTarget({ schedule: EVERY_SECOND, ...changes }),
    workspaceId: workspace.id,
    stubId: stub.id,
    deploymentId: id,
    kind: 'schedule',
    sync: false,
    queue: queueNameOf(id, stub.id),
  };
  const taskIds = async (): Promise<readonly TaskId[]> =>
    (await listTasks(db, { workspaceId: workspace.id, limit: 5_000 })).map((row) => row.taskId).toSorted();
  return { id, target, taskIds, tickedTo };
}

/** A replica's ticker, at a moment that the test says. */
function aTicker(
  one: World,
  { target }: Scheduled,
  over: Partial<Pick<World['asynchronous'], 'queue'>> & {
    /** Runs between the look and the write. */
    readonly meanwhile?: () => Promise<unknown>;
  } = {},
): { readonly ticker: Ticker; readonly registry: Registry; readonly at: (ms: number) => Promise<unknown> } {
  const registry = new Registry();
  let nowMs = T0;
  const ticker = new Ticker({
    db: one.db,
    newJob: (...given) => one.submissions.newJob(...given),
    tasks: {
      begin: (...given) => one.asynchronous.begin(...given),
      notCommitted: (...given) => one.asynchronous.notCommitted(...given),
      queue: over.queue ?? ((...given) => one.asynchronous.queue(...given)),
    },
    targetOf: () => target,
    depthOf: async (queue) => {
      await over.meanwhile?.();
      return totalOf(await one.queues.depth(queue));
    },
    clock: { ...systemClock, nowMs: () => nowMs },
    log: quiet,
    metrics: new ScheduleMetrics(registry),
  });
  return {
    ticker,
    registry,
    at: (ms) => {
      nowMs = ms;
      return ticker.check(target.deploymentId ?? ('' as DeploymentId));
    },
  };
}

/** Tasks of the ticks from one second after T0 to another. */
const idsOf = (id: DeploymentId, first: number, last: number): readonly TaskId[] =>
  Array.from({ length: last - first + 1 }, (_, index) => tickTaskId(id, T0 + (first + index) * 1000)).toSorted();

describe('the ticks of a schedule', () => {
  test('have one task each, however often and by how many replicas they are looked at', async ({ start }) => {
    const [one, two] = [await start(), await start()];
    const made = await aSchedule(one);
    const [here, there] = [aTicker(one, made), aTicker(two, made)];
    expect(await here.at(T0 + 900)).toEqual({ nextMs: T0 + 1000 });
    expect(await made.taskIds()).toEqual([]);
    expect(await here.at(T0 + 3_500)).toEqual({ nextMs: T0 + 4_000 });
    expect(await made.taskIds()).toEqual(idsOf(made.id, 1, 3));
    await Promise.all([here.at(T0 + 8_000), there.at(T0 + 8_000), here.at(T0 + 8_000), there.at(T0 + 8_000)]);
    // The loser of the race looks again.
    await there.at(T0 + 8_100);
    expect(await made.taskIds()).toEqual(idsOf(made.id, 1, 8));
    await waitFor(() => one.queueing.size + two.queueing.size === 0, 'they are queued');
    expect(totalOf(await one.queues.depth(made.target.queue))).toBe(8);
    // A ticker whose clock is behind makes nothing anew.
    expect(await there.at(T0 + 2_000)).toEqual({ nextMs: T0 + 9_000 });
    expect(await made.taskIds()).toHaveLength(8);
  });

  test('that have run do not run again when their rows are deleted for their age', async ({ start }) => {
    const [one, two] = [await start(), await start()];
    const made = await aSchedule(one);
    const [here, there] = [aTicker(one, made), aTicker(two, made)];
    await here.at(T0 + 3_500);
    await one.records.flush();
    await one.db.query("update tasks set rank = 3, status = 'COMPLETE', ended_at = created_at where queue = $1", [
      made.target.queue,
    ]);
    expect((await deleteTasksEndedBefore(one.db, Date.now() + 60_000, 100)).gone).toBe(3);
    await here.at(T0 + 3_700);
    await there.at(T0 + 3_700);
    expect(await made.taskIds()).toEqual([]);
    await there.at(T0 + 4_000);
    expect(await made.taskIds()).toEqual(idsOf(made.id, 4, 4));
  });

  test('that nobody was there for are made up for: the newest hundred, the others are counted', async ({ one }) => {
    const made = await aSchedule(one);
    const { at, registry } = aTicker(one, made);
    await at(T0 + 160_000);
    expect(await made.taskIds()).toEqual(idsOf(made.id, 61, 160));
    expect(await registry.metrics()).toMatch(/schedule_ticks_total\{result="too_old"\} 60\n/);
    await at(T0 + 161_000);
    expect(await made.taskIds()).toHaveLength(101);
  });

  test('are skipped where the queue has no room for them, the oldest first', async ({ one }) => {
    const made = await aSchedule(one, { maxPendingTasks: 3 });
    const { at, registry } = aTicker(one, made);
    await at(T0 + 5_000);
    expect(await made.taskIds()).toEqual(idsOf(made.id, 3, 5));
    await waitFor(() => one.queueing.size === 0, 'they are queued');
    await at(T0 + 6_000);
    expect(await made.taskIds()).toEqual(idsOf(made.id, 3, 5));
    expect(await registry.metrics()).toMatch(/schedule_ticks_total\{result="queue_full"\} 3\n/);
  });

  test('run without inputs, and end in the database', async ({ one }) => {
    const made = await aSchedule(one);
    const link = new PlayedLink();
    one.container(made.target.queue, link);
    await aTicker(one, made).at(T0 + 1_000);
    const order = await sent(link);
    expect(order).toMatchObject({ taskId: tickTaskId(made.id, T0 + 1_000), input: '' });
    expect(await one.result(order, '"done"')).toBe(true);
    await drained(one);
    expect(await taskById(one.db, order.taskId)).toMatchObject({ status: 'COMPLETE', kind: 'schedule', attempt: 1 });
  });

  test('whose process died between row and queue are queued by the leader, once', async ({ start }) => {
    const dead = await start();
    const one = await start({ alive: (replica) => replica !== dead.instance });
    const made = await aSchedule(one);
    const died = aTicker(dead, made, { queue: () => undefined });
    await died.at(T0 + 2_000);
    expect(totalOf(await one.queues.depth(made.target.queue))).toBe(0);
    expect([await one.missing.round(), await one.missing.round()]).toEqual([2, 0]);
    expect((await one.queues.waitingIds(made.target.queue)).toSorted()).toEqual(idsOf(made.id, 1, 2));
    expect(await made.taskIds()).toEqual(idsOf(made.id, 1, 2));
  });

  test('whose commit was made and not answered are queued by their ticker', async ({ start, db }) => {
    const one = await start();
    const made = await aSchedule(one);
    const away = unansweredCommit(db, Promise.resolve(true));
    await expect(aTicker({ ...one, db: away }, made).at(T0 + 2_000)).rejects.toThrow('did not answer');
    await waitFor(
      async () => (await one.queues.waitingIds(made.target.queue)).length === 2,
      'both ticks are in their queue',
    );
  });

  test('that the leader has queued, and a container has run, do not run again when their ticker wakes up', async ({
    start,
  }) => {
    // The ticker stands still for longer than a fetch counts as fresh, so that the leader takes it for dead.
    const slept = await start({ graces: { freshMs: -1 } });
    const one = await start({ alive: (replica) => replica !== slept.instance });
    const made = await aSchedule(one);
    let goOn = (): void => undefined;
    const ticker = aTicker(slept, made, {
      queue: (...given) => void (goOn = () => slept.asynchronous.queue(...given)),
    });
    await ticker.at(T0 + 1_000);
    expect(await one.missing.round()).toBe(1);
    const link = new PlayedLink();
    one.container(made.target.queue, link);
    await one.result(await sent(link));
    const [tick] = await made.taskIds();
    await reaches(one, tick as TaskId, 'COMPLETE');
    goOn();
    await waitFor(() => slept.queueing.size === 0, 'it is added again');
    one.dispatcher.wake(made.target.queue);
    await waitFor(async () => totalOf(await one.queues.depth(made.target.queue)) === 0, 'the second job is over');
    expect(link.orders).toHaveLength(1);
  });

  test('are those up to now, whatever the clock of a replica says', async ({ one }) => {
    const made = await aSchedule(one);
    const fromMs = Math.floor(Date.now() / 1000) * 1000 - 3_000;
    await made.tickedTo(fromMs);
    await aTicker(one, made).at(Date.now() + 3_600_000);
    const early = await made.taskIds();
    const [row] = (await listSchedules(one.db)).filter(({ deploymentId }) => deploymentId === made.id);
    expect(row?.tickedToMs).toBeLessThanOrEqual(Date.now() + MOST_AHEAD_MS);
    expect(early).toHaveLength(((row?.tickedToMs ?? 0) - fromMs) / 1000);
    expect(early.length).toBeGreaterThanOrEqual(3);
    const tickedToMs = row?.tickedToMs ?? 0;
    expect(await advanceSchedule(one.db, made.id, tickedToMs, Date.now() + 60_000)).toBe(false);
    expect(await advanceSchedule(one.db, made.id, tickedToMs, tickedToMs)).toBe(true);
  });

  test('of which nothing was written when the database refused are all there at the next look', async ({ one }) => {
    const made = await aSchedule(one);
    const { at } = aTicker(one, made);
    await one.db.query(`alter table tasks add constraint away check (kind <> 'schedule') not valid`);
    try {
      await expect(at(T0 + 2_000)).rejects.toThrow();
    } finally {
      await one.db.query('alter table tasks drop constraint away');
    }
    await at(T0 + 3_000);
    expect(await made.taskIds()).toEqual(idsOf(made.id, 1, 3));
  });
});

describe('a schedule that is', () => {
  test('stopped makes no task; started again it ticks from then on', async ({ one }) => {
    const made = await aSchedule(one);
    const { at, ticker } = aTicker(one, made);
    const { workspaceId } = made.target;
    await setDeploymentActive(one.db, workspaceId, made.id, false);
    expect(await at(T0 + 5_000)).toEqual({ nextMs: null });
    expect(await listSchedules(one.db)).not.toContainEqual(expect.objectContaining({ deploymentId: made.id }));
    const beforeMs = Date.now();
    await setDeploymentActive(one.db, workspaceId, made.id, true);
    const [row] = (await listSchedules(one.db)).filter(({ deploymentId }) => deploymentId === made.id);
    expect(row?.tickedToMs).toBeGreaterThanOrEqual(beforeMs - 1000);
    // Starting an active schedule again keeps its due ticks.
    await made.tickedTo(T0);
    await setDeploymentActive(one.db, workspaceId, made.id, true);
    await at(T0 + 2_000);
    expect(await made.taskIds()).toEqual(idsOf(made.id, 1, 2));
    await deleteDeployment(one.db, workspaceId, made.id);
    expect(await ticker.check(made.id)).toEqual({ nextMs: null });
  });

  test('stopped, or looked at by another replica, while it is looked at makes no task of that look', async ({
    one,
  }) => {
    const made = await aSchedule(one);
    const other = aTicker(one, made);
    const slow = aTicker(one, made, { meanwhile: () => other.at(T0 + 2_000) });
    expect(await slow.at(T0 + 3_000)).toEqual({ nextMs: T0 + 1_000 });
    expect(await made.taskIds()).toEqual(idsOf(made.id, 1, 2));
    const stopped = aTicker(one, made, {
      meanwhile: () => setDeploymentActive(one.db, made.target.workspaceId, made.id, false),
    });
    await stopped.at(T0 + 9_000);
    expect(await made.taskIds()).toEqual(idsOf(made.id, 1, 2));
  });

  test('superseded by a newer version is stopped with it', async ({ one }) => {
    const made = await aSchedule(one);
    const { workspaceId } = made.target;
    const [old] = (await listSchedules(one.db)).filter(({ deploymentId }) => deploymentId === made.id);
    expect(old).toBeDefined();
    const stopped = await stopVersionsBefore(one.db, {
      workspaceId,
      name: 'night',
      stubType: 'schedule/deployment',
      version: 2,
    });
    expect(stopped).toEqual([made.id]);
    expect(await aTicker(one, made).at(T0 + 5_000)).toEqual({ nextMs: null });
    expect(await made.taskIds()).toEqual([]);
    const supersededBy = async () => (await targetOfDeployment(one.db, made.id))?.deployment?.supersededBy;
    expect(await supersededBy()).toBe(2);
    // An explicit stop also ends the work that the version has left.
    await setDeploymentActive(one.db, workspaceId, made.id, false);
    expect(await supersededBy()).toBeNull();
  });
});

test('a stub from before its times were looked at is refused where it is deployed, by the name of the field', async ({
  one,
}) => {
  const workspace = await aWorkspace(one.db);
  const stub = { ...(await aStub(one.db, workspace.id)), type: 'schedule/deployment' };
  const deployments = new Deployments({
    db: one.db,
    stubs: { find: () => Promise.resolve(stub) },
  } as unknown as DeploymentsParts);
  const caller = callerOf(aTarget());
  for (const [schedule, text] of [
    [{ when: '' }, /^extra\.when must say when/],
    [{ when: '@hourly', timezone: 'Mars' }, /^extra\.timezone "Mars" is not/],
  ] as const) {
    stub.config = { schedule };
    const refused = { why: 'schedule', text: expect.stringMatching(text) };
    expect(await deployments.deploy(caller, stub.id, 'old')).toMatchObject(refused);
  }
});
