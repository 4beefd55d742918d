import { expect, test } from 'vitest';
import type { DeploymentId, InstanceId, ObjectId, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { encodeTaskJob, parseTaskJob } from '#scheduler/stores/queues/jobs.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';

const job: TaskJob = {
  v: 1,
  taskId: 't' as TaskId,
  workspaceId: 'w' as WorkspaceId,
  stubId: 's' as StubId,
  deploymentId: 'd' as DeploymentId,
  kind: 'endpoint',
  sync: true,
  replica: 'r' as InstanceId,
  input: '{"a": 1.0, "b": "\\u00e4ä"}',
  query: { q: ['1', '2'] },
  timeoutMs: 180_000,
  deadlineMs: 2,
  createdAtMs: 1,
  attempts: 0,
  retries: 0,
  retriesUsed: 0,
};

test('a job is read as it was written, its input byte for byte', () => {
  expect(parseTaskJob(encodeTaskJob(job))).toEqual(job);
  const { input: _input, query: _query, ...rest } = job;
  const byObject: TaskJob = { ...rest, inputObjectId: 'o' as ObjectId, deploymentId: null };
  expect(parseTaskJob(encodeTaskJob(byObject))).toEqual(byObject);
});

test('a field that is wrong is named', () => {
  const wrong: readonly [Record<string, unknown>, string][] = [
    [{ timeoutMs: -1 }, 'timeoutMs'],
    [{ sync: 'yes' }, 'sync'],
    [{ v: 2 }, 'v'],
    [{ taskId: '' }, 'taskId'],
    [{ query: { q: '1' } }, 'query'],
  ];
  for (const [change, field] of wrong) {
    expect(() => parseTaskJob(JSON.stringify({ ...job, ...change })), field).toThrow(`/${field}`);
  }
});

test('what is not JSON, or no object, is refused', () => {
  for (const text of ['', '{', 'null', '[]', '1']) {
    expect(() => parseTaskJob(text)).toThrow(expect.objectContaining({ code: 'bad_job' }));
  }
});

test('a field that a newer version added does no harm', () => {
  expect(parseTaskJob(JSON.stringify({ ...job, later: { x: 1 } }))).toMatchObject(job);
});
