// What the life of a task on this replica is made of: given by the composition root, and what service.ts adds for the files that play a part in it.
import type { ContainerId, InstanceId, QueueName, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Target } from '../deployments/stub-config.ts';
import type { Dispatcher } from '../dispatch/dispatcher.ts';
import type { LastAttempts } from '../dispatch/last-attempts.ts';
import type { Leases } from '../dispatch/leases.ts';
import type { Replies } from '../dispatch/replies.ts';
import type { SlotTable } from '../dispatch/slots.ts';
import type { DueTimes } from '../queues/due.ts';
import type { Doubts } from '../queues/roll-call.ts';
import type { WorkspaceLimits } from '../identity/limits.ts';
import type { Rates } from '../identity/rates.ts';
import type { TaskJob } from '../queues/jobs.ts';
import type { RedisMemory } from '../queues/redis-memory.ts';
import type { TaskQueues } from '../queues/task-queues.ts';
import type { AcceptedTask } from '../store/queries/tasks.ts';
import type { GroupCommit } from './accepting.ts';
import type { Attempts } from './attempts.ts';
import type { Bodies } from './bodies.ts';
import type { Changes } from './changes.ts';
import type { Ender, QueuedEnding } from './ender.ts';
import type { StubFacts } from './list-by-id.ts';
import type { TaskMetrics } from './metrics.ts';
import type { QueueQuota } from './queue-quota.ts';
import type { TaskRecord, TaskRecords } from './records.ts';
import type { TaskGraces } from './graces.ts';
import type { IdempotencyKeys } from './idempotency-keys.ts';
import type { TaskFilter } from './task-service.ts';

export interface TaskServiceParts {
  readonly queues: TaskQueues;
  readonly records: TaskRecords;
  readonly leases: Leases;
  readonly lastAttempts: LastAttempts;
  readonly slots: SlotTable;
  readonly bodies: Bodies;
  /** Rows of asynchronous tasks, before their ids are returned. */
  readonly accepting: GroupCommit<AcceptedTask>;
  /** Absent: calls with a key are refused. */
  readonly idempotencyKeys?: IdempotencyKeys;
  /** Commits something, to see whether commits succeed again. Absent: the next success says so. */
  readonly probeCommit?: () => Promise<unknown>;
  /** Keeps in its row what the queue entry of an asynchronous task has become: a job rebuilt from there has its budgets. */
  readonly keepJob: (job: TaskJob) => Promise<void>;
  readonly due: DueTimes;
  readonly replies: Replies;
  readonly instance: InstanceId;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: TaskMetrics;
  readonly graces?: Partial<TaskGraces>;
  /** Milliseconds since this process last stood still. Absent: it never did. */
  readonly sinceStallMs?: () => number;
  /** Whether Redis may have come back older. Absent: it never does. */
  readonly doubts?: Doubts;
  /** Is another replica present? Asked of Redis where it is not known, because it may have started a moment ago. */
  readonly isAlive: (replica: InstanceId) => boolean | Promise<boolean>;
  /** Whether the deployment still takes tasks. */
  readonly isActive: (target: Target) => boolean | Promise<boolean>;
  /** Why no machine can ever serve it: the call is refused with that sentence. Absent: nothing is refused. */
  readonly refusalOf?: (target: Target) => string | undefined;
  /** What the workspace may have, at once when it is known. Absent: no more than what its stubs say. */
  readonly limitsOf?: (workspaceId: WorkspaceId) => WorkspaceLimits | Promise<WorkspaceLimits>;
  /** Bounds the bytes of a workspace's inputs in the queues; absent: nothing does. */
  readonly queueQuota?: QueueQuota;
  /** Whether Redis has room for new tasks; absent: it has. */
  readonly redisMemory?: Pick<RedisMemory, 'refuses' | 'added'>;
  /** Counts a call; absent: nobody calls too often. */
  readonly rates?: Pick<Rates, 'take'>;
  /** A task's row is committed; the leader's heap of deadlines may want it. */
  readonly onAccepted?: (job: TaskJob, queue: QueueName) => void;
  /** Ends a task wherever it is. Absent: nobody can. */
  readonly cancel?: (taskId: TaskId, ending: QueuedEnding) => Promise<void>;
  /** The task as its row has it, whatever Redis says. */
  readonly rowOf: (taskId: TaskId) => Promise<TaskRecord | undefined>;
  /** Whether it has to end now because its machine's drain is past its deadline, and its agent is there to hear it. */
  readonly isCutOff: (containerId: ContainerId) => boolean;
  /** A queue grew or an attempt ended: the autoscaler may care. */
  readonly onDepth: (target: Target, depth: number) => void;
  readonly onAttemptEnded: (queue: QueueName, containerId: ContainerId) => void;
  /** Resolves when the database has every record that Redis held by now, or after a deadline. Absent: lists lag by a batch. */
  readonly caughtUp?: () => Promise<unknown>;
  readonly listRows: (workspaceId: WorkspaceId, filter: TaskFilter) => Promise<readonly TaskRecord[]>;
  readonly stubsOf: (ids: readonly StubId[]) => Promise<ReadonlyMap<StubId, StubFacts>>;
}

/** One process's tasks: what was given, and what its parts share. */
export interface TaskContext extends TaskServiceParts {
  readonly attempts: Attempts;
  readonly changes: Changes;
  readonly ender: Ender;
  readonly graces: TaskGraces;
  readonly sinceStallMs: () => number;
  /** Aborted when the process stops: attempts go on in their containers. */
  readonly signal: AbortSignal;
  readonly dispatcher: () => Dispatcher;
}
