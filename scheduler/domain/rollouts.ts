/**
 * State of a version's rollout. waiting: calls of the name still reach an older version. done: they reach this one.
 * failed: its start failed. stopped: a person stopped or deleted the version. superseded: a newer one was deployed.
 * withdrawn: a person rolled the name back to an older version.
 */
export const ROLLOUT_STATES = ['waiting', 'done', 'failed', 'stopped', 'superseded', 'withdrawn'] as const;
export type RolloutState = (typeof ROLLOUT_STATES)[number];

/** Kinds whose calls wait for a ready container; a schedule takes the place of its older versions at once. */
export const ROLLED_OUT_KINDS: ReadonlySet<string> = new Set(['endpoint', 'asgi', 'taskqueue', 'function', 'pod']);

/** Whether calls of a name may reach a version in that state. */
export const isServing = (rollout: RolloutState | null): boolean => rollout === null || rollout === 'done';
