// Changes whose commit was not answered: nobody announces them, so caches are emptied instead.
import { EventEmitter } from 'node:events';
import type { Redis } from 'ioredis';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createInvalidation } from '../../../scheduler/workspaces/identity/invalidation.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** A Redis that carries messages to all of its connections. */
function aChannel() {
  const subscribers: EventEmitter[] = [];
  return (): Redis => {
    const connection = Object.assign(new EventEmitter(), {
      subscribe: () => Promise.resolve(1),
      publish: (channel: string, text: string) => {
        for (const one of subscribers) one.emit('message', channel, text);
        return Promise.resolve(subscribers.length);
      },
    });
    subscribers.push(connection);
    return connection as unknown as Redis;
  };
}

async function twoReplicas() {
  const connect = aChannel();
  const log = pino({ level: 'silent' });
  return Promise.all(
    [1, 2].map(async () => {
      const invalidation = createInvalidation({ publisher: connect(), subscriber: connect(), log });
      await invalidation.start();
      const replica = { invalidation, emptied: 0 };
      invalidation.onReset(() => (replica.emptied += 1));
      return replica;
    }),
  );
}

test('a commit that is not answered empties the caches of every replica, and again once it can no longer come', async () => {
  const [here, there] = await twoReplicas();
  if (here === undefined || there === undefined) throw new Error('there are two');
  here.invalidation.unsure();
  await vi.advanceTimersByTimeAsync(100);
  expect(here.emptied).toBeGreaterThan(0);
  expect(there.emptied).toBe(1);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(there.emptied).toBe(2);
  await vi.advanceTimersByTimeAsync(600_000);
  expect(there.emptied).toBe(2);
  await here.invalidation.stop();
});

test('many commits that are not answered empty caches no more than every 45 seconds, and the last one counts', async () => {
  const [here, there] = await twoReplicas();
  if (here === undefined || there === undefined) throw new Error('there are two');
  for (let second = 0; second < 100; second += 1) {
    here.invalidation.unsure();
    await vi.advanceTimersByTimeAsync(1_000);
  }
  const during = there.emptied;
  expect(during).toBe(3);
  await vi.advanceTimersByTimeAsync(90_000);
  expect(there.emptied).toBeGreaterThan(during);
  expect(there.emptied).toBeLessThanOrEqual(during + 2);
  await here.invalidation.stop();
});
