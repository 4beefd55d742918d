import { describe, expect, test } from 'vitest';
import type { AttemptToken, ContainerId, MachineId, QueueName, TaskId } from '#shared/domain/ids.ts';
import { Attempts } from '#scheduler/tasks/dispatch/attempts.ts';
import type { Attempt } from '#scheduler/tasks/dispatch/attempts.ts';
import { SlotTable } from '#scheduler/tasks/dispatch/slots.ts';
import type { TaskLink } from '#scheduler/tasks/dispatch/slots.ts';

const MACHINE = 'm1' as MachineId;
const CONTAINER = 'c1' as ContainerId;
const QUEUE = 'tq-1' as QueueName;

const anAttempt = (taskId: string, token: string, on: Partial<Attempt> = {}): Attempt =>
  ({
    job: { taskId: taskId as TaskId },
    token: token as AttemptToken,
    machineId: MACHINE,
    containerId: CONTAINER,
    queue: QUEUE,
    container: {},
    limit: undefined,
    ...on,
  }) as Attempt;

const tokensOf = (attempts: Iterable<Attempt>): string[] => [...attempts].map(({ token }) => token);

describe('attempts', () => {
  test('are found by their machine, container and queue while they are here', () => {
    const attempts = new Attempts();
    const [one, two] = [anAttempt('t1', 'a'), anAttempt('t2', 'b', { machineId: 'm2' as MachineId })];
    attempts.add(one);
    attempts.add(two);
    expect(tokensOf(attempts.ofMachine(MACHINE))).toEqual(['a']);
    expect(tokensOf(attempts.ofContainer(CONTAINER))).toEqual(['a', 'b']);
    attempts.remove(one);
    expect(tokensOf(attempts.ofMachine(MACHINE))).toEqual([]);
    expect(tokensOf(attempts.ofQueue(QUEUE))).toEqual(['b']);
  });

  test('an older attempt of a task is not found beside the newer one, and its removal leaves the newer one', () => {
    const attempts = new Attempts();
    const [older, newer] = [anAttempt('t1', 'a'), anAttempt('t1', 'b', { containerId: 'c2' as ContainerId })];
    attempts.add(older);
    attempts.add(newer);
    expect(tokensOf(attempts.ofMachine(MACHINE))).toEqual(['b']);
    expect(tokensOf(attempts.ofContainer(CONTAINER))).toEqual([]);
    attempts.remove(older);
    expect(attempts.current('t1' as TaskId)).toBe(newer);
    expect(tokensOf(attempts.ofMachine(MACHINE))).toEqual(['b']);
  });

  test('have their task until it goes back, and whoever was told so leaves its end to them', () => {
    const attempts = new Attempts();
    const attempt = anAttempt('t1', 'a');
    attempts.add(attempt);
    expect(attempts.has('t2' as TaskId)).toBe(false);
    expect(attempt.isSole).not.toBe(true);
    expect(attempts.has('t1' as TaskId)).toBe(true);
    expect(attempt.isSole).toBe(true);
    attempt.isReturning = true;
    expect(attempts.has('t1' as TaskId)).toBe(false);
  });

  test('revoked ones are found by machine and container until one of them is taken', () => {
    const attempts = new Attempts();
    const attempt = anAttempt('t1', 'a');
    attempts.revoke(attempt);
    expect(tokensOf(attempts.revokedOf({ machineId: MACHINE }))).toEqual(['a']);
    expect(tokensOf(attempts.revokedOf({ containerId: CONTAINER }))).toEqual(['a']);
    expect(attempts.takeRevoked(attempt.token)).toBe(attempt);
    expect(attempts.takeRevoked(attempt.token)).toBeUndefined();
    expect(tokensOf(attempts.revokedOf({ machineId: MACHINE }))).toEqual([]);
  });
});

test('a link changes the containers of its machine, and no others', () => {
  const slots = new SlotTable();
  const link = {} as TaskLink;
  const ready = (containerId: string, machineId: string, queue: string) =>
    slots.ready(
      {
        containerId: containerId as ContainerId,
        machineId: machineId as MachineId,
        queue: queue as QueueName,
        slots: 1,
      },
      link,
      0,
    );
  const [first, , other] = [ready('c1', 'm1', 'tq-1'), ready('c2', 'm1', 'tq-2'), ready('c3', 'm2', 'tq-1')];
  expect(slots.setLink(MACHINE, undefined)).toEqual(['tq-1', 'tq-2']);
  expect([first.accepting, other.accepting]).toEqual([false, true]);
  slots.remove(CONTAINER);
  expect(slots.setLink(MACHINE, link)).toEqual(['tq-2']);
  expect([...slots.of(QUEUE)]).toEqual([other]);
});
