// Counts that replicas tell each other of their lines, over a bus in memory that may lose messages.
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { newInstanceId } from '#shared/domain/ids.ts';
import type { InstanceId, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { Bus } from '#scheduler/cluster/bus.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import { Line } from '#scheduler/tasks/lines/line.ts';
import { sentHere } from '#scheduler/tasks/lines/offers.ts';
import { Others } from '#scheduler/tasks/lines/others.ts';

const [A, B] = ['tq-a', 'tq-b'] as QueueName[] as [QueueName, QueueName];
const TELL_MS = 250;
const WHOLE_MS = 40 * TELL_MS;

interface Replica {
  readonly instance: InstanceId;
  readonly line: Line;
  readonly others: Others;
  /** Tasks here of replicas that are gone. */
  readonly callerless: Map<QueueName, number>;
  add(queue: QueueName, count?: number): readonly TaskId[];
  send(taskId: TaskId): void;
}

let cleanUp: (() => void)[] = [];
let tasks = 0;

/** Replicas on one bus; each tells its counts. */
function replicas(count: number) {
  const handlers: ((message: unknown) => void)[] = [];
  const wire = { broken: false, said: [] as { readonly from: InstanceId; readonly told: readonly unknown[] }[] };
  const bus: Bus = {
    on: (_channel, handler) => void handlers.push(handler),
    onGap: () => undefined,
    publish: (_channel, message) => {
      wire.said.push(message as (typeof wire.said)[number]);
      if (!wire.broken) for (const handler of handlers) handler(JSON.parse(JSON.stringify(message)));
    },
    isLive: true,
  };
  const dead = new Set<InstanceId>();
  const all: Replica[] = [];
  const isPresent = (replica: InstanceId): boolean => !dead.has(replica);
  const aReplica = (): Replica => {
    const instance = newInstanceId();
    let changed: (queue: QueueName) => void = () => undefined;
    const line = new Line((queue) => changed(queue));
    const callerless = new Map<QueueName, number>();
    const others = new Others({
      bus,
      channel: 'counts',
      instance,
      lines: {
        line,
        count: (queue) => line.count(queue) + (callerless.get(queue) ?? 0),
        onChange: (listener) => void (changed = listener),
      },
      isPresent,
      present: () => all.map((one) => one.instance).filter((one) => one !== instance && isPresent(one)),
    });
    others.start();
    cleanUp.push(() => others.stop());
    return {
      instance,
      line,
      others,
      callerless,
      add: (queue, number = 1) =>
        Array.from({ length: number }, () => {
          const job = { taskId: `t${(tasks += 1)}` as TaskId } as TaskJob;
          return line.add(queue, job, performance.now()).job.taskId;
        }),
      send: (taskId) => {
        const place = line.get(taskId)?.place;
        if (place !== undefined) line.move(taskId, sentHere(place));
      },
    };
  };
  for (let number = 0; number < count; number += 1) all.push(aReplica());
  return { all: all as [Replica, Replica, ...Replica[]], wire, dead };
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['performance', 'setInterval', 'clearInterval'] });
  // A monotonic clock that stands at 0 would look like one that was never read.
  vi.advanceTimersByTime(60_000);
});
afterEach(() => {
  for (const end of cleanUp) end();
  cleanUp = [];
  vi.useRealTimers();
});

describe('counts', () => {
  test('of all other replicas are known within a quarter of a second: tasks, and those that wait', () => {
    const { all } = replicas(3);
    const [one, two, three = two] = all;
    const [first] = two.add(A, 3);
    two.add(B);
    three.add(A);
    one.add(A);
    if (first !== undefined) two.send(first);
    expect(one.others.counts(A)).toEqual({ count: 0, waiting: 0 });
    vi.advanceTimersByTime(TELL_MS);
    expect(one.others.counts(A)).toEqual({ count: 4, waiting: 3 });
    expect(one.others.counts(B)).toEqual({ count: 1, waiting: 1 });
    expect(two.others.counts(A)).toEqual({ count: 2, waiting: 2 });
    for (const { job } of [...two.line.all()]) two.line.drop(job.taskId);
    vi.advanceTimersByTime(TELL_MS);
    expect(one.others.counts(A)).toEqual({ count: 1, waiting: 1 });
    expect(one.others.counts(B)).toEqual({ count: 0, waiting: 0 });
  });

  test('name tasks whose own replica is gone', () => {
    const [one, two] = replicas(2).all;
    two.callerless.set(A, 2);
    two.add(A);
    vi.advanceTimersByTime(TELL_MS);
    expect(one.others.counts(A)).toEqual({ count: 3, waiting: 1 });
  });

  test('of a replica that is gone do not count, and do not come back with it', () => {
    const { all, dead } = replicas(2);
    const [one, two] = all;
    two.add(A, 2);
    vi.advanceTimersByTime(TELL_MS);
    dead.add(two.instance);
    two.others.stop();
    expect(one.others.counts(A)).toEqual({ count: 0, waiting: 0 });
    expect([...one.others.heads(A)]).toEqual([]);
    vi.advanceTimersByTime(WHOLE_MS);
    dead.delete(two.instance);
    expect(one.others.counts(A)).toEqual({ count: 0, waiting: 0 });
  });

  test('whose message was lost are right again within ten seconds', () => {
    const { all, wire } = replicas(2);
    const [one, two] = all;
    const [taskId] = two.add(A);
    vi.advanceTimersByTime(TELL_MS);
    wire.broken = true;
    if (taskId !== undefined) two.line.drop(taskId);
    two.add(B);
    vi.advanceTimersByTime(TELL_MS);
    wire.broken = false;
    expect([one.others.counts(A).count, one.others.counts(B).count]).toEqual([1, 0]);
    vi.advanceTimersByTime(WHOLE_MS);
    expect([one.others.counts(A).count, one.others.counts(B).count]).toEqual([0, 1]);
  });

  test('of many queues go in messages of a thousand, and the whole of them names each once', () => {
    const { all, wire } = replicas(2);
    const [one, two] = all;
    const queues = Array.from({ length: 2_500 }, (_none, number) => `tq-${number}` as QueueName);
    for (const queue of queues) two.add(queue);
    vi.advanceTimersByTime(TELL_MS);
    const known = (): number => queues.filter((queue) => one.others.counts(queue).count === 1).length;
    expect(known()).toBe(2_500);
    wire.said.length = 0;
    vi.advanceTimersByTime(WHOLE_MS);
    const sizes = wire.said.filter(({ from }) => from === two.instance).map(({ told }) => told.length);
    expect(Math.max(...sizes)).toBe(1_000);
    expect(sizes.filter((size) => size > 0)).toEqual([1_000, 1_000, 500]);
    expect(known()).toBe(2_500);
  });

  test('that do not change are not told again, but a sign once a second', () => {
    const { all, wire } = replicas(2);
    const [, two] = all;
    two.add(A);
    vi.advanceTimersByTime(TELL_MS);
    wire.said.length = 0;
    vi.advanceTimersByTime(3_000);
    const own = wire.said.filter(({ from }) => from === two.instance);
    expect(own.map(({ told }) => told)).toEqual([[], [], []]);
  });
});

