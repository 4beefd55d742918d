// Tells which log explains a task's failure, its error as one line, and the cure of errors that name none.
import { isRecord } from '#shared/json.ts';

/** Failures of containers that did not start, or of several: a container's log has the cause, not the task's. */
const TOLD_BY_CONTAINER: ReadonlySet<string> = new Set(['start_failed', 'poison_task']);

/** Error of a task whose process needed more memory than its container has. */
export const OOM_TEXT = 'process ran out of memory';

/** Sentence of a container that ended so, also while it started: it stands alone, or behind the output before. */
export const CONTAINER_OOM_TEXT = 'the container ran out of memory';

/** The step for either. */
export const MORE_MEMORY = "give its handler more memory than it has, such as `memory='2gi'`, and deploy again";

/** The error of an import, alone or as the last line of a traceback. */
const NO_MODULE = /(?:^|\n)ModuleNotFoundError: No module named '([A-Za-z_]\w*)[^']*'\s*$/;

/** The error of a task whose process a signal ended: its code is 128 and the number of the signal. */
const SIGNALLED = /^process exited \(code (1[2-9]\d)\)$/;
const IN_NATIVE_CODE =
  "its process crashed in native code, such as that of a Python package: with `env={'PYTHONFAULTHANDLER': '1'}` its log says where";
const FROM_OUTSIDE = 'something outside its handler ended the process, or the handler did so itself';
/** Signals by their numbers on Linux. */
const SIGNALS: Readonly<Record<number, readonly [name: string, meaning: string]>> = {
  1: ['SIGHUP', FROM_OUTSIDE],
  2: ['SIGINT', FROM_OUTSIDE],
  3: ['SIGQUIT', FROM_OUTSIDE],
  4: ['SIGILL', IN_NATIVE_CODE],
  5: ['SIGTRAP', IN_NATIVE_CODE],
  6: ['SIGABRT', IN_NATIVE_CODE],
  7: ['SIGBUS', IN_NATIVE_CODE],
  8: ['SIGFPE', IN_NATIVE_CODE],
  9: ['SIGKILL', `${FROM_OUTSIDE}; lack of memory is a usual cause`],
  11: ['SIGSEGV', IN_NATIVE_CODE],
  13: ['SIGPIPE', FROM_OUTSIDE],
  14: ['SIGALRM', FROM_OUTSIDE],
  15: ['SIGTERM', FROM_OUTSIDE],
  24: ['SIGXCPU', FROM_OUTSIDE],
  25: ['SIGXFSZ', 'it wrote a file that is larger than allowed'],
  31: ['SIGSYS', 'it made a system call that its container does not allow'],
};

/** The step for a task whose handler or process failed so; undefined: its error has to be enough. */
export function cureOfTask(failureReason: string, result: string | undefined): string | undefined {
  if (failureReason === 'execution_timeout')
    return 'raise timeout= in its definition and deploy again, or make each call shorter';
  if (failureReason === 'invalid_request_payload') {
    const detail = errorLineOf(fieldOf(result, 'detail'), failureReason);
    return detail === '' ? undefined : `call it with another input: ${detail}`;
  }
  const error = errorOf(result);
  // A traceback follows the error of a handler.
  return cureOf(errorLineOf(error, failureReason)) ?? cureOf(error);
}

/** The step that cures the error of a task; undefined: its text has to be enough. */
export function cureOf(error: string): string | undefined {
  if (error === OOM_TEXT || error.split('\n').includes(CONTAINER_OOM_TEXT)) return MORE_MEMORY;
  const code = Number(SIGNALLED.exec(error)?.[1] ?? 0);
  const [signal, meaning] = SIGNALS[code - 128] ?? [];
  if (signal !== undefined) return `code ${code} is ${signal}: ${meaning}`;
  const [, module] = NO_MODULE.exec(error) ?? [];
  return module === undefined
    ? undefined
    : `the container lacks ${module}: name the package that brings it in \`image=Image(python_packages=[…])\`, or put its file into the app's folder, and deploy again`;
}

/** Longest error as one line. */
const MOST_ERROR = 300;

/** The text that the caller of a failed task got; empty: it is not stored, or the result is no error. */
export const errorOf = (result: string | undefined): string => fieldOf(result, 'error');

function fieldOf(result: string | undefined, field: string): string {
  try {
    const answer: unknown = JSON.parse(result ?? '');
    const text = isRecord(answer) ? answer[field] : undefined;
    return typeof text === 'string' ? text : '';
  } catch {
    return '';
  }
}

/**
 * The error of a failed attempt as one bounded line: a traceback follows
 * the error of a handler, and ends in the error of a start.
 */
export function errorLineOf(error: string, failureReason: string): string {
  const lines = error.trimEnd().split('\n');
  const line = (failureReason === 'start_failed' ? lines.at(-1) : lines[0]) ?? '';
  return line.length > MOST_ERROR ? `${line.slice(0, MOST_ERROR).toWellFormed()} …` : line;
}

/** @param failureReason - the reason in a task's record */
export const isToldByContainer = (failureReason: string): boolean => TOLD_BY_CONTAINER.has(failureReason);
