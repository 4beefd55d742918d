// Machines that dial another replica while the one that sent their synchronous tasks lives, on real Redis. Orders never
// arrived, agents were started again, runners dial late, links move on. No task runs twice, and each caller is answered
// once.
import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect } from 'vitest';
import type { TaskId } from '#shared/domain/ids.ts';
import { newId } from '#shared/domain/ids.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import type { RunOrder } from '#scheduler/tasks/dispatch/slots.ts';
import { seenByCaller } from '../helpers/seen-by-caller.ts';
import { waitFor } from '../helpers/services.ts';
import type { Accepted } from '../helpers/submissions.ts';
import { sent, submitted } from '../helpers/submissions.ts';
import type { Process } from './tasks-fixture.ts';
import { aTarget, MACHINE, PlayedLink } from './tasks-fixture.ts';
import type { Cluster, Said } from './lines-fixture.ts';
import { bare, eavesdrop, isAnswerTo, isKind, live, OTHER_MACHINE, passTime, test } from './lines-fixture.ts';

interface Sent {
  /** The replica of the caller, the one that sent the task, and one that the machine dials afterwards. */
  readonly far: Process;
  readonly near: Process;
  readonly other: Process;
  readonly target: Target;
  readonly before: PlayedLink;
  readonly task: Accepted;
  /** The order that left; absent: it got lost. */
  readonly order: RunOrder | undefined;
}

/**
 * A task that one replica accepted and another one sent.
 * @param mode - `lose`: the order does not reach the agent
 */
async function aSent(cluster: Cluster, mode: 'take' | 'lose' = 'take'): Promise<Sent> {
  const [near, far, other] = [await cluster.start(), await cluster.start(), await cluster.start()];
  const [target, before] = [aTarget(), new PlayedLink()];
  before.mode = mode;
  cluster.serve(near, target, before);
  const task = await submitted(far, target);
  await waitFor(() => before.runs === 1, 'it is sent');
  return { near, far, other, target, before, task, order: before.orders[0] };
}
/** Whether the order reaches the agent. */
const MODES = ['take', 'lose'] as const;
const placeOf = (one: Process, { taskId }: Accepted) => one.lines.line.get(taskId)?.place;
/** The replica that sent the task decides nothing more about it. */
const isHandedOver = (near: Process, { taskId }: Accepted) =>
  waitFor(async () => {
    await near.peers.moves.tick();
    return near.attempts.current(taskId) === undefined && near.lines.order(taskId) === undefined;
  }, 'it is handed over');
const lostOf = async (one: Process): Promise<number> => {
  const text = await one.registry.metrics();
  const all = text.split('\n').filter((line) => line.startsWith('longshore_task_attempts_lost_total'));
  return all.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
};
const only = (order: RunOrder | undefined): RunOrder => {
  if (order === undefined) throw new Error('nothing was sent');
  return order;
};

