// Containers made by hand, on real stores of both kinds: their bound, their time to live and its uses, and operations
// that wait for them.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import { ContainerActions } from '#scheduler/fleet/containers/actions.ts';
import { ContainerRegistry } from '#scheduler/fleet/containers/container-registry.ts';
import { HandMadeContainers } from '#scheduler/fleet/containers/hand-made.ts';
import { networkOf } from '#scheduler/fleet/containers/spec.ts';
import { ContainerUses } from '#scheduler/fleet/containers/uses.ts';
import { ContainerWaits } from '#scheduler/fleet/containers/waits.ts';
import type { Queryable } from '#scheduler/stores/store/db.ts';
import { SlotTable } from '#scheduler/tasks/dispatch/slots.ts';
import { containerById } from '#scheduler/stores/store/queries/containers.ts';
import { waitFor } from '../helpers/services.ts';
import { aDb, aWorkspace, KINDS, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';
import { aTarget } from './tasks-fixture.ts';

describe.each(KINDS)('on %s', (kind) => {
  let opened: OpenedDb;
  const ending: (() => void)[] = [];
  beforeAll(async () => {
    opened = await aDb(kind);
  });
  afterAll(() => opened.stop());
  afterEach(() => {
    for (const end of ending.splice(0)) end();
  });

  function aReplica(options: { readonly isLeader?: boolean; readonly most?: number } = {}) {
    const { db } = opened;
    const containers = new ContainerRegistry({ db, log: silent, clock: systemClock });
    const actions = new ContainerActions(containers, new SlotTable());
    const isLeader = (): boolean => options.isLeader ?? true;
    const uses = new ContainerUses({ db, containers, actions, isLeader, clock: systemClock, log: silent });
    const waits = new ContainerWaits(containers, db);
    containers.onChange((change) => uses.containerChanged(change));
    containers.onChange((change) => waits.containerChanged(change));
    ending.push(() => uses.stop());
    const handMade = new HandMadeContainers({ containers, mostOf: () => Promise.resolve(options.most ?? 10) });
    return { containers, actions, uses, waits, handMade };
  }
  type Replica = ReturnType<typeof aReplica>;

  const run = async ({ containers }: Replica, id: ContainerId): Promise<void> => {
    await containers.transition(id, 'assign', {
      change: { machineId: 'abcd0001' as MachineId, assignmentId: 'a', epoch: 1 },
    });
    await containers.transition(id, 'ack');
    await containers.transition(id, 'ready', { change: { startedAtMs: Date.now() } });
  };
  const made = async (replica: Replica, keepWarmSeconds: number, stubType = 'sandbox'): Promise<ContainerId> => {
    const outcome = await replica.handMade.create(aTarget({ stubType, keepWarmSeconds }));
    if (outcome.kind !== 'made') throw new Error('not made');
    return outcome.containerId;
  };
  /** Moves all times of the row so far into the past. */
  const pass = async (id: ContainerId, seconds: number): Promise<void> => {
    const past = ['expires_at', 'started_at', 'held_until'].map(
      (column) => `${column} = ${column} - make_interval(secs => $2::integer)`,
    );
    await opened.db.query(`update containers set ${past.join(', ')} where id = $1`, [id, seconds]);
  };
  const stateOf = async (id: ContainerId) => {
    const row = await containerById(opened.db, id);
    return [row?.state, row?.reason];
  };
  const leftOf = async (id: ContainerId, column: 'expires_at' | 'held_until'): Promise<number | null> => {
    const { rows } = await opened.db.query<{ left: number | null }>(
      `select extract(epoch from ${column} - now())::float8 as left from containers where id = $1`,
      [id],
    );
    return rows[0]?.left ?? null;
  };

  test('a workspace has no more containers made by hand than it may, also of many requests at once', async () => {
    const { handMade, containers } = aReplica({ most: 3 });
    const target = { ...aTarget({ stubType: 'sandbox' }), workspaceId: (await aWorkspace(opened.db)).id };
    const outcomes = await Promise.all(Array.from({ length: 5 }, () => handMade.create(target)));
    expect(outcomes.map(({ kind }) => kind).toSorted()).toEqual(['full', 'full', 'made', 'made', 'made']);
    expect(handMade.countOf(target.workspaceId)).toBe(3);
    expect((await handMade.create(aTarget({ stubType: 'sandbox' }))).kind).toBe('made');
    const [first] = outcomes.flatMap((one) => (one.kind === 'made' ? [one.containerId] : []));
    await containers.transition(first ?? ('' as ContainerId), 'abandon');
    expect((await handMade.create(target)).kind).toBe('made');
  });

  test('a container that was unused for its time to live is stopped by the leader, one in use or without is not', async () => {
    const replica = aReplica();
    const [unused, used, held, forever, starting] = [
      await made(replica, 60),
      await made(replica, 60),
      await made(replica, 60),
      await made(replica, -1),
      await made(replica, 60),
    ];
    for (const id of [unused, used, held, forever]) await run(replica, id);
    for (const id of [unused, used, held, forever, starting]) await pass(id, 61);
    replica.uses.used(used);
    const release = replica.uses.hold(held);
    await waitFor(async () => ((await leftOf(held, 'held_until')) ?? 0) > 10, 'the hold is noted');
    await waitFor(async () => ((await leftOf(used, 'expires_at')) ?? 0) > 50, 'the use is noted');
    const follower = aReplica({ isLeader: false });
    await follower.containers.load();
    await follower.uses.sweep();
    expect((await stateOf(unused))[0]).toBe('RUNNING');
    await replica.uses.sweep();
    expect(await Promise.all([unused, used, held, forever, starting].map(stateOf))).toEqual([
      ['STOPPING', 'ttl'],
      ['RUNNING', null],
      ['RUNNING', null],
      ['RUNNING', null],
      ['PENDING', null],
    ]);
    // The stream ends: its end is the last use.
    await pass(held, 60);
    release();
    release();
    await waitFor(async () => ((await leftOf(held, 'expires_at')) ?? 0) > 50, 'the end of the stream is noted');
    await pass(held, 61);
    await replica.uses.sweep();
    expect(await stateOf(held)).toEqual(['STOPPING', 'ttl']);
  });

  test('a stream at one replica keeps the container, when another one at another replica ends', async () => {
    const [one, other] = [aReplica(), aReplica()];
    const id = await made(one, 60);
    await run(one, id);
    await other.containers.readAgain([id]);
    other.uses.hold(id);
    await waitFor(async () => ((await leftOf(id, 'held_until')) ?? 0) > 10, 'the stream of the other is noted');
    // A replica writes its notes in their order: the end comes behind both begins.
    one.uses.hold(id)();
    await waitFor(async () => ((await leftOf(id, 'held_until')) ?? 99) < 7, 'the end is noted');
    expect(await leftOf(id, 'held_until')).toBeGreaterThan(0);
    await opened.db.query(
      `update containers set expires_at = now(), started_at = now() - interval '1 hour' where id = $1`,
      [id],
    );
    await one.uses.sweep();
    expect(await stateOf(id)).toEqual(['RUNNING', null]);
    await waitFor(
      async () => ((await leftOf(id, 'held_until')) ?? 0) > 10,
      'the other replica notes its stream again',
      15_000,
    );
  });

  test('a container that is held is kept, also where the store could not be told of it', async () => {
    const replica = aReplica();
    const { containers, actions } = replica;
    let isAway = false;
    const db: Queryable = {
      query: (text, values) => (isAway ? Promise.reject(new Error('away')) : opened.db.query(text, values)),
    };
    const make = () => {
      const uses = new ContainerUses({
        db,
        containers,
        actions,
        isLeader: () => true,
        clock: systemClock,
        log: silent,
      });
      ending.push(() => uses.stop());
      return uses;
    };
    const [leader, other] = [make(), make()];
    const id = await made(replica, 60);
    await run(replica, id);
    isAway = true;
    const releases = [leader.hold(id), other.hold(id)];
    await leader.sweep();
    await pass(id, 61);
    isAway = false;
    // The other replica notes its stream later than the leader sees that it is gone from the row.
    await leader.sweep();
    expect(await stateOf(id)).toEqual(['RUNNING', null]);
    releases[0]?.();
    await leader.sweep();
    expect(await stateOf(id)).toEqual(['RUNNING', null]);
    // A note is on its way while the leader looks.
    const third = make();
    third.hold(id);
    await pass(id, 100);
    await third.sweep();
    expect(await stateOf(id)).toEqual(['RUNNING', null]);
  });

  test('a new time to live begins at once, at every replica, and none means for ever', async () => {
    const [one, other] = [aReplica(), aReplica()];
    const id = await made(one, 600);
    await run(one, id);
    await other.containers.readAgain([id]);
    expect(await one.uses.setTtl(id, 5)).toBe(true);
    const left = (await leftOf(id, 'expires_at')) ?? 0;
    expect(left > 3 && left <= 5).toBe(true);
    await other.containers.readAgain([id]);
    expect(other.containers.get(id)?.row.ttlSeconds).toBe(5);
    expect(await one.uses.setTtl(id, null)).toBe(true);
    await pass(id, 1000);
    await one.uses.sweep();
    expect(await stateOf(id)).toEqual(['RUNNING', null]);
    await one.containers.transition(id, 'exit');
    expect(await one.uses.setTtl(id, 5)).toBe(false);
  });

  test('ports are exposed once each, up to a bound, and every replica knows them', async () => {
    const [one, other] = [aReplica(), aReplica()];
    const id = await made(one, -1);
    for (const port of [8000, 8001, 8000]) expect(await one.handMade.exposePort(id, port)).toBe(true);
    await other.containers.readAgain([id]);
    expect(other.containers.get(id)?.row.exposedPorts).toEqual([8000, 8001]);
    for (let port = 9000; port < 9018; port += 1) expect(await one.handMade.exposePort(id, port)).toBe(true);
    expect(await one.handMade.exposePort(id, 9018)).toBe(false);
    expect(await one.handMade.exposePort(id, 9017)).toBe(true);
  });

  test('network rules of a sandbox are kept with a growing number, which no move of another replica undoes', async () => {
    const [one, other] = [aReplica(), aReplica()];
    const id = await made(one, 60);
    await run(one, id);
    await other.containers.readAgain([id]);
    const changes: number[] = [];
    one.containers.onChange(({ entry }) => changes.push(networkOf(entry.row).version));
    const closed = { blockNetwork: true, allowList: [] };
    expect(await one.handMade.keepNetwork(id, { blockNetwork: false, allowList: ['198.51.100.0/24'] })).toBe(true);
    expect(await one.handMade.keepNetwork(id, closed)).toBe(true);
    expect(changes).toEqual([1, 2]);
    // The other replica moves the container by a row that it read before.
    expect(networkOf(other.containers.get(id)?.row ?? { spec: {} }).version).toBe(0);
    expect(await other.containers.transition(id, 'machine_lost')).toBe('moved');
    await one.containers.readAgain([id]);
    for (const { containers } of [one, other]) {
      const entry = containers.get(id);
      expect(networkOf(entry?.row ?? { spec: {} })).toEqual({ ...closed, version: 2 });
      expect(entry?.spec.wire).toMatchObject({ ...closed, networkVersion: 2, stubType: 'sandbox' });
    }
    const pod = await made(one, 60, 'pod/run');
    expect(await one.handMade.keepNetwork(pod, closed)).toBe(false);
    await one.containers.transition(pod, 'abandon');
    expect(await one.handMade.keepNetwork(pod, closed)).toBe(false);
  });

  test('an operation waits for the container that starts, and hears at once when it runs or why it never will', async () => {
    const [one, other] = [aReplica(), aReplica()];
    const id = await made(one, 60);
    const waiting = one.waits.waitUntilRunning(id, 60_000);
    // Another replica reads the row of a container that it has not heard of.
    const elsewhere = other.waits.waitUntilRunning(id, 60_000);
    await waitFor(() => Promise.resolve(other.containers.get(id) !== undefined), 'the other one has read it');
    await run(one, id);
    await other.containers.readAgain([id]);
    expect(await waiting).toMatchObject({ ok: true, row: { id, state: 'RUNNING' } });
    expect(await elsewhere).toMatchObject({ ok: true });

    const bad = await made(one, 60);
    const failing = one.waits.waitUntilRunning(bad, 60_000);
    await one.containers.transition(bad, 'give_up', { change: { reason: 'image_error', message: 'no such image' } });
    expect(await failing).toEqual({ ok: false, why: 'ended', reason: 'the container did not start: no such image' });
    expect(await other.waits.waitUntilRunning(bad, 60_000)).toMatchObject({ ok: false, why: 'ended' });

    await one.containers.transition(id, 'stop', { change: { reason: 'ttl' } });
    expect(await one.waits.waitUntilRunning(id, 60_000)).toMatchObject({
      ok: false,
      reason: 'the container is stopping: ttl',
    });
    expect(await one.waits.waitUntilRunning('sandbox-none', 60_000)).toMatchObject({ ok: false, why: 'unknown' });
    // Texts that the database does not take are no ids.
    for (const text of ['sandbox\0', '', 'x'.repeat(300)]) expect(await one.waits.find(text, null)).toBeUndefined();
    const late = await made(one, 60);
    expect(await one.waits.waitUntilRunning(late, 1)).toMatchObject({ ok: false, why: 'late' });
    const left = new AbortController();
    const leaving = one.waits.waitUntilRunning(late, 60_000, left.signal);
    left.abort();
    expect(await leaving).toMatchObject({ ok: false, why: 'left' });
    // A store that is away when a container ends is the caller's failure, and no more.
    const db: Queryable = { query: () => Promise.reject(new Error('away')) };
    const waits = new ContainerWaits(one.containers, db);
    one.containers.onChange((change) => waits.containerChanged(change));
    const lost = waits.waitUntilRunning(late, 60_000);
    const rejected = expect(lost).rejects.toThrow('away');
    await one.containers.transition(late, 'abandon');
    await rejected;
  });

  test('ids of no container are looked for once in a while, and one that is made meanwhile is found', async () => {
    const [one, other] = [aReplica(), aReplica()];
    let asked = 0;
    const db: Queryable = { query: (text, values) => ((asked += 1), opened.db.query(text, values)) };
    const waits = new ContainerWaits(one.containers, db);
    one.containers.onChange((change) => waits.containerChanged(change));
    for (let times = 0; times < 20; times += 1) expect(await waits.find('sandbox-none', null)).toBeUndefined();
    await Promise.all(Array.from({ length: 20 }, () => waits.find('sandbox-none-either', null)));
    expect(asked).toBe(2);
    const id = await made(one, 60);
    await one.containers.transition(id, 'abandon');
    for (let times = 0; times < 20; times += 1) expect(await waits.find(id, null)).toMatchObject({ state: 'STOPPED' });
    expect(asked).toBe(3);
    // A container of another replica that lives is no such id.
    const elsewhere = await made(other, 60);
    expect(await waits.find(elsewhere, null)).toMatchObject({ state: 'PENDING' });
    await other.containers.transition(elsewhere, 'abandon');
    await one.containers.readAgain([elsewhere]);
    expect(await waits.find(elsewhere, null)).toMatchObject({ state: 'STOPPED' });
    // Many of them take no more room than a bound: the oldest is looked for again.
    for (let n = 0; n < 1024; n += 1) await waits.find(`sandbox-none-${n}`, null);
    asked = 0;
    await waits.find('sandbox-none', null);
    expect(asked).toBe(1);
  });
});
