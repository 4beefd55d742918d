/**
 * A failure that a person can act on: one sentence with the cure, no stack. Exit code 1; 2 means wrong usage, 130 that
 * the person stopped the command.
 */
export class CliError extends Error {
  readonly exitCode: number;
  /** The HTTP status, when it was an answer that made the failure. */
  readonly status: number | undefined;
  /** The code of that answer; empty: it had none. */
  readonly answerCode: string;

  constructor(
    message: string,
    options: {
      readonly cause?: unknown;
      readonly exitCode?: 1 | 2 | 126 | 127 | 130;
      readonly status?: number;
      readonly answerCode?: string;
    } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'CliError';
    this.exitCode = options.exitCode ?? 1;
    this.status = options.status;
    this.answerCode = options.answerCode ?? '';
  }
}

const CHOOSE = 'choose one with --token, LONGSHORE_TOKEN or `longshore context use`';

/** The token is good, but not of the kind that this takes: a restricted one, or no administrator's. */
export class TokenKindError extends CliError {
  constructor(kind: 'workspace' | 'admin', options: { readonly cause?: unknown; readonly status?: number } = {}) {
    const takes =
      kind === 'workspace'
        ? 'a token of type workspace, of that workspace, not a restricted one (`longshore token create` makes them)'
        : "the installation's admin token, which `longshore up` keeps in the context file";
    super(`this token is good, but may not do that: it takes ${takes}; ${CHOOSE}`, options);
    this.name = 'TokenKindError';
  }
}

/** The command line was understood, but its values make no sense. */
export function usageError(message: string): CliError {
  return new CliError(message, { exitCode: 2 });
}

/** The code of a system error (`EACCES`, `ENOENT`, ...), else an empty string. */
export function errorCode(error: unknown): string {
  return typeof error === 'object' && error !== null && 'code' in error && typeof error.code === 'string'
    ? error.code
    : '';
}
