// Ways to start a container's workers (`extra.workerMode` of a stub): processes
// forked after `on_start`, threads, or processes with an `on_start` each.
export const WORKER_MODES = ['fork', 'thread', 'spawn'] as const;
export type WorkerMode = (typeof WORKER_MODES)[number];
