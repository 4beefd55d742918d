// Synchronous tasks that cross replicas, on real Redis: accepted where no container is linked, served where one is.
// Offers and answers get lost, slots are full or free late, either replica dies at each step. No task runs twice, and
// each caller is answered.
import { describe, expect } from 'vitest';
import type { Target } from '#scheduler/domain/stub-config.ts';
import type { ServingCall } from '#scheduler/domain/serving.ts';
import { seenByCaller } from '../helpers/seen-by-caller.ts';
import { waitFor } from '../helpers/services.ts';
import type { Accepted } from '../helpers/submissions.ts';
import { reaches, sent, submitted } from '../helpers/submissions.ts';
import type { Process } from './tasks-fixture.ts';
import { aTarget, MACHINE, PlayedLink } from './tasks-fixture.ts';
import type { Cluster } from './lines-fixture.ts';
import { eavesdrop, isAnswerTo, isKind, live, OTHER_MACHINE, passTime, test } from './lines-fixture.ts';
import type { Options } from './tasks-started.ts';
import { idle } from './tasks-started.ts';

interface Two {
  /** The replica that accepts; no container is linked to it. */
  readonly far: Process;
  /** The replica that serves. */
  readonly near: Process;
  readonly target: Target;
  readonly link: PlayedLink;
}

async function two(cluster: Cluster, far: Options = {}, near: Options = {}): Promise<Two> {
  const serving = await cluster.start(near);
  return { far: await cluster.start(far), near: serving, target: aTarget(), link: new PlayedLink() };
}
const placeOf = (one: Process, { taskId }: Accepted) => one.lines.line.get(taskId)?.place;
const isAway = (one: Process, task: Accepted) =>
  waitFor(async () => {
    await one.peers.crossing.tick();
    return placeOf(one, task)?.kind === 'away';
  }, 'its owner says that it has it');
const isOver = (one: Process, queue: Target['queue']) =>
  waitFor(() => one.lines.count(queue) === 0 && one.attempts.size === 0, 'nothing is left');

