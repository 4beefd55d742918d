import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { newInstanceId } from '#shared/domain/ids.ts';
import type { ContainerId, MachineId, QueueName } from '#shared/domain/ids.ts';
import type { TaskLink } from '#scheduler/tasks/dispatch/slots.ts';
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
  hear({ from: newInstanceId(), loads: [ended, lives].map((id) => [id, 1, 0, 1000, 0, false]) });
  expect(loads.size).toBe(2);
  vi.advanceTimersByTime(10_000);
  expect(loads.size).toBe(1);
  expect(loads.of(lives)).toMatchObject({ inFlight: 1 });
  loads.stop();
});

/** Two replicas on one bus; the first has a container whose machine is linked there. */
function twoReplicas() {
  const listeners: ((message: unknown) => void)[] = [];
  const bus: typeof ALONE = {
    ...ALONE,
    on: (_channel, listener) => void listeners.push(listener),
    publish: (_channel, message) => {
      for (const listener of listeners) listener(JSON.parse(JSON.stringify(message)));
    },
  };
  const slots = new SlotTable();
  const id = 'c-told' as ContainerId;
  const common = { bus, channel: 'decide', isLive: () => true };
  const here = new Loads({ ...common, instance: newInstanceId(), slots });
  const elsewhere = new Loads({ ...common, instance: newInstanceId(), slots: new SlotTable() });
  const facts = { containerId: id, queue: 'tq-a' as QueueName, machineId: 'm' as MachineId, slots: 4 };
  return { id, here, elsewhere, container: slots.ready(facts, {} as TaskLink, 0) };
}

test('that a container was handed an attempt is told before its end, which may come at once', () => {
  const { id, here, elsewhere, container } = twoReplicas();
  here.start();
  vi.advanceTimersByTime(250);
  expect(elsewhere.of(id)?.served).toBe(false);
  container.served = true;
  here.tellLast(id);
  expect(elsewhere.of(id)?.served).toBe(true);
  here.stop();
});

test('requests inside an engine are told to other replicas, and that they are no longer known', () => {
  const { id, here, elsewhere, container } = twoReplicas();
  here.start();
  vi.advanceTimersByTime(250);
  expect(elsewhere.of(id)?.engine).toBeUndefined();
  container.engine = { running: 3, waiting: 2 };
  vi.advanceTimersByTime(250);
  expect(elsewhere.of(id)?.engine).toEqual({ running: 3, waiting: 2 });
  container.engine = undefined;
  vi.advanceTimersByTime(250);
  expect(elsewhere.of(id)?.engine).toBeUndefined();
  here.stop();
});
