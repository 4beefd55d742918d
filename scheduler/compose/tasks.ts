// The life of tasks on this replica, put together: accepted, fetched for a slot, sent, ended; and their records in rows
// and books. task-owners.ts has the upkeep that BullMQ does not do.
import type { ContainerId, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { Directory } from '../workspaces/deployments/directory.ts';
import type { Target } from '../domain/stub-config.ts';
import type { Targets } from '../workspaces/deployments/targets.ts';
import { outcomes } from '../api/http/invoke/outcomes.ts';
import { Dispatcher } from '../tasks/dispatch/dispatcher.ts';
import { LastAttempts } from '../tasks/dispatch/last-attempts.ts';
import { Replies } from '../tasks/dispatch/replies.ts';
import { DueTimes } from '../stores/queues/due.ts';
import type { RedisMemory } from '../stores/queues/redis-memory.ts';
import type { TaskQueues } from '../stores/queues/task-queues.ts';
import { probeCommit } from '../stores/store/queries/idempotency.ts';
import { queueBytes } from '../stores/store/queries/quotas.ts';
import { insertAcceptedTasks, listTasks, taskById } from '../stores/store/queries/tasks.ts';
import { GroupCommit, keptJobs } from '../tasks/accepting.ts';
import type { Bodies } from '../tasks/bodies.ts';
import { IdempotencyKeys } from '../tasks/idempotency-keys.ts';
import { TaskMetrics } from '../tasks/metrics.ts';
import { QueueQuota } from '../tasks/queue-quota.ts';
import type { TaskRecords } from '../tasks/records.ts';
import { recordOfRow } from '../tasks/recording.ts';
import { Tasks } from '../tasks/service.ts';
import type { TaskServiceParts } from '../tasks/task-parts.ts';
import type { Books } from './books.ts';
import type { Ground } from './ground.ts';
import type { Identity } from './identity.ts';

export interface TasksSetup {
  readonly ground: Ground;
  readonly identity: Identity;
  readonly books: Books;
  readonly targets: Targets;
  readonly directory: Directory;
  readonly queues: TaskQueues;
  readonly records: TaskRecords;
  readonly caughtUp: () => Promise<unknown>;
  readonly bodies: Bodies;
  readonly redisMemory: RedisMemory;
  readonly events: TaskEvents;
}

/** Task events for parts that are made after these. */
export interface TaskEvents extends Required<Pick<TaskServiceParts, 'cancel' | 'onAccepted'>> {
  /** Called before a fetch. undefined: the queue may be fetched from; else once the promise has resolved. */
  readonly beforeFetch: (queue: QueueName) => Promise<void> | undefined;
  readonly onDepth: (target: Target, depth: number) => void;
  /** Called when a container has one attempt less. */
  readonly onAttemptEnded: (queue: QueueName, containerId: ContainerId) => void;
  /** Called when a container has nothing to do. */
  readonly onIdle: (queue: QueueName, containerId: ContainerId) => void;
  /** Called when a delayed job is due. */
  readonly onDue: (queue: QueueName) => void;
  /** Called when a job waits, and no container here has a slot for it. */
  readonly onNoRoom: (queue: QueueName, taskId: TaskId | undefined) => void;
}

export interface TaskParts {
  readonly tasks: Tasks;
  readonly dispatcher: Dispatcher;
  readonly replies: Replies;
  readonly due: DueTimes;
}

export function openTasks(setup: TasksSetup): TaskParts {
  const { identity, books, targets, directory, queues, records, bodies, events } = setup;
  const { db, general, keys, instance, clock, stall, log, registry } = setup.ground;
  const { book, machines, slots, leases, servable } = books;
  const { limits, rates } = identity;
  const idempotencyKeys = new IdempotencyKeys({ db, log });
  const replies = new Replies((waiting) => tasks.waitLimitReached(waiting));
  const due = new DueTimes(clock, (queue) => {
    dispatcher.wake(queue);
    events.onDue(queue);
  });
  const tasks: Tasks = new Tasks({
    queues,
    records,
    leases,
    lastAttempts: new LastAttempts(general, keys),
    slots,
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
    cancel: events.cancel,
    onAccepted: events.onAccepted,
    onDepth: events.onDepth,
    onAttemptEnded: events.onAttemptEnded,
    caughtUp: setup.caughtUp,
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
  const dispatcher = new Dispatcher({
    queues,
    slots,
    instance,
    log,
    begin: (claim) => tasks.begin(claim),
    beforeFetch: events.beforeFetch,
    onIdle: (container) => events.onIdle(container.queue, container.containerId),
    onDue: (queue, dueMs) => due.add(queue, dueMs),
    onNoRoom: events.onNoRoom,
  });
  tasks.attach(dispatcher);
  return { tasks, dispatcher, replies, due };
}
