import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { newInstanceId } from '#shared/domain/ids.ts';
import type { ContainerId } from '#shared/domain/ids.ts';
import { SlotTable } from '#scheduler/tasks/dispatch/slots.ts';
import { ALONE } from '#scheduler/cluster/bus.ts';
import { Loads } from '#scheduler/cluster/loads.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('what is told of a container after its end is forgotten; of one that lives it is kept', () => {
  const [ended, lives] = ['c-ended' as ContainerId, 'c-lives' as ContainerId];
  let hear = (_message: unknown): void => undefined;
  const loads = new Loads({
    bus: { ...ALONE, on: (_channel, listener) => void (hear = listener) },
    channel: 'decide',
    instance: newInstanceId(),
    slots: new SlotTable(),
    isLive: (containerId) => containerId !== ended,
  });
  loads.start();
  loads.forget(ended);
  // Another replica sent this before it heard of the end.
  hear({ from: newInstanceId(), loads: [ended, lives].map((id) => [id, 1, 0, 1000, 0]) });
  expect(loads.size).toBe(2);
  vi.advanceTimersByTime(10_000);
  expect(loads.size).toBe(1);
  expect(loads.of(lives)).toMatchObject({ inFlight: 1 });
  loads.stop();
});
