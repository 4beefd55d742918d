// Messages between replicas that say how a task ended. They are written and read here alone. A replica of a later
// version may send a reason that is not known here: then the status decides. Source: decision 0130.
import type { LockToken, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import type { Ending } from '../domain/endings.ts';
import { isEndReason } from '../domain/endings.ts';
import type { CallersTask, Finished } from '../tasks/dispatch/replies.ts';

/**
 * Answer to a caller of another replica: task, status, reason, body, attempt that ended, workspace.
 * The body is null where it is too large for a message and stands in the record.
 */
export type AnswerMessage = readonly [TaskId, TaskStatus, string | null, string | null, number, WorkspaceId];

/** Order to stop the attempt with that token, whose task ended. */
export type RevokeMessage = [taskId: TaskId, lock: LockToken, ending: Ending];

export const answerMessage = (
  { taskId, workspaceId }: CallersTask,
  { status, reason, body }: Finished,
  attempt: number,
  mostInline: number,
): AnswerMessage => [taskId, status, reason ?? null, body.length <= mostInline ? body : null, attempt, workspaceId];

export function readAnswer([taskId, status, reason, body, attempt, workspaceId]: AnswerMessage): {
  readonly taskId: TaskId;
  readonly finished: Omit<Finished, 'body'>;
  readonly body: string | null;
  readonly attempt: number;
  readonly workspaceId: WorkspaceId;
} {
  const finished = { status, reason: isEndReason(reason) ? reason : undefined };
  return { taskId, finished, body, attempt, workspaceId };
}

export function readRevoke(message: unknown): RevokeMessage {
  const [taskId, lock, ending] = message as RevokeMessage;
  return [taskId, lock, isEndReason(ending.reason) ? ending : { ...ending, reason: 'request_cancelled' }];
}
