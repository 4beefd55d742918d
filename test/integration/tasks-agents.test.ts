// The bound on pending tasks, and agents that refuse, restart and lose their streams, on real Redis.
import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect } from 'vitest';
import { waitFor } from '../helpers/services.ts';
import { sent } from '../helpers/submissions.ts';
import { aTarget, MACHINE, PlayedLink } from './tasks-fixture.ts';
import { answered, idle, submitted, test } from './tasks-started.ts';

describe('the bound on pending tasks', () => {
  test('300 submits at once with a bound of 100: 100 are accepted, 200 are told, and nothing else is left', async ({
    one,
  }) => {
    const target = aTarget({ maxPendingTasks: 100 });
    const submissions = await Promise.all(
      Array.from({ length: 300 }, () => one.submissions.submit(target, { input: '{}' })),
    );
    const accepted = submissions.filter((each) => each.kind === 'accepted');
    const full = submissions.filter((each) => each.kind === 'queue_full');
    expect([accepted.length, full.length]).toEqual([100, 200]);
    expect((await one.lines.depth(target.queue)).waiting).toBe(100);
    expect(one.replies.size).toBe(100);
    expect(await one.submissions.submit(target, { input: '{}' })).toEqual({ kind: 'queue_full', maxPendingTasks: 100 });
    expect(await one.registry.metrics()).toContain('quota_throttles_total{resource="pending_tasks"} 201');
    const link = new PlayedLink();
    link.onRun = (order) => void one.result(order);
    one.container(target.queue, link, 4);
    const answers = await Promise.all(accepted.map((each) => each.finished));
    expect(answers.every((each) => each.status === 'COMPLETE')).toBe(true);
    expect((await one.submissions.submit(target, { input: '{}' })).kind).toBe('accepted');
  });

  test('while containers work, never more than the bound are waiting and running', async ({ one }) => {
    const target = aTarget({ maxPendingTasks: 20 });
    const link = new PlayedLink();
    one.container(target.queue, link, 5);
    // A task counts as over once its end is on its way to the queue. So
    // the next caller gets the place before this caller hears of the end.
    let open = 0;
    let most = 0;
    link.onRun = (order) =>
      void setImmediate(() => {
        open -= 1;
        void one.result(order);
      });
    const kinds = await Promise.all(
      Array.from({ length: 400 }, async (_none, at) => {
        for (let turns = at % 40; turns > 0; turns -= 1) await turn();
        const submission = await one.submissions.submit(target, { input: '{}' });
        if (submission.kind !== 'accepted') return submission.kind;
        open += 1;
        most = Math.max(most, open);
        await submission.finished;
        return submission.kind;
      }),
    );
    expect(new Set(kinds).has('unavailable')).toBe(false);
    expect(most).toBeLessThanOrEqual(20);
    expect(one.replies.size).toBe(0);
  });
});

describe('agents', () => {
  test('a task that an agent refuses waits again first in line, then runs', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    const later = await submitted(one, target);
    const order = await sent(link);
    await one.reports.refused(MACHINE, order.taskId, order.token, 'no_free_slot');
    const again = await sent(link, 2);
    expect(again.taskId).toBe(task.taskId);
    expect(again.token).not.toBe(order.token);
    // The first attempt's result belongs to a superseded attempt now.
    expect(await one.result(order, '{"old":true}')).toBe(true);
    expect(task.answers).toEqual([]);
    await one.result(again);
    expect((await answered(task)).body).toBe('{"ok":true}');
    await one.result(await sent(link, 3));
    await answered(later);
    await idle(container);
  });

  test('an agent that refuses everything is asked again at its pace, not at ours', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    link.onRun = (order) => void one.reports.refused(MACHINE, order.taskId, order.token, 'no_free_slot');
    one.container(target.queue, link);
    await submitted(one, target);
    const startMs = performance.now();
    await waitFor(() => link.runs >= 4, 'it was asked four times');
    expect(performance.now() - startMs).toBeGreaterThan(250);
    link.onRun = undefined;
  });

  test('a stream without room takes no tasks, and those wait for it', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    link.mode = 'full';
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    await waitFor(() => link.runs >= 2, 'it was tried again');
    const startMs = performance.now();
    const before = link.runs;
    await waitFor(() => link.runs >= before + 3, 'it was tried three times more');
    expect(performance.now() - startMs).toBeGreaterThan(180);
    link.mode = 'take';
    await one.result(await sent(link));
    expect((await answered(task)).status).toBe('COMPLETE');
    await idle(container);
    expect(one.attempts.size).toBe(0);
  });

  test('a stream lost and back: what still runs goes on, what never arrived is queued again', async ({ one }) => {
    const target = aTarget();
    const link = new PlayedLink();
    const container = one.container(target.queue, link, 2);
    const runs = await submitted(one, target);
    const first = await sent(link);
    link.mode = 'lose';
    const lost = await submitted(one, target);
    await waitFor(() => one.attempts.size === 2, 'both are sent as far as we know');
    one.slots.setLink(MACHINE, undefined);
    const back = new PlayedLink();
    const report = { taskId: first.taskId, token: first.token, containerId: first.containerId };
    expect(
      await one.reports.machineReported(MACHINE, { agentInstance: 'agent-1', sessionEpoch: 2, running: [report] }),
    ).toEqual({
      adopted: [report],
      refused: [],
    });
    for (const queue of one.slots.setLink(MACHINE, back)) one.dispatcher.wake(queue);
    const again = await sent(back);
    expect(again.taskId).toBe(lost.taskId);
    await one.result(first);
    await one.result(again);
    expect((await answered(runs)).status).toBe('COMPLETE');
    expect((await answered(lost)).status).toBe('COMPLETE');
    await idle(container);
  });

  test('an agent that was restarted and does not know an attempt any more has lost it: 502, never run twice', async ({
    one,
  }) => {
    const target = aTarget();
    const link = new PlayedLink();
    one.container(target.queue, link);
    const task = await submitted(one, target);
    await sent(link);
    await one.reports.machineReported(MACHINE, { agentInstance: 'agent-2', sessionEpoch: 2, running: [] });
    expect(await answered(task, 15_000)).toMatchObject({ status: 'ERROR', httpStatus: 502 });
    expect((await one.lines.depth(target.queue)).waiting).toBe(0);
  });

  test('past the execution limit the caller is answered, and the slot waits for the agent', async ({ start }) => {
    const one = await start({ graces: { limitMs: 50, reportMs: 100, restartedAgentMs: 200 } });
    const target = aTarget({ timeoutSeconds: 0.05 });
    const link = new PlayedLink();
    const container = one.container(target.queue, link);
    const task = await submitted(one, target);
    const order = await sent(link);
    expect(await answered(task)).toMatchObject({ status: 'TIMEOUT', httpStatus: 504 });
    expect(link.cancelled).toEqual([`${order.taskId} ${order.token}`]);
    expect(container.inFlight).toBe(1);
    for (let times = 0; times < 2; times += 1) {
      expect(await one.result(order, '', 'timeout')).toBe(true);
      await idle(container);
    }
    const next = await submitted(one, target);
    expect((await sent(link, 2)).taskId).toBe(next.taskId);
  });
});
