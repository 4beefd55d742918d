import { pino } from 'pino';
import { expect, onTestFinished, test } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import type { QueueName, TaskId } from '#shared/domain/ids.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import { Deadlines } from '#scheduler/tasks/maintenance/deadlines.ts';
import { waitFor } from '../../helpers/programs.ts';

test('a task whose end fails holds up no other one, and is tried again behind them', async () => {
  const dueMs = Date.now() - 1_000;
  const ended = new Set<TaskId>();
  const asked: TaskId[] = [];
  const all = Array.from({ length: 400 }, (_, index) => ({
    taskId: `t${index}` as TaskId,
    queue: 'tq-1' as QueueName,
    deadlineMs: dueMs,
  }));
  const deadlines = new Deadlines({
    due: (_beforeMs, _limit, _ofOne, without) =>
      Promise.resolve(all.filter(({ taskId }) => !ended.has(taskId) && !without.includes(taskId)).slice(0, 100)),
    queues: {
      read: (_queue, taskId) => {
        asked.push(taskId);
        return taskId === 't0'
          ? Promise.reject(new Error('it cannot be read'))
          : Promise.resolve({ taskId } as TaskJob);
      },
      remove: () => Promise.resolve(false),
    },
    records: { read: () => Promise.resolve(undefined) },
    leases: { isHeld: () => Promise.resolve(false) },
    changes: { applied: () => Promise.resolve(false) },
    completion: {
      takeOut: (_queue, { taskId }) => {
        ended.add(taskId);
        return Promise.resolve(true);
      },
    },
    clock: systemClock,
    log: pino({ level: 'silent' }),
    leader: { isLeader: () => true, onChange: () => () => undefined },
    mostHeld: 100,
  });
  onTestFinished(() => deadlines.stop());
  await deadlines.reload();
  await waitFor(() => ended.size === 399, 'all others have ended');
  expect(asked.filter((taskId) => taskId === 't0')).toHaveLength(1);
});
