// The records of tasks on their way to the database: written to Redis in the tick of the change, drained in batches by the leader. Dispatch
// and the service append, reads by id look here first, and the drainer hands the store whole batches. What must stay true: a record is in
// Redis until the database has it; writing it twice, or an older one after a newer one, changes nothing.
import type {
  ContainerId,
  DeploymentId,
  ObjectId,
  QueueName,
  StubId,
  TaskId,
  WorkspaceId,
} from '#shared/domain/ids.ts';
import type { StubKind, TaskStatus } from '#shared/domain/status.ts';

/**
 * Order of the records of one attempt: the higher wins, and a higher attempt wins over both. 0 pending, 1 running, 2 waiting for a retry,
 * 3 final, 4 a completion that came after the end.
 */
export type RecordRank = 0 | 1 | 2 | 3 | 4;

/** A task as it stands after one change; whole, never a difference. Times are epoch milliseconds. */
export interface TaskRecord {
  readonly taskId: TaskId;
  readonly workspaceId: WorkspaceId;
  readonly stubId: StubId;
  readonly deploymentId: DeploymentId | null;
  readonly queue: QueueName;
  readonly kind: StubKind;
  readonly sync: boolean;
  readonly status: TaskStatus;
  /** 0 before the first fetch. */
  readonly attempt: number;
  readonly rank: RecordRank;
  readonly containerId: ContainerId | null;
  /** A sentence; empty unless the task failed. */
  readonly failureReason: string;
  readonly createdAtMs: number;
  readonly startedAtMs: number | null;
  readonly endedAtMs: number | null;
  readonly durationMs: number | null;
  /** The result's JSON text, at most 256 KiB. */
  readonly result?: string;
  readonly resultObjectId?: ObjectId;
  readonly deadlineMs: number;
}

/** True when `a` must win over `b` of the same task; equal ones do not. */
export function isNewer(a: Pick<TaskRecord, 'attempt' | 'rank'>, b: Pick<TaskRecord, 'attempt' | 'rank'>): boolean {
  return a.attempt !== b.attempt ? a.attempt > b.attempt : a.rank > b.rank;
}
