import { EXIT } from './exit-codes.ts';
import type { ExitCode } from './exit-codes.ts';

/**
 * A failure that a person can act on: one sentence with the cure, no stack. The exit code is given, or follows from the
 * HTTP status, or is that of the failure underneath.
 */
export class CliError extends Error {
  readonly exitCode: ExitCode;
  /** The HTTP status, when it was an answer that made the failure. */
  readonly status: number | undefined;
  /** The code of that answer; empty: it had none. */
  readonly answerCode: string;
  /** The scheduler's own sentence in that answer; empty: it had none. */
  readonly answerText: string;

  constructor(
    message: string,
    options: {
      readonly cause?: unknown;
      readonly exitCode?: ExitCode;
      readonly status?: number;
      readonly answerCode?: string;
      readonly answerText?: string;
    } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'CliError';
    this.exitCode = options.exitCode ?? exitCodeOf(options.status, options.cause);
    this.status = options.status;
    this.answerCode = options.answerCode ?? '';
    this.answerText = options.answerText ?? '';
  }
}

function exitCodeOf(status: number | undefined, cause: unknown): ExitCode {
  if (status === 401 || status === 403) return EXIT.refused;
  if (status === 404) return EXIT.notFound;
  // The request was made of the values on the command line.
  if (status === 400 || status === 422) return EXIT.usage;
  return status === undefined && cause instanceof CliError ? cause.exitCode : EXIT.failed;
}

const CHOOSE = 'choose one with --token, LONGSHORE_TOKEN, `longshore context use` or `longshore login`';

/** The token is good, but not of the kind that this takes: a restricted one, or no administrator's. */
export class TokenKindError extends CliError {
  constructor(kind: 'workspace' | 'admin', options: { readonly cause?: unknown; readonly status?: number } = {}) {
    const takes =
      kind === 'workspace'
        ? 'a full token of that workspace: type workspace, without scope or app (`longshore token list` shows both, `longshore token create` makes one)'
        : "the installation's admin token, which `longshore up` keeps in the context file";
    super(`this token is good, but may not do that: it takes ${takes}; ${CHOOSE}`, {
      ...options,
      exitCode: EXIT.refused,
    });
    this.name = 'TokenKindError';
  }
}

/** The command line was understood, but its values make no sense. */
export function usageError(message: string): CliError {
  return new CliError(message, { exitCode: EXIT.usage });
}

/** The thing that was named does not exist. */
export function notFound(message: string, cause?: unknown): CliError {
  return new CliError(message, { exitCode: EXIT.notFound, ...(cause === undefined ? {} : { cause }) });
}

/** A file or folder of this machine could not be written. */
export function cannotWrite(path: string, cause: unknown): CliError {
  const code = errorCode(cause);
  const cures: Readonly<Record<string, string>> = {
    ENOSPC: 'the disk is full: make room there, or name a folder on another disk',
    EDQUOT: 'your quota on the disk is used up: make room there, or name a folder on another disk',
    EROFS: 'the disk can only be read: name a folder on another one',
  };
  const cure = cures[code] ?? 'name a folder that exists and may be written';
  return new CliError(
    `cannot write ${path} (${code === '' ? 'for a reason that the system does not tell' : code}): ${cure}`,
    { cause },
  );
}

/** The code of a system error (`EACCES`, `ENOENT`, ...), else an empty string. */
export function errorCode(error: unknown): string {
  return typeof error === 'object' && error !== null && 'code' in error && typeof error.code === 'string'
    ? error.code
    : '';
}
