// The record of a task: its fields, and which of two is newer. Pure.
import type {
  ContainerId,
  DeploymentId,
  InstanceId,
  ObjectId,
  PutBy,
  QueueName,
  StubId,
  TaskId,
  WorkspaceId,
} from '#shared/domain/ids.ts';
import type { InputState } from '../../domain/task-inputs.ts';
import type { TaskKind, TaskStatus } from '#shared/domain/status.ts';
import type { PastAttempt } from '../../stores/queues/jobs.ts';
import { mayReplace } from '../state.ts';

/**
 * Order of the records of one attempt: the higher wins, and a higher attempt wins over both. 0
 * pending, 1 running, 2 waiting for a retry, 3 final, 4 a completion that came after the end.
 */
export type RecordRank = 0 | 1 | 2 | 3 | 4;

/** State of a task after one change; always whole, never a difference. Times are epoch milliseconds. */
export interface TaskRecord {
  readonly taskId: TaskId;
  readonly workspaceId: WorkspaceId;
  readonly stubId: StubId;
  readonly deploymentId: DeploymentId | null;
  readonly queue: QueueName;
  readonly kind: TaskKind;
  readonly sync: boolean;
  readonly status: TaskStatus;
  /** Number of the attempt; 0 before the first fetch. */
  readonly attempt: number;
  readonly rank: RecordRank;
  readonly containerId: ContainerId | null;
  /** Reason of a failure, as a sentence; empty unless the task failed. */
  readonly failureReason: string;
  readonly createdAtMs: number;
  readonly startedAtMs: number | null;
  readonly endedAtMs: number | null;
  readonly durationMs: number | null;
  /** The result's JSON text, at most 256 KiB. */
  readonly result?: string;
  readonly resultObjectId?: ObjectId;
  readonly deadlineMs: number;
  /** URL that is told how the task ended. Absent: none. */
  readonly callbackUrl?: string;
  /** Stub whose container put the task. */
  readonly putBy?: PutBy;
  /** Workspace that called a public deployment of another. */
  readonly calledBy?: WorkspaceId;
  /** Host name that EndTask gave. */
  readonly containerHostname?: string;
  /** Replica where the caller of a synchronous task waits. */
  readonly replica?: InstanceId;
  /** Whether its input outlives it, or why not. Absent: a synchronous call that did not fail, or nobody knows. */
  readonly inputState?: InputState;
  readonly inputBytes?: number;
  /** Queue entry of a synchronous call that failed, for its kept input; only on the way to the database. */
  readonly keptJob?: string;
  /** The task whose input this one has. */
  readonly rerunOf?: TaskId;
  /** The dead task that this one stands for. */
  readonly redrivenFrom?: TaskId;
  /** Earlier attempts that may have run, oldest first, as the job has them. Absent: none. */
  readonly past?: readonly PastAttempt[];
}

/** Whether `a` must win over `b` of the same task; false for equal ones. */
export function isNewer(a: Pick<TaskRecord, 'attempt' | 'rank'>, b: Pick<TaskRecord, 'attempt' | 'rank'>): boolean {
  return mayReplace(a, b) && (a.attempt !== b.attempt || a.rank !== b.rank);
}
