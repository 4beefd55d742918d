// Parts of a task's life on this replica: those given by the
// composition root, and those that service.ts adds for its files.
import type { ContainerId, InstanceId, QueueName, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Target } from '../domain/stub-config.ts';
import type { Dispatcher } from './dispatch/dispatcher.ts';
import type { LastAttempts } from './dispatch/last-attempts.ts';
import type { Leases } from './dispatch/leases.ts';
import type { Replies } from './dispatch/replies.ts';
import type { SlotTable } from './dispatch/slots.ts';
import type { DueTimes } from '../stores/queues/due.ts';
import type { Doubts } from '../stores/queues/roll-call.ts';
import type { WorkspaceLimits } from '../workspaces/identity/limits.ts';
import type { Rates } from '../workspaces/identity/rates.ts';
import type { TaskJob } from '../stores/queues/jobs.ts';
import type { RedisMemory } from '../stores/queues/redis-memory.ts';
import type { TaskQueues } from '../stores/queues/task-queues.ts';
import type { AcceptedTask } from '../stores/store/queries/tasks.ts';
import type { GroupCommit } from './admission/accepting.ts';
import type { Attempts } from './dispatch/attempts.ts';
import type { Bodies } from './dispatch/bodies.ts';
import type { Changes } from './records/changes.ts';
import type { Ending, Presentation } from '../domain/endings.ts';
import type { Completion } from './completion/completion.ts';
import type { StubFacts } from './records/list-by-id.ts';
import type { TaskMetrics } from './metrics.ts';
import type { QueueQuota } from './admission/queue-quota.ts';
import type { TaskRecord, TaskRecords } from './records/records.ts';
import type { GracePeriods } from './maintenance/grace-periods.ts';
import type { IdempotencyKeys } from './admission/idempotency-keys.ts';
import type { TaskFilter } from './task-service.ts';

export interface TaskServiceParts {
  readonly queues: TaskQueues;
  readonly records: TaskRecords;
  readonly leases: Leases;
  readonly lastAttempts: LastAttempts;
  readonly slots: SlotTable;
  readonly dispatcher: Dispatcher;
  readonly bodies: Bodies;
  /** Fixed texts for callers of the reasons why tasks end. */
  readonly textOf: Presentation['textOf'];
  /** Group commit for rows of asynchronous tasks, before their ids are returned. */
  readonly accepting: GroupCommit<AcceptedTask>;
  /** Idempotency keys. Absent: calls with a key are refused. */
  readonly idempotencyKeys?: IdempotencyKeys;
  /** Commits something, to see whether commits succeed again. Absent: only the next ordinary commit shows that. */
  readonly probeCommit?: () => Promise<unknown>;
  /** Writes the changed queue entry of an asynchronous task to its row: a job rebuilt from the row has its budgets. */
  readonly keepJob: (job: TaskJob) => Promise<void>;
  readonly due: DueTimes;
  readonly replies: Replies;
  readonly instance: InstanceId;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: TaskMetrics;
  readonly graces?: Partial<GracePeriods>;
  /** Milliseconds since this process last stood still. Absent: it never did. */
  readonly sinceStallMs?: () => number;
  /** Questions whether Redis may have come back older. Absent: it never does. */
  readonly doubts?: Doubts;
  /**
   * Whether another replica is present. Redis is asked about an unknown one, because it may have started a moment ago.
   */
  readonly isAlive: (replica: InstanceId) => boolean | Promise<boolean>;
  /** Whether the deployment still takes tasks. */
  readonly isActive: (target: Target) => boolean | Promise<boolean>;
  /**
   * Reason why no machine can ever serve the target: the call
   * is refused with that sentence. Absent: nothing is refused.
   */
  readonly refusalOf?: (target: Target) => string | undefined;
  /** Limits of the workspace, at once when they are known. Absent: only its stubs' own limits hold. */
  readonly limitsOf?: (workspaceId: WorkspaceId) => WorkspaceLimits | Promise<WorkspaceLimits>;
  /** Quota on the bytes of a workspace's queued inputs; absent: none. */
  readonly queueQuota?: QueueQuota;
  /** Room of Redis for new tasks; absent: it always has room. */
  readonly redisMemory?: Pick<RedisMemory, 'refuses' | 'added'>;
  /** Limits on the rate of calls; absent: none. */
  readonly rates?: Pick<Rates, 'take'>;
  /** Reads the task from its row, regardless of Redis. */
  readonly rowOf: (taskId: TaskId) => Promise<TaskRecord | undefined>;
  /**
   * Whether the container's attempts must end now: its machine's drain is past its deadline, and the agent is linked.
   */
  readonly isCutOff: (containerId: ContainerId) => boolean;
  /**
   * Resolves when the database has every record that Redis held
   * by now, or after a deadline. Absent: lists lag by a batch.
   */
  readonly caughtUp?: () => Promise<unknown>;
  readonly listRows: (workspaceId: WorkspaceId, filter: TaskFilter) => Promise<readonly TaskRecord[]>;
  readonly stubsOf: (ids: readonly StubId[]) => Promise<ReadonlyMap<StubId, StubFacts>>;
}

/** Context of one process's tasks: the given parts, and those that its files share. */
export interface TaskContext extends TaskServiceParts {
  readonly attempts: Attempts;
  readonly changes: Changes;
  readonly completion: Completion;
  readonly graces: GracePeriods;
  readonly sinceStallMs: () => number;
  /** Aborted when the process stops: attempts go on in their containers. */
  readonly signal: AbortSignal;
  readonly onAccepted: (job: TaskJob, queue: QueueName) => void;
  readonly onDepth: (target: Target, depth: number) => void;
  /** Ends the task of a generator whose caller left, wherever it is. */
  readonly readerLeft: (taskId: TaskId, ending: Ending) => Promise<void>;
}
