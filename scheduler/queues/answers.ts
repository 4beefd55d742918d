// What the queue's answers mean, whoever gives them: codes as values, errors as ours, and whether a command that failed may have run all the same. Used by bullmq.ts.
import type { LockToken } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import { MIN_LOCK_TOKEN_LENGTH } from './task-queues.ts';
import type { Fence } from './task-queues.ts';

/** A short token would pass by the fence. @throws TypeError */
export function requireLock(lock: LockToken): void {
  if (typeof lock !== 'string' || lock.length < MIN_LOCK_TOKEN_LENGTH) {
    throw new TypeError(`a lock token needs at least ${MIN_LOCK_TOKEN_LENGTH} characters`);
  }
}

/** BullMQ's answer codes as values; anything else is a failure. -3 (not active any more) reads like a lock that ran out. */
export function fenceOf(error: unknown): Fence | undefined {
  switch (typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined) {
    case -1:
      return { kind: 'gone' };
    case -2:
    case -3:
      return { kind: 'expired' };
    case -6:
      return { kind: 'superseded' };
    default:
      return undefined;
  }
}

/** False when Redis answered with an error, or the command was never written: then it did not run. */
export function isAnswerLost(error: unknown): boolean {
  if (!(error instanceof Error) || error instanceof AppError) return false;
  return error.name !== 'ReplyError' && !error.message.startsWith("Stream isn't writeable");
}

/** An answer that did not come, or came as an error. */
export const unavailable = (what: string, cause: unknown): AppError =>
  cause instanceof AppError ? cause : new AppError('queues_unavailable', `cannot ${what}`, { cause });
