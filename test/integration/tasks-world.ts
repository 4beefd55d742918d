// A scheduler process whose tasks reach a real database. The leader's parts
// look after the tasks, and people and foreign runners have their verbs.
/* oxlint-disable no-empty-pattern */
import { systemClock } from '#shared/clock.ts';
import type { ContainerId, TaskId, TokenId } from '#shared/domain/ids.ts';
import { ContainerActions } from '#scheduler/fleet/containers/actions.ts';
import { ContainerRegistry } from '#scheduler/fleet/containers/container-registry.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import type { Caller } from '#scheduler/workspaces/identity/caller.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { endedTaskIds, openTaskIdsOfQueue, runningAttempts, taskById } from '#scheduler/stores/store/queries/tasks.ts';
import { buildActions } from '#scheduler/compose/actions.ts';
import { taskRows } from '#scheduler/compose/records.ts';
import { buildReturns } from '#scheduler/compose/task-maintenance.ts';
import type { EndRequest, TaskActions } from '#scheduler/tasks/actions.ts';
import type { DeploymentStops } from '#scheduler/tasks/deployment-stops.ts';
import { writeRecords } from '#scheduler/tasks/webhooks/callbacks.ts';
import type { MissingJobs } from '#scheduler/tasks/maintenance/missing-jobs.ts';
import type { TaskSweep } from '#scheduler/tasks/maintenance/sweep.ts';
import { test as base, waitFor } from '../helpers/services.ts';
import { submitted } from '../helpers/submissions.ts';
import { aDb } from './store-fixture.ts';
import { recordOfRow } from '#scheduler/tasks/records/recording.ts';
import type { Process, TaskTable } from './tasks-fixture.ts';
import { aProcess, aTarget, quiet } from './tasks-fixture.ts';

/** A process whose tasks reach the database, with the leader's parts that see to them. */
export interface World extends Process {
  readonly db: Db;
  readonly sweep: TaskSweep;
  readonly missing: MissingJobs;
  readonly actions: TaskActions;
  readonly deploymentStops: DeploymentStops;
}

export type Options = NonNullable<Parameters<typeof aProcess>[1]> & {
  readonly batch?: number;
  /** Whether the machine of the container has reported; absent: it has. */
  readonly isReported?: (containerId: ContainerId) => boolean;
};

export const test = base
  .extend('db', { scope: 'file' }, async ({}, { onCleanup }): Promise<Db> => {
    const opened = await aDb('pglite');
    onCleanup(() => opened.stop());
    return opened.db;
  })
  .extend('start', async ({ redis, db }, { onCleanup }) => {
    const processes: Process[] = [];
    onCleanup(async () => {
      for (const one of processes) await one.stop();
      // The sweep looks at every open row of the database: a test leaves none to the next one.
      await db.query('delete from tasks');
    });
    return async (options: Options = {}): Promise<World> => {
      const made = await aProcess(redis, { ...taskRows(db), rows: rowsOf(db), ...options });
      processes.push(made);
      const { slots, dispatcher } = made;
      const parts = { ...made, clock: systemClock, log: quiet };
      const { sweep, missing, foreign } = buildReturns({
        ...parts,
        db,
        batch: options.batch ?? 500,
        isLeader: () => true,
        isAlive: options.alive ?? (() => true),
        served: () => slots.queues(),
        isGone: (containerId) => Promise.resolve(containerId.endsWith('-gone')),
        whoHas: (taskIds) => made.peers.questions.whoHas(taskIds),
        isReported: options.isReported ?? (() => true),
        abandonedMs: 0,
        signal: AbortSignal.any([]),
      });
      sweep.onReturned((queue) => dispatcher.wake(queue));
      missing.onReturned((queue) => dispatcher.wake(queue));
      foreign.onQueueChanged((queue) => dispatcher.wake(queue));
      const { actions, deploymentStops } = buildActions({
        ...parts,
        queues: made.lines,
        stopSync: (...given) => made.peers.questions.stop(...given),
        foreign,
        deferred: { cancel: () => Promise.reject(new Error('no model is called here')) },
        // No caller here has a token of a single app.
        targets: { byQueue: () => Promise.resolve(undefined) },
        containers: new ContainerActions(new ContainerRegistry({ db, log: quiet, clock: systemClock }), slots),
        // Pages of two, so that a handful of tasks fills several.
        openTasks: (queue, _limit, after) => openTaskIdsOfQueue(db, queue, 2, after),
      });
      return {
        ...made,
        db,
        sweep,
        missing,
        actions,
        deploymentStops,
      };
    };
  })
  .extend('one', async ({ start }) => start());

/** Rows of tasks in a database. */
export const rowsOf = (db: Db): TaskTable => ({
  load: async (taskId) => {
    const row = await taskById(db, taskId);
    return row === undefined ? undefined : recordOfRow(row);
  },
  ended: (taskIds) => endedTaskIds(db, taskIds),
  running: (taskIds) => runningAttempts(db, taskIds),
  write: (records) => writeRecords(db, records, []),
});

export function aQueueTarget(changes: Partial<Target['config']> = {}): Target {
  return { ...aTarget(changes), kind: 'taskqueue', sync: false };
}

/** Submits a task; resolves when its job is in its queue. */
export const put = async (one: Process, target: Target, input = '{"x":1}'): Promise<TaskId> => {
  const { taskId } = await submitted(one, target, input);
  await waitFor(() => one.queueing.size === 0, 'it is queued');
  return taskId;
};
/** The rows are as old as the sweep wants them. */
export async function age(one: World, seconds: number): Promise<void> {
  await one.records.flush();
  await one.db.query(`update tasks set updated_at = now() - make_interval(secs => $1)`, [seconds]);
}
export const drained = (one: World) => one.records.flush();
export const callerOf = (target: Target, container?: Caller['container']): Caller => ({
  workspaceId: target.workspaceId,
  workspaceDbId: 1,
  tokenId: 't' as TokenId,
  type: container === undefined ? 'workspace' : 'container',
  isAdmin: false,
  ...(container === undefined ? {} : { container }),
});
export const anEnd = (taskId: TaskId, changes: Partial<EndRequest> = {}): EndRequest => ({
  taskId,
  taskStatus: 'COMPLETE',
  containerId: '',
  durationSeconds: 1,
  containerHostname: '',
  keepWarmSeconds: 0,
  result: Buffer.from('{"by":"another"}'),
  ...changes,
});