describe('a task for which another replica has room', () => {
  test('is offered to it: it counts in the depth, its caller is answered, and nothing is left of it', async ({
    cluster,
  }) => {
    const { far, near, target, link } = await two(cluster);
    const container = cluster.serve(near, target, link);
    await idle(container);
    const said = { far: eavesdrop(far), near: eavesdrop(near) };
    const task = await submitted(far, target);
    const order = await sent(link);
    expect(await far.lines.depth(target.queue)).toMatchObject({ waiting: 0, active: 1 });
    expect(await far.lines.placeOf(target.queue, task.taskId)).toEqual({ kind: 'active' });
    await waitFor(async () => (await near.lines.depth(target.queue)).active === 1, 'it counts there, too');
    await near.result(order, '{"y":1}');
    expect(await task.finished).toMatchObject({ status: 'COMPLETE', body: '{"y":1}' });
    await reaches(far, task.taskId, 'COMPLETE');
    for (const one of [far, near]) await isOver(one, target.queue);
    // The offer and the answer are all that is said of it.
    const crossed = [...said.far, ...said.near].filter(([first]) => first === task.taskId || first !== 'has');
    expect(crossed).toEqual([expect.arrayContaining(['offer']), expect.arrayContaining([task.taskId, 'COMPLETE'])]);
    await idle(container);
  });

  test('runs there on and on: its replica is asked now and then, and its caller is answered all the same', async ({
    cluster,
  }) => {
    const { far, near, target, link } = await two(cluster);
    cluster.serve(near, target, link);
    const task = await submitted(far, target);
    const order = await sent(link);
    const said = eavesdrop(far);
    for (const [at, ms] of [1_100, 5_100].entries()) {
      passTime(ms);
      await far.peers.crossing.tick();
      await waitFor(() => said.filter(isKind('recall')).length === at + 1, 'its replica is asked');
      await isAway(far, task);
    }
    await near.result(order);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    expect(link.runs).toBe(1);
  });

  test('and whose input is large goes there with its object', async ({ cluster }) => {
    const { far, near, target, link } = await two(cluster);
    near.bytes.getBytes = (id) => Promise.resolve(far.bytes.objects.get(id));
    cluster.serve(near, target, link);
    const input = JSON.stringify('x'.repeat(100_000));
    const task = await submitted(far, target, input);
    const order = await sent(link);
    expect(order.input).toBe(input);
    await near.result(order);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
  });

  test('passes on the items of its generator as they come', async ({ cluster }) => {
    const { far, near, target, link } = await two(cluster);
    cluster.serve(near, target, link);
    const items: string[] = [];
    const submission = await far.submissions.submit(target, { input: '{}', onItem: (_id, event) => items.push(event) });
    if (submission.kind !== 'accepted') throw new Error(submission.kind);
    const order = await sent(link);
    for (const seq of [0, 1]) near.reports.item(order.taskId, order.token, seq, Buffer.from(`data: ${seq}\n\n`));
    await waitFor(() => items.length === 2, 'both came');
    expect(items).toEqual(['data: 0\n\n', 'data: 1\n\n']);
    await near.result(order);
    expect(await submission.finished).toMatchObject({ status: 'COMPLETE' });
  });

  test('of a model goes to the engine there that served its conversation before', async ({ cluster }) => {
    const { far, near, target } = await two(cluster);
    const links = [new PlayedLink(), new PlayedLink(OTHER_MACHINE)];
    const containers = links.map((link) => cluster.serve(near, target, link, 4));
    const serving = { tokens: 100, tokensPerStream: 1_000, prefers: 'a conversation' } as unknown as ServingCall;
    const served: string[] = [];
    for (let n = 0; n < 3; n += 1) {
      const submission = await far.submissions.submit(target, { input: '{}', serving });
      if (submission.kind !== 'accepted') throw new Error(submission.kind);
      const order = await waitFor(
        () => links.flatMap(({ orders }) => orders).find(({ taskId }) => taskId === submission.taskId),
        'it is sent',
      );
      served.push(order.containerId);
      expect(containers.find(({ containerId }) => containerId === order.containerId)?.tokens).toBe(100);
      const attempt = near.attempts.current(order.taskId);
      await near.reports.result(attempt?.machineId as typeof MACHINE, {
        ...order,
        outcome: 'ok',
        durationMs: 1,
        body: Buffer.from('{}'),
      });
      expect(await submission.finished).toMatchObject({ status: 'COMPLETE' });
    }
    expect(new Set(served).size).toBe(1);
    for (const one of containers) expect([one.tokens, one.inFlight]).toEqual([0, 0]);
  });
});