describe('a machine dials another replica while the one that sent lives', () => {
  test('and its agent names the attempt: it goes on there, and its caller is answered once', async ({ cluster }) => {
    const { far, near, other, target, task, order } = await aSent(cluster);
    const after = new PlayedLink();
    const said = eavesdrop(other);
    const { adopted } = await cluster.dial(other, after, { running: [live(only(order))] });
    expect(adopted).toHaveLength(1);
    const container = cluster.serve(other, target, after, 1, only(order).containerId);
    expect(container.inFlight).toBe(1);
    await isHandedOver(near, task);
    await waitFor(() => placeOf(far, task)?.kind === 'away', 'its caller’s replica knows');
    expect(placeOf(far, task)).toMatchObject({ to: other.instance, attempt: 1 });
    expect(await near.result(only(order), '{"old":1}')).toBe(true);
    await other.result(only(order), '{"y":1}');
    expect(await task.finished).toMatchObject({ status: 'COMPLETE', body: '{"y":1}' });
    expect(said.filter(isAnswerTo(task))).toHaveLength(1);
    expect([container.inFlight, await lostOf(near), await lostOf(other)]).toEqual([0, 0, 0]);
    expect(await other.records.read(task.taskId)).toMatchObject({ status: 'COMPLETE', attempt: 1 });
  });

  test('and the attempt ended meanwhile: its result follows, and its caller is answered once', async ({ cluster }) => {
    const { near, other, task, order } = await aSent(cluster);
    let isCut = true;
    eavesdrop(near, (one) => isCut && isKind('handover')(one));
    const said = eavesdrop(other);
    await cluster.dial(other, new PlayedLink(), { finished: [live(only(order))] });
    expect(await other.result(only(order), '{"y":1}')).toBe(true);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE', body: '{"y":1}' });
    isCut = false;
    await isHandedOver(near, task);
    expect(said.filter(isAnswerTo(task))).toHaveLength(1);
    expect(await lostOf(other)).toBe(0);
    expect(await other.records.read(task.taskId)).toMatchObject({ status: 'COMPLETE' });
  });

  test('and the order never arrived: it is returned, sent again, and runs once', async ({ cluster }) => {
    const { far, near, other, target, before, task } = await aSent(cluster, 'lose');
    const after = new PlayedLink();
    await cluster.dial(other, after);
    cluster.serve(other, target, after);
    await isHandedOver(near, task);
    const order = await sent(after);
    expect(order.taskId).toBe(task.taskId);
    await other.result(order);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    expect([before.runs, after.runs]).toEqual([1, 1]);
    expect(await far.records.read(task.taskId)).toMatchObject({ status: 'COMPLETE', attempt: 2 });
    expect(await lostOf(other)).toBe(0);
  });

  test('and every message about the hand-over gets lost once: it is sent again, and runs once', async ({ cluster }) => {
    const { far, near, other, target, task } = await aSent(cluster, 'lose');
    const lost = new Set<string>();
    const once = (who: string) => (one: Said) => {
      if (!['handover', 'handed', 'word'].includes(one[0] as string) || lost.has(`${who} ${String(one[0])}`))
        return false;
      lost.add(`${who} ${String(one[0])}`);
      return true;
    };
    eavesdrop(near, once('near'));
    eavesdrop(other, once('other'));
    const after = new PlayedLink();
    await cluster.dial(other, after);
    cluster.serve(other, target, after);
    await isHandedOver(near, task);
    expect([...lost].toSorted()).toEqual(expect.arrayContaining(['near handover', 'other handed', 'other word']));
    for (const ms of [1_100, 5_100]) {
      passTime(ms);
      await far.peers.crossing.tick();
    }
    await other.result(await sent(after));
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    expect(after.runs).toBe(1);
  });

  test('and what the new one says of it is lost: the one that sent it tells where it is', async ({ cluster }) => {
    const { far, near, other, task, order } = await aSent(cluster);
    eavesdrop(other, isKind('word'));
    await cluster.dial(other, new PlayedLink(), { running: [live(only(order))] });
    await isHandedOver(near, task);
    passTime(1_100);
    await far.peers.crossing.tick();
    await waitFor(() => placeOf(far, task)?.kind === 'away', 'it is told');
    expect(placeOf(far, task)).toMatchObject({ to: other.instance });
    await other.result(only(order));
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
  });

  test.for(MODES)(
    'which is the one of the caller: it goes on there, or is sent again from there, once (%s)',
    async (mode, { cluster }) => {
      const { far, near, target, task, order } = await aSent(cluster, mode);
      const after = new PlayedLink();
      await cluster.dial(far, after, { running: order === undefined ? [] : [live(order)] });
      cluster.serve(far, target, after, 1, order?.containerId);
      await isHandedOver(near, task);
      if (order === undefined) await sent(after);
      await far.result(order ?? only(after.orders[0]));
      expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
      expect([after.runs, far.lines.line.size, await lostOf(far)]).toEqual([mode === 'lose' ? 1 : 0, 0, 0]);
      expect(await far.records.read(task.taskId)).toMatchObject({ status: 'COMPLETE' });
    },
  );

  test('which is the one of the caller, and the hand-over comes after its result: nothing changes', async ({
    cluster,
  }) => {
    const { far, near, task, order } = await aSent(cluster);
    let isCut = true;
    eavesdrop(near, (one) => isCut && isKind('handover')(one));
    await cluster.dial(far, new PlayedLink(), { finished: [live(only(order))] });
    expect(await far.result(only(order), '{"y":1}')).toBe(true);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    isCut = false;
    await isHandedOver(near, task);
    expect(await lostOf(far)).toBe(0);
    expect(far.lines.order(task.taskId)).toBeUndefined();
    expect(await far.records.read(task.taskId)).toMatchObject({ status: 'COMPLETE', result: '{"y":1}' });
  });

  test.for(MODES)('of whose caller the task is: it goes on, or is sent again, once (%s)', async (mode, { cluster }) => {
    const [near, other] = [await cluster.start(), await cluster.start()];
    const [target, before, after] = [aTarget(), new PlayedLink(), new PlayedLink()];
    before.mode = mode;
    cluster.serve(near, target, before);
    const task = await submitted(near, target);
    const [order] = before.orders;
    await cluster.dial(other, after, { running: order === undefined ? [] : [live(order)] });
    cluster.serve(other, target, after, 1, order?.containerId);
    await isHandedOver(near, task);
    if (order === undefined) await sent(after);
    await other.result(order ?? only(after.orders[0]));
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    expect([before.runs, after.runs, near.lines.line.size]).toEqual([1, mode === 'lose' ? 1 : 0, 0]);
  });

  test.for(['near', 'far'] as const)(
    'and the task is sent again from here before it is handed over: its earlier slot is free (caller: %s)',
    async (where, { cluster }) => {
      const [near, far, other] = [await cluster.start(), await cluster.start(), await cluster.start()];
      const [target, before, there] = [aTarget(), new PlayedLink(), new PlayedLink(OTHER_MACHINE)];
      before.mode = 'lose';
      const container = cluster.serve(near, target, before);
      const task = await submitted(where === 'near' ? near : far, target);
      await waitFor(() => before.runs === 1, 'it is sent');
      cluster.serve(near, target, there);
      eavesdrop(other, isKind('handed'));
      await cluster.dial(other, new PlayedLink());
      const order = await sent(there);
      expect([order.taskId, container.inFlight]).toEqual([task.taskId, 0]);
      await near.reports.result(OTHER_MACHINE, { ...order, outcome: 'ok', durationMs: 1, body: Buffer.from('{}') });
      expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
      expect(near.attempts.size).toBe(0);
    },
  );

  test('and a task that was taken there and not sent is given back', async ({ cluster }) => {
    const [near, far, other] = [await cluster.start(), await cluster.start(), await cluster.start()];
    const [target, before, after] = [aTarget(), new PlayedLink(), new PlayedLink()];
    const gate = Promise.withResolvers<void>();
    let isLoading = false;
    near.bytes.getBytes = async (id) => {
      isLoading = true;
      await gate.promise;
      return far.bytes.objects.get(id);
    };
    other.bytes.getBytes = (id) => Promise.resolve(far.bytes.objects.get(id));
    cluster.serve(near, target, before);
    const task = await submitted(far, target, JSON.stringify('x'.repeat(100_000)));
    await waitFor(() => isLoading, 'it is taken');
    await cluster.dial(other, after);
    cluster.serve(other, target, after);
    gate.resolve();
    const order = await sent(after);
    await other.result(order);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    expect(before.runs).toBe(0);
    expect(await far.records.read(task.taskId)).toMatchObject({ attempt: 2 });
  });
});

