// Messages between replicas that say how a task ended. They are written and read here alone. A replica of a later
// version may send a reason that is not known here: then the status decides. Source: decision 0130.
import type { LockToken, TaskId } from '#shared/domain/ids.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import type { Ending } from '../domain/endings.ts';
import { isEndReason } from '../domain/endings.ts';
import type { Finished } from '../tasks/dispatch/replies.ts';

/**
 * Answer to a caller of another replica: task, status, reason, body.
 * The body is null where it is too large for a message and stands in the record.
 */
export type AnswerMessage = readonly [TaskId, TaskStatus, string | null, string | null];

/** Order to stop the attempt with that token, whose task ended. */
export type RevokeMessage = [taskId: TaskId, lock: LockToken, ending: Ending];

export const answerMessage = (
  taskId: TaskId,
  { status, reason, body }: Finished,
  mostInline: number,
): AnswerMessage => [taskId, status, reason ?? null, body.length <= mostInline ? body : null];

export function readAnswer([taskId, status, reason, body]: AnswerMessage): {
  readonly taskId: TaskId;
  readonly finished: Omit<Finished, 'body'>;
  readonly body: string | null;
} {
  return { taskId, finished: { status, reason: isEndReason(reason) ? reason : undefined }, body };
}

export function readRevoke(message: unknown): RevokeMessage {
  const [taskId, lock, ending] = message as RevokeMessage;
  return [taskId, lock, isEndReason(ending.reason) ? ending : { ...ending, reason: 'request_cancelled' }];
}