describe('a queue that waits for a slot', () => {
  test('is told at once, once in a quarter of a second, however often that is asked for', () => {
    const { all, wire } = replicas(2);
    const [one, two] = all;
    two.add(A);
    wire.said.length = 0;
    for (let times = 0; times < 10; times += 1) two.others.tellNow(A);
    expect(wire.said).toHaveLength(1);
    expect(one.others.counts(A)).toEqual({ count: 1, waiting: 1 });
    two.add(A);
    two.others.tellNow(A);
    expect(one.others.counts(A).count).toBe(1);
    vi.advanceTimersByTime(TELL_MS);
    expect(one.others.counts(A).count).toBe(2);
    two.others.tellNow(A);
    expect(wire.said.filter(({ told }) => told.length > 0)).toHaveLength(3);
  });

  test('has its oldest task known by age, which goes on; one of which all tasks are sent has none', () => {
    const [one, two] = replicas(2).all;
    const [first, second] = two.add(A, 2);
    vi.advanceTimersByTime(TELL_MS);
    const heads = () => [...one.others.heads(A)];
    expect(heads()).toEqual([{ replica: two.instance, ageMs: TELL_MS }]);
    vi.advanceTimersByTime(100);
    expect(heads()).toEqual([{ replica: two.instance, ageMs: TELL_MS + 100 }]);
    expect([...two.others.heads(A)]).toEqual([]);
    for (const taskId of [first, second]) if (taskId !== undefined) two.send(taskId);
    vi.advanceTimersByTime(TELL_MS);
    expect(heads()).toEqual([]);
    expect(one.others.counts(A)).toEqual({ count: 2, waiting: 0 });
  });

  test('waits there no more for the slots that are kept for it, until it is told again', () => {
    const [one, two] = replicas(2).all;
    two.add(A, 2);
    vi.advanceTimersByTime(TELL_MS);
    one.others.roomKept(A, two.instance);
    expect([...one.others.heads(A)]).toHaveLength(1);
    one.others.roomKept(A, two.instance);
    expect([...one.others.heads(A)]).toEqual([]);
    for (let times = 0; times < 3; times += 1) one.others.roomKept(A, two.instance);
    expect(one.others.counts(A)).toEqual({ count: 2, waiting: 0 });
    two.others.tellNow(A);
    expect([...one.others.heads(A)]).toHaveLength(1);
  });
});

test('a present replica that is silent for two seconds, or was never heard, leaves nothing to count with', () => {
  const { all, wire, dead } = replicas(2);
  const [one, two] = all;
  const silent = { code: 'queues_unavailable' };
  expect(() => one.others.requireFresh()).toThrow(expect.objectContaining(silent));
  vi.advanceTimersByTime(1_000);
  expect(() => one.others.requireFresh()).not.toThrow();
  wire.broken = true;
  vi.advanceTimersByTime(2_000);
  expect(() => one.others.requireFresh()).not.toThrow();
  vi.advanceTimersByTime(250);
  expect(() => one.others.requireFresh()).toThrow(expect.objectContaining(silent));
  dead.add(two.instance);
  expect(() => one.others.requireFresh()).not.toThrow();
  dead.delete(two.instance);
  wire.broken = false;
  vi.advanceTimersByTime(1_000);
  expect(() => one.others.requireFresh()).not.toThrow();
});
