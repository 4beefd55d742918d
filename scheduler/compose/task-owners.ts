// Task upkeep that BullMQ does not do, each kind with one owner: deadlines, lost wake-ups, jobs that are gone or back,
// and locks of machines that do not talk. The rebuild after Redis lost its data is here as well.
import type { InstanceId, QueueName } from '#shared/domain/ids.ts';
import { isTerminalContainer } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import type { Part } from '#shared/lifecycle.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerBook } from '../fleet/containers/book.ts';
import type { Leases } from '../tasks/dispatch/leases.ts';
import type { Replies } from '../tasks/dispatch/replies.ts';
import type { SlotTable } from '../tasks/dispatch/slots.ts';
import { WakeSweep } from '../tasks/dispatch/wake-sweep.ts';
import type { StallDetector } from '../fleet/stall.ts';
import type { Machines } from '../fleet/machines.ts';
import type { TaskJob } from '../stores/queues/jobs.ts';
import { OlderJobs } from '../stores/queues/older-jobs.ts';
import type { Presence } from '../cluster/presence.ts';
import type { RedisData } from '../stores/queues/redis-data.ts';
import type { RollCall } from '../stores/queues/roll-call.ts';
import { LaneSweep } from '../tasks/local-queue/sweep.ts';
import type { Lanes } from './lanes.ts';
import type { Objects } from '../stores/objects/service.ts';
import type { Db } from '../stores/store/db.ts';
import { containerById } from '../stores/store/queries/containers.ts';
import { acceptedJobOf, endedTaskIds, queuesOfEnded, waitingDeadlines } from '../stores/store/queries/tasks.ts';
import { keptJobs } from '../tasks/accepting.ts';
import { inputKeyOf, taskOfInputKey } from '../tasks/bodies.ts';
import { Deadlines } from '../tasks/deadlines.ts';
import { ForeignRuns } from '../tasks/foreign-runs.ts';
import { InputSweep } from '../tasks/input-sweep.ts';
import { Rebuild } from '../tasks/rebuild.ts';
import type { TaskRecords } from '../tasks/records.ts';
import type { Tasks } from '../tasks/service.ts';
import { Suspects } from '../tasks/suspects.ts';
import { TaskSweep } from '../tasks/sweep.ts';

/** Ended tasks read at once after Redis lost data; costs the database some milliseconds. */
const ENDED_PAGE = 2_000;
/**
 * Time after a stall of this process, or a step of its clock, in which no lane is judged by the ages of its entries.
 */
const LANE_CALM_MS = 15_000;

export interface TaskOwnersParts {
  readonly db: Db;
  readonly redisData: RedisData;
  readonly rollCall: RollCall;
  readonly clock: Clock;
  readonly stall: Pick<StallDetector, 'calmMs'>;
  readonly log: Log;
  readonly instance: InstanceId;
  readonly lanes: Lanes;
  readonly records: TaskRecords;
  readonly leases: Leases;
  readonly slots: SlotTable;
  readonly replies: Replies;
  readonly objects: Pick<Objects, 'keptBytes' | 'removeBytes'>;
  readonly tasks: Tasks;
  readonly presence: Pick<Presence, 'redisLost'>;
  readonly machines: Pick<Machines, 'all'>;
  /** Queues of every replica's containers. */
  readonly book: Pick<ContainerBook, 'queues'>;
  readonly isLeader: () => boolean;
  readonly isAlive: (replica: InstanceId) => boolean | Promise<boolean>;
  readonly wakeDispatch: (queue: QueueName) => void;
  readonly pruneDispatch: () => void;
  /** Wakes the scaling loop; undefined: for every queue. */
  readonly wakeScaling: (queue: QueueName | undefined) => void;
}

export interface TaskOwners {
  /** Parts that start before tasks; `afterTasks` start after them. */
  readonly beforeTasks: readonly Part[];
  readonly afterTasks: readonly Part[];
  readonly beforeFetch: (queue: QueueName) => Promise<void> | undefined;
  readonly foreign: ForeignRuns;
  readonly accepted: (job: TaskJob, queue: QueueName) => void;
}

