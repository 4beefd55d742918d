// Steps of flow control that meet others half-way.
import { expect, test } from 'vitest';
import pino from 'pino';
import type { LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import { FlowQueues } from '#scheduler/stores/queues/flow-queues.ts';
import type { PlainQueues } from '#scheduler/stores/queues/flow-queues.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import type { FlowTask } from '#scheduler/stores/queues/task-queues.ts';

const QUEUE = 'tq-1' as QueueName;
const JOB = { taskId: 't-1' as TaskId, flow: { key: 'a', most: 1 }, deadlineMs: 5_000 } as TaskJob;

/**
 * @param takes - answers to the questions for the job's slots, one after the other
 * @param changed - steps of the queues that go otherwise
 * @param free - tasks that have their slots once a task's are free
 */
function played(
  takes: readonly boolean[],
  changed: Readonly<Record<string, () => Promise<unknown>>> = {},
  free: (taskId: TaskId) => readonly FlowTask[] = () => [],
) {
  const done: string[] = [];
  const answers = [...takes];
  const plain = {
    add: (_queue: QueueName, _job: TaskJob, heldToMs?: number) => Promise.resolve(void done.push(`add ${heldToMs}`)),
    remove: () => Promise.resolve(done.push('remove') > 0),
    promote: () => Promise.resolve(done.push('promote') > 0),
    ...changed,
  } as unknown as PlainQueues;
  const book = {
    take: () => Promise.resolve(answers.shift() === true ? 'yes' : 'held'),
    free: (taskId: TaskId) => Promise.resolve(free(taskId)),
  } as unknown as ConstructorParameters<typeof FlowQueues>[1];
  const queues = new FlowQueues(plain, book, pino({ level: 'silent' }));
  queues.onReleased((queue, taskId) => done.push(`released ${queue} ${taskId}`));
  return { queues, done };
}

test.for([
  ['with a slot is added as it is', [true], ['add undefined']],
  [
    'without a slot is taken back, and delayed to its deadline',
    [false, false],
    ['add undefined', 'remove', 'add 5000'],
  ],
  [
    'is ready when its slot came free before it was there',
    [false, true],
    ['add undefined', 'remove', 'add 5000', 'promote', 'released tq-1 t-1'],
  ],
] as const)('a job %s', async ([, takes, wanted]) => {
  const { queues, done } = played(takes);
  await queues.add(QUEUE, JOB);
  expect(done).toEqual(wanted);
});

test('a job of a key that was full is added when its slot is known', async () => {
  const { queues, done } = played([false, false, false, false, true, true]);
  await queues.add(QUEUE, JOB);
  await queues.add(QUEUE, { ...JOB, taskId: 't-2' as TaskId });
  await queues.add(QUEUE, { ...JOB, taskId: 't-3' as TaskId });
  await queues.add(QUEUE, { ...JOB, taskId: 't-4' as TaskId });
  expect(done).toEqual(['add undefined', 'remove', 'add 5000', 'add 5000', 'add undefined', 'add undefined']);
});

test('a job that was fetched before it could be taken back is left to its fetch', async () => {
  const { queues, done } = played([false], { remove: () => Promise.resolve(false) });
  await queues.add(QUEUE, JOB);
  expect(done).toEqual(['add undefined']);
});

test('a task that was given a slot and is gone by then gives it back', async () => {
  const freed: TaskId[] = [];
  const { queues } = played(
    [],
    {
      promote: () => Promise.resolve(false),
      jobsOf: () => Promise.resolve([{ exists: false, dueMs: undefined }]),
    },
    (taskId) => {
      freed.push(taskId);
      return taskId === 't-0' ? [{ queue: QUEUE, taskId: 't-1' as TaskId, heldBy: undefined }] : [];
    },
  );
  await queues.release('t-0' as TaskId);
  await expect.poll(() => freed).toEqual(['t-0', 't-1']);
});

test('slots of tasks of other processes are freed: at the first end of a queue, and where a task fails', async () => {
  const freed: TaskId[] = [];
  const ended = () => Promise.resolve({ kind: 'done' });
  const { queues } = played([], { complete: ended, fail: ended, close: () => Promise.resolve() }, (taskId) => {
    freed.push(taskId);
    return [];
  });
  const lock = 'lock' as LockToken;
  await queues.complete(QUEUE, 't-1' as TaskId, lock);
  await queues.complete(QUEUE, 't-2' as TaskId, lock);
  await queues.fail(QUEUE, 't-3' as TaskId, lock, 'failed');
  await queues.close();
  expect(freed).toEqual(['t-1', 't-3']);
});
