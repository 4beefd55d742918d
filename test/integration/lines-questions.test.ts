// Questions to all replicas about synchronous tasks, on real Redis: a task is stopped by its id at any replica,
// wherever it is; which of them some replica has.
import { describe, expect } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import type { TaskId } from '#shared/domain/ids.ts';
import { newId } from '#shared/domain/ids.ts';
import { Cancellation } from '#scheduler/tasks/completion/cancellation.ts';
import { seenByCaller } from '../helpers/seen-by-caller.ts';
import { waitFor } from '../helpers/services.ts';
import type { Accepted } from '../helpers/submissions.ts';
import { reaches, sent, submitted } from '../helpers/submissions.ts';
import type { Process } from './tasks-fixture.ts';
import { aTarget, MACHINE, PlayedLink } from './tasks-fixture.ts';
import { aQueueTarget, put } from './tasks-world.ts';
import type { Cluster } from './lines-fixture.ts';
import { bare, eavesdrop, isKind, live, passTime, test } from './lines-fixture.ts';
import { idle } from './tasks-started.ts';

const STOPPED = { status: 'CANCELLED', reason: 'request_cancelled', detail: 'stopped' } as const;

/** The replica of the callers, the one with the containers, and a third one that knows nothing of the tasks. */
async function three(cluster: Cluster, slots = 1) {
  const [near, far, third] = [await cluster.start(), await cluster.start(), await cluster.start()];
  const [target, link] = [aTarget(), new PlayedLink()];
  const container = cluster.serve(near, target, link, slots);
  return { near, far, third, target, link, container };
}

/** Stops a task by its id, as the verbs do. */
async function stop(one: Process, { taskId }: Pick<Accepted, 'taskId'>): Promise<boolean> {
  const cancellation = new Cancellation({
    ...one,
    queues: one.lines,
    deferred: { cancel: () => Promise.reject(new Error('no model is called here')) },
    clock: systemClock,
    stopSync: (id, ending) => one.peers.questions.stop(id, ending),
  });
  const record = await one.records.read(taskId);
  if (record === undefined) throw new Error('no such task');
  return await cancellation.cancelRecorded(record, STOPPED);
}
const recorded = (one: Process, { taskId }: Accepted) =>
  waitFor(async () => (await one.records.read(taskId)) !== undefined, 'it has a row');

describe('a task that is stopped by its id at a third replica', () => {
  test('and waits: it is CANCELLED, its caller is answered, and it is not sent', async ({ cluster }) => {
    const { near, far, third, target, link } = await three(cluster);
    await submitted(near, target);
    const running = await sent(link);
    const task = await submitted(far, target);
    await recorded(far, task);
    expect(await stop(third, task)).toBe(true);
    expect(seenByCaller(await task.finished)).toMatchObject({ status: 'CANCELLED' });
    expect(await third.records.read(task.taskId)).toMatchObject({ status: 'CANCELLED' });
    await near.result(running);
    expect(link.runs).toBe(1);
    expect(far.lines.line.size).toBe(0);
  });

  test('and runs: its handler is told to stop, it is CANCELLED, and its caller is answered', async ({ cluster }) => {
    const { near, far, third, target, link, container } = await three(cluster);
    const task = await submitted(far, target);
    const order = await sent(link);
    await reaches(near, task.taskId, 'RUNNING');
    expect(await stop(third, task)).toBe(true);
    expect(link.cancelled).toEqual([`${task.taskId} ${order.token}`]);
    expect(seenByCaller(await task.finished)).toMatchObject({ status: 'CANCELLED' });
    expect(await third.records.read(task.taskId)).toMatchObject({ status: 'CANCELLED', attempt: 1 });
    // The slot stays taken until the agent says that the attempt is over.
    expect(container.inFlight).toBe(1);
    await near.result(order, '', 'cancelled');
    await idle(container);
    await waitFor(() => far.lines.line.size === 0, 'nothing is left');
  });

  test('and was offered, and its input is being loaded: it is CANCELLED, and not sent', async ({ cluster }) => {
    const { near, far, third, target, link, container } = await three(cluster);
    const gate = Promise.withResolvers<void>();
    let isLoading = false;
    near.bytes.getBytes = async (id) => {
      isLoading = true;
      await gate.promise;
      return far.bytes.objects.get(id);
    };
    const task = await submitted(far, target, JSON.stringify('x'.repeat(100_000)));
    await recorded(far, task);
    await waitFor(() => isLoading, 'it is taken');
    expect(await stop(third, task)).toBe(true);
    gate.resolve();
    expect(seenByCaller(await task.finished)).toMatchObject({ status: 'CANCELLED' });
    await idle(container);
    expect(link.runs).toBe(0);
    expect(await third.records.read(task.taskId)).toMatchObject({ status: 'CANCELLED' });
    expect([far.lines.line.size, near.lines.order(task.taskId)]).toEqual([0, undefined]);
  });

  test('and whose offer got lost: it is CANCELLED, and not sent', async ({ cluster }) => {
    const { far, third, target, link } = await three(cluster);
    let isCut = true;
    eavesdrop(far, (one) => isCut && isKind('offer')(one));
    const task = await submitted(far, target);
    await recorded(far, task);
    const stopping = stop(third, task);
    passTime(1_100);
    await far.peers.crossing.tick();
    await stopping;
    isCut = false;
    passTime(1_100);
    await far.peers.crossing.tick();
    expect(seenByCaller(await task.finished)).toMatchObject({ status: 'CANCELLED' });
    expect(await third.records.read(task.taskId)).toMatchObject({ status: 'CANCELLED' });
    expect(link.orders.length - link.cancelled.length).toBe(0);
  });

  test('and whose machine has dialled another replica: that one stops it', async ({ cluster }) => {
    const { near, far, third, target, link } = await three(cluster);
    const task = await submitted(far, target);
    const order = await sent(link);
    const other = await cluster.start();
    const after = new PlayedLink();
    eavesdrop(near, isKind('handover'));
    await cluster.dial(other, after, { running: [live(order)] });
    cluster.serve(other, target, after, 1, order.containerId);
    await reaches(other, task.taskId, 'RUNNING');
    expect(await stop(third, task)).toBe(true);
    expect(seenByCaller(await task.finished)).toMatchObject({ status: 'CANCELLED' });
    await waitFor(() => after.cancelled.length === 1, 'its handler is told to stop');
    expect(await third.records.read(task.taskId)).toMatchObject({ status: 'CANCELLED' });
  });

  test('and that nobody has: its row is ended', async ({ cluster }) => {
    const { near, far, third, target, link } = await three(cluster);
    const task = await submitted(far, target);
    await sent(link);
    await reaches(near, task.taskId, 'RUNNING');
    for (const one of [far, near]) cluster.kill(one);
    expect(await stop(third, task)).toBe(true);
    expect(await third.records.read(task.taskId)).toMatchObject({ status: 'CANCELLED', attempt: 1 });
  });

  test('and is over: nothing changes', async ({ cluster }) => {
    const { near, far, third, target, link } = await three(cluster);
    const task = await submitted(far, target);
    await near.result(await sent(link), '{"y":1}');
    await reaches(near, task.taskId, 'COMPLETE');
    await stop(third, task);
    expect(await third.records.read(task.taskId)).toMatchObject({ status: 'COMPLETE', result: '{"y":1}' });
  });
});