describe('an agent that was started again dials another replica', () => {
  const AGAIN = 'agent-2';

  test('and does not name the attempt: lost after a grace, 502', async ({ cluster }) => {
    const { near, other, target, task } = await aSent(cluster);
    const after = new PlayedLink(MACHINE, AGAIN);
    await cluster.dial(other, after);
    cluster.serve(other, target, after);
    await near.peers.moves.tick();
    expect(near.attempts.current(task.taskId)).toBeDefined();
    passTime(250);
    await isHandedOver(near, task);
    expect(seenByCaller(await task.finished)).toMatchObject({ status: 'ERROR', httpStatus: 502 });
    expect(await other.records.read(task.taskId)).toMatchObject({ status: 'ERROR', failureReason: 'lost', attempt: 1 });
    expect([after.runs, await lostOf(other)]).toEqual([0, 1]);
  });

  test('and names it without its facts: it is handed over, and its caller has the result', async ({ cluster }) => {
    const { near, other, target, task, order } = await aSent(cluster);
    const after = new PlayedLink(MACHINE, AGAIN);
    const done = await cluster.dial(other, after, { running: [bare(only(order))] });
    expect(done).toEqual({ adopted: [], refused: [] });
    const container = cluster.serve(other, target, after, 1, only(order).containerId);
    await isHandedOver(near, task);
    expect([container.inFlight, after.cancelled]).toEqual([1, []]);
    await other.result(only(order), '{"y":1}');
    expect(await task.finished).toMatchObject({ status: 'COMPLETE', body: '{"y":1}' });
    expect(await other.records.read(task.taskId)).toMatchObject({ attempt: 1 });
  });

  test('and a runner dials it late: a heartbeat names the attempt, which is handed over', async ({ cluster }) => {
    const { near, other, target, task, order } = await aSent(cluster);
    const after = new PlayedLink(MACHINE, AGAIN);
    await cluster.dial(other, after);
    const container = cluster.serve(other, target, after, 1, only(order).containerId);
    other.reports.heartbeat(MACHINE, [bare(only(order))]);
    passTime(250);
    await isHandedOver(near, task);
    expect(container.inFlight).toBe(1);
    await other.result(only(order), '{"y":1}');
    expect(await task.finished).toMatchObject({ status: 'COMPLETE', body: '{"y":1}' });
  });

  test('and names one of a replica that is dead: 502, and it is told to end it', async ({ cluster }) => {
    const { far, near, other, target, task, order } = await aSent(cluster);
    cluster.kill(near);
    const after = new PlayedLink(MACHINE, AGAIN);
    await cluster.dial(other, after, { running: [bare(only(order))] });
    cluster.serve(other, target, after, 1, only(order).containerId);
    await other.peers.moves.tick();
    expect(after.cancelled).toEqual([]);
    for (let n = 0; n < 2; n += 1) await far.peers.crossing.tick();
    passTime(11_000);
    for (let n = 0; n < 2; n += 1) {
      await far.peers.crossing.tick();
      passTime(1_100);
    }
    expect(seenByCaller(await task.finished)).toMatchObject({ status: 'ERROR', httpStatus: 502 });
    passTime(20_000);
    await waitFor(async () => {
      await other.peers.moves.tick();
      return after.cancelled.length === 1;
    }, 'its agent is told');
    expect(after.cancelled).toEqual([`${task.taskId} ${only(order).token}`]);
  });

  test('and names one of a replica that is dead, as is its caller’s: it goes on by its row', async ({ cluster }) => {
    const { far, near, other, target, task, order } = await aSent(cluster);
    await waitFor(
      async () => (await near.records.read(task.taskId))?.status === 'RUNNING',
      'its row says that it runs',
    );
    for (const one of [far, near]) cluster.kill(one);
    const after = new PlayedLink(MACHINE, AGAIN);
    await cluster.dial(other, after, { running: [bare(only(order))] });
    const container = cluster.serve(other, target, after, 1, only(order).containerId);
    await waitFor(async () => {
      await other.peers.moves.tick();
      return other.attempts.current(task.taskId) !== undefined;
    }, 'it is adopted');
    expect(container.inFlight).toBe(1);
    await other.result(only(order), '{"y":1}');
    expect(await other.records.read(task.taskId)).toMatchObject({ status: 'COMPLETE', attempt: 1, result: '{"y":1}' });
  });
});

