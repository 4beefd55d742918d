import { expect, test } from 'vitest';
import { createLog } from '#shared/log.ts';
import type { TaskId } from '#shared/domain/ids.ts';
import type { Submission } from '#scheduler/tasks/admission/calls.ts';
import type { SingleCall, SinglesParts } from '#scheduler/tasks/admission/singles.ts';
import { Singles } from '#scheduler/tasks/admission/singles.ts';
import { TestClock } from '../../helpers/test-clock.ts';

test('a task that would be committed so late that its claim may lapse is refused, and its key is free', async () => {
  const clock = new TestClock();
  const released: TaskId[] = [];
  const parts = {
    rows: {
      // The database takes its time for the claim, too.
      claim: (_place: unknown, taskId: TaskId) => {
        clock.aheadMs += 3_000;
        return Promise.resolve(taskId);
      },
      release: (_place: unknown, taskId: TaskId) => {
        released.push(taskId);
        return Promise.resolve();
      },
    },
    clock,
    log: createLog({ name: 'test', level: 'silent' }),
    signal: new AbortController().signal,
  };
  const singles = new Singles(parts as unknown as SinglesParts);
  const submit = (taskId: string, ms: number): Promise<Submission> => {
    const target = { queue: 'q', workspaceId: 'w', config: { flow: { singleton: 'skip' } } };
    const call = { target, flow: { key: 'k' }, taskId } as unknown as SingleCall;
    return singles.submit(call, (isLate) => {
      clock.aheadMs += ms;
      return Promise.resolve<Submission>(
        isLate()
          ? { kind: 'unavailable', reason: 'queued_too_late', retryAfterSeconds: 1 }
          : ({ kind: 'accepted', taskId } as Submission),
      );
    });
  };
  expect(await submit('a', 0)).toMatchObject({ kind: 'accepted' });
  expect(await submit('b', 3_000)).toMatchObject({ reason: 'queued_too_late' });
  expect(released).toEqual(['b']);
});
