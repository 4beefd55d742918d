import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { TaskId } from '#shared/domain/ids.ts';
import { LostCallers } from '#scheduler/tasks/admission/lost-callers.ts';

const TASK = 'task' as TaskId;
const BACK_WITHIN_MS = 10_000;

/** Two replicas that hear each other, unless messages are lost. */
function twoReplicas() {
  const handlers: ((message: unknown) => void)[] = [];
  const told: unknown[] = [];
  const state = { isLost: false };
  const bus = {
    on: (_channel: string, handler: (message: unknown) => void) => void handlers.push(handler),
    publish: (_channel: string, message: unknown) => {
      told.push(message);
      if (!state.isLost) for (const handler of handlers) handler(message);
    },
  };
  const one = () => new LostCallers({ bus, channel: 'lost', comesBackWithinMs: BACK_WITHIN_MS });
  return { here: one(), there: one(), state, told };
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('the task of a caller who does not come back is cancelled, once', () => {
  const { here } = twoReplicas();
  const cancel = vi.fn<() => void>();
  here.lost(TASK, cancel);
  vi.advanceTimersByTime(BACK_WITHIN_MS - 1);
  expect(cancel).not.toHaveBeenCalled();
  vi.advanceTimersByTime(BACK_WITHIN_MS);
  expect(cancel).toHaveBeenCalledOnce();
  expect(here.size).toBe(0);
});

test('a caller who comes back keeps its task, here and at another replica', () => {
  const { here, there } = twoReplicas();
  const cancel = vi.fn<() => void>();
  here.lost(TASK, cancel);
  here.came(TASK, true)();
  here.lost(TASK, cancel);
  there.came(TASK, true)();
  vi.advanceTimersByTime(3 * BACK_WITHIN_MS);
  expect(cancel).not.toHaveBeenCalled();
});

test('a broken connection that is noticed late, and a message that is lost, cancel nothing', () => {
  const { here, there, state, told } = twoReplicas();
  const cancel = vi.fn<() => void>();
  state.isLost = true;
  const gone = there.came(TASK, true);
  state.isLost = false;
  vi.advanceTimersByTime(BACK_WITHIN_MS);
  here.lost(TASK, cancel);
  vi.advanceTimersByTime(2 * BACK_WITHIN_MS);
  expect(cancel).not.toHaveBeenCalled();
  gone();
  const before = told.length;
  vi.advanceTimersByTime(BACK_WITHIN_MS);
  expect(told).toHaveLength(before);
});

test('a caller is here until its last stream is over', () => {
  const { here, told } = twoReplicas();
  const [first, second] = [here.came(TASK, false), here.came(TASK, false)];
  first();
  expect(here.isHere(TASK)).toBe(true);
  second();
  expect(here.isHere(TASK)).toBe(false);
  expect(told).toEqual([]);
});