describe('a receiver without room', () => {
  test('refuses it, once: it keeps its place, and is offered again when loads are told', async ({ cluster }) => {
    cluster.tellsLoads = false;
    const { far, near, target, link } = await two(cluster);
    cluster.serve(near, target, link);
    await submitted(near, target);
    const running = await sent(link);
    const said = { far: eavesdrop(far), near: eavesdrop(near, isKind('room')) };
    cluster.believed.set(near.instance, 2);
    const tasks = [await submitted(far, target), await submitted(far, target), await submitted(far, target)];
    await waitFor(() => said.near.filter(isKind('word')).length === 2, 'both offers are refused');
    await waitFor(() => far.lines.line.waitingCount(target.queue) === 3, 'they wait again');
    cluster.tellLoads(near);
    await waitFor(() => said.near.filter(isKind('word')).length === 4, 'two more are refused');
    await waitFor(() => far.lines.line.waitingCount(target.queue) === 3, 'they wait again');
    cluster.believed.delete(near.instance);
    cluster.tellLoads(near);
    expect(said.far.filter(isKind('offer'))).toHaveLength(4);
    await near.result(running);
    for (const [at, { taskId, finished }] of tasks.entries()) {
      const order = await waitFor(() => {
        cluster.tellLoads(near);
        return link.orders[at + 1];
      }, 'it is offered again');
      expect(order.taskId).toBe(taskId);
      await near.result(order);
      expect(await finished).toMatchObject({ status: 'COMPLETE' });
    }
    expect(link.runs).toBe(4);
  });

  test('keeps a slot that frees for the older task of the other replica', async ({ cluster }) => {
    const { far, near, target, link } = await two(cluster);
    cluster.serve(near, target, link);
    await submitted(near, target);
    const running = await sent(link);
    const older = await submitted(far, target);
    await waitFor(() => [...near.peers.others.heads(target.queue)].length === 1, 'its replica told of it');
    passTime(500);
    const younger = await submitted(near, target);
    const said = eavesdrop(near);
    await near.result(running);
    const order = await sent(link, 2);
    expect(order.taskId).toBe(older.taskId);
    expect(said.some(isKind('room'))).toBe(true);
    await near.result(order);
    expect(await older.finished).toMatchObject({ status: 'COMPLETE' });
    expect((await sent(link, 3)).taskId).toBe(younger.taskId);
  });

  test('does not keep a slot for longer than a moment for a replica that does not answer', async ({ cluster }) => {
    const { far, near, target, link } = await two(cluster);
    const container = cluster.serve(near, target, link);
    await submitted(near, target);
    const running = await sent(link);
    const older = await submitted(far, target);
    await waitFor(() => [...near.peers.others.heads(target.queue)].length === 1, 'its replica told of it');
    passTime(500);
    const younger = await submitted(near, target);
    eavesdrop(near, isKind('room'));
    await near.result(running);
    const order = await sent(link, 2);
    expect(order.taskId).toBe(younger.taskId);
    await near.result(order);
    await waitFor(() => {
      cluster.tellLoads(near);
      return link.orders[2]?.taskId === older.taskId;
    }, 'the other one is served, too');
    await near.result(await sent(link, 3));
    expect(await older.finished).toMatchObject({ status: 'COMPLETE' });
    await idle(container);
  });

  test('whose link has no room gives it back, and it is sent a moment later', async ({ cluster }) => {
    const { far, near, target, link } = await two(cluster);
    const container = cluster.serve(near, target, link);
    link.mode = 'full';
    const said = eavesdrop(far);
    const task = await submitted(far, target);
    await waitFor(() => link.runs === 1 && placeOf(far, task)?.kind === 'waiting', 'it was tried, and waits again');
    expect(said.filter(isKind('offer')).length).toBeLessThan(4);
    link.mode = 'take';
    await near.result(await sent(link));
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    await idle(container);
  });

  test('whose agent gives it back, long after it was offered: it runs again, once', async ({ cluster }) => {
    const { far, near, target, link } = await two(cluster);
    cluster.serve(near, target, link);
    const task = await submitted(far, target);
    const first = await sent(link);
    passTime(1_100);
    await isAway(far, task);
    await near.reports.refused(MACHINE, first.taskId, first.token, 'busy');
    await waitFor(() => {
      cluster.tellLoads(near);
      return link.orders.length === 2;
    }, 'it is sent again');
    const again = await sent(link, 2);
    expect(again.taskId).toBe(task.taskId);
    expect(await near.result(first)).toBe(true);
    await near.result(again);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    expect(await far.records.read(task.taskId)).toMatchObject({ attempt: 2 });
  });
});

describe('a message gets lost', () => {
  test('the offer: it is asked for after a second, offered again at once, and served once', async ({ cluster }) => {
    const { far, near, target, link } = await two(cluster);
    cluster.serve(near, target, link);
    let isFirst = true;
    const said = eavesdrop(far, (one) => isKind('offer')(one) && isFirst && !(isFirst = false));
    const task = await submitted(far, target);
    await far.peers.crossing.tick();
    expect(said.some(isKind('recall'))).toBe(false);
    passTime(1_100);
    await far.peers.crossing.tick();
    const order = await sent(link);
    await near.result(order);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    expect(await far.records.read(task.taskId)).toMatchObject({ attempt: 2 });
    expect(link.runs).toBe(1);
  });

  test('the offer comes late, after it was asked for: it is not taken any more', async ({ cluster }) => {
    cluster.tellsLoads = false;
    const { far, near, target, link } = await two(cluster);
    const container = cluster.serve(near, target, link);
    let isCut = true;
    const said = eavesdrop(far, (one) => isCut && isKind('offer')(one));
    const task = await submitted(far, target);
    const late = await waitFor(() => said.find(isKind('offer')), 'it is offered');
    near.slots.leave(container.containerId);
    passTime(1_100);
    await far.peers.crossing.tick();
    await waitFor(() => placeOf(far, task)?.kind === 'waiting', 'it waits again');
    near.slots.stay(container.containerId);
    isCut = false;
    const words = eavesdrop(near);
    await far.client.publish(far.keys.linesChannel(near.instance), JSON.stringify([late]));
    await waitFor(() => words.some(isKind('word')), 'it is refused again');
    expect(link.runs).toBe(0);
    cluster.tellLoads(near);
    await near.result(await sent(link));
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    await far.client.publish(far.keys.linesChannel(near.instance), JSON.stringify([late]));
    await isOver(far, target.queue);
    await idle(container);
    expect(link.runs).toBe(1);
  });

  test('the answer: it is found in the row', async ({ cluster }) => {
    const { far, near, target, link } = await two(cluster);
    cluster.serve(near, target, link);
    const task = await submitted(far, target);
    const order = await sent(link);
    eavesdrop(near, isAnswerTo(task));
    await near.result(order, '{"y":1}');
    expect(await task.finished).toMatchObject({ status: 'COMPLETE', body: '{"y":1}' });
    await isOver(far, target.queue);
  });

  test('of everything that its replica says for a while: it runs once, and its caller is answered', async ({
    cluster,
  }) => {
    const { far, near, target, link } = await two(cluster);
    cluster.serve(near, target, link);
    let isCut = true;
    eavesdrop(near, () => isCut);
    const task = await submitted(far, target);
    const order = await sent(link);
    for (let n = 0; n < 3; n += 1) {
      passTime(1_100);
      await far.peers.crossing.tick();
    }
    await near.reports.refused(MACHINE, order.taskId, order.token, 'busy');
    isCut = false;
    passTime(1_100);
    await far.peers.crossing.tick();
    await waitFor(() => {
      cluster.tellLoads(near);
      return link.orders.length === 2;
    }, 'it is sent again');
    await near.result(await sent(link, 2));
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
  });
});

