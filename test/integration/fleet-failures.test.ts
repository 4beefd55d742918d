// Rows of the failure table that concern the scheduler: machines that boot, go silent alone or together, and messages
// that are lost or come twice. Real link, database and Redis.
import { status } from '@grpc/grpc-js';
import { describe, expect } from 'vitest';
import type { MachineId } from '#shared/domain/ids.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import { aWorkers } from '../helpers/drains.ts';
import { deleteMachine, updateMachine } from '#scheduler/stores/store/queries/machines.ts';
import { seenByCaller } from '../helpers/seen-by-caller.ts';
import { waitFor } from '../helpers/services.ts';
import type { Agent, Fleet } from './fleet-fixture.ts';
import { aTarget, quiet } from './tasks-fixture.ts';
import { becomes, codeOf, health, secretOf, seen, serving, test } from './fleet-fixture.ts';

const submitted = async (fleet: Fleet, target: Target) => {
  const submission = await fleet.process.submissions.submit(target, { input: '{}' });
  if (submission.kind !== 'accepted') throw new Error(submission.kind);
  return submission;
};

const { config } = aTarget({ stubType: 'taskqueue/deployment' });
const ASYNCHRONOUS = { kind: 'taskqueue', sync: false, config } as const;
/** Time past the grace after a start. */
const GRACE_MS = 121_000;
const later = async (fleet: Fleet, ms: number): Promise<void> => {
  fleet.clock.aheadMs += ms;
  await fleet.health.check();
};

describe('Machine reboot', () => {
  test('new bootId: earlier containers FAILED host_reboot, the one that was stopping STOPPED, tasks retried as infrastructure', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    const { entry, control, tasks, target } = await serving(fleet, agent, ASYNCHRONOUS);
    const { taskId } = await submitted(fleet, target);
    await tasks.until('the task', (message) => message.run);
    const other = await fleet.assigned(await fleet.target(), agent.machineId);
    await fleet.containers.transition(other.row.id, 'ack');
    await fleet.containers.transition(other.row.id, 'stop');
    const unacknowledged = await fleet.assigned(await fleet.target(), agent.machineId);
    control.stream.cancel();
    await becomes(fleet, agent, 'SUSPECT');
    agent.bootId = 'another';
    // The engine still lists the container that the reboot ended.
    await agent.connect([seen(entry, 'exited', { exitCode: 255 })], 'agent-2');
    await becomes(fleet, agent, 'READY');
    expect([entry.row.state, entry.row.reason]).toEqual(['FAILED', 'host_reboot']);
    expect(other.row.state).toBe('STOPPED');
    expect([unacknowledged.row.state, unacknowledged.row.machineId]).toEqual(['PENDING', null]);
    await waitFor(
      async () => (await fleet.process.queues.depth(target.queue)).waiting === 1,
      'its task waits for another container',
    );
    const job = await fleet.process.queues.read(target.queue, taskId);
    expect(job?.retriesUsed).toBe(0);
  });

  test('the same bootId again, or the first of a machine: what its agent reports counts', async ({ fleet, agents }) => {
    const agent = await agents.joined();
    const { entry, control } = await serving(fleet, agent);
    control.stream.cancel();
    await becomes(fleet, agent, 'SUSPECT');
    await agent.connect([seen(entry, 'running')]);
    await becomes(fleet, agent, 'READY');
    expect(entry.row.state).toBe('RUNNING');
  });
});

describe('Partition < 90 s', () => {
  test('SUSPECT at once; nothing moves, nothing is requeued; results kept by the agent count on return', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    const { entry, control, tasks, target } = await serving(fleet, agent);
    const submission = await submitted(fleet, target);
    const run = await tasks.until('the task', (message) => message.run);
    await later(fleet, GRACE_MS);
    control.stream.cancel();
    await becomes(fleet, agent, 'SUSPECT');
    await later(fleet, 85_000);
    expect([health(fleet, agent), entry.row.state]).toEqual(['SUSPECT', 'RUNNING']);
    expect((await fleet.process.lines.depth(target.queue)).waiting).toBe(0);
    await agent.connect([seen(entry, 'running')]);
    const again = agent.tasks();
    const { taskId, token } = run;
    again.stream.write({ report: { running: [], finished: [{ taskId, token, containerId: entry.row.id }] } });
    const body = Buffer.from('{"kept":true}');
    again.stream.write({
      result: { taskId, token, containerId: entry.row.id, outcome: 'ok', durationMs: 1, body, started: true },
    });
    expect(seenByCaller(await submission.finished)).toMatchObject({ status: 'COMPLETE', httpStatus: 200 });
  });
});

