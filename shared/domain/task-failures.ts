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

/** The step that cures the error of a task; undefined: its text has to be enough. */
export function cureOf(error: string): string | undefined {
  if (error === OOM_TEXT || error.split('\n').includes(CONTAINER_OOM_TEXT)) return MORE_MEMORY;
  const [, module] = NO_MODULE.exec(error) ?? [];
  return module === undefined
    ? undefined
    : `the container lacks ${module}: name the package that brings it in \`image=Image(python_packages=[…])\`, or put its file into the app's folder, and deploy again`;
}

/** Longest error as one line. */
const MOST_ERROR = 300;

/** The text that the caller of a failed task got; empty: it is not stored, or the result is no error. */
export function errorOf(result: string | undefined): string {
  try {
    const answer: unknown = JSON.parse(result ?? '');
    return isRecord(answer) && typeof answer['error'] === 'string' ? answer['error'] : '';
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
