import type { Readable } from 'node:stream';

const MAX_LINE = 1024 * 1024;

/** The fields that the engine's messages about a pull or a push may have. */
export interface ProgressLine {
  readonly id?: unknown;
  readonly status?: unknown;
  readonly error?: unknown;
  readonly errorDetail?: { readonly message?: unknown };
  readonly progressDetail?: { readonly current?: unknown; readonly total?: unknown };
  readonly aux?: { readonly Digest?: unknown } | null;
}

export interface ProgressBounds {
  /** A stream without a message for this long is given up. */
  readonly silenceMs: number;
  readonly signal: AbortSignal;
  /** The message of the error when `signal` ends the stream. */
  readonly whenAborted: string;
}

/**
 * Reads the engine's progress messages, one JSON object a line, to the stream's end. Other lines are skipped.
 * @throws Error with the engine's first error message
 */
export async function readProgressLines(
  stream: Readable,
  { silenceMs, signal, whenAborted }: ProgressBounds,
  onLine: (line: ProgressLine) => void,
): Promise<void> {
  let rest = '';
  let failure: string | undefined;
  const giveUp = (why: string): void => void stream.destroy(new Error(why));
  const silence = setTimeout(() => giveUp(`nothing heard for ${silenceMs / 1000} s`), silenceMs);
  const onAbort = (): void => giveUp(whenAborted);
  signal.addEventListener('abort', onAbort, { once: true });
  if (signal.aborted) onAbort();
  const take = (text: string): void => {
    const line = parse(text);
    if (line === undefined) return;
    const error = line.errorDetail?.message ?? line.error;
    if (typeof error === 'string') failure ??= error;
    onLine(line);
  };
  try {
    for await (const data of stream) {
      silence.refresh();
      const lines = (rest + String(data)).split('\n');
      rest = (lines.pop() ?? '').slice(0, MAX_LINE);
      lines.forEach(take);
    }
    take(rest);
  } finally {
    clearTimeout(silence);
    signal.removeEventListener('abort', onAbort);
  }
  if (failure !== undefined) throw new Error(failure);
}

function parse(text: string): ProgressLine | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}
