// Attempts that a machine is to have and its agent does not name: their order was lost with the process that sent it.
import { describe, expect } from 'vitest';
import type { MachineId } from '#shared/domain/ids.ts';
import type { TaskQueues } from '#scheduler/stores/queues/task-queues.ts';
import type { RunOrder } from '#scheduler/tasks/dispatch/slots.ts';
import { waitFor } from '../helpers/services.ts';
import { lostOrder, SAME_AGENT, takesBackAnother } from '../helpers/lost-order.ts';
import { liveOf, reaches, sent } from '../helpers/submissions.ts';
import { MACHINE, PlayedLink } from './tasks-fixture.ts';
import { aQueueTarget, put, test } from './tasks-world.ts';

const GRACES = { limitMs: 10_000, reportMs: 50, restartedAgentMs: 50 };

describe('an order that was lost with its process', () => {
  test('runs again as soon as its agent has reported without it, and no budget is touched', async ({ start }) => {
    const { taskId, target } = await lostOrder(start);
    const after = await start({ graces: GRACES });
    const link = new PlayedLink();
    after.container(target.queue, link);
    await after.reports.machineReported(MACHINE, { agentInstance: SAME_AGENT, sessionEpoch: 2, running: [] });
    const order = await sent(link);
    expect(order).toMatchObject({ taskId, input: '{"x":1}' });
    expect((await after.queues.read(target.queue, taskId))?.losses ?? 0).toBe(0);
    await after.result(order);
    expect(await reaches(after, taskId, 'COMPLETE')).toMatchObject({ attempt: 2 });
  });

  test('or when it was sent after that report, by a replica that had not heard of the new link', async ({ start }) => {
    const target = aQueueTarget();
    const [former, now] = [await start(), await start({ graces: { ...GRACES, movedMs: 1500 } })];
    await now.reports.machineReported(MACHINE, { agentInstance: SAME_AGENT, sessionEpoch: 2, running: [] });
    const gone = new PlayedLink();
    gone.mode = 'lose';
    former.container(target.queue, gone);
    const taskId = await put(former, target);
    await waitFor(() => gone.runs > 0, 'the order went into the void');
    former.reports.machineMoved(MACHINE);
    const link = new PlayedLink();
    now.container(target.queue, link);
    const order = await sent(link);
    expect(order.taskId).toBe(taskId);
    expect((await now.queues.read(target.queue, taskId))?.losses ?? 0).toBe(0);
    await now.result(order);
    await reaches(now, taskId, 'COMPLETE');
  });

  test('its agent was started anew: it may have run there, which costs a loss', async ({ start }) => {
    const { taskId, target } = await lostOrder(start);
    const after = await start({ graces: GRACES, alive: () => true });
    const link = new PlayedLink(MACHINE, 'agent-2');
    after.container(target.queue, link);
    await after.reports.machineReported(MACHINE, { agentInstance: 'agent-2', sessionEpoch: 2, running: [] });
    const order = await sent(link);
    expect(order.taskId).toBe(taskId);
    expect((await after.queues.read(target.queue, taskId))?.losses).toBe(1);
  });
});

