// Between the link's words and the socket's: headers of run frames, outcomes, error bodies.
import type { RunTask__Output } from '#shared/protocol/generated/messages.ts';
import type { Outcome } from './attempts.ts';

export const errorBody = (text: string): Buffer => Buffer.from(JSON.stringify({ error: text }), 'utf8');
export const OOM_TEXT = 'process ran out of memory';

/** What a runner calls the end of an attempt; anything unknown is an error. */
export function outcomeOf(text: string): Outcome {
  switch (text) {
    case 'ok':
    case 'error':
    case 'retry':
    case 'timeout':
    case 'cancelled':
      return text;
    default:
      return 'error';
  }
}

/** The header of a task's first (mostly only) part. */
export function firstHeader(task: RunTask__Output): object {
  const base = {
    taskId: task.taskId,
    token: task.token,
    timeoutMs: task.timeoutMs,
    part: 0,
    last: task.last,
    // The hand-over counts as the start: no frame is owed for it.
    started: false,
  };
  return task.query === '' ? base : { ...base, query: JSON.parse(task.query) as unknown };
}

export const partHeader = (task: RunTask__Output): object => ({
  taskId: task.taskId,
  token: task.token,
  part: task.part,
  last: task.last,
});

const LAST_LINES = 20;

/** Of a start that failed: the end of its traceback, which closes with the error; the error alone without one, before it where it says something else. */
export function failureText(error: string, traceback: string): string {
  const lines = traceback.trimEnd().split('\n').slice(-LAST_LINES);
  const trace = lines.join('\n');
  if (trace === '') return error;
  // A syntax error is told with its place in one and without it in the other.
  const repeats = trace.endsWith(error) || error.startsWith(lines.at(-1) ?? '');
  return repeats ? trace : `${error}\n${trace}`;
}

/** Texts about containers, in bytes of UTF-8: in the journal, in reports, in the scheduler's rows. */
export const MAX_TEXT_BYTES = 16 * 1024;
const CUT_MARK = '\n[...]\n';

/** Cuts a text to so many bytes: the beginning and the end stay, because an error names itself in one of them. */
export function cutText(text: string, mostBytes = MAX_TEXT_BYTES): string {
  // A character has three bytes at most for each unit of the string: most texts are short, and need no count.
  if (text.length * 3 <= mostBytes || Buffer.byteLength(text) <= mostBytes) return text;
  const half = Math.floor((mostBytes - CUT_MARK.length) / 2);
  if (half <= 0) return '';
  const bytes = Buffer.from(text, 'utf8');
  let headEnd = half;
  while (headEnd > 0 && isInside(bytes[headEnd])) headEnd -= 1;
  let tailStart = bytes.length - half;
  while (tailStart < bytes.length && isInside(bytes[tailStart])) tailStart += 1;
  return `${bytes.toString('utf8', 0, headEnd)}${CUT_MARK}${bytes.toString('utf8', tailStart)}`;
}

/** A byte within a character. */
const isInside = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80;
