import { AppError } from '#shared/errors.ts';

/** Deadline of a statement, waiting included. */
export const QUERY_DEADLINE_MS = 10_000;
/** Deadline of a tenant's read, from its turn on. */
export const READ_DEADLINE_MS = 5_000;
/** Deadline of a whole transaction. */
export const TRANSACTION_DEADLINE_MS = 30_000;
/** Deadline of a migration's script. */
export const SCRIPT_DEADLINE_MS = 600_000;

/** Both drivers throw this error, so that callers can tell failures apart by SQL state. */
export function databaseError(cause: {
  readonly message: string;
  readonly code?: unknown;
  readonly constraint?: unknown;
}): AppError {
  return new AppError('database_error', 'the database refused a statement', {
    cause,
    details: { sqlState: cause.code, constraint: cause.constraint, reason: cause.message },
  });
}

export const databaseTimeout = (cause?: unknown): AppError =>
  new AppError('database_timeout', 'the database did not answer in time', { cause });

export const databaseUnavailable = (cause?: unknown): AppError =>
  new AppError('database_unavailable', 'the database does not answer', { cause });
