// Tells which log explains a task's failure.

/**
 * Failures in which the container could not start or ended early: the container's log has the cause, not the task's.
 */
const TOLD_BY_CONTAINER: ReadonlySet<string> = new Set(['start_failed', 'process_exited', 'poison_task']);

/** Error of a task whose process needed more memory than its container has. */
export const OOM_TEXT = 'process ran out of memory';

/** The cure of that error. */
export const MORE_MEMORY = "give its handler more memory (`memory='1gi'`), and deploy again";

/** @param failureReason - the reason in a task's record */
export const isToldByContainer = (failureReason: string): boolean => TOLD_BY_CONTAINER.has(failureReason);
