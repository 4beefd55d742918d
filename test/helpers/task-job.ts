// Jobs of task queues, for tests and benchmarks.
import type { InstanceId, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { newId } from '#shared/domain/ids.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';

/** An asynchronous task of a stub and a workspace of its own, which has a minute. */
export const aTaskJob = (changes: Partial<TaskJob> = {}): TaskJob => ({
  v: 1,
  taskId: newId<TaskId>(),
  workspaceId: newId<WorkspaceId>(),
  stubId: newId<StubId>(),
  deploymentId: null,
  kind: 'taskqueue',
  sync: false,
  replica: newId<InstanceId>(),
  timeoutMs: 1000,
  deadlineMs: Date.now() + 60_000,
  createdAtMs: Date.now(),
  attempts: 0,
  retries: 0,
  retriesUsed: 0,
  ...changes,
});
