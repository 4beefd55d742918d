// The statements that place containers, on both databases: what they check again, racing ones, late ones, and the GPU
// rows that follow from the rows of containers.
import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { newContainerId, newId } from '#shared/domain/ids.ts';
import type { ContainerId, MachineId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { Counter, Registry } from '#shared/metrics.ts';
import { checkLeases } from '#scheduler/control/placement/lease-check.ts';
import { moveContainers } from '#scheduler/stores/store/queries/container-moves.ts';
import {
  assignContainers,
  insertContainers,
  repairLeases,
} from '#scheduler/stores/store/queries/container-placements.ts';
import type { Place, Assignment, AssignOutcome } from '#scheduler/stores/store/queries/container-placements.ts';
import { containerById, containersById } from '#scheduler/stores/store/queries/containers.ts';
import type { ContainerRow, NewContainer } from '#scheduler/stores/store/queries/containers.ts';
import { raiseFence } from '#scheduler/stores/store/queries/leadership.ts';
import { deleteMachine, touchMachines, updateMachine } from '#scheduler/stores/store/queries/machines.ts';
import { getOrCreatePool } from '#scheduler/stores/store/queries/pools.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { waitFor } from '../helpers/services.ts';
import { aDb, KINDS, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const DEVICES = Array.from({ length: 8 }, (_none, index) => `GPU-${index}`);
const MACHINE = 'm0000001' as MachineId;
const OTHER = 'm0000002' as MachineId;
const ROOM = { cpuMillicores: 64_000, memoryBytes: 512 * 1024 ** 3 };
const CONSISTENT = { missing: 0, left_over: 0, leased_twice: 0 };
const COMMON: Omit<NewContainer, 'id'> = {
  workspaceId: newId<WorkspaceId>(),
  stubId: newId<StubId>(),
  deploymentId: null,
  spec: { cpuMillicores: 100, memoryBytes: 1023.5 },
  slots: 1,
};
/** Amounts that such a container takes. */
const TAKES = { cpuMillicores: 100, memoryBytes: 1024 };
const aContainerId = (): ContainerId => newContainerId('endpoint', COMMON.stubId);

const aPlace = (changes: Partial<Place> = {}): Place => ({
  machineId: MACHINE,
  assignmentId: randomUUID(),
  gpuUuids: [],
  scheduledAtMs: 1_000,
  takes: TAKES,
  room: ROOM,
  ...changes,
});

async function makeMachines(db: Db, ids: readonly MachineId[]): Promise<void> {
  const pool = await getOrCreatePool(db, { name: 'default', workspaceId: null });
  await db.query('insert into machines (id, pool_id) select unnest($1::text[]), $2::bigint', [ids, pool.id]);
}

describe.each(KINDS)('on %s', (kind) => {
  let opened: OpenedDb;
  let fence = 0;
  const db = () => opened.db;
  beforeAll(async () => {
    opened = await aDb(kind);
    await makeMachines(db(), [MACHINE, OTHER]);
  });
  afterAll(() => opened.stop());
  beforeEach(async () => {
    await db().query('delete from containers');
    await db().query('delete from leased_gpus');
    await db().query(
      "update machines set intent = 'active', system_cordon = false, host_drain_until = null, deleted_at = null",
    );
    fence += 1;
    await raiseFence(db(), fence);
  });

  const waiting = async (count = 1): Promise<readonly ContainerRow[]> =>
    (await insertContainers(
      db(),
      Array.from({ length: count }, () => ({ id: aContainerId() })),
      COMMON,
    )) ?? [];
  const aWaiting = async (): Promise<ContainerRow> => (await waiting())[0]!;
  const placementOf = ({ id, epoch }: ContainerRow, changes?: Partial<Place>): Assignment => ({
    id,
    epoch,
    place: aPlace(changes),
    fence,
  });
  const assign = async (row: ContainerRow, changes?: Partial<Place>): Promise<AssignOutcome> =>
    (await assignContainers(db(), [placementOf(row, changes)]))[0]!;
  const said = (outcome: AssignOutcome): string => (outcome.kind === 'no_room' ? outcome.why : outcome.kind);
  const leases = async (): Promise<Record<string, string>> => {
    const { rows } = await db().query<{ uuid: string; container_id: string; epoch: number }>(
      'select uuid, container_id, epoch from leased_gpus order by uuid',
    );
    return Object.fromEntries(rows.map((row) => [row.uuid, `${row.container_id} ${row.epoch}`]));
  };
  const held = async (): Promise<readonly number[]> => {
    const { rows } = await db().query<{ cpu: number; memory: number }>(
      `select coalesce(sum(cpu_millicores), 0)::float8 as cpu, coalesce(sum(memory_bytes), 0)::float8 as memory from containers
       where machine_id = $1 and state not in ('PENDING', 'STOPPED', 'FAILED', 'LOST')`,
      [MACHINE],
    );
    return [rows[0]?.cpu ?? 0, rows[0]?.memory ?? 0];
  };
  const end = (id: ContainerId, state: 'STOPPED' | 'FAILED' | 'LOST' = 'STOPPED') =>
    moveContainers(db(), [{ id, from: { states: ['ASSIGNED'] }, to: state }]);

  describe('Second lease of a GPU', () => {
    const RACERS = kind === 'postgres' ? 500 : 60;
    test(`${RACERS} racers for 8 GPUs get 8 distinct devices`, async () => {
      const rows = await waiting(RACERS);
      const got: string[] = [];
      const racers = [...rows.entries()];
      const race = async (): Promise<void> => {
        for (let racer = racers.pop(); racer !== undefined; racer = racers.pop()) {
          const [index, row] = racer;
          // Each racer tries two devices, from a start of its own, as with an outdated view of the machine.
          for (const uuid of [DEVICES[index % 8] ?? '', DEVICES[(index * 3 + 1) % 8] ?? '']) {
            let answer = said(await assign(row, { gpuUuids: [uuid] }));
            while (answer === 'raced') answer = said(await assign(row, { gpuUuids: [uuid] }));
            if (answer === 'written') got.push(uuid);
            else expect(['gpu_taken', 'elsewhere']).toContain(answer);
          }
        }
      };
      // As many at once as the database has connections, and some that wait for one.
      await Promise.all(Array.from({ length: 20 }, race));
      expect(got.toSorted()).toEqual(DEVICES);
      expect(Object.keys(await leases())).toEqual(DEVICES);
      expect(await held()).toEqual([800, 8 * 1024]);
      expect(await repairLeases(db(), fence)).toEqual(CONSISTENT);
    });

    test('refused by the statement for another assignment, also on the same container', async () => {
      const [first, second] = await waiting(2);
      const outcome = await assign(first!, { gpuUuids: ['GPU-0', 'GPU-1'] });
      expect(outcome).toMatchObject({ kind: 'written', row: { state: 'ASSIGNED', epoch: 1, machineId: MACHINE } });
      expect(said(await assign(second!, { gpuUuids: ['GPU-1'] }))).toBe('gpu_taken');
      expect(said(await assign(first!))).toBe('elsewhere');
      expect(await leases()).toEqual({ 'GPU-0': `${first!.id} 1`, 'GPU-1': `${first!.id} 1` });
      // None of several is leased when one of them is taken.
      expect(said(await assign(second!, { gpuUuids: ['GPU-2', 'GPU-1'] }))).toBe('gpu_taken');
      expect(Object.keys(await leases())).toEqual(['GPU-0', 'GPU-1']);
    });

    test('refused within one statement: one of two gets the device, and others of that statement are placed', async () => {
      const [one, two, three] = await waiting(3);
      const both = [one!, two!].map((row) => placementOf(row, { gpuUuids: ['GPU-0'] }));
      await expect(assignContainers(db(), [...both, placementOf(three!)])).rejects.toMatchObject({
        code: 'database_error',
      });
      expect(await leases()).toEqual({});
      expect(await held()).toEqual([0, 0]);
      const outcomes = [];
      for (const placement of [...both, placementOf(three!)])
        outcomes.push(...(await assignContainers(db(), [placement])));
      expect(outcomes.map(said)).toEqual(['written', 'gpu_taken', 'written']);
    });

    test('a UUID that two machines report is theirs apart: no agent takes another machine’s device', async () => {
      const [one, two] = await waiting(2);
      expect(said(await assign(one!, { gpuUuids: ['GPU-0'] }))).toBe('written');
      expect(said(await assign(two!, { gpuUuids: ['GPU-0'], machineId: OTHER }))).toBe('written');
    });

    test('found by a check: said, and one owner stays', async () => {
      const [one, two] = await waiting(2);
      await assign(one!, { gpuUuids: ['GPU-0'] });
      await assign(two!, { gpuUuids: ['GPU-1'] });
      await db().query(`update containers set gpu_uuids = '["GPU-0"]' where id = $1`, [two!.id]);
      expect(await repairLeases(db(), fence)).toEqual({ missing: 0, left_over: 1, leased_twice: 1 });
      expect(await leases()).toEqual({ 'GPU-0': `${one!.id} 1` });
    });
  });

  describe('a placement', () => {
    test('is verified again: state of the machine, floors, and who leads', async () => {
      const row = await aWaiting();
      const refused = async (changes: Partial<Place>) => said(await assign(row, changes));
      expect(await refused({ machineId: 'm-unknown' as MachineId })).toBe('not_schedulable');
      for (const change of [
        { intent: 'cordoned' as const },
        { intent: 'active' as const, systemCordon: true },
        { systemCordon: false, hostDrainUntilMs: 1_000 },
      ]) {
        await updateMachine(db(), MACHINE, change);
        expect(await refused({})).toBe('not_schedulable');
      }
      await updateMachine(db(), MACHINE, { hostDrainUntilMs: null });
      expect(await refused({ room: { ...ROOM, cpuMillicores: 99 } })).toBe('cpu');
      expect(await refused({ room: { ...ROOM, memoryBytes: 1023 } })).toBe('memory');
      const old = { ...placementOf(row), fence: fence - 1 };
      expect((await assignContainers(db(), [old])).map(said)).toEqual(['stale']);
      expect(await containerById(db(), row.id)).toMatchObject({ state: 'PENDING', revision: 1, machineId: null });
      expect(await held()).toEqual([0, 0]);
      expect(await refused({ room: TAKES })).toBe('written');
    });

    test('counts the rows that are there, and all that its statement places there', async () => {
      const [first, ...rest] = await waiting(4);
      const room = { cpuMillicores: 300, memoryBytes: 4096 };
      await assign(first!, { room });
      const three = rest.map((row) => placementOf(row, { room }));
      expect((await assignContainers(db(), three)).map(said)).toEqual(['cpu', 'cpu', 'cpu']);
      expect((await assignContainers(db(), three.slice(0, 2))).map(said)).toEqual(['written', 'written']);
      expect(await held()).toEqual([300, 3072]);
      // A row that is UNKNOWN holds its share; an ended one, or one that waits again, does not.
      await moveContainers(db(), [{ id: first!.id, from: { states: ['ASSIGNED'] }, to: 'UNKNOWN' }]);
      expect((await assignContainers(db(), three.slice(2))).map(said)).toEqual(['cpu']);
      await moveContainers(db(), [{ id: first!.id, from: { states: ['UNKNOWN'] }, to: 'LOST' }]);
      expect((await assignContainers(db(), three.slice(2))).map(said)).toEqual(['written']);
    });

    test('on a machine that offers less by now waits until what runs there has shrunk', async () => {
      const [one, two, three] = await waiting(3);
      await assignContainers(db(), [placementOf(one!), placementOf(two!)]);
      const room = { cpuMillicores: 150, memoryBytes: 4096 };
      expect(said(await assign(three!, { room }))).toBe('cpu');
      await end(one!.id);
      expect(said(await assign(three!, { room }))).toBe('cpu');
      await end(two!.id, 'FAILED');
      expect(said(await assign(three!, { room }))).toBe('written');
    });

    test('Scheduler crash mid-step: repeated is refused by the row, and takes nothing twice', async () => {
      const row = await aWaiting();
      const placement = placementOf(row, { gpuUuids: ['GPU-3'] });
      expect((await assignContainers(db(), [placement])).map(said)).toEqual(['written']);
      const before = [await held(), await leases()];
      expect((await assignContainers(db(), [placement])).map(said)).toEqual(['gpu_taken']);
      expect([await held(), await leases()]).toEqual(before);
    });

    test.each(['STOPPED', 'FAILED', 'LOST', 'PENDING'] as const)(
      'is released when its row becomes %s, alone or with others, and not by another epoch',
      async (to) => {
        for (const others of [0, 2]) {
          const [row, ...rest] = await waiting(1 + others);
          await assign(row!, { gpuUuids: ['GPU-5'] });
          const besides = to === 'PENDING' ? { machineId: null, assignmentId: null, gpuUuids: [] } : {};
          const move = (epoch: number) => ({
            id: row!.id,
            from: { states: ['ASSIGNED' as const], epoch },
            to,
            change: besides,
          });
          const moves = rest.map(({ id }) => ({ id, from: { states: ['PENDING' as const] }, to: 'STOPPED' as const }));
          await moveContainers(db(), [move(2), ...moves]);
          expect(await leases()).toEqual({ 'GPU-5': `${row!.id} 1` });
          const again = rest.map(({ id }) => ({ id, from: { states: ['STOPPED' as const] }, to: 'STOPPED' as const }));
          await moveContainers(db(), [move(1), ...again]);
          expect(await leases()).toEqual({});
          await moveContainers(db(), [move(1), ...again]);
          expect(said(await assign(await aWaiting(), { gpuUuids: ['GPU-5'] }))).toBe('written');
          expect(await repairLeases(db(), fence)).toEqual(CONSISTENT);
          await db().query('delete from containers');
          await db().query('delete from leased_gpus');
        }
      },
    );

    test('on a machine that is no more is refused, and what was on it can be placed elsewhere', async () => {
      const row = await aWaiting();
      await assign(row, { gpuUuids: ['GPU-1'] });
      await deleteMachine(db(), MACHINE);
      expect(said(await assign(await aWaiting()))).toBe('not_schedulable');
      const change = { machineId: null, assignmentId: null, gpuUuids: [] };
      await moveContainers(db(), [{ id: row.id, from: { states: ['ASSIGNED'] }, to: 'PENDING', change }]);
      const [back] = await containersById(db(), [row.id]);
      expect(said(await assign(back!, { gpuUuids: ['GPU-1'], machineId: OTHER }))).toBe('written');
      expect(await leases()).toEqual({ 'GPU-1': `${row.id} 2` });
    });
  });

  describe('new containers', () => {
    test('have their place in their first row, or wait when there is no room by now', async () => {
      const ids = [aContainerId(), aContainerId(), aContainerId()];
      const room = { cpuMillicores: 200, memoryBytes: 4096 };
      const create = (placements: Parameters<typeof insertContainers>[1]) =>
        insertContainers(db(), placements, COMMON, fence);
      const rows = await create([
        { id: ids[0]!, place: aPlace({ room, gpuUuids: ['GPU-0'] }) },
        { id: ids[1]!, place: aPlace({ room }) },
        { id: ids[2]! },
      ]);
      const states = (some: readonly ContainerRow[] = []) => some.map(({ state, epoch }) => `${state} ${epoch}`);
      expect(states(rows)).toEqual(['ASSIGNED 1', 'ASSIGNED 1', 'PENDING 0']);
      expect(await leases()).toEqual({ 'GPU-0': `${ids[0]} 1` });
      const full = await create([{ id: aContainerId(), place: aPlace({ room }) }]);
      expect(full?.[0]).toMatchObject({ state: 'PENDING', machineId: null, assignmentId: null, gpuUuids: [] });
      expect(states(await create([{ id: aContainerId(), place: aPlace({ gpuUuids: ['GPU-0'] }) }]))).toEqual([
        'PENDING 0',
      ]);
      // Two of one statement that were given one device wait both.
      const twice = [1, 2].map(() => ({ id: aContainerId(), place: aPlace({ gpuUuids: ['GPU-1'] }) }));
      expect(states(await create(twice))).toEqual(['PENDING 0', 'PENDING 0']);
      expect(await insertContainers(db(), twice, COMMON, fence - 1)).toBeUndefined();
      expect(await repairLeases(db(), fence)).toEqual(CONSISTENT);
    });
  });

  describe('a check', () => {
    test('adds what is missing and deletes what is left over, once, and tells how many; a leader of before changes nothing', async () => {
      const [one, two] = await waiting(2);
      await assign(one!, { gpuUuids: ['GPU-0', 'GPU-1'] });
      await assign(two!, { gpuUuids: ['GPU-2'] });
      const right = await leases();
      const registry = new Registry();
      const faults = new Counter({ name: 'faults', help: 'f', labelNames: ['kind'], registers: [registry] });
      const check = (number: number | undefined) => checkLeases({ db: db(), log: silent, fence: () => number, faults });
      const counted = async () =>
        Object.fromEntries((await faults.get()).values.map(({ labels, value }) => [labels.kind, value]));
      await check(fence);
      expect(await counted()).toEqual({});
      await db().query("delete from leased_gpus where uuid = 'GPU-0'");
      await db().query("insert into leased_gpus values ($1, 'GPU-7', 0, 'endpoint-gone', 1)", [MACHINE]);
      await check(undefined);
      await check(fence - 1);
      expect(Object.keys(await leases())).toEqual(['GPU-1', 'GPU-2', 'GPU-7']);
      await check(fence);
      expect(await leases()).toEqual(right);
      expect(await counted()).toEqual({ missing: 1, left_over: 1 });
      await check(fence);
      expect(await counted()).toEqual({ missing: 1, left_over: 1 });
      // A device of an ended container's left-over row is given to the live one that names it, in one check.
      await db().query("update leased_gpus set container_id = 'endpoint-gone' where uuid = 'GPU-2'");
      expect(await repairLeases(db(), fence)).toEqual({ missing: 1, left_over: 1, leased_twice: 0 });
      expect(await leases()).toEqual(right);
    });

    test('whatever is placed, ended and checked: nothing beyond the machine, devices with one owner, and all free in the end', async () => {
      const room = { cpuMillicores: 500, memoryBytes: 4096 };
      const step = fc.record({
        what: fc.constantFrom('place', 'place', 'end', 'again', 'check'),
        who: fc.nat({ max: 5 }),
        gpuUuids: fc.subarray(['GPU-0', 'GPU-1']),
      });
      const world = async (
        steps: readonly (typeof step extends fc.Arbitrary<infer T> ? T : never)[],
      ): Promise<void> => {
        const holding = new Map<number, { readonly placement: Assignment; readonly row: ContainerRow }>();
        for (const { what, who, gpuUuids } of steps) {
          const mine = holding.get(who);
          if (what === 'check') expect(await repairLeases(db(), fence)).toEqual(CONSISTENT);
          else if (what === 'place' && mine === undefined) {
            const row = await aWaiting();
            const placement = placementOf(row, { room, gpuUuids });
            const [outcome] = await assignContainers(db(), [placement]);
            if (outcome?.kind === 'written') holding.set(who, { placement, row });
          } else if (what === 'again' && mine !== undefined) {
            const [outcome] = await assignContainers(db(), [mine.placement]);
            expect(outcome?.kind).not.toBe('written');
          } else if (what === 'end' && mine !== undefined) {
            await end(mine.row.id);
            holding.delete(who);
          }
          const [cpu = 0, memory = 0] = await held();
          expect([cpu, memory]).toEqual([holding.size * 100, holding.size * 1024]);
          expect(cpu <= 500 && memory <= 4096).toBe(true);
          const leased = [...holding.values()].flatMap(({ placement, row }) =>
            placement.place.gpuUuids.map((uuid) => [uuid, `${row.id} 1`]),
          );
          expect(await leases()).toEqual(Object.fromEntries(leased));
        }
        for (const { row } of holding.values()) await end(row.id);
        expect(await leases()).toEqual({});
      };
      await fc.assert(fc.asyncProperty(fc.array(step, { maxLength: 15 }), world), { numRuns: 30 });
    });
  });
});

describe('statements at once on a server', () => {
  let opened: OpenedDb;
  beforeAll(async () => {
    opened = await aDb('postgres');
    await makeMachines(opened.db, [MACHINE]);
  });
  afterAll(() => opened.stop());

  const rowsOf = async (count: number): Promise<readonly ContainerRow[]> =>
    (await insertContainers(
      opened.db,
      Array.from({ length: count }, () => ({ id: aContainerId() })),
      COMMON,
    )) ?? [];
  const blocked = async (count: number): Promise<void> => {
    const sql = `select count(*)::int as count from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock'`;
    await waitFor(async () => {
      const { rows } = await opened.db.query<{ count: number }>(sql);
      return rows[0]?.count === count;
    }, `${count} statements wait`);
  };

  test('do not both see the last room: the one whose view is older places nothing', async () => {
    const [one, two] = await rowsOf(2);
    const room = { cpuMillicores: 150, memoryBytes: 2000 };
    const assign = (row: ContainerRow) =>
      assignContainers(opened.db, [{ id: row.id, epoch: row.epoch, place: aPlace({ room }) }]);
    const inserts = () => insertContainers(opened.db, [{ id: aContainerId(), place: aPlace({ room }) }], COMMON);
    let racing: Promise<unknown>[] = [];
    // All three read before any of them writes: the test holds the machine's row meanwhile.
    await opened.db.transaction(async (tx) => {
      await tx.query('select 1 from machines where id = $1 for update', [MACHINE]);
      racing = [assign(one!), assign(two!), inserts()];
      await blocked(3);
    });
    await Promise.all(racing);
    const { rows } = await opened.db.query<{ state: string }>('select state from containers order by state');
    expect(rows.map(({ state }) => state)).toEqual(['ASSIGNED', 'PENDING', 'PENDING']);
  });

  test('a placement of the leader before that is under way is written before the next one leads, or never', async () => {
    await opened.db.query('delete from containers');
    const [early, late] = await rowsOf(2);
    const place = (row: ContainerRow, fence: number) =>
      assignContainers(opened.db, [{ id: row.id, epoch: row.epoch, place: aPlace({ gpuUuids: [row.id] }), fence }]);
    await raiseFence(opened.db, 1);
    let written: ReturnType<typeof place> | undefined;
    let raised: Promise<number> | undefined;
    await opened.db.transaction(async (tx) => {
      await tx.query('select 1 from containers where id = $1 for update', [early!.id]);
      written = place(early!, 1);
      await blocked(1);
      raised = raiseFence(opened.db, 2);
      await blocked(2);
    });
    expect((await written)?.map(({ kind }) => kind)).toEqual(['written']);
    expect(await raised).toBe(2);
    expect((await place(late!, 1)).map(({ kind }) => kind)).toEqual(['stale']);
    expect((await opened.db.query('select uuid from leased_gpus')).rows).toEqual([{ uuid: early!.id }]);
  });

  test('heartbeats and placements of the same machines wait for each other and never deadlock', async () => {
    await opened.db.query('delete from containers');
    // Rows lie in the opposite order of their ids.
    const machines = ['mh2', 'mh1', 'mh0'] as MachineId[];
    await makeMachines(opened.db, machines);
    const rows = await rowsOf(3);
    const places = rows.map((row, index) => ({ id: row.id, epoch: 0, place: aPlace({ machineId: machines[index]! }) }));
    let racing: Promise<unknown> | undefined;
    await opened.db.transaction(async (tx) => {
      await tx.query("select 1 from machines where id = 'mh1' for update");
      const touched = touchMachines(opened.db, machines, 1_000);
      await blocked(1);
      racing = Promise.all([touched, assignContainers(opened.db, places)]);
      await blocked(2);
    });
    await racing;
    const { rows: seen } = await opened.db.query<{ placements: string }>(
      'select placements from machines where id = any ($1::text[]) and last_seen_at = $2',
      [machines, new Date(1_000)],
    );
    expect(seen.map(({ placements }) => Number(placements))).toEqual([1, 1, 1]);
  });

  test('of several machines and containers in opposite orders never deadlock', async () => {
    await opened.db.query('delete from containers');
    const machines = Array.from({ length: 6 }, (_none, index) => `mx${index}` as MachineId);
    await makeMachines(opened.db, machines);
    const rows = await rowsOf(60);
    const places = rows.map((row, index) => ({
      id: row.id,
      epoch: 0,
      place: aPlace({ machineId: machines[index % 6]! }),
    }));
    const ends = (order: readonly ContainerRow[]) =>
      moveContainers(
        opened.db,
        order.map(({ id }) => ({ id, from: { states: ['PENDING', 'ASSIGNED'] }, to: 'STOPPED' })),
      );
    await Promise.all([
      assignContainers(opened.db, places),
      assignContainers(opened.db, places.toReversed()),
      ends(rows.slice(0, 30).toReversed()),
      ends(rows.slice(15, 45)),
      repairLeases(opened.db, 2),
    ]);
    expect(await repairLeases(opened.db, 2)).toEqual(CONSISTENT);
  });
});
