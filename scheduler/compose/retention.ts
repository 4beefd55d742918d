// Rows that are deleted by age, and the age for each kind.
import type { SchedulerSettings } from '../config.ts';
import type { Clock } from '#shared/clock.ts';
import type { MachineId, ObjectId, QueueName } from '#shared/domain/ids.ts';
import { queueNameOf } from '#shared/domain/ids.ts';
import { inputKeyOf } from '../tasks/dispatch/bodies.ts';
import { RetentionMetrics } from '../tasks/retention/metrics.ts';
import { Retention } from '../tasks/retention/retention.ts';
import type { PrunedKind } from '../tasks/retention/retention.ts';
import type { Db } from '../stores/store/db.ts';
import {
  deleteEndedBefore,
  deleteEventsBefore,
  deleteLogLinesBefore,
  deleteStubsUntouchedSince,
  deleteTasksEndedBefore,
  deleteUnjoinedBefore,
  oldestOf,
} from '../stores/store/queries/retention.ts';
import { deleteInputsBefore } from '../stores/store/queries/task-inputs.ts';
import type { ActionParts } from './actions.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { ObjectParts } from './objects.ts';

const DAY_MS = 86_400_000;
/** Age of machines that never joined: the owner can see for a day that a machine never came. */
const UNJOINED_MS = DAY_MS;
/** Age of expired keys: the database's clock decides whether a key is valid, and this replica's may be ahead. */
const EXPIRED_KEY_MS = 3600_000;
/** Age of sums of tasks. */
const STATS_MS = 30 * DAY_MS;

/** Days for which an input is kept: without its task it could not be found. */
export const inputDaysOf = ({
  LONGSHORE_INPUT_DAYS: inputs,
  LONGSHORE_TASK_DAYS: tasks,
}: Pick<SchedulerSettings, 'LONGSHORE_INPUT_DAYS' | 'LONGSHORE_TASK_DAYS'>): number => Math.min(inputs, tasks);

export function openRetention(
  { db, clock, log, registry, settings }: Infrastructure,
  { machines, isLeader }: ClusterState,
  { objects }: ObjectParts,
  { deploymentStops }: Pick<ActionParts, 'deploymentStops'>,
): Retention {
  return new Retention({
    kinds: prunedKinds({
      db,
      clock,
      removeBytes: (id) => objects.removeBytes(id),
      machineGone: (id) => machines.deleted(id),
      forgetQueue: (queue) => deploymentStops.forget(queue),
      days: {
        tasks: settings.LONGSHORE_TASK_DAYS,
        inputs: inputDaysOf(settings),
        containers: settings.LONGSHORE_CONTAINER_DAYS,
        logs: settings.LONGSHORE_LOG_DAYS,
        deliveries: settings.LONGSHORE_DELIVERY_DAYS,
        metrics: settings.LONGSHORE_METRIC_DAYS,
        // Sums are made of samples, and outlive them.
        samples: Math.min(settings.LONGSHORE_METRIC_SAMPLE_HOURS / 24, settings.LONGSHORE_METRIC_DAYS),
        events: settings.LONGSHORE_EVENT_DAYS,
      },
    }),
    oldest: (table) => oldestOf(db, table),
    metrics: new RetentionMetrics(registry),
    clock,
    log,
    isLeader,
  });
}

const SAMPLES = [
  ['metric_samples', 'samples'],
  ['metric_minutes', 'metrics'],
  ['metric_hours', 'metrics'],
  ['pool_samples', 'samples'],
  ['pool_minutes', 'metrics'],
  ['pool_five_minutes', 'metrics'],
] as const;

export interface PrunedKindsParts {
  readonly db: Db;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly removeBytes: (id: ObjectId) => Promise<void>;
  readonly machineGone: (id: MachineId) => void;
  /** Deletes what Redis has of the queue of a deleted stub. Never throws. */
  readonly forgetQueue: (queue: QueueName) => Promise<void>;
  readonly days: Readonly<
    Record<'tasks' | 'inputs' | 'containers' | 'logs' | 'deliveries' | 'metrics' | 'samples' | 'events', number>
  >;
}

