// The life of tasks on this replica, put together: accepted, fetched for a slot, sent, ended; and their records in rows
// and books. task-maintenance.ts has the upkeep that BullMQ does not do.
import type { Directory } from '../workspaces/deployments/directory.ts';
import type { Targets } from '../workspaces/deployments/targets.ts';
import { outcomes } from '../api/http/invoke/outcomes.ts';
import { Dispatcher } from '../tasks/dispatch/dispatcher.ts';
import { LastAttempts } from '../tasks/dispatch/last-attempts.ts';
import { DueTimes } from '../stores/queues/due.ts';
import { OlderJobs } from '../stores/queues/older-jobs.ts';
import type { RedisMemory } from '../stores/queues/redis-memory.ts';
import { probeCommit } from '../stores/store/queries/idempotency.ts';
import { queueBytes } from '../stores/store/queries/quotas.ts';
import { endedTaskIds, insertAcceptedTasks, listTasks, taskById } from '../stores/store/queries/tasks.ts';
import { GroupCommit, keptJobs } from '../tasks/admission/accepting.ts';
import type { Bodies } from '../tasks/dispatch/bodies.ts';
import { IdempotencyKeys } from '../tasks/admission/idempotency-keys.ts';
import { TaskMetrics } from '../tasks/metrics.ts';
import { QueueQuota } from '../tasks/admission/queue-quota.ts';
import { recordOfRow } from '../tasks/records/recording.ts';
import { Tasks } from '../tasks/service.ts';
import type { Books } from './books.ts';
import type { Ground } from './ground.ts';
import type { Identity } from './identity.ts';
import type { Lanes } from './lanes.ts';
import type { Records } from './records.ts';

export interface TasksSetup {
  readonly ground: Ground;
  readonly identity: Identity;
  readonly books: Books;
  readonly targets: Targets;
  readonly directory: Directory;
  readonly lanes: Lanes;
  readonly records: Records;
  readonly bodies: Bodies;
  readonly redisMemory: RedisMemory;
}

export interface TaskParts {
  readonly tasks: Tasks;
  readonly dispatcher: Dispatcher;
  readonly olderJobs: OlderJobs;
  readonly due: DueTimes;
}

export function openTasks(setup: TasksSetup): TaskParts {
  const { identity, books, targets, directory, bodies } = setup;
  const { queues, replies } = setup.lanes;
  const { records, caughtUp } = setup.records;
  const { db, general, keys, instance, clock, stall, log, registry } = setup.ground;
  const { book, machines, slots, leases, servable } = books;
  const { limits, rates } = identity;
  const idempotencyKeys = new IdempotencyKeys({ db, log });
  const olderJobs = new OlderJobs({
    queues,
    ended: (taskIds) => endedTaskIds(db, taskIds),
    isWaitedFor: (taskId) => replies.has(taskId),
    generation: () => books.redisData.generation,
    log,
  });
  const dispatcher = new Dispatcher({
    queues,
    slots,
    instance,
    log,
    beforeFetch: (queue) => olderJobs.before(queue),
  });
  const due = new DueTimes(clock);
  const tasks = new Tasks({
    queues,
    records,
    leases,
    lastAttempts: new LastAttempts(general, keys),
    slots,
    dispatcher,
    bodies,
    textOf: outcomes.textOf,
    accepting: new GroupCommit((batch) => insertAcceptedTasks(db, batch)),
    idempotencyKeys,
    probeCommit: () => probeCommit(db),
    keepJob: keptJobs(db),
    due,
    replies,
    instance,
    clock,
    log,
    metrics: new TaskMetrics(registry),
    sinceStallMs: () => stall.sinceStallMs(),
    doubts: books.rollCall,
    isAlive: books.isAlive,
    refusalOf: (target) => servable.refusal(target),
    limitsOf: (workspaceId) => limits.of(workspaceId),
    queueQuota: new QueueQuota({ ask: (workspaceId) => queueBytes(db, workspaceId), log }),
    redisMemory: setup.redisMemory,
    ...(rates === undefined ? {} : { rates }),
    isActive: async (target) => (await targets.byQueue(target.queue))?.active === true,
    rowOf: async (taskId) => {
      const row = await taskById(db, taskId);
      return row === undefined ? undefined : recordOfRow(row);
    },
    isCutOff: (id) => {
      const row = book.get(id)?.row;
      if (row?.state !== 'STOPPING' || row.reason !== 'drained' || row.machineId === null) return false;
      return machines.get(row.machineId)?.health === 'READY';
    },
    caughtUp: () => caughtUp.caughtUp(),
    listRows: async (workspaceId, filter) => {
      const { taskIds, ...rest } = filter;
      const rows = await listTasks(db.reads.of(workspaceId), {
        workspaceId,
        ...rest,
        ...(taskIds === undefined ? {} : { ids: taskIds }),
      });
      return rows.map(recordOfRow);
    },
    stubsOf: (ids) => directory.stubs(ids),
  });
  return { tasks, dispatcher, olderJobs, due };
}
