// Tells which log explains a task's failure.

/**
 * Failures in which the container could not start or ended early: the container's log has the cause, not the task's.
 */
const TOLD_BY_CONTAINER: ReadonlySet<string> = new Set(['start_failed', 'process_exited', 'poison_task']);

/** @param failureReason - the reason in a task's record */
export const isToldByContainer = (failureReason: string): boolean => TOLD_BY_CONTAINER.has(failureReason);
