// Events of containers, stubs and machines: with the change of their rows or not at all, on both kinds of stores.
import { Registry } from '#shared/metrics.ts';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import { newId } from '#shared/domain/ids.ts';
import type { ContainerId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { ScaleEvents } from '#scheduler/control/autoscaler/scale-events.ts';
import { Breakers } from '#scheduler/control/autoscaler/breakers.ts';
import { openMachines } from '#scheduler/compose/machines.ts';
import { ContainerActions } from '#scheduler/fleet/containers/actions.ts';
import { ContainerRegistry } from '#scheduler/fleet/containers/container-registry.ts';
import { MachineEvents } from '#scheduler/fleet/machine-events.ts';
import { FleetMetrics } from '#scheduler/fleet/metrics.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import { breakerOf } from '#scheduler/stores/store/queries/breakers.ts';
import type { EventRow } from '#scheduler/stores/store/queries/events.ts';
import { deleteMachine } from '#scheduler/stores/store/queries/machines.ts';
import { insertWorkspace } from '#scheduler/stores/store/queries/workspaces.ts';
import { EventWriter } from '#scheduler/workspaces/events/writer.ts';
import { SlotTable } from '#scheduler/tasks/dispatch/slots.ts';
import { waitFor } from '../helpers/programs.ts';
import { KINDS, aDb, aStub, aWorkspace, silent, storedEvents } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';
import { aTarget } from './tasks-fixture.ts';

describe.each(KINDS)('events of the fleet on %s', (kind) => {
  let opened: OpenedDb;
  const events = new EventWriter();
  beforeAll(async () => {
    opened = await aDb(kind);
  });
  afterAll(() => opened.stop());

  const eventsOf = (workspaceId: WorkspaceId) => storedEvents(opened.db, workspaceId);
  const idsOf = async (workspaceId: WorkspaceId) => (await eventsOf(workspaceId)).map(({ data }) => data['id']);
  const targetIn = async (): Promise<Target> => {
    const { id } = await aWorkspace(opened.db);
    const stub = await aStub(opened.db, id);
    return { ...aTarget(), workspaceId: id, stubId: stub.id, appId: stub.appId };
  };
  const registry = (): ContainerRegistry => {
    const { db } = opened;
    return new ContainerRegistry({ db, log: silent, clock: systemClock, told: { db, events } });
  };
  /** A container that starts on a machine. */
  const starting = async (containers: ContainerRegistry, target: Target): Promise<ContainerId> => {
    const { row } = await containers.create(target);
    const scheduledAtMs = Date.now();
    await containers.transition(row.id, 'assign', { change: { assignmentId: 'a', scheduledAtMs } });
    await containers.transition(row.id, 'ack');
    return row.id;
  };

  test('a stop says whether its own workspace asked for it, or an administrator of another', async () => {
    const containers = registry();
    const actions = new ContainerActions(containers, new SlotTable());
    const target = await targetIn();
    const other = (await aWorkspace(opened.db)).id;
    const reasons: unknown[] = [];
    for (const by of [
      { workspaceId: other, isAdmin: false },
      { workspaceId: other, isAdmin: true },
      { workspaceId: target.workspaceId, isAdmin: true },
    ]) {
      const id = await starting(containers, target);
      await containers.transition(id, 'ready');
      reasons.push(await actions.stopContainer(by, id));
      const stop = (await eventsOf(target.workspaceId)).find(
        (event) => event.containerId === id && event.data['id'] === 'scheduler.stop_requested',
      );
      reasons.push(stop?.data['reason']);
    }
    expect(reasons).toEqual([false, undefined, true, 'ADMIN', true, 'USER']);
  });

  test('a container tells the phases of its start, who stopped it, and how it ended', async () => {
    const target = await targetIn();
    const containers = registry();
    const id = await starting(containers, target);
    expect(await eventsOf(target.workspaceId)).toEqual([]);
    await containers.transition(id, 'ready', { change: { startedAtMs: Date.now() } });
    const [wait, start, whole] = await eventsOf(target.workspaceId);
    expect([wait?.data['id'], start?.data['id']]).toEqual(['scheduler.backlog_wait', 'worker.start']);
    expect(whole).toMatchObject({ type: 'container.lifecycle', containerId: id, stubId: target.stubId });
    expect([whole?.appId, whole?.stubType]).toEqual([target.appId, 'endpoint/deployment']);
    expect(whole?.data).toEqual({
      id: 'container.startup',
      domain: 'container',
      parent_id: '',
      start_time: expect.any(String) as string,
      end_time: expect.any(String) as string,
      duration_ms: expect.any(Number) as number,
      container_id: id,
      stub_id: target.stubId,
      deployment_id: '',
      workspace_id: target.workspaceId,
      worker_id: '',
      machine_id: '',
      success: true,
      source: 'scheduler',
      attrs: { epoch: expect.any(String) as string },
    });
    const lasted = (event: EventRow | undefined): number => Number(event?.data['duration_ms']);
    expect(lasted(wait) + lasted(start)).toBe(lasted(whole));

    await containers.transition(id, 'stop', { change: { reason: 'user_stop' } });
    await containers.transition(id, 'gone', { change: { exitCode: 143 } });
    const [stop, exit] = (await eventsOf(target.workspaceId)).slice(3);
    expect(stop?.data).toEqual({
      id: 'scheduler.stop_requested',
      domain: 'scheduler',
      timestamp: expect.any(String) as string,
      container_id: id,
      stub_id: target.stubId,
      deployment_id: '',
      workspace_id: target.workspaceId,
      worker_id: '',
      machine_id: '',
      cpu: 100,
      gpu_count: 0,
      reason: 'USER',
      source: 'scheduler',
      message: '',
      attrs: { reason: 'user_stop' },
    });
    expect(exit?.data).toMatchObject({ id: 'runtime.exited', reason: 'user_stop', attrs: { exit_code: '143' } });
  });

  test.each([
    ['ttl', 'TTL'],
    ['scaled_in', 'SCHEDULER'],
    ['drained', 'ADMIN'],
    ['deployment_stopped', 'USER'],
    ['something_else', 'UNKNOWN'],
  ])('a stop because of %s has the reason %s', async (reason, told) => {
    const target = await targetIn();
    const containers = registry();
    const id = await starting(containers, target);
    await containers.transition(id, 'stop', { change: { reason } });
    const [stop] = await eventsOf(target.workspaceId);
    expect(stop?.data).toMatchObject({ reason: told, attrs: { reason } });
  });

  test('a start that fails, and memory that ran out', async () => {
    const target = await targetIn();
    const containers = registry();
    const failing = await starting(containers, target);
    await containers.transition(failing, 'fail', {
      change: { reason: 'user_error', exitCode: 1, message: 'no module' },
    });
    expect(await idsOf(target.workspaceId)).toEqual([
      'scheduler.backlog_wait',
      'worker.start',
      'container.startup',
      'runtime.exited',
    ]);
    const [, , whole, exit] = await eventsOf(target.workspaceId);
    expect(whole?.data).toMatchObject({ success: false, attrs: { reason: 'user_error' } });
    expect(exit?.data).toMatchObject({ message: 'no module', attrs: { exit_code: '1' } });
    const full = await starting(containers, target);
    await containers.transition(full, 'ready', { change: { startedAtMs: Date.now() } });
    await containers.transition(full, 'fail', { change: { reason: 'oom', exitCode: 137 } });
    expect((await idsOf(target.workspaceId)).slice(7)).toEqual(['runtime.oom_killed', 'runtime.exited']);
    // Refused moves, and moves without a meaning for others, tell nothing.
    const before = (await eventsOf(target.workspaceId)).length;
    const waits = await containers.create(target);
    await containers.transition(waits.row.id, 'abandon', { change: { reason: 'scaled_in' } });
    await containers.transition(full, 'stop');
    expect((await eventsOf(target.workspaceId)).length).toBe(before);
  });

  test('many moves at once are one transaction with all their events; a failing one leaves neither', async () => {
    const target = await targetIn();
    const containers = registry();
    const ids = await Promise.all([1, 2, 3, 4].map(() => starting(containers, target)));
    await opened.db.query('alter table event_counters rename to event_counters_away');
    const failed = ids.map((id) => containers.transition(id, 'stop', { change: { reason: 'ttl' } }));
    for (const outcome of await Promise.allSettled(failed)) expect(outcome.status).toBe('rejected');
    await opened.db.query('alter table event_counters_away rename to event_counters');
    const { rows } = await opened.db.query('select distinct state from containers where stub_id = $1', [target.stubId]);
    expect([rows, await eventsOf(target.workspaceId)]).toEqual([[{ state: 'STARTING' }], []]);
    await Promise.all(ids.map((id) => containers.transition(id, 'stop', { change: { reason: 'ttl' } })));
    const told = await eventsOf(target.workspaceId);
    expect(told).toHaveLength(ids.length);
    expect(new Set(told.map(({ containerId }) => containerId))).toEqual(new Set(ids));
  });

  test('a stub warns, is degraded, and is healthy again', async () => {
    const { db } = opened;
    const target = await targetIn();
    const targets = { byQueue: () => target };
    const breakers = new Breakers({
      db,
      clock: systemClock,
      log: silent,
      fence: () => 1,
      told: { db, events, targets },
    });
    const containerId = `endpoint-${newId<StubId>()}-1` as ContainerId;
    const failure = { containerId, createdAtMs: Date.now(), reason: 'user_error', message: 'no module' };
    for (let n = 0; n < 4; n += 1) breakers.failed(target.queue, { ...failure, atMs: Date.now() });
    await waitFor(async () => (await eventsOf(target.workspaceId)).length === 2, 'two changes are told');
    breakers.forget(target.queue);
    await waitFor(async () => (await breakerOf(db, target.queue)) === undefined, 'the breaker is closed');
    const told = await eventsOf(target.workspaceId);
    expect(told.map(({ type, data }) => [type, data['previous_state']])).toEqual([
      ['stub.state.warning', 'healthy'],
      ['stub.state.degraded', 'warning'],
      ['stub.state.healthy', 'degraded'],
    ]);
    expect(told[1]?.data).toEqual({
      id: target.stubId,
      workspace_id: target.workspaceId,
      deployment_id: '',
      state: 'degraded',
      previous_state: 'warning',
      reason: 'user_error',
      failures: 3,
      failed_containers: [containerId],
    });
    expect(told[2]?.data['failed_containers']).toEqual([]);
  });

  test('a decision of scaling is told behind the loop, which never waits', async () => {
    const { db } = opened;
    const target = await targetIn();
    const scaled = new ScaleEvents({ db, events, clock: systemClock, log: silent });
    scaled.decided(target, { current: 1, desired: 3, reason: 'queue_depth' });
    await waitFor(async () => (await eventsOf(target.workspaceId)).length === 1, 'the decision is told');
    const [told] = await eventsOf(target.workspaceId);
    expect(told).toMatchObject({ type: 'container.event', stubId: target.stubId, appId: target.appId });
    expect(told?.data).toMatchObject({
      id: 'autoscaler.scale_decision',
      reason: 'queue_depth',
      attrs: { current_containers: '1', desired_containers: '3', reason: 'queue_depth' },
    });
    await db.query('alter table event_counters rename to event_counters_away');
    scaled.decided(target, { current: 3, desired: 1, reason: 'idle' });
    await db.query('alter table event_counters_away rename to event_counters');
  });

  test('a machine tells its owner, a shared one the administrator', async () => {
    const { db } = opened;
    const { id: own } = await aWorkspace(db);
    const admin = await insertWorkspace(db, {
      id: newId<WorkspaceId>(),
      name: 'admin',
      signingKey: new Uint8Array([1]),
      isAdmin: true,
    });
    const machineEvents = new MachineEvents(db, events, () => Date.now());
    const { machines, joining } = openMachines({
      db,
      log: silent,
      clock: systemClock,
      metrics: new FleetMetrics(new Registry()),
      caFingerprint: 'f',
      machineEvents,
    });
    for (const workspaceId of [own, null]) {
      const made = await joining.create({ workspaceId }, 'mine');
      const joined = await joining.join({
        secret: made.joinToken.split('.')[2] ?? '',
        nonce: newId(),
        fingerprint: newId(),
        publicKey: 'k',
        hostname: 'host-1',
        agentVersion: '1',
      });
      const machine = machines.get(joined.id);
      if (machine === undefined) throw new Error('the machine is not known');
      machine.health = 'SUSPECT';
      await machines.writeHealth(machine);
      const isDeleted = await machineEvents.write(machine.row, 'deleted', '', (tx) => deleteMachine(tx, joined.id));
      expect(isDeleted).toBe(true);
      // The second deletion changes nothing, and tells nothing.
      await machineEvents.write(machine.row, 'deleted', '', (tx) => deleteMachine(tx, joined.id));
      const told = await eventsOf(workspaceId ?? admin.id);
      expect(told.map(({ type, machineId, data }) => [type, machineId, data['status']])).toEqual(
        ['joined', 'suspect', 'deleted'].map((status) => ['worker.lifecycle', joined.id, status]),
      );
      expect(told[0]?.data).toEqual({
        worker_id: joined.id,
        machine_id: joined.id,
        pool_name: 'mine',
        status: 'joined',
        reason: '',
      });
    }
  });
});
