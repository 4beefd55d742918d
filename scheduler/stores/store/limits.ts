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

/** Whether SQLSTATE class 22 (bad data) or 23 (a constraint) is in the chain of causes. */
export function isDataRefused(error: unknown): boolean {
  for (let at = error, depth = 0; at instanceof Error && depth < 8; at = at.cause, depth += 1) {
    if ('code' in at && typeof at.code === 'string' && /^2[23][0-9A-Z]{3}$/.test(at.code)) return true;
  }
  return false;
}
