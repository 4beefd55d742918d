import { expect, test, vi } from 'vitest';
import type { QueueName } from '#shared/domain/ids.ts';
import { systemClock } from '#shared/clock.ts';
import { createLog } from '#shared/log.ts';
import { Rebuild } from '#scheduler/tasks/maintenance/rebuild.ts';

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
      sure: () => Promise.resolve(),
      onLost: (listener) => {
        lost = listener;
        return () => undefined;
      },
    },
    rollCall: { call: () => Promise.resolve(false) },
    presence: { redisLost: step('presence') },
    renewal: { restoreAll: step('leases') },
    records: { redisLost: () => Promise.resolve() },
    marks: { rowsDoubtful: () => Promise.resolve() },
    queues: { reopenAll: step('settings') },
    olderJobs: {
      sweep: (queue) => {
        done.push(queue);
        return Promise.resolve(0);
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
    clock: systemClock,
    log: createLog({ level: 'silent', name: 'test' }),
    isLeader: () => true,
    tryAgainMs: 1,
  });
  rebuild.onRebuilt(() => done.push('wake'));
  rebuild.start();
  lost();
  await vi.waitFor(() => expect(done.at(-1)).toBe('q3'));
  rebuild.stop();
  expect(done).toEqual(['presence', 'leases', 'settings', 'wake', 'q1', 'q2', 'q3']);
});
