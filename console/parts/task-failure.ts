// Why a task failed, from its result: the text of its error, and the line of it that says most. Pure.

/** A result in parts: the text of its error, and all else. */
export interface ReadResult {
  /** Several lines, such as a traceback; empty: the result has no such error. */
  readonly error: string;
  /** undefined: nothing else. */
  readonly rest: unknown;
}

export function readResult(result: unknown): ReadResult {
  if (typeof result !== 'object' || result === null || Array.isArray(result)) return { error: '', rest: result };
  const { error, ...others } = result as Readonly<Record<string, unknown>>;
  // A line alone is read as well within its JSON.
  if (typeof error !== 'string' || !error.includes('\n')) return { error: '', rest: result };
  return { error, rest: Object.keys(others).length === 0 ? undefined : others };
}

/** The line that stands for a failure: of the last attempt, or of the start that no attempt followed. */
export function errorLine(
  attempts: readonly { readonly error: string }[],
  failureReason: string,
  result: unknown,
): string {
  const own = attempts.findLast(({ error }) => error !== '')?.error;
  if (own !== undefined || failureReason === '') return own ?? '';
  const error = (result as { readonly error?: unknown } | null | undefined)?.error;
  const lines = typeof error === 'string' ? error.split('\n').filter((line) => line.trim() !== '') : [];
  return (lines.at(-1) ?? '').trim();
}