export function prunedKinds({
  db,
  clock,
  removeBytes,
  machineGone,
  forgetQueue,
  days,
}: PrunedKindsParts): readonly PrunedKind[] {
  /** Until then some row may tell of a deleted thing, by its id. */
  const toldMs = Math.max(...Object.values(days)) * DAY_MS;
  /** A batch with fewer rows than the limit was the last: no more rows exist, or others are locked. */
  const byCount = (prune: (beforeMs: number, limit: number) => Promise<number>) => () => {
    return async (beforeMs: number, limit: number) => {
      const gone = await prune(beforeMs, limit);
      return { gone, isDone: gone < limit };
    };
  };
  return [
    {
      table: 'tasks',
      keptMs: days.tasks * DAY_MS,
      begin: byCount(async (beforeMs, limit) => {
        const { gone, resultObjectIds } = await deleteTasksEndedBefore(db, beforeMs, limit);
        // The row goes first. If the store does not answer, the object collector finds the remaining bytes.
        await Promise.allSettled(resultObjectIds.map(removeBytes));
        return gone;
      }),
    },
    {
      table: 'containers',
      keptMs: days.containers * DAY_MS,
      begin: byCount((beforeMs, limit) => deleteEndedBefore(db, 'containers', beforeMs, limit)),
    },
    {
      table: 'log_lines',
      keptMs: days.logs * DAY_MS,
      begin: () => {
        let afterId = 0;
        return async (beforeMs, limit) => {
          const { seen, lastId, gone } = await deleteLogLinesBefore(db, beforeMs, limit, afterId, clock.nowMs());
          afterId = lastId;
          return { gone, isDone: seen < limit || gone === 0 };
        };
      },
    },
    {
      table: 'deliveries',
      keptMs: days.deliveries * DAY_MS,
      begin: byCount((beforeMs, limit) => deleteEndedBefore(db, 'deliveries', beforeMs, limit)),
    },
    {
      table: 'events',
      keptMs: days.events * DAY_MS,
      begin: () => {
        let workspace = '';
        return async (beforeMs, limit) => {
          const { gone, lastWorkspace } = await deleteEventsBefore(db, beforeMs, limit, workspace);
          workspace = lastWorkspace;
          return { gone, isDone: gone === 0 };
        };
      },
    },
    {
      table: 'webhook_deliveries',
      keptMs: days.deliveries * DAY_MS,
      begin: byCount((beforeMs, limit) => deleteEndedBefore(db, 'webhook_deliveries', beforeMs, limit)),
    },
    {
      table: 'idempotency_keys',
      keptMs: EXPIRED_KEY_MS,
      begin: byCount((beforeMs, limit) => deleteEndedBefore(db, 'idempotency_keys', beforeMs, limit)),
    },
    {
      table: 'console_sessions',
      keptMs: 0,
      begin: byCount((beforeMs, limit) => deleteEndedBefore(db, 'console_sessions', beforeMs, limit)),
    },
    {
      table: 'shared_entries',
      keptMs: 0,
      begin: byCount((beforeMs, limit) => deleteEndedBefore(db, 'shared_entries', beforeMs, limit)),
    },
    {
      // The object collector deletes the object in a later round.
      table: 'task_outputs',
      keptMs: days.tasks * DAY_MS,
      begin: byCount((beforeMs, limit) => deleteEndedBefore(db, 'task_outputs', beforeMs, limit)),
    },
    {
      table: 'task_inputs',
      keptMs: days.inputs * DAY_MS,
      begin: byCount(async (beforeMs, limit) => {
        const { gone, large } = await deleteInputsBefore(db, beforeMs, limit);
        await Promise.allSettled(large.map((taskId) => removeBytes(inputKeyOf(taskId))));
        return gone;
      }),
    },
    {
      table: 'workspace_usage',
      keptMs: days.logs * DAY_MS,
      begin: byCount((beforeMs, limit) => deleteEndedBefore(db, 'workspace_usage', beforeMs, limit)),
    },
    {
      table: 'task_stats',
      keptMs: STATS_MS,
      begin: byCount((beforeMs, limit) => deleteEndedBefore(db, 'task_stats', beforeMs, limit)),
    },
    ...SAMPLES.map(([table, age]): PrunedKind => ({
      table,
      keptMs: days[age] * DAY_MS,
      begin: byCount((beforeMs, limit) => deleteEndedBefore(db, table, beforeMs, limit)),
    })),
    {
      table: 'machines',
      keptMs: UNJOINED_MS,
      begin: byCount(async (beforeMs, limit) => {
        const gone = await deleteUnjoinedBefore(db, beforeMs, limit);
        for (const id of gone) machineGone(id);
        return gone.length;
      }),
    },
    ...(['deployments', 'deleted_machines'] as const).map((table): PrunedKind => ({
      table,
      keptMs: toldMs,
      begin: byCount((beforeMs, limit) => deleteEndedBefore(db, table, beforeMs, limit)),
    })),
    {
      // Behind deployments, which name stubs.
      table: 'stubs',
      keptMs: toldMs,
      begin: () => async (beforeMs, limit) => {
        const { seen, gone } = await deleteStubsUntouchedSince(db, beforeMs, limit);
        for (const id of gone) await forgetQueue(queueNameOf(null, id));
        return { gone: gone.length, isDone: seen < limit };
      },
    },
  ];
}
