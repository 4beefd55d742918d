// Messages between replicas that say how a task ended. They are written and read here alone.
// Replicas of the version before know no reasons: for them, each message has the HTTP status and the text for the
// caller. Their messages have no reason, which is then read from the HTTP status. Source: decision 0130.
import type { LockToken, TaskId } from '#shared/domain/ids.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import type { Ending, EndReason, FinalStatus, Presentation } from '../domain/endings.ts';
import { END_REASONS, failureReasonOf, isEndReason } from '../domain/endings.ts';
import type { Finished } from '../tasks/dispatch/replies.ts';

/**
 * Answer to a caller of another replica: task, status, HTTP status, body, reason.
 * The body is null where it is too large for a message and stands in the record.
 */
export type AnswerMessage = readonly [TaskId, TaskStatus, number, string | null, (string | null)?];

/** Order to stop the attempt with that token, whose task ended. */
export type RevokeMessage = readonly [TaskId, LockToken, RevokedEnding];

type HttpStatuses = Pick<Presentation, 'httpStatusOf'>;

interface RevokedEnding {
  readonly status: FinalStatus;
  readonly httpStatus: number;
  readonly text: string;
  readonly failureReason: string;
  readonly reason?: string;
}

export function answerMessage(
  taskId: TaskId,
  { status, reason, body }: Finished,
  mostInline: number,
  { httpStatusOf }: HttpStatuses,
): AnswerMessage {
  const inline = body.length <= mostInline ? body : null;
  return [taskId, status, httpStatusOf(status, reason), inline, reason ?? null];
}

export function readAnswer(
  [taskId, status, httpStatus, body, reason]: AnswerMessage,
  statuses: HttpStatuses,
): {
  readonly taskId: TaskId;
  readonly finished: Omit<Finished, 'body'>;
  readonly body: string | null;
} {
  return { taskId, finished: { status, reason: reasonOf(status, httpStatus, reason, statuses) }, body };
}

export function revokeMessage(
  taskId: TaskId,
  lock: LockToken,
  ending: Ending,
  { httpStatusOf, textOf }: Presentation,
): RevokeMessage {
  const { status, reason, detail } = ending;
  const failureReason = failureReasonOf(ending);
  const text = detail ?? textOf(reason) ?? failureReason;
  return [taskId, lock, { status, httpStatus: httpStatusOf(status, reason), text, failureReason, reason }];
}

export function readRevoke(
  message: unknown,
  statuses: HttpStatuses,
): [taskId: TaskId, lock: LockToken, ending: Ending] {
  const [taskId, lock, { status, httpStatus, text, failureReason, reason }] = message as RevokeMessage;
  const known = reasonOf(status, httpStatus, reason, statuses) ?? 'request_cancelled';
  return [taskId, lock, { status, reason: known, failureReason, detail: text }];
}

/**
 * Reason as sent. A reason that is absent or not known here is read from
 * the HTTP status, where that differs from the one of the task's status.
 */
function reasonOf(
  status: TaskStatus,
  httpStatus: number,
  sent: string | null | undefined,
  { httpStatusOf }: HttpStatuses,
): EndReason | undefined {
  if (isEndReason(sent)) return sent;
  if (httpStatusOf(status) === httpStatus) return undefined;
  return END_REASONS.find((reason) => httpStatusOf(status, reason) === httpStatus);
}