test('a task of a lone process that is stopped while its input is loaded is CANCELLED, and not sent', async ({
  cluster,
}) => {
  const one = await cluster.start();
  const [target, link] = [aTarget(), new PlayedLink()];
  const gate = Promise.withResolvers<void>();
  const load = one.bytes.getBytes.bind(one.bytes);
  let isLoading = false;
  one.bytes.getBytes = async (id) => {
    isLoading = true;
    await gate.promise;
    return await load(id);
  };
  const container = cluster.serve(one, target, link);
  const task = await submitted(one, target, JSON.stringify('x'.repeat(100_000)));
  await recorded(one, task);
  await waitFor(() => isLoading, 'its input is being loaded');
  expect(await stop(one, task)).toBe(true);
  gate.resolve();
  expect(seenByCaller(await task.finished)).toMatchObject({ status: 'CANCELLED' });
  await idle(container);
  expect(link.runs).toBe(0);
});

describe('which tasks some replica has', () => {
  test('counts those that wait, run, or are waited for, wherever they are', async ({ cluster }) => {
    const { near, far, third, target, link } = await three(cluster);
    const runs = await submitted(far, target);
    const order = await sent(link);
    const waits = await submitted(far, target);
    const own = await submitted(third, aTarget());
    const nobodys = newId<TaskId>();
    const asked = [runs, waits, own].map(({ taskId }) => taskId);
    expect(await third.peers.questions.whoHas([...asked, nobodys])).toEqual(new Set(asked));
    // An agent that was started again names an attempt whose replica is dead.
    for (const one of [far, near]) cluster.kill(one);
    const other = await cluster.start();
    await cluster.dial(other, new PlayedLink(MACHINE, 'agent-2'), { running: [bare(order)] });
    expect(await third.peers.questions.whoHas([...asked, nobodys])).toEqual(new Set([runs.taskId, own.taskId]));
  });

  test('counts attempts of asynchronous tasks, and no jobs', async ({ cluster }) => {
    const [one, other] = [await cluster.start(), await cluster.start()];
    const [target, link] = [aQueueTarget(), new PlayedLink()];
    const [runs, waits] = [await put(one, target), await put(one, target)];
    one.container(target.queue, link);
    const order = await sent(link);
    for (const asked of [one, other])
      expect(await asked.peers.questions.whoHas([runs, waits])).toEqual(new Set([order.taskId]));
  });

  test('needs no answer of a replica that dies meanwhile', async ({ cluster }) => {
    const [one, silent] = [await cluster.start({ peers: { silentMs: 100 } }), await cluster.start()];
    const task = await submitted(one, aTarget());
    eavesdrop(silent, () => true);
    const asking = one.peers.questions.whoHas([task.taskId]);
    cluster.kill(silent);
    expect(await asking).toEqual(new Set([task.taskId]));
  });

  test('is not known while a replica that is present does not answer', async ({ cluster }) => {
    const [one, silent] = [await cluster.start({ peers: { silentMs: 100 } }), await cluster.start()];
    const task = await submitted(one, aTarget());
    expect(await one.peers.questions.whoHas([task.taskId])).toEqual(new Set([task.taskId]));
    let isCut = true;
    eavesdrop(silent, () => isCut);
    expect(await one.peers.questions.whoHas([task.taskId])).toBeUndefined();
    isCut = false;
    cluster.kill(silent);
    expect(await one.peers.questions.whoHas([task.taskId])).toEqual(new Set([task.taskId]));
  });
});
