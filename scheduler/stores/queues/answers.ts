// Meaning of Redis' answers to queue commands: codes as values, errors
// as ours, and whether a failed command may have run all the same.
import type { LockToken } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import { MIN_LOCK_TOKEN_LENGTH } from './task-queues.ts';
import type { Fence } from './task-queues.ts';

/** Requires a lock token of full length: a short one would bypass the fence. @throws TypeError */
export function requireLock(lock: LockToken): void {
  if (typeof lock !== 'string' || lock.length < MIN_LOCK_TOKEN_LENGTH) {
    throw new TypeError(`a lock token needs at least ${MIN_LOCK_TOKEN_LENGTH} characters`);
  }
}

/**
 * Converts BullMQ's answer codes to values; anything else is a failure.
 * Code -3 (not active any more) counts as a lock that ran out.
 */
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

/**
 * Whether a failed command may still have run. False when Redis
 * answered with an error, or the command was never written.
 */
export function isAnswerLost(error: unknown): boolean {
  if (!(error instanceof Error) || error instanceof AppError) return false;
  return error.name !== 'ReplyError' && !error.message.startsWith("Stream isn't writeable");
}

/** Error for an answer that did not come, or came as an error. */
export const unavailable = (what: string, cause: unknown): AppError =>
  cause instanceof AppError ? cause : new AppError('queues_unavailable', `cannot ${what}`, { cause });
