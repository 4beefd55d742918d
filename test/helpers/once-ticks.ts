// A story of a schedule: two tickers look at the same ticks until both have seen them, while their statements meet
// faults. Each tick has one task, which a container gets once.
import assert from 'node:assert/strict';
import { systemClock } from '#shared/clock.ts';
import { newId, queueNameOf, tickTaskId } from '#shared/domain/ids.ts';
import type { DeploymentId, StubId } from '#shared/domain/ids.ts';
import { Registry } from '#shared/metrics.ts';
import { taskRows } from '#scheduler/compose/records.ts';
import { buildReturns } from '#scheduler/compose/task-maintenance.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { totalOf } from '#scheduler/stores/queues/task-queues.ts';
import { insertDeployment } from '#scheduler/stores/store/queries/deployments.ts';
import { insertStub } from '#scheduler/stores/store/queries/stubs.ts';
import { ScheduleMetrics } from '#scheduler/tasks/schedules/metrics.ts';
import { Ticker } from '#scheduler/tasks/schedules/service.ts';
import { aStub, aWorkspace } from '../integration/store-fixture.ts';
import { aProcess, aTarget, PlayedLink, quiet } from '../integration/tasks-fixture.ts';
import type { Process } from '../integration/tasks-fixture.ts';
import { rowsOf } from '../integration/tasks-world.ts';
import { DoubtfulDb } from './doubtful-db.ts';
import type { Doubt } from './doubtful-db.ts';
import { waitFor } from './programs.ts';
import type { PrivateRedis } from './redis.ts';

/** Statements of two looks, and one more. */
export const TICK_STATEMENTS = 5;
/** A whole second, long ago. */
const T0 = Date.UTC(2026, 0, 10, 12);
const TICKS = [1, 2, 3];
const EVERY_SECOND = { when: '* * * * * *', timezone: 'UTC' };

/** A deployed schedule that has ticked up to T0. */
async function aSchedule(db: Db): Promise<Target & { readonly deploymentId: DeploymentId }> {
  const { id: workspaceId } = await aWorkspace(db);
  const { appId } = await aStub(db, workspaceId);
  const type = 'schedule/deployment';
  const config = { schedule: EVERY_SECOND };
  const stub = await insertStub(db, {
    id: newId<StubId>(),
    workspaceId,
    appId,
    name: 'night',
    type,
    objectId: null,
    config,
    configHash: newId(),
    public: false,
  });
  const id = newId<DeploymentId>();
  const subdomain = `night-${id.slice(0, 7)}`;
  await insertDeployment(db, { id, workspaceId, appId, stubId: stub.id, name: 'night', stubType: type, subdomain });
  await db.query('update deployments set ticked_to = $2 where id = $1', [id, new Date(T0)]);
  return {
    ...aTarget({ schedule: EVERY_SECOND }),
    workspaceId,
    stubId: stub.id,
    deploymentId: id,
    kind: 'schedule',
    sync: false,
    queue: queueNameOf(id, stub.id),
  };
}

function aTicker(db: Db, process: Process, target: Target): Ticker {
  return new Ticker({
    db,
    newJob: (...given) => process.submissions.newJob(...given),
    tasks: process.asynchronous,
    targetOf: () => target,
    depthOf: async (queue) => totalOf(await process.queues.depth(queue)),
    clock: { ...systemClock, nowMs: () => T0 + TICKS.length * 1_000 },
    log: quiet,
    metrics: new ScheduleMetrics(new Registry()),
  });
}

/** The leader's look at rows whose jobs are not queued, as if their owners were dead. */
async function addMissing(db: Db, process: Process): Promise<void> {
  const { missing } = buildReturns({
    ...process,
    db,
    clock: systemClock,
    log: quiet,
    isLeader: () => true,
    isAlive: () => false,
    served: () => [],
    isGone: () => Promise.resolve(false),
    whoHas: () => Promise.resolve(new Set()),
    isReported: () => true,
    signal: AbortSignal.any([]),
  });
  missing.onReturned((queue) => process.dispatcher.wake(queue));
  await missing.round();
}

/** @returns the number of faults that were met */
export async function playTickStory(redis: PrivateRedis, real: Db, next: () => Doubt | undefined): Promise<number> {
  const target = await aSchedule(real);
  const db = new DoubtfulDb(real, next);
  const parts = { ...taskRows(db), rows: rowsOf(real) };
  const leaders = [await aProcess(redis, parts), await aProcess(redis, parts)] as const;
  const tickers = leaders.map((process) => aTicker(db, process, target));
  const [first] = leaders;
  const link = new PlayedLink();
  link.onRun = (order) => void first.result(order, '"done"').catch(() => undefined);
  first.container(target.queue, link, TICKS.length);
  const look = async (ticker: Ticker): Promise<void> => {
    while ((await ticker.check(target.deploymentId).catch(() => undefined)) === undefined);
  };
  const readRows = async () => {
    for (const leader of leaders) await leader.records.flush();
    const sql = 'select id, status, attempt from tasks where deployment_id = $1 order by id';
    return (await real.query<{ id: string; status: string; attempt: number }>(sql, [target.deploymentId])).rows;
  };
  try {
    await Promise.all(tickers.map(look));
    await db.letGo();
    await Promise.all(tickers.map(look));
    await addMissing(real, first);
    const wanted = TICKS.map((tick) => tickTaskId(target.deploymentId, T0 + tick * 1_000)).toSorted();
    await waitFor(async () => {
      // Wake-ups of the other leader do not come here.
      first.dispatcher.wake(target.queue);
      return (await readRows()).every(({ status }) => status === 'COMPLETE');
    }, 'every tick is over');
    assert.deepEqual(
      await readRows(),
      wanted.map((id) => ({ id, status: 'COMPLETE', attempt: 1 })),
    );
    assert.deepEqual(link.orders.map(({ taskId }) => taskId).toSorted(), wanted, 'orders of a container');
    return db.met;
  } finally {
    for (const leader of leaders) await leader.stop();
  }
}
