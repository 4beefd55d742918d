import { AppError } from '#shared/errors.ts';

/** Deadlines of a database. Tests give shorter ones. */
export interface Deadlines {
  /** Longest run of a statement. */
  readonly queryMs: number;
  /** Longest run of a tenant's read, from its turn on. */
  readonly readMs: number;
  /** Longest time from the begin of a transaction to the end of its work. The commit is a statement of its own. */
  readonly transactionMs: number;
  /** Longest run of a migration's script. */
  readonly scriptMs: number;
  /** Longest run of a statement outside of transactions, such as the build of a large index. */
  readonly sessionMs: number;
}

export const DEADLINES: Deadlines = {
  queryMs: 10_000,
  readMs: 5_000,
  transactionMs: 30_000,
  scriptMs: 600_000,
  sessionMs: 6 * 3_600_000,
};

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

/** Nothing was sent to the database, so that the statement has no effect. */
export const databaseNotReached = (cause?: unknown, message = 'the database does not answer'): AppError =>
  new AppError('database_unavailable', message, { cause, details: { isSent: false } });

/**
 * The commit was sent and not answered. Callers that try again must find out first, or send something that has the same
 * effect once and twice.
 */
export const databaseOutcomeUnknown = (cause?: unknown): AppError =>
  new AppError(
    'database_outcome_unknown',
    'the database did not answer whether it kept the change: read before you try again',
    { cause },
  );

/** Whether a commit was sent and not answered. */
export const isOutcomeUnknown = (error: unknown): error is AppError =>
  error instanceof AppError && error.code === 'database_outcome_unknown';

/** Whether the database answered with a refusal, so that the statement had no effect. */
export const isRefusedByDatabase = (error: unknown): boolean =>
  error instanceof AppError && error.code === 'database_error';

/** Whether a statement that failed had no effect: the database refused it, or it was never sent. */
export const hadNoEffect = (error: unknown): boolean => isRefusedByDatabase(error) || isNeverSent(error);

/** Whether a statement was never sent. */
export const isNeverSent = (error: unknown): boolean => error instanceof AppError && error.details.isSent === false;

/** Whether SQLSTATE class 22 (bad data), 23 (a constraint) or 54 (a limit) is in the chain of causes. */
export function isDataRefused(error: unknown): boolean {
  for (let at = error, depth = 0; at instanceof Error && depth < 8; at = at.cause, depth += 1) {
    if ('code' in at && typeof at.code === 'string' && /^(22|23|54)[0-9A-Z]{3}$/.test(at.code)) return true;
  }
  return false;
}