describe('Partition > 90 s', () => {
  test('LOST: attempts superseded, containers UNKNOWN; on return stale results are refused and what is not wanted any more is stopped', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    const { entry, control, tasks, target } = await serving(fleet, agent, ASYNCHRONOUS);
    const { taskId } = await submitted(fleet, target);
    const run = await tasks.until('the task', (message) => message.run);
    await later(fleet, GRACE_MS);
    control.stream.cancel();
    await becomes(fleet, agent, 'SUSPECT');
    await later(fleet, 91_000);
    expect([health(fleet, agent), entry.row.state, entry.row.stateBefore]).toEqual(['LOST', 'UNKNOWN', 'RUNNING']);
    const waiting = async (): Promise<number> => (await fleet.process.queues.depth(target.queue)).waiting;
    await waitFor(async () => (await waiting()) === 1, 'its task waits for another container');
    // A replacement runs elsewhere meanwhile, so this container is surplus.
    await fleet.containers.transition(entry.row.id, 'stop', { change: { reason: 'scaled_in' } });
    const back = await agent.connect([seen(entry, 'running')]);
    const order = await back.until('the order to stop', (message) =>
      message.desired?.assignments.find((one) => one.containerId === entry.row.id),
    );
    expect(order.stop).toBe(true);
    const again = agent.tasks();
    again.stream.write({ report: { running: [] } });
    const { token } = run;
    again.stream.write({
      result: { taskId, token, containerId: entry.row.id, outcome: 'ok', durationMs: 1, body: Buffer.from('{}') },
    });
    await again.until('the word that it may be forgotten', (message) => message.acked);
    expect(await waiting()).toBe(1);
    expect((await fleet.process.records.read(taskId))?.status).not.toBe('COMPLETE');
  });

  test('180 s when the agent said that it only restarts', async ({ fleet, agents }) => {
    const agent = await agents.joined();
    const control = await agent.connect();
    await later(fleet, GRACE_MS);
    control.stream.write({ goodbye: { reason: 'restarting' } });
    await becomes(fleet, agent, 'SUSPECT');
    await later(fleet, 175_000);
    expect(health(fleet, agent)).toBe('SUSPECT');
    await later(fleet, 6_000);
    expect(health(fleet, agent)).toBe('LOST');
  });

  test('after 24 h its containers are LOST; one reported alive later is ordered to stop, and its devices are nobody’s until it is gone', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    const { entry, control } = await serving(fleet, agent);
    const { epoch, assignmentId } = entry.row;
    await later(fleet, GRACE_MS);
    control.stream.cancel();
    await becomes(fleet, agent, 'SUSPECT');
    await later(fleet, 91_000);
    await later(fleet, 24 * 3600_000);
    expect(entry.row.state).toBe('LOST');
    const alive = {
      containerId: entry.row.id,
      assignmentId: assignmentId ?? '',
      epoch,
      phase: 'running',
      slots: 1,
      gpuUuids: ['GPU-1'],
      cpuMillicores: 500,
    };
    const back = await agent.connect([alive]);
    const desired = await back.until('a snapshot', (message) => message.desired);
    expect(desired).toMatchObject({ full: true, confirmEmpty: true, assignments: [] });
    expect(entry.row.state).toBe('LOST');
    const machine = (): ReturnType<Fleet['machines']['get']> => fleet.machines.get(agent.machineId);
    const free = (): number => fleet.machines.capacity(machine()!).freeCpuMillicores;
    expect(free()).toBe(3100);
    expect([...fleet.machines.capacity(machine()!).leasedGpus]).toEqual(['GPU-1']);
    const containers = [{ ...alive, phase: 'removed' }];
    back.stream.write({ status: { seq: 1, full: false, containers } });
    await waitFor(() => free() === 3600, 'its share is free');
    expect(fleet.machines.capacity(machine()!).leasedGpus.size).toBe(0);
  });
});

describe('GPU off the bus', () => {
  test('the devices of a container that failed are nobody’s at the moment of its end, until it is removed', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    const { entry, control } = await serving(fleet, agent);
    const other = await fleet.assigned(await fleet.target(), agent.machineId);
    const machine = fleet.machines.get(agent.machineId);
    if (machine === undefined) throw new Error('there is no machine');
    const leased = (): readonly string[] => [...fleet.machines.capacity(machine).leasedGpus];
    const atItsEnd: (readonly string[])[] = [];
    fleet.containers.onChange(({ entry: { row } }) => {
      if (row.state === 'FAILED' && row.id === entry.row.id) atItsEnd.push(leased());
    });
    const gone = seen(entry, 'exited', { exitCode: 1, reason: 'gpu_fault', gpuUuids: ['GPU-0'] });
    // The same report also names another container, after the ended one.
    control.stream.write({ status: { seq: 2, full: false, containers: [gone, seen(other, 'running')] } });
    await waitFor(() => other.row.state === 'RUNNING', 'the report is taken in');
    expect(atItsEnd).toEqual([['GPU-0']]);
    expect(leased()).toEqual(['GPU-0']);
    const removed = { ...gone, phase: 'removed', gpuUuids: [] };
    control.stream.write({ status: { seq: 3, full: false, containers: [removed] } });
    await waitFor(() => leased().length === 0, 'it is free');
  });
});

