/**
 * The error type of both daemons. `code` is lower snake_case, from the list in docs/errors.md. `message` is
 * a sentence for people; `cause` is for the log. Surfaces map codes to statuses; services know no HTTP.
 */
export class AppError extends Error {
  readonly code: string;
  readonly details: Readonly<Record<string, unknown>>;

  constructor(
    code: string,
    message: string,
    options: { readonly cause?: unknown; readonly details?: Readonly<Record<string, unknown>> } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'AppError';
    this.code = code;
    this.details = options.details ?? {};
  }
}

/** The message of any thrown value. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/**
 * A failure that ends the program: a sentence with the cure, no
 * stack. The command line prints it; exit code 1 unless set.
 */
export class StartupError extends AppError {
  readonly exitCode: number;
  constructor(code: string, message: string, options: { readonly cause?: unknown; readonly exitCode?: number } = {}) {
    super(code, message, options);
    this.name = 'StartupError';
    this.exitCode = options.exitCode ?? 1;
  }
}
