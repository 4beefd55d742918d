import { pino } from 'pino';
import { expect, test } from 'vitest';
import type { AttemptToken, ContainerId, LockToken, MachineId, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { HeldLock } from '#scheduler/stores/queues/task-queues.ts';
import { Attempts } from '#scheduler/tasks/dispatch/attempts.ts';
import type { Attempt } from '#scheduler/tasks/dispatch/attempts.ts';
import { Renewal } from '#scheduler/tasks/maintenance/renewal.ts';

/** A replica with so many attempts in two queues, one beside the other. */
function aReplica(count: number) {
  const attempts = new Attempts();
  const all = Array.from({ length: count }, (_, index) => {
    const attempt = {
      job: { taskId: `t${index}` as TaskId },
      token: `a${index}` as AttemptToken,
      lock: `l${index}` as LockToken,
      queue: `tq-${index % 2}` as QueueName,
      machineId: 'm' as MachineId,
      containerId: 'c' as ContainerId,
      ending: undefined,
    } as Attempt;
    attempts.add(attempt);
    return attempt;
  });
  const asked: (readonly HeldLock[])[] = [];
  const [leased, restored]: [TaskId[], LockToken[]] = [[], []];
  const state = { onAsked: (): void => undefined };
  const renewal = new Renewal({
    attempts,
    queues: {
      renew: (held) => {
        asked.push(held);
        state.onAsked();
        return Promise.resolve([]);
      },
      countRunning: () => Promise.resolve(),
    },
    leases: {
      renew: (jobs) => Promise.resolve(void leased.push(...jobs.map(({ taskId }) => taskId))),
      restore: ({ lock }) => Promise.resolve(void restored.push(lock)),
    },
    changes: { apply: () => false },
    log: pino({ level: 'silent' }),
    signal: new AbortController().signal,
  });
  return { attempts, all, renewal, asked, leased, restored, state };
}

test('a round goes in batches, a queue after the other, and renews every lock and lease once', async () => {
  const { renewal, asked, leased, restored } = aReplica(1_200);
  await renewal.round();
  expect(asked.map((held) => held.length)).toEqual([500, 500, 200]);
  expect(new Set(asked[0]?.map(({ queue }) => queue))).toEqual(new Set(['tq-0']));
  expect(new Set(leased).size).toBe(1_200);
  expect(restored).toEqual([]);
});

test('an attempt that ended while earlier batches were renewed is left out', async () => {
  const { attempts, all, renewal, asked, leased, state } = aReplica(600);
  const last = all.at(-1);
  if (last === undefined) throw new Error('there are attempts');
  state.onAsked = () => attempts.remove(last);
  await renewal.round();
  expect(asked.map((held) => held.length)).toEqual([500, 99]);
  expect(leased).not.toContain(last.job.taskId);
});

test('a replica without attempts asks nothing', async () => {
  const { renewal, asked } = aReplica(0);
  await renewal.round();
  expect(asked).toEqual([]);
});

test('a loss brings back the lease of an attempt that ended until its record is written', async () => {
  const { attempts, all, renewal, restored } = aReplica(3);
  const written = Promise.withResolvers<void>();
  for (const [nth, attempt] of all.entries()) {
    attempt.ending = Promise.resolve(true);
    if (nth === 0) continue;
    attempts.remove(attempt);
    attempts.recording(attempt, nth === 1 ? written.promise : Promise.resolve());
  }
  await new Promise(setImmediate);
  await renewal.restoreAll();
  expect(restored).toEqual(['l0', 'l1']);
  written.resolve();
});