describe('a receiver that loads the input', () => {
  /** A task that the receiver has taken, and whose input is on its way there. */
  async function loading(cluster: Cluster) {
    const made = await two(cluster);
    const { far, near, target, link } = made;
    const gate = Promise.withResolvers<void>();
    let loads = 0;
    near.bytes.getBytes = async (id) => {
      if ((loads += 1) === 1) await gate.promise;
      return far.bytes.objects.get(id);
    };
    const container = cluster.serve(near, target, link, 2);
    await idle(container);
    const task = await submitted(far, target, JSON.stringify('x'.repeat(100_000)));
    await waitFor(() => loads === 1, 'it is taken');
    return { ...made, container, task, gate };
  }

  test('and is asked for it meanwhile gives it back: it is sent once, under the next attempt’s number', async ({
    cluster,
  }) => {
    const { far, near, link, container, task, gate } = await loading(cluster);
    passTime(1_100);
    await far.peers.crossing.tick();
    const order = await waitFor(() => {
      cluster.tellLoads(near);
      return link.orders[0];
    }, 'it is sent');
    gate.resolve();
    await waitFor(() => container.inFlight === 1, 'the first one is given up');
    await near.result(order);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    await idle(container);
    expect(link.runs).toBe(1);
    expect(await far.records.read(task.taskId)).toMatchObject({ attempt: 2 });
  });

  test('for too long gives it back, and does not send it', async ({ cluster }) => {
    const { far, near, link, container, task, gate } = await loading(cluster);
    eavesdrop(far, isKind('recall'));
    passTime(5_100);
    gate.resolve();
    await waitFor(() => placeOf(far, task)?.attempt === 2, 'its replica had it again');
    const order = await waitFor(() => {
      cluster.tellLoads(near);
      return link.orders[0];
    }, 'it is sent');
    expect(far.lines.order(task.taskId)).toBeUndefined();
    expect(near.lines.order(task.taskId)).toMatchObject({ attempt: 2 });
    await near.result(order);
    await idle(container);
    expect(link.runs).toBe(1);
  });

  test('and stands still meanwhile gives it back, and does not send it', async ({ cluster }) => {
    let stalledAtMs: number | null = null;
    const near = await cluster.start({ stalledAtMs: () => stalledAtMs });
    const far = await cluster.start();
    const [target, link] = [aTarget(), new PlayedLink()];
    const gate = Promise.withResolvers<void>();
    let loads = 0;
    near.bytes.getBytes = async (id) => {
      loads += 1;
      await gate.promise;
      return far.bytes.objects.get(id);
    };
    await idle(cluster.serve(near, target, link));
    const task = await submitted(far, target, JSON.stringify('x'.repeat(100_000)));
    await waitFor(() => loads === 1, 'it is taken');
    passTime(50);
    stalledAtMs = performance.now();
    gate.resolve();
    await waitFor(() => placeOf(far, task)?.kind === 'waiting', 'its replica has it again');
    expect(link.runs).toBe(0);
  });
});