describe('what is not taken back', () => {
  test('what the agent runs, and what it finished and nobody acknowledged', async ({ start }) => {
    const target = aQueueTarget();
    const before = await start();
    const link = new PlayedLink();
    before.container(target.queue, link, 2);
    await put(before, target);
    await put(before, target);
    await sent(link, 2);
    const [runs, finished] = link.orders as [RunOrder, RunOrder];
    await before.records.flush();
    await before.stop();
    const after = await start({ graces: GRACES });
    const again = new PlayedLink();
    after.container(target.queue, again, 2);
    const report = {
      agentInstance: SAME_AGENT,
      sessionEpoch: 2,
      running: [liveOf(runs)],
      finished: [liveOf(finished)],
    };
    const { adopted } = await after.reports.machineReported(MACHINE, report);
    expect(adopted).toEqual([liveOf(runs)]);
    await takesBackAnother(start, after);
    expect(again.orders).toEqual([]);
    expect(await after.queues.lockOf(target.queue, finished.taskId)).toContain(before.instance);
    await after.result(finished);
    await after.result(runs);
    expect(await reaches(after, finished.taskId, 'COMPLETE')).toMatchObject({ attempt: 1 });
    expect(await reaches(after, runs.taskId, 'COMPLETE')).toMatchObject({ attempt: 1 });
    expect(again.orders).toEqual([]);
  });

  test('what this process itself has in hand, and what it sent since the report', async ({ start }) => {
    const target = aQueueTarget();
    const one = await start({ graces: GRACES });
    const link = new PlayedLink();
    one.container(target.queue, link, 2);
    const early = await put(one, target);
    await sent(link);
    await one.reports.machineReported(MACHINE, {
      agentInstance: SAME_AGENT,
      sessionEpoch: 2,
      running: [liveOf(link.orders[0] as RunOrder)],
    });
    const late = await put(one, target);
    await sent(link, 2);
    await takesBackAnother(start, one);
    expect(link.orders.map(({ taskId }) => taskId)).toEqual([early, late]);
  });

  test('what a heartbeat names within the grace: its runner dialled the restarted agent after the report', async ({
    start,
  }) => {
    const target = aQueueTarget();
    const before = await start();
    const far = new PlayedLink();
    before.container(target.queue, far, 2);
    await put(before, target);
    await sent(far);
    await before.records.flush();
    await before.stop();
    const after = await start({ graces: { ...GRACES, restartedAgentMs: 400 } });
    const link = new PlayedLink(MACHINE, 'agent-2');
    after.container(target.queue, link, 2);
    // The first task is in the hands of this process, the second belongs to a process that died.
    const own = await put(after, target);
    await sent(link);
    const [theirs, ours] = [far.orders[0] as RunOrder, link.orders[0] as RunOrder];
    await after.reports.machineReported(MACHINE, { agentInstance: 'agent-3', sessionEpoch: 2, running: [] });
    after.reports.heartbeat(MACHINE, [liveOf(theirs), liveOf(ours)]);
    await waitFor(() => after.attempts.current(theirs.taskId) !== undefined, 'it is taken over');
    await takesBackAnother(start, after, 'agent-3');
    expect(link.orders).toHaveLength(1);
    for (const order of [theirs, ours]) {
      await after.result(order);
      expect(await reaches(after, order.taskId, 'COMPLETE')).toMatchObject({ attempt: 1 });
    }
    expect(ours.taskId).toBe(own);
  });

  test('what a heartbeat names while its return is written', async ({ start }) => {
    const target = aQueueTarget();
    const before = await start();
    const far = new PlayedLink();
    before.container(target.queue, far);
    const taskId = await put(before, target);
    const order = await sent(far);
    await before.records.flush();
    await before.stop();
    const after = await start({ graces: GRACES });
    const append = after.records.append.bind(after.records);
    after.records.append = async (...given) => {
      after.records.append = append;
      after.reports.heartbeat(MACHINE, [liveOf(order)]);
      await waitFor(() => after.attempts.current(taskId) !== undefined, 'it is taken over');
      return await append(...given);
    };
    await after.reports.machineReported(MACHINE, { agentInstance: SAME_AGENT, sessionEpoch: 2, running: [] });
    await waitFor(() => after.attempts.current(taskId) !== undefined, 'it is taken over');
    await takesBackAnother(start, after);
    // Another replica that fetches gets the task behind it.
    const elsewhere = await start();
    const link = new PlayedLink('m-2' as MachineId);
    elsewhere.container(target.queue, link);
    const next = await put(elsewhere, target);
    expect((await sent(link)).taskId).toBe(next);
    await after.result(order);
    expect(await reaches(after, taskId, 'COMPLETE')).toMatchObject({ attempt: 1 });
  });

  test('what is leased to another machine', async ({ start }) => {
    const { target, lease, taskId } = await lostOrder(start);
    const after = await start({ graces: GRACES });
    const other = new PlayedLink('m-2' as typeof MACHINE);
    after.container(target.queue, other);
    await after.reports.machineReported(other.machineId, { agentInstance: SAME_AGENT, sessionEpoch: 2, running: [] });
    await takesBackAnother(start, after);
    expect(await after.queues.lockOf(target.queue, taskId)).toBe(lease.lock);
    expect(other.orders).toEqual([]);
  });

  test('anything, once a newer session speaks for the machine', async ({ start }) => {
    const { target, lease, taskId } = await lostOrder(start);
    const after = await start({ graces: GRACES });
    const link = new PlayedLink();
    after.container(target.queue, link);
    let asked = 0;
    const isCurrent = () => Promise.resolve((asked += 1) === 0);
    await after.reports.machineReported(MACHINE, {
      agentInstance: SAME_AGENT,
      sessionEpoch: 2,
      running: [],
      isCurrent,
    });
    await waitFor(() => asked > 0, 'it was asked for');
    await takesBackAnother(start, after);
    expect(await after.queues.lockOf(target.queue, taskId)).toBe(lease.lock);
  });

  test('what has another attempt by then', async ({ start }) => {
    const { target, lease, taskId } = await lostOrder(start);
    let read = 0;
    const after = await start({
      graces: GRACES,
      // Between the report and the second look, the task is given back elsewhere, and another replica fetches it.
      queues: (queues: TaskQueues) =>
        new Proxy(queues, {
          get:
            (of, name: keyof TaskQueues) =>
            (...args: never[]) => {
              if (name === 'locksOf') read += 1;
              return Reflect.apply(of[name], of, args);
            },
        }),
    });
    const reporting = after.reports.machineReported(MACHINE, {
      agentInstance: SAME_AGENT,
      sessionEpoch: 2,
      running: [],
    });
    after.container(target.queue, undefined);
    await reporting;
    await after.queues.giveBack(target.queue, taskId, lease.lock);
    const other = await start();
    const link = new PlayedLink();
    other.container(target.queue, link);
    const order = await sent(link);
    const held = await other.queues.lockOf(target.queue, taskId);
    await waitFor(() => read > 0, 'it was looked at again');
    await takesBackAnother(start, after);
    expect(await other.queues.lockOf(target.queue, taskId)).toBe(held);
    expect((await other.leases.read(taskId))?.lock).toBe(held);
    await other.result(order);
    await reaches(other, taskId, 'COMPLETE');
  });
});

describe('an attempt of a process that died, on a machine that is given up', () => {
  test('runs again elsewhere, and counts as lost', async ({ start }) => {
    const { taskId, target } = await lostOrder(start);
    const leader = await start({ graces: GRACES });
    const link = new PlayedLink('m-2' as MachineId, 'agent-2');
    leader.container(target.queue, link);
    await leader.reports.machineLost(MACHINE, () => true);
    expect(await sent(link)).toMatchObject({ taskId });
    expect((await leader.queues.read(target.queue, taskId))?.losses).toBe(1);
  });

  test('one whose machine comes back meanwhile is left to its report', async ({ start }) => {
    const { taskId, target, lease } = await lostOrder(start);
    const leader = await start({ graces: GRACES });
    leader.container(target.queue, new PlayedLink('m-2' as MachineId, 'agent-2'));
    await leader.reports.machineLost(MACHINE, () => false);
    await takesBackAnother(start, leader);
    expect(await leader.leases.read(taskId)).toMatchObject({ lock: lease.lock });
  });
});
