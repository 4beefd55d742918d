// Desired state under fencing numbers, and replicas' knowledge of
// each other's containers: two container registries on one database, of both kinds.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import { Registry } from '#shared/metrics.ts';
import { ContainerRegistry } from '#scheduler/fleet/containers/container-registry.ts';
import { ContainerCredentials } from '#scheduler/fleet/containers/credentials.ts';
import { LeaderContainerRegistry } from '#scheduler/fleet/containers/leader-container-registry.ts';
import { StopWhenDrained } from '#scheduler/replicas/stop-when-drained.ts';
import { TakeOver } from '#scheduler/replicas/take-over.ts';
import { SlotTable } from '#scheduler/tasks/dispatch/slots.ts';
import type { AgentReports } from '#scheduler/fleet/agent-reports.ts';
import type { MachineParts } from '#scheduler/compose/machines.ts';
import { openMachines } from '#scheduler/compose/machines.ts';
import { FleetMetrics } from '#scheduler/fleet/metrics.ts';
import { aWorkers } from '../helpers/drains.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { containerById, listLiveContainers } from '#scheduler/stores/store/queries/containers.ts';
import { raiseFence } from '#scheduler/stores/store/queries/leadership.ts';
import { waitFor } from '../helpers/services.ts';
import { machineById, updateMachine } from '#scheduler/stores/store/queries/machines.ts';
import { aDb, KINDS, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';
import { aTarget, PlayedLink } from './tasks-fixture.ts';

/** Container registries of one replica: its own, and the one that it decides with under that fencing number. */
function aReplica({ db }: OpenedDb, fence: () => number | undefined) {
  const containers = new ContainerRegistry({ db, log: silent, clock: systemClock });
  return { containers, leading: new LeaderContainerRegistry(containers, fence) };
}

const place = { change: { machineId: 'abcd0001' as MachineId, assignmentId: 'a', epoch: 1 } };

function aMachines({ db }: OpenedDb, containers?: ContainerRegistry): MachineParts {
  const metrics = new FleetMetrics(new Registry());
  return openMachines({
    db,
    log: silent,
    clock: systemClock,
    metrics,
    caFingerprint: 'f',
    ...(containers && { containers }),
  });
}

/** A machine that is linked here and READY. */
async function aMachine(opened: OpenedDb, containers?: ContainerRegistry) {
  const { machines, joining, agentReports } = aMachines(opened, containers);
  const { machineId: id, joinToken } = await joining.create({ workspaceId: null }, 'default');
  const facts = { nonce: 'n', fingerprint: 'f', publicKey: 'k', hostname: 'h', agentVersion: '0' };
  await joining.join({ secret: joinToken.split('.')[2] ?? '', ...facts });
  const inventory = { hostname: 'h', cpuMillicores: 4000, memoryBytes: 8e9, gpus: [], images: [] };
  const hello = { machineId: id, bootId: 'b', instanceId: 'i', version: '0', protocol: 1, inventory, observed: [] };
  const machine = await agentReports.hello(id, 's', hello as unknown as Parameters<AgentReports['hello']>[2]);
  agentReports.ready(id, 's');
  await waitFor(async () => (await machineById(opened.db, id))?.health === 'READY', 'it is READY');
  return { machines, agentReports, machine, id };
}

/** The database; numbers of rows written by statements with that parameter are added to `written`. */
const watched = (db: Db, parameter: string, written: number[]): Db =>
  new Proxy(db, {
    get: (whole, name) => {
      const value: unknown = Reflect.get(whole, name);
      if (typeof value !== 'function') return value;
      if (name !== 'query') return value.bind(whole);
      return async (sql: string, params?: readonly unknown[]) => {
        const result = await whole.query(sql, params);
        if (params?.includes(parameter) === true) written.push(result.rowCount);
        return result;
      };
    },
  });

describe.each(KINDS)('on %s', (kind) => {
  let opened: OpenedDb;
  let fence = 0;
  beforeAll(async () => {
    opened = await aDb(kind);
  });
  afterAll(() => opened.stop());
  /** The next number leads. */
  const lead = async (): Promise<number> => {
    fence += 1;
    expect(await raiseFence(opened.db, fence)).toBe(fence);
    return fence;
  };

  test('a container’s credential follows its row, wherever memory may be behind it', async () => {
    const [one, other] = [aReplica(opened, () => undefined).containers, aReplica(opened, () => undefined).containers];
    const told: ((id: string) => void)[] = [];
    const messages = {
      isLive: true,
      on: (_kind: string, handler: (id: string) => void) => void told.push(handler),
      publish: (_kind: string, id: string) => {
        told.forEach((handler) => handler(id));
        return Promise.resolve(true);
      },
    };
    const credentialsOf = (containers: ContainerRegistry): ContainerCredentials =>
      new ContainerCredentials({
        db: opened.db,
        containers,
        invalidation: messages,
        isAlone: false,
        hasMachine: () => true,
      });
    const [mine, theirs] = [credentialsOf(one), credentialsOf(other)];
    const { id } = (await one.create(aTarget())).row;
    expect(await theirs.isLive(id, 1)).toBe(false);
    await one.transition(id, 'assign', place);
    expect([await mine.isLive(id, 1), await theirs.isLive(id, 1)]).toEqual([false, false]);
    await one.transition(id, 'ack');
    // The other container registry has not heard of the change yet.
    expect([mine.isLive(id, 1), await theirs.isLive(id, 1)]).toEqual([true, true]);
    expect([await mine.isLive(id, 2), await theirs.isLive(id, 2)]).toEqual([false, false]);
    await other.readAgain([id]);
    expect(theirs.isLive(id, 1)).toBe(true);
    await one.transition(id, 'stop');
    expect(mine.isLive(id, 1)).toBe(false);
    messages.isLive = false;
    expect(await theirs.isLive(id, 1)).toBe(false);
    messages.isLive = true;
    await mine.ended([id]);
    expect(other.get(id)?.row.state).toBe('STARTING');
    expect(theirs.isLive(id, 1)).toBe(false);
    await one.transition(id, 'gone');
  });

  test('a container that was to leave and stays after all is not stopped for its last task', async () => {
    const { containers } = aReplica(opened, () => undefined);
    const slots = new SlotTable();
    const target = aTarget();
    const { id } = (await containers.create(target)).row;
    await containers.transition(id, 'assign', place);
    await containers.transition(id, 'ack');
    await containers.transition(id, 'ready');
    await containers.transition(id, 'drain', { change: { reason: 'preempted' } });
    const leaving = new StopWhenDrained(containers, slots, silent);
    const facts = { containerId: id, queue: target.queue, machineId: place.change.machineId, slots: 1 };
    slots.ready(facts, new PlayedLink(), 0);
    // The last task ends while it is written that the container stays.
    const stays = containers.transition(id, 'undrain', { change: { reason: null } });
    leaving.check(id);
    expect(await stays).toBe('moved');
    await containers.get(id)?.tail;
    expect((await containerById(opened.db, id))?.state).toBe('RUNNING');
    await containers.transition(id, 'exit');
  });

  test('desired state of a leader that was superseded is refused and counted; people and agents are not asked for a number', async () => {
    const first = await lead();
    const old = aReplica(opened, () => first);
    const entry = await old.leading.create(aTarget());
    expect(entry?.row.state).toBe('PENDING');
    const id = entry!.row.id;
    await lead();
    expect(await old.leading.create(aTarget())).toBeUndefined();
    expect(await old.leading.createMany(aTarget(), 3)).toEqual([]);
    expect(await old.leading.transition(id, 'assign', place)).toBe('refused');
    expect((await containerById(opened.db, id))?.state).toBe('PENDING');
    expect(old.containers.refusedLeaderWrites).toBe(3);
    expect(await old.containers.transition(id, 'abandon', { change: { reason: 'user_stop' } })).toBe('moved');
  });

  test('as many as are asked for are created, also where they take more than one statement', async () => {
    const fenceNow = await lead();
    const leader = aReplica(opened, () => fenceNow);
    const entries = await leader.leading.createMany(aTarget(), 501);
    expect(new Set(entries.map(({ row }) => row.id)).size).toBe(501);
    expect([...leader.containers.pending()]).toHaveLength(501);
    const live = new Set((await listLiveContainers(opened.db)).map((row) => row.id));
    expect(entries.every(({ row }) => live.has(row.id))).toBe(true);
  });

  test('who does not lead writes no desired state at all', async () => {
    const follower = aReplica(opened, () => undefined);
    const entry = await follower.containers.create(aTarget());
    expect(await follower.leading.transition(entry.row.id, 'assign', place)).toBe('refused');
    expect(await follower.leading.create(aTarget())).toBeUndefined();
    expect((await containerById(opened.db, entry.row.id))?.state).toBe('PENDING');
  });

  test('a number below one that has led is told so, and raises nothing', async () => {
    const highest = await lead();
    expect(await raiseFence(opened.db, highest - 1)).toBe(highest);
    const leader = aReplica(opened, () => highest);
    expect(await leader.leading.create(aTarget())).toBeDefined();
  });

  test('writes of the leader before that are under way are done when the next number counts, or refused', async () => {
    const first = await lead();
    const old = aReplica(opened, () => first);
    let refused = 0;
    let over = false;
    const create = async (): Promise<void> => {
      while (!over) if ((await old.leading.create(aTarget())) === undefined) refused += 1;
    };
    const creating = [create(), create(), create()];
    await waitFor(async () => (await listLiveContainers(opened.db)).length > 20, 'it creates');
    await lead();
    const atRaise = (await listLiveContainers(opened.db)).length;
    await waitFor(() => refused > 20, 'its writes are refused');
    over = true;
    await Promise.all(creating);
    expect((await listLiveContainers(opened.db)).length).toBe(atRaise);
    expect(old.containers.refusedLeaderWrites).toBe(refused);
  });

  test('who begins to lead knows first what the last leader wrote and could not say any more', async () => {
    const first = await lead();
    const [old, next] = [aReplica(opened, () => first), aReplica(opened, () => fence)];
    const entry = (await old.leading.create(aTarget()))!;
    const { id } = entry.row;
    await next.containers.readAgain([id]);
    // The old leader dies between the row and its message: the others do not know of a device and a container.
    const machine = await aMachine(opened);
    const room = { cpuMillicores: 1e6, memoryBytes: 1e12 };
    const assigned = {
      machineId: machine.id,
      assignmentId: 'a',
      gpuUuids: ['GPU-0'],
      scheduledAtMs: 1,
      takes: room,
      room,
    };
    expect(await old.leading.assign(id, assigned, { epoch: 0 })).toBe('moved');
    const other = (await old.leading.create(aTarget()))!;
    const read: string[] = [];
    const machines = { readMissed: () => Promise.resolve(void read.push('machines')) };
    const takeOver = new TakeOver({ db: opened.db, containers: next.containers, machines });
    fence += 1;
    expect(await takeOver.raise(fence)).toBe(fence);
    expect(next.containers.get(id)?.row).toMatchObject({ state: 'ASSIGNED', gpuUuids: ['GPU-0'] });
    expect(next.containers.get(other.row.id)?.row.state).toBe('PENDING');
    expect(read).toEqual(['machines']);
    // A replica that may not lead reads nothing.
    expect(await takeOver.raise(fence - 1)).toBe(fence);
    expect(read).toEqual(['machines']);
  });

  test('what a leader that was superseded makes of a machine changes neither its row nor what it remembers of it', async () => {
    const first = await lead();
    const { machines, agentReports, machine, id } = await aMachine(opened);
    agentReports.suspect(id, 's', 'stream_ended');
    await waitFor(async () => (await machineById(opened.db, id))?.health === 'SUSPECT', 'it is SUSPECT');
    const second = await lead();
    expect(await machines.lost(machine, first)).toBe(false);
    expect((await machineById(opened.db, id))?.health).toBe('SUSPECT');
    expect(machines.get(id)?.health).toBe('SUSPECT');
    const known = machines.get(id)!;
    expect(await machines.lost(known, second)).toBe(true);
    expect((await machineById(opened.db, id))?.health).toBe('LOST');
    expect(known.health).toBe('LOST');
  });

  test('a machine whose replica died is SUSPECT by the word of the leader alone', async () => {
    const first = await lead();
    const { id } = await aMachine(opened);
    const { machines: elsewhere } = aMachines(opened);
    await elsewhere.start();
    const second = await lead();
    await elsewhere.readAgain([id], () => undefined);
    const seen = () => elsewhere.get(id)!;
    expect(seen().health).not.toBe('LOST');
    await updateMachine(opened.db, id, { health: 'READY' });
    await elsewhere.readAgain([id], () => undefined);
    await elsewhere.orphaned(seen(), first);
    expect([seen().health, (await machineById(opened.db, id))?.health]).toEqual(['READY', 'READY']);
    await elsewhere.orphaned(seen(), second);
    expect([seen().health, (await machineById(opened.db, id))?.health]).toEqual(['SUSPECT', 'SUSPECT']);
  });

  test('a drain is carried on by the leader alone: neither its containers nor the machine are moved under an older number, and an operator’s word overrides it', async () => {
    const first = await lead();
    const { containers, leading } = aReplica(opened, () => first);
    const drained: number[] = [];
    const { machines, id } = await aMachine(opened, containers);
    const slots = new SlotTable();
    const leader = { fence: first as number | undefined };
    const workers = aWorkers({
      db: watched(opened.db, 'drained', drained),
      machines,
      containers,
      leaderContainers: leading,
      slots,
      clock: systemClock,
      log: silent,
      fence: () => leader.fence,
    });
    const { row } = (await leading.create(aTarget()))!;
    await leading.transition(row.id, 'assign', { change: { ...place.change, machineId: id } });
    await containers.transition(row.id, 'ack', { epoch: 1 });
    const second = await lead();
    // By its own clock, the old leader's lease has not run out.
    expect(await workers.drain({ workspaceId: null }, id)).toBe(true);
    await waitFor(() => containers.refusedLeaderWrites > 0, 'its stop of the container is refused');
    expect((await containerById(opened.db, row.id))?.state).toBe('STARTING');
    leader.fence = undefined;
    await containers.transition(row.id, 'fail', { change: { reason: 'user_error' } });
    // The machine is empty now: the old leader's write about the machine is refused, too.
    const intents: string[] = [];
    machines.onChange(({ row: { intent } }) => void intents.push(intent));
    leader.fence = first;
    workers.start();
    // Draining machines are looked at every second.
    await waitFor(() => drained.length > 0, 'the old leader tries to complete the drain');
    expect(drained).not.toContain(1);
    expect((await machineById(opened.db, id))?.intent).toBe('draining');
    expect(intents).not.toContain('drained');
    // The leader of today completes the drain.
    leader.fence = second;
    await waitFor(async () => (await machineById(opened.db, id))?.intent === 'drained', 'it is drained');
    // Another replica uncordoned the machine a moment ago.
    leader.fence = undefined;
    expect(await updateMachine(opened.db, id, { intent: 'active' })).toBe(true);
    expect(await updateMachine(opened.db, id, { intent: 'drained', ifIntent: 'draining', fence: second })).toBe(false);
    workers.stop();
  });

  test('a replica follows what another writes, never goes back, and does not bring back what ended', async () => {
    const [a, b] = [aReplica(opened, () => fence), aReplica(opened, () => fence)];
    const changes: string[] = [];
    b.containers.onChange(({ entry, from, to }) => changes.push(`${entry.row.id} ${from} ${to}`));
    const written: string[] = [];
    a.containers.onWritten((id) => written.push(id));
    const { row } = (await a.leading.create(aTarget()))!;
    await b.containers.readAgain([row.id]);
    await a.leading.transition(row.id, 'assign', place);
    const assigned = a.containers.get(row.id)!.row;
    // The message was lost, and comparing with the database finds the change.
    await b.containers.readMissed();
    expect(b.containers.get(row.id)?.row).toEqual(assigned);
    expect([...b.containers.ofMachine('abcd0001' as MachineId)].map((entry) => entry.row.id)).toEqual([row.id]);
    await b.containers.transition(row.id, 'ack', { epoch: 1 });
    b.containers.learn([assigned, row]);
    expect(b.containers.get(row.id)?.row.state).toBe('STARTING');
    // The decision is from the old state: nothing is written, and memory follows the row.
    expect(await a.containers.transition(row.id, 'revoke', { epoch: 1 })).toBe('refused');
    expect(a.containers.get(row.id)?.row.state).toBe('STARTING');
    await a.containers.transition(row.id, 'fail', { change: { reason: 'user_error' } });
    await b.containers.readMissed();
    b.containers.learn([assigned]);
    expect(b.containers.get(row.id)).toBeUndefined();
    const ofIt = changes.filter((change) => change.startsWith(row.id)).map((change) => change.slice(row.id.length + 1));
    expect(ofIt).toEqual(['null PENDING', 'PENDING ASSIGNED', 'ASSIGNED STARTING', 'STARTING FAILED']);
    expect(written).toEqual([row.id, row.id, row.id]);
  });
});
