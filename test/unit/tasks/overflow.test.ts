// The move of waiting tasks from the local queue to the queue.
import { pino } from 'pino';
import { expect, test, vi } from 'vitest';
import type { LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import { LocalQueue, localTask } from '#scheduler/tasks/local-queue/local-queue.ts';
import { Overflow } from '#scheduler/tasks/local-queue/overflow.ts';
import type { OverflowParts } from '#scheduler/tasks/local-queue/overflow.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';

const QUEUE = 'tq-1' as QueueName;
const aTask = (taskId: string) => localTask(QUEUE, { taskId: taskId as TaskId, attempts: 0 } as TaskJob);

function anOverflow(addAgain: OverflowParts['addAgain']) {
  const localQueue = new LocalQueue();
  const moved: TaskId[] = [];
  const overflow = new Overflow({
    localQueue,
    store: {
      dropLeft: () => Promise.resolve(),
      remove: () => Promise.resolve(true),
    } as unknown as OverflowParts['store'],
    addAgain: async (queue, job) => {
      await addAgain(queue, job);
      moved.push(job.taskId);
    },
    returnReceived: () => undefined,
    // As the local queue does it: what came meanwhile is looked at when nothing is under way any more.
    onMoved: (queue) => {
      if (!overflow.isUnderWay(queue) && localQueue.waiting(queue) > 0) overflow.start(queue);
    },
    log: pino({ level: 'silent' }),
  });
  return { localQueue, overflow, moved };
}

test('a task that is given back while others move is moved behind them', async () => {
  const gate = Promise.withResolvers<void>();
  const { localQueue, overflow, moved } = anOverflow(() => gate.promise);
  for (const id of ['a', 'b']) localQueue.push(aTask(id));
  const held = localQueue.take(QUEUE, 'lock' as LockToken);
  overflow.start(QUEUE);
  if (held !== undefined) localQueue.giveBack(held);
  expect(overflow.isUnderWay(QUEUE)).toBe(true);
  gate.resolve();
  await vi.waitFor(() => expect(moved).toEqual(['b', 'a']));
  await overflow.underWay(QUEUE);
  expect([localQueue.waiting(QUEUE), overflow.isUnderWay(QUEUE)]).toEqual([0, false]);
});

test('tasks that could not be moved wait for the sweep, in their order', async () => {
  const { localQueue, overflow, moved } = anOverflow(() => Promise.reject(new Error('away')));
  for (const id of ['a', 'b']) localQueue.push(aTask(id));
  overflow.start(QUEUE);
  await overflow.underWay(QUEUE);
  expect(moved).toEqual([]);
  expect(localQueue.line(QUEUE).map(({ job }) => job.taskId)).toEqual(['a', 'b']);
  expect(overflow.isUnderWay(QUEUE)).toBe(false);
});
