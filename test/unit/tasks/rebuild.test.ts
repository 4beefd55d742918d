import { expect, test, vi } from 'vitest';
import type { LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { Rebuild } from '#scheduler/tasks/maintenance/rebuild.ts';

const [WAITS, LOCKED, OPEN] = ['waits', 'locked', 'open'] as TaskId[] as [TaskId, TaskId, TaskId];

test('a rebuild wakes what waits first, and goes on with the page at which the database failed', async () => {
  const done: string[] = [];
  const step = (name: string) => () => {
    done.push(name);
    return Promise.resolve();
  };
  let lost = (): void => undefined;
  let failures = 2;
  const rebuild = new Rebuild({
    data: {
      generation: 1,
      onLost: (listener) => {
        lost = listener;
        return () => undefined;
      },
    },
    presence: { redisLost: step('presence') },
    renewal: { restoreAll: step('leases') },
    records: {
      redisLost: () => Promise.resolve(),
      ended: (taskIds) => Promise.resolve(taskIds.filter((taskId) => taskId !== OPEN)),
    },
    marks: { rowsDoubtful: () => Promise.resolve() },
    queues: {
      reopenAll: step('settings'),
      waitingIds: (queue) => {
        done.push(queue);
        return Promise.resolve([OPEN, WAITS]);
      },
      activeIds: () => Promise.resolve([LOCKED, OPEN]),
      remove: (queue, taskId) => {
        done.push(`${queue} ${taskId}`);
        return Promise.resolve(true);
      },
      lockOf: () => Promise.resolve('lock' as LockToken),
      fail: (queue, taskId, lock) => {
        done.push(`${queue} ${taskId} ${lock}`);
        return Promise.resolve({ kind: 'done' });
      },
    },
    endedQueues: (after) => {
      const page = after === undefined ? 1 : Number(after.id);
      if (page === 2 && failures > 0) {
        failures -= 1;
        return Promise.reject(new Error('took too long'));
      }
      const queues = [`q${page}`, 'q1'] as QueueName[];
      return Promise.resolve(page === 3 ? { queues } : { queues, next: { endedAt: '', id: String(page + 1) } });
    },
    log: createLog({ level: 'silent', name: 'test' }),
    isLeader: () => true,
    tryAgainMs: 1,
  });
  rebuild.onRebuilt(() => done.push('wake'));
  rebuild.start();
  lost();
  await vi.waitFor(() => expect(done.at(-1)).toBe('q3 locked lock'), 20_000);
  rebuild.stop();
  const sweptOf = (queue: string) => [queue, `${queue} waits`, `${queue} locked lock`];
  const swept = ['q1', 'q2', 'q3'].flatMap(sweptOf);
  expect(done).toEqual(['presence', 'leases', 'settings', 'wake', ...swept]);
});
