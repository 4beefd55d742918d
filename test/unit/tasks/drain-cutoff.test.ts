import { expect, test } from 'vitest';
import { createLog } from '#shared/log.ts';
import type { ContainerId } from '#shared/domain/ids.ts';
import { DrainCutoff } from '#scheduler/tasks/completion/drain-cutoff.ts';
import type { DrainCutoffParts } from '#scheduler/tasks/completion/drain-cutoff.ts';
import { TestClock } from '../../helpers/test-clock.ts';

const ID = 'c' as ContainerId;

test('an agent that asks again is told what is left of a notice, and all of it where none has begun', () => {
  const clock = new TestClock();
  const isLeaving = true;
  const attempt = { containerId: ID, job: { sync: false, taskId: 't' }, ending: undefined, sentAtMs: 0 };
  const parts = {
    attempts: { all: () => [attempt], ofContainer: () => [attempt] },
    completion: { abandon: () => Promise.resolve(true), preempt: () => Promise.resolve(true) },
    isCutOff: () => false,
    isPreempted: () => isLeaving,
    endsCalls: () => false,
    stopContainer: () => Promise.resolve(),
    noticeMs: () => 20_000,
    clock,
    log: createLog({ name: 'test', level: 'silent' }),
    signal: new AbortController().signal,
  };
  const cutoff = new DrainCutoff(parts as unknown as DrainCutoffParts);
  expect(cutoff.noticeLeftMs(ID)).toBe(20_000);
  cutoff.lookAt(ID);
  clock.aheadMs += 15_000;
  expect(cutoff.noticeLeftMs(ID)).toBeLessThanOrEqual(5_000);
  expect(cutoff.noticeLeftMs('other' as ContainerId)).toBe(20_000);
});