describe('the receiver dies', () => {
  test('before its order reached an agent: 502 once nobody has adopted it', async ({ cluster }) => {
    const { far, near, target, link } = await two(cluster);
    cluster.serve(near, target, link);
    link.mode = 'lose';
    const task = await submitted(far, target);
    await waitFor(() => link.runs === 1, 'it is sent');
    cluster.kill(near);
    await far.peers.crossing.tick();
    passTime(60_000);
    await far.peers.crossing.tick();
    // The machine may have it, and did not report yet.
    expect(placeOf(far, task)).toMatchObject({ kind: 'orphaned', settledAtMs: null });
    cluster.lost.add(MACHINE);
    await far.peers.crossing.tick();
    passTime(9_000);
    await far.peers.crossing.tick();
    expect(placeOf(far, task)?.kind).toBe('orphaned');
    passTime(1_100);
    await far.peers.crossing.tick();
    expect(seenByCaller(await task.finished)).toMatchObject({ status: 'ERROR', httpStatus: 502 });
    expect(await far.records.read(task.taskId)).toMatchObject({ status: 'ERROR', failureReason: 'lost', attempt: 1 });
    await isOver(far, target.queue);
  });

  test('while it runs: adopted by the facts of its agent, one run, its caller has the result', async ({ cluster }) => {
    const { far, near, target, link } = await two(cluster);
    cluster.serve(near, target, link);
    const task = await submitted(far, target);
    const order = await sent(link);
    cluster.kill(near);
    const other = await cluster.start();
    const after = new PlayedLink();
    const container = other.container(target.queue, undefined, 1, order.containerId);
    expect((await cluster.dial(other, after, { running: [live(order)] })).adopted).toHaveLength(1);
    expect(container.inFlight).toBe(1);
    await waitFor(() => placeOf(far, task)?.kind === 'away', 'its caller’s replica knows where it is');
    passTime(60_000);
    await far.peers.crossing.tick();
    expect(await other.result(order, '{"late":1}')).toBe(true);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE', body: '{"late":1}' });
    expect(await other.records.read(task.taskId)).toMatchObject({ status: 'COMPLETE', attempt: 1 });
    for (const one of [far, other]) await isOver(one, target.queue);
    expect(container.inFlight).toBe(0);
  });

  test('while it runs: what the new replica says of it is lost, and it is asked by the row', async ({ cluster }) => {
    const { far, near, target, link } = await two(cluster);
    cluster.serve(near, target, link);
    const task = await submitted(far, target);
    const order = await sent(link);
    cluster.kill(near);
    const other = await cluster.start();
    let isCut = true;
    eavesdrop(other, (one) => isCut && isKind('word')(one));
    other.container(target.queue, undefined, 1, order.containerId);
    await cluster.dial(other, new PlayedLink(), { running: [live(order)] });
    await reaches(other, task.taskId, 'RUNNING');
    isCut = false;
    await far.peers.crossing.tick();
    await far.peers.crossing.tick();
    passTime(10_100);
    await isAway(far, task);
    expect(placeOf(far, task)).toMatchObject({ to: other.instance });
    await other.result(order);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
  });

  test('while it runs, and its machine dials the replica of its caller: it goes on there', async ({ cluster }) => {
    const { far, near, target, link } = await two(cluster);
    cluster.serve(near, target, link);
    const task = await submitted(far, target);
    const order = await sent(link);
    cluster.kill(near);
    await far.peers.crossing.tick();
    far.container(target.queue, undefined, 1, order.containerId);
    expect((await cluster.dial(far, new PlayedLink(), { running: [live(order)] })).adopted).toHaveLength(1);
    expect(placeOf(far, task)?.kind).toBe('here');
    expect(await far.result(order)).toBe(true);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    await isOver(far, target.queue);
  });

  test('between the answer and the commit: the agent repeats the result, and it is recorded', async ({ cluster }) => {
    const { far, near, target, link } = await two(cluster, {}, { collectMs: 60_000 });
    cluster.serve(near, target, link);
    const task = await submitted(far, target);
    const order = await sent(link);
    let isAcknowledged = false;
    void near.result(order, '{"y":1}').then(() => (isAcknowledged = true));
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    // The agent keeps the result until its record is safe (R3).
    expect(isAcknowledged).toBe(false);
    cluster.kill(near);
    const other = await cluster.start();
    expect(await other.records.read(task.taskId)).not.toMatchObject({ status: 'COMPLETE' });
    other.container(target.queue, undefined, 1, order.containerId);
    await cluster.dial(other, new PlayedLink(), { finished: [live(order)] });
    expect(await other.result(order, '{"y":1}')).toBe(true);
    expect(await other.records.read(task.taskId)).toMatchObject({ status: 'COMPLETE', attempt: 1, result: '{"y":1}' });
    await isOver(other, target.queue);
  });

  test('it was only taken for dead: it is asked again, and its caller has the result', async ({ cluster }) => {
    const { far, near, target, link } = await two(cluster);
    cluster.serve(near, target, link);
    const task = await submitted(far, target);
    const order = await sent(link);
    const comeBack = cluster.seemsDead(near);
    await far.peers.crossing.tick();
    expect(placeOf(far, task)?.kind).toBe('orphaned');
    comeBack();
    await isAway(far, task);
    await near.result(order);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
  });
});