export function openTaskOwners(parts: TaskOwnersParts): TaskOwners {
  const { db, redisData: data, rollCall, clock, log, lanes, slots, tasks, isLeader, wakeDispatch, wakeScaling } = parts;
  const { queues } = lanes;
  const olderJobs = new OlderJobs({
    queues,
    ended: (taskIds) => endedTaskIds(db, taskIds),
    isWaitedFor: (taskId) => parts.replies.has(taskId),
    generation: () => data.generation,
    log,
  });
  const rebuild = new Rebuild({
    data,
    rollCall,
    queues,
    tasks,
    presence: parts.presence,
    olderJobs,
    endedQueues: (after) => queuesOfEnded(db, ENDED_PAGE, after),
    clock,
    log,
    isLeader,
    wakeAll: () => {
      for (const queue of slots.queues()) wakeDispatch(queue);
      wakeScaling(undefined);
    },
  });
  const deadlines = new Deadlines({
    due: (beforeMs, limit) => waitingDeadlines(db, beforeMs, limit),
    queues,
    ender: tasks.ender,
    clock,
    log,
    isLeader,
  });
  const sweep = new TaskSweep({
    db,
    queues,
    records: parts.records,
    clock,
    log,
    isLeader,
    leases: parts.leases,
    ender: tasks.ender,
    changes: tasks.changes,
    attempts: tasks.attempts,
    mayRebuild: () => rebuild.isOver(),
    jobOf: (taskId) => acceptedJobOf(db, taskId),
    calmMs: () => parts.stall.calmMs(),
    isAlive: parts.isAlive,
    served: () => parts.book.queues(),
    onReturned: (queue) => {
      wakeDispatch(queue);
      wakeScaling(queue);
    },
  });
  const wakeUps = new WakeSweep({
    queues,
    consumed: () => slots.queues(),
    wake: wakeDispatch,
    prune: parts.pruneDispatch,
    log,
  });
  const suspects = new Suspects({
    suspects: () =>
      [...parts.machines.all()].filter(({ health }) => health === 'SUSPECT').map((machine) => machine.row.id),
    queues,
    leases: parts.leases,
    attempts: tasks.attempts,
    isLeader,
    log,
  });
  const inputs = new InputSweep({
    inputs: async function* () {
      for await (const { key, writtenAtMs } of parts.objects.keptBytes()) {
        const taskId = taskOfInputKey(key);
        if (taskId !== undefined) yield { taskId, writtenAtMs };
      }
    },
    remove: (taskId) => parts.objects.removeBytes(inputKeyOf(taskId)),
    records: parts.records,
    clock,
    log,
    isLeader,
  });
  const laneSweep = new LaneSweep({
    lanes: queues,
    store: lanes.store,
    records: parts.records,
    ender: tasks.ender,
    instance: parts.instance,
    isAlive: parts.isAlive,
    isLeader,
    mayJudge: () => rebuild.isOver() && parts.stall.calmMs() >= LANE_CALM_MS,
    clock,
    log,
  });
  const abort = new AbortController();
  const foreign = new ForeignRuns({
    queues,
    leases: parts.leases,
    changes: tasks.changes,
    clock,
    log,
    jobOf: (taskId) => acceptedJobOf(db, taskId),
    keepJob: keptJobs(db),
    isGone: async (containerId) => {
      const row = await containerById(db, containerId);
      return row !== undefined && isTerminalContainer(row.state);
    },
    signal: abort.signal,
    onQueueChanged: ({ queue }) => {
      wakeDispatch(queue);
      wakeScaling(queue);
    },
  });
  return {
    beforeTasks: [data, rollCall, rebuild],
    afterTasks: [
      sweep,
      laneSweep,
      deadlines,
      wakeUps,
      suspects,
      inputs,
      { name: 'foreign runs', stop: () => abort.abort() },
    ],
    foreign,
    beforeFetch: (queue) => olderJobs.before(queue),
    accepted: (job, queue) => deadlines.accepted({ taskId: job.taskId, queue, deadlineMs: job.deadlineMs }),
  };
}
