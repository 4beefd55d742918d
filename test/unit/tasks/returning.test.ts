import { pino } from 'pino';
import { expect, test } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import type { LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import { Attempts } from '#scheduler/tasks/dispatch/attempts.ts';
import type { Attempt } from '#scheduler/tasks/dispatch/attempts.ts';
import type { ReturningParts } from '#scheduler/tasks/completion/returning.ts';
import { Returning } from '#scheduler/tasks/completion/returning.ts';

const job = { taskId: 't' as TaskId, sync: false, retriesUsed: 0, attempts: 0 } as TaskJob;

/** A part whose record no store takes yet. */
function aReturning() {
  const written = Promise.withResolvers<boolean>();
  const steps: string[] = [];
  const parts = {
    queues: { read: async () => undefined, lockOf: async () => undefined, giveBack: async () => undefined },
    leases: { dropOf: async () => undefined },
    changes: {
      apply: () => steps.push('record'),
      applied: () => (steps.push('record'), written.promise),
      safe: () => written.promise,
    },
    attempts: new Attempts(),
    dispatcher: { wake: () => undefined },
    due: { add: () => undefined },
    graces: { againMs: 1, endMs: 0 },
    metrics: { retries: { inc: () => undefined } },
    clock: systemClock,
    log: pino({ level: 'silent' }),
    signal: AbortSignal.abort(),
    lines: { return: () => steps.push('line') },
    freeSlot: () => steps.push('slot'),
    ended: () => undefined,
  } as unknown as ReturningParts;
  const attempt = {
    job,
    queue: 'tq-a' as QueueName,
    lock: 'l' as LockToken,
    number: 1,
    status: 'RUNNING',
    adopted: true,
    onDecided: () => steps.push('decided'),
  } as unknown as Attempt;
  return { returning: new Returning(parts), attempt, steps, written };
}

test('a machine may send more results while the record of a retry waits for the database', async () => {
  const { returning, attempt, steps, written } = aReturning();
  const over = returning.retry(attempt, 'error', job);
  expect(attempt.isReturning).toBe(true);
  expect(steps).toEqual(['slot', 'decided', 'record']);
  written.resolve(true);
  await over;
});

test('a machine may send more results while the record of a lost attempt waits for the database', async () => {
  const { returning, attempt, steps, written } = aReturning();
  const over = returning.toQueue(attempt, 'lost', job);
  expect(attempt.isReturning).toBe(true);
  expect(steps).toEqual(['decided', 'record']);
  written.resolve(true);
  await over;
});

test('a synchronous task waits again in this tick, and its caller waits for no record', () => {
  const { returning, attempt, steps } = aReturning();
  void returning.toQueue({ ...attempt, job: { ...job, sync: true } }, 'not_received', undefined);
  expect(steps).toEqual(['decided', 'record', 'slot', 'line']);
});