describe('the link moves on again', () => {
  test.for(MODES)(
    'before the hand-over arrived: it goes to the replica of the present link, and runs once (%s)',
    async (mode, { cluster }) => {
      const { near, other, target, task, order } = await aSent(cluster, mode);
      const third = await cluster.start();
      const running = order === undefined ? [] : [live(order)];
      let isCut = true;
      const said = eavesdrop(near, (one) => isCut && isKind('handover')(one));
      await cluster.dial(other, new PlayedLink(), { running });
      const late = await waitFor(() => said.find(isKind('handover')), 'it is being handed over');
      const after = new PlayedLink();
      await cluster.dial(third, after, { running });
      isCut = false;
      // The hand-over arrives where the machine is no more.
      const answers = eavesdrop(other);
      await near.client.publish(near.keys.linesChannel(other.instance), JSON.stringify([late]));
      cluster.serve(third, target, after, 1, order?.containerId);
      await isHandedOver(near, task);
      expect(answers.some(isKind('handed'))).toBe(false);
      if (order === undefined) await sent(after);
      await third.result(order ?? only(after.orders[0]));
      expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
      expect([after.runs, await lostOf(other), await lostOf(third)]).toEqual([mode === 'lose' ? 1 : 0, 0, 0]);
    },
  );

  test('after it was handed over: it goes on to the next one, and its caller is answered once', async ({ cluster }) => {
    const { far, near, other, target, task, order } = await aSent(cluster);
    const third = await cluster.start();
    await cluster.dial(other, new PlayedLink(), { running: [live(only(order))] });
    await isHandedOver(near, task);
    const after = new PlayedLink();
    await cluster.dial(third, after, { running: [live(only(order))] });
    cluster.serve(third, target, after, 1, only(order).containerId);
    await isHandedOver(other, task);
    await waitFor(() => {
      const place = placeOf(far, task);
      return place?.kind === 'away' && place.to === third.instance;
    }, 'its caller’s replica knows');
    await third.result(only(order));
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
  });

  test('and back to the one that sent it: it goes on there, and nobody ends it', async ({ cluster }) => {
    const { near, other, target, task, order } = await aSent(cluster);
    eavesdrop(near, isKind('handover'));
    await cluster.dial(other, new PlayedLink(), { running: [live(only(order))] });
    const back = new PlayedLink();
    await cluster.dial(near, back, { running: [live(only(order))] });
    near.slots.setLink(MACHINE, back);
    for (const one of [near, other]) await one.peers.moves.tick();
    await isHandedOver(other, task);
    expect(near.attempts.current(task.taskId)).toMatchObject({ ending: undefined });
    await near.result(only(order), '{"y":1}');
    expect(await task.finished).toMatchObject({ status: 'COMPLETE', body: '{"y":1}' });
    expect(target.queue).toBe(near.lines.order(task.taskId)?.queue ?? target.queue);
  });

  test('an order is judged by no report that is older than it (R5)', async ({ cluster }) => {
    const [near, other, third] = [await cluster.start(), await cluster.start(), await cluster.start()];
    const target = aTarget();
    const first = new PlayedLink();
    cluster.serve(near, target, first);
    // The machine was at the other replica before. That one has not noticed that the machine is back.
    await cluster.dial(other, new PlayedLink());
    const there = cluster.isUnnoticed(other);
    const present = new PlayedLink();
    await cluster.dial(near, present);
    near.slots.setLink(MACHINE, present);
    near.dispatcher.wake(target.queue);
    const task = await submitted(near, target);
    const order = await sent(present);
    const said = eavesdrop(near);
    await cluster.dial(third, new PlayedLink(), { running: [live(order)] });
    const handover = await waitFor(() => said.find(isKind('handover')), 'it is being handed over');
    const answers = eavesdrop(other);
    const asked = ['recall', near.instance, newId<TaskId>(), 1, 0];
    await near.client.publish(near.keys.linesChannel(other.instance), JSON.stringify([handover, asked]));
    await waitFor(() => answers.some(isKind('word')), 'it has heard both');
    expect(answers.some(isKind('handed'))).toBe(false);
    expect(other.lines.order(task.taskId)).toBeUndefined();
    await isHandedOver(near, task);
    there();
    await third.result(order);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
    expect([first.runs, present.runs]).toEqual([0, 1]);
    expect(await third.records.read(task.taskId)).toMatchObject({ attempt: 1 });
  });

  test('and what is told of an earlier link comes late: an order of the present one stays where it is (R5)', async ({
    cluster,
  }) => {
    const other = await cluster.start();
    const before = { replica: other.instance, sessionEpoch: 2, isHere: false };
    const near = await cluster.start({ peers: { linkOf: () => before } });
    const [target, link] = [aTarget(), new PlayedLink()];
    link.sessionEpoch = 3;
    cluster.serve(near, target, link);
    const task = await submitted(near, target);
    const order = await sent(link);
    const said = eavesdrop(near);
    near.reports.machineMoved(MACHINE);
    await turn();
    expect(said.some(isKind('handover'))).toBe(false);
    await near.result(order);
    expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
  });
});

test('an agent that names an attempt of another machine’s container is not believed', async ({ cluster }) => {
  const { far, near, other, target, task, order } = await aSent(cluster);
  const forger = new PlayedLink('m-9' as typeof MACHINE);
  cluster.serve(other, target, forger);
  const { adopted, refused } = await cluster.dial(other, forger, { running: [live(only(order))] });
  expect([adopted, other.lines.order(task.taskId)]).toEqual([[], undefined]);
  expect(refused).toHaveLength(1);
  expect(placeOf(far, task)).not.toMatchObject({ to: other.instance });
  await near.result(only(order));
  expect(await task.finished).toMatchObject({ status: 'COMPLETE' });
});
