// Where the cause of a task's failure is to be read.

/** Its container could not start, or ended under it: the lines that say why are the container's, not the task's own. */
const TOLD_BY_CONTAINER: ReadonlySet<string> = new Set(['start_failed', 'process_exited', 'poison_task']);

/** @param failureReason - of a task's record */
export const isToldByContainer = (failureReason: string): boolean => TOLD_BY_CONTAINER.has(failureReason);