describe('DeleteMachine', () => {
  test('its session ends, and it may not come back', async ({ fleet, agents }) => {
    const agent = await agents.joined();
    const control = await agent.connect();
    await becomes(fleet, agent, 'READY');
    const workers = aWorkers({ ...fleet, slots: fleet.process.slots, log: quiet });
    const admin = { workspaceId: null };
    expect(await workers.deleteMachine(admin, agent.machineId, '')).toBe('not_drained');
    await workers.drain(admin, agent.machineId);
    await waitFor(() => fleet.machines.get(agent.machineId)?.row.intent === 'drained', 'it is drained');
    expect(await workers.deleteMachine(admin, agent.machineId, '')).toBe('deleted');
    await control.over();
    expect(await codeOf(agent.fetchCode('o'))).toBe(status.UNAUTHENTICATED);
  });

  test('Scheduler crash mid-step: what was on a machine that is deleted is ended, or placed elsewhere, by whoever leads', async ({
    fleet,
    agents,
  }) => {
    const [agent, other] = [await agents.joined(), await agents.joined()];
    const { entry } = await serving(fleet, agent);
    const target = await fleet.target();
    const assigned = await fleet.assigned(target, agent.machineId);
    const kept = await fleet.assigned(target, other.machineId);
    // The deleting process died after its first write.
    await deleteMachine(fleet.db, agent.machineId);
    fleet.machines.deleted(agent.machineId);
    await later(fleet, 14_000);
    expect([entry.row.state, assigned.row.state]).toEqual(['RUNNING', 'ASSIGNED']);
    await later(fleet, 1_000);
    expect(entry.row).toMatchObject({ state: 'LOST', reason: 'lost' });
    expect(assigned.row).toMatchObject({ state: 'PENDING', machineId: null });
    expect(kept.row.machineId).not.toBe(agent.machineId);
    expect(kept.row.state).not.toBe('LOST');
  });

  test('a drain after an uncordon elsewhere has its whole time again', async ({ fleet, agents }) => {
    const agent = await agents.joined();
    const { entry, target, tasks } = await serving(fleet, agent);
    const workers = aWorkers({ ...fleet, slots: fleet.process.slots, log: quiet });
    const admin = { workspaceId: null };
    await submitted(fleet, target);
    await tasks.until('the task', (message) => message.run);
    await workers.drain(admin, agent.machineId);
    await waitFor(() => entry.row.state === 'DRAINING', 'it drains');
    const machine = fleet.machines.get(agent.machineId);
    if (machine === undefined) throw new Error('there is no machine');
    // The row changes as by another replica's message.
    fleet.machines.setRow(machine, { intent: 'active' });
    fleet.clock.aheadMs += 31 * 60_000;
    await workers.drain(admin, agent.machineId);
    // The container registry makes its moves one after another, so the drain's moves are done once this call returns.
    expect(await fleet.containers.transition(entry.row.id, 'drain')).toBe('already');
    expect(entry.row.state).toBe('DRAINING');
  });
});

describe('Mass disconnect', () => {
  test('guard on: nobody is given up, until they are back or an operator takes them out', async ({ fleet, agents }) => {
    const all: Agent[] = [];
    for (let index = 0; index < 4; index += 1) all.push(await agents.joined());
    const [kept] = all;
    if (kept === undefined) throw new Error('no agent');
    const { entry, control } = await serving(fleet, kept);
    const others = await Promise.all(all.slice(1).map((agent) => agent.connect()));
    for (const agent of all) await becomes(fleet, agent, 'READY');
    const elsewhere = agents.stranger();
    await elsewhere.join(secretOf((await fleet.joining.create({ workspaceId: null }, 'elsewhere')).joinToken));
    const { entry: unconcerned } = await serving(fleet, elsewhere);
    await later(fleet, GRACE_MS);
    for (const one of [control, others[0], others[1]]) one?.stream.cancel();
    for (const agent of all.slice(0, 3)) await becomes(fleet, agent, 'SUSPECT');
    await later(fleet, 0);
    const pools = async () => (await fleet.guardMetric.get()).values.map(({ labels, value }) => [labels.pool, value]);
    expect(await pools()).toEqual([
      ['default', 1],
      ['elsewhere', 0],
    ]);
    // The guarded pool stops no idle containers; other pools do as ever.
    expect(fleet.health.isGuarded(entry.spec.queue)).toBe(true);
    expect(fleet.health.isGuarded(unconcerned.spec.queue)).toBe(false);
    await later(fleet, 3600_000);
    expect(all.map((agent) => health(fleet, agent))).toEqual(['SUSPECT', 'SUSPECT', 'SUSPECT', 'READY']);
    expect(entry.row.state).toBe('RUNNING');
    // Two machines come back, and the operator knows that the third is gone.
    await kept.connect([seen(entry, 'running')]);
    await all[1]?.connect();
    for (const agent of all.slice(0, 2)) await becomes(fleet, agent, 'READY');
    const gone = fleet.machines.get(all[2]?.machineId ?? ('' as MachineId));
    if (gone === undefined) throw new Error('no machine');
    fleet.machines.setRow(gone, { intent: 'cordoned' });
    // The timer's own round may be at the write that makes it LOST.
    await waitFor(async () => {
      await later(fleet, 0);
      return gone.health === 'LOST';
    }, 'the third is given up');
    expect(await pools()).toEqual([
      ['default', 0],
      ['elsewhere', 0],
    ]);
    expect(fleet.health.isGuarded(entry.spec.queue)).toBe(false);
    expect(entry.row.state).toBe('RUNNING');
  });
});