describe('the replica of the caller', () => {
  test('dies while it runs: it goes on, and is recorded', async ({ cluster }) => {
    const { far, near, target, link } = await two(cluster);
    const container = cluster.serve(near, target, link);
    const task = await submitted(far, target);
    const order = await sent(link);
    cluster.kill(far);
    await near.result(order);
    await reaches(near, task.taskId, 'COMPLETE');
    await idle(container);
    expect(near.lines.order(task.taskId)).toBeUndefined();
  });

  test('dies, and the machine dials a third one: it goes on there, counts in the depth, and is recorded', async ({
    cluster,
  }) => {
    const { far, near, target, link } = await two(cluster);
    cluster.serve(near, target, link);
    const task = await submitted(far, target);
    const order = await sent(link);
    cluster.kill(far);
    cluster.kill(near);
    const other = await cluster.start();
    other.container(target.queue, undefined, 1, order.containerId);
    await cluster.dial(other, new PlayedLink(), { running: [live(order)] });
    expect(await other.lines.depth(target.queue)).toMatchObject({ waiting: 0, active: 1 });
    await other.result(order);
    await reaches(other, task.taskId, 'COMPLETE');
    expect(await other.lines.depth(target.queue)).toMatchObject({ waiting: 0, active: 0 });
  });

  test('stops: callers of what waits are told, and it is not sent', async ({ cluster }) => {
    const { far, near, target, link } = await two(cluster);
    cluster.serve(near, target, link);
    await submitted(near, target);
    const running = await sent(link);
    const task = await submitted(far, target);
    await far.callers.stop();
    expect(seenByCaller(await task.finished)).toMatchObject({
      httpStatus: 503,
      body: '{"error":"scheduler is stopping"}',
    });
    await near.result(running);
    await isOver(near, target.queue);
    expect(link.runs).toBe(1);
  });
});

test('of many that come at once to two replicas about as many are let in as may be pending', async ({ cluster }) => {
  const { far, near, link } = await two(cluster);
  const target = aTarget({ maxPendingTasks: 100 });
  cluster.serve(near, target, link, 4);
  for (let n = 0; n < 60; n += 1) await submitted(near, target);
  await waitFor(() => far.peers.others.counts(target.queue).count === 60, 'the other one was told');
  const answers = await Promise.all(Array.from({ length: 60 }, () => far.submissions.submit(target, { input: '{}' })));
  expect(answers.filter(({ kind }) => kind === 'accepted')).toHaveLength(40);
  expect(answers.filter(({ kind }) => kind === 'queue_full')).toHaveLength(20);
});

test('Redis emptied while it runs: it runs once, and its caller is answered', async ({ cluster }) => {
  const { far, near, target, link } = await two(cluster);
  cluster.serve(near, target, link);
  const task = await submitted(far, target);
  const order = await sent(link);
  await near.client.flushall();
  for (const one of [near, far]) {
    await one.queues.reopenAll();
    await one.redisLost();
  }
  await near.result(order);
  expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
  expect(link.runs).toBe(1);
});