describe('Lost ack / duplicate delivery', () => {
  test.override('settings', { pingIntervalMs: 100, pongWithinMs: 2_000 });

  test('the assignment is sent again, its acknowledgement may come twice: one container, one proceed for each', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    const control = await agent.connect();
    const entry = await fleet.assigned(await fleet.target(), agent.machineId);
    const offers = (): number =>
      control.messages.filter((message) =>
        message.desired?.assignments.some((one) => one.containerId === entry.row.id && one.epoch === entry.row.epoch),
      ).length;
    await waitFor(() => offers() === 1, 'it is offered');
    fleet.clock.aheadMs += 5_100;
    await waitFor(() => offers() >= 2, 'it is offered again');
    const ack = { assignmentId: entry.row.assignmentId ?? '', containerId: entry.row.id, epoch: entry.row.epoch };
    const before = control.messages.length;
    control.stream.write({ ack });
    control.stream.write({ ack });
    await waitFor(
      () =>
        control.messages.slice(before).filter((message) => message.proceed?.containerId === ack.containerId).length ===
        2,
      'both are answered',
    );
    expect([entry.row.state, entry.row.epoch]).toEqual(['STARTING', 1]);
    expect([...fleet.containers.ofMachine(agent.machineId)]).toHaveLength(1);
    const late = { ...ack, epoch: 0 };
    control.stream.write({ ack: late });
    control.stream.write({ status: { seq: 9, full: false, containers: [seen(entry, 'running')] } });
    control.stream.write({ status: { seq: 9, full: false, containers: [seen(entry, 'running')] } });
    await waitFor(() => entry.row.state === 'RUNNING', 'it runs');
  });
});

describe('Start timeout', () => {
  test('15 min for on_start: FAILED start_timeout, not tried again', async ({ fleet, agents }) => {
    const agent = await agents.joined();
    const control = await agent.connect();
    const entry = await fleet.assigned(await fleet.target(), agent.machineId);
    expect(entry.spec.wire.startTimeoutMs).toBe(15 * 60_000);
    await fleet.containers.transition(entry.row.id, 'ack');
    const exited = seen(entry, 'exited', { exitCode: 137, reason: 'start_timeout', message: 'still in on_start' });
    control.stream.write({ status: { seq: 1, full: false, containers: [exited] } });
    await waitFor(() => entry.row.state === 'FAILED', 'it has failed');
    expect([entry.row.reason, entry.row.message]).toEqual(['start_timeout', 'still in on_start']);
  });
});

describe('what an operator wants of a machine', () => {
  test('survives a new session, a restart and being lost (I17)', async ({ fleet, agents }) => {
    const agent = await agents.joined();
    const control = await agent.connect();
    await updateMachine(fleet.db, agent.machineId, { intent: 'cordoned' });
    const machine = fleet.machines.get(agent.machineId);
    if (machine === undefined) throw new Error('no machine');
    fleet.machines.setRow(machine, { intent: 'cordoned' });
    await later(fleet, GRACE_MS);
    control.stream.cancel();
    await becomes(fleet, agent, 'SUSPECT');
    await later(fleet, 91_000);
    expect(health(fleet, agent)).toBe('LOST');
    await waitFor(async () => (await fleet.machines.byId(agent.machineId))?.health === 'LOST', 'it is written');
    // A starting scheduler reads the machine from the database.
    await fleet.agentReports.stop();
    await fleet.machines.start();
    expect(fleet.machines.get(agent.machineId)).toMatchObject({ health: 'LOST', row: { intent: 'cordoned' } });
    await agent.connect();
    await becomes(fleet, agent, 'READY');
    expect(fleet.machines.get(agent.machineId)?.row.intent).toBe('cordoned');
  });
});
