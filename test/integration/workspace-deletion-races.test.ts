// A machine comes in at the moment when the deletion of its workspace begins: whichever has its lock first, no machine
// is in a workspace that is being deleted. Two connections to a real Postgres hold the moment open.
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { Registry } from '#shared/metrics.ts';
import type { MachineParts } from '#scheduler/compose/machines.ts';
import { openMachines } from '#scheduler/compose/machines.ts';
import { FleetMetrics } from '#scheduler/fleet/metrics.ts';
import type { Db, Transaction } from '#scheduler/stores/store/db.ts';
import { deleteMachine } from '#scheduler/stores/store/queries/machines.ts';
import { getOrCreatePool } from '#scheduler/stores/store/queries/pools.ts';
import { workspaceById } from '#scheduler/stores/store/queries/workspaces.ts';
import { WorkspaceDeletion } from '#scheduler/workspaces/deletion/deletion.ts';
import { SYSTEM } from '#scheduler/workspaces/events/audit.ts';
import { EventWriter } from '#scheduler/workspaces/events/writer.ts';
import { waitFor } from '../helpers/programs.ts';
import { TestClock } from '../helpers/test-clock.ts';
import { aDb, aWorkspace, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const WAIT_MS = 20_000;

let opened: OpenedDb;
let db: Db;
beforeAll(async () => {
  opened = await aDb('postgres');
  ({ db } = opened);
});
afterAll(() => opened.stop());

/** The database for a process whose transactions have run and commit when they are let. */
class HeldDb implements Db {
  readonly #ran = Promise.withResolvers<void>();
  readonly #let = Promise.withResolvers<void>();
  readonly kind = db.kind;
  readonly reads = db.reads;
  readonly query = db.query.bind(db);
  readonly close = () => Promise.resolve();
  /** Resolves when a transaction has run and holds its locks. */
  readonly ran = this.#ran.promise;

  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    return db.transaction(async (tx) => {
      const value = await work(tx);
      this.#ran.resolve();
      await this.#let.promise;
      return value;
    });
  }

  letCommit(): void {
    this.#let.resolve();
  }
}

const fleetOn = (on: Db): MachineParts =>
  openMachines({
    db: on,
    log: silent,
    clock: new TestClock(),
    metrics: new FleetMetrics(new Registry()),
    caFingerprint: 'f',
  });
const begin = (on: Db, id: WorkspaceId) =>
  new WorkspaceDeletion({
    db: on,
    events: new EventWriter(),
    invalidation: { publish: async () => true },
    clock: new TestClock(),
    volumeBytes: () => 0,
  }).begin(id, SYSTEM, newId<WorkspaceId>());
const aTeam = async (): Promise<WorkspaceId> => {
  const { id } = await aWorkspace(db);
  await getOrCreatePool(db, { name: 'mine', workspaceId: id });
  return id;
};
const aHost = (secret: string) => ({
  secret,
  nonce: randomUUID(),
  fingerprint: 'f',
  publicKey: 'k',
  hostname: 'h',
  agentVersion: '0',
});
const enrolment = { name: 'many', poolName: 'mine', maxMachines: 5, lifetimeMs: 3_600_000 };
const machinesOf = async (id: WorkspaceId): Promise<number> =>
  (
    await db.query(
      'select 1 from machines m join pools p on p.id = m.pool_id where p.workspace_id = $1 and m.deleted_at is null',
      [id],
    )
  ).rowCount;
/** Waits until so many connections wait for a lock. */
const blocked = (count: number) =>
  waitFor(
    async () =>
      (await db.query(`select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`))
        .rowCount === count,
    `${count} wait for a lock`,
    WAIT_MS,
  );

test('machines and enrolment tokens that are made while the deletion begins are refused', async () => {
  const id = await aTeam();
  const { joining, enrolment: tokens } = fleetOn(db);
  const held = new HeldDb();
  const begun = begin(held, id);
  await held.ran;
  const made = Promise.allSettled([
    joining.create({ workspaceId: id }, 'mine'),
    joining.create({ workspaceId: id }, 'new'),
    tokens.create({ workspaceId: id }, enrolment, SYSTEM),
  ]);
  await blocked(3);
  held.letCommit();
  await begun;
  const refusal = { status: 'rejected', reason: expect.objectContaining({ code: 'workspace_not_found' }) };
  expect(await made).toEqual([refusal, refusal, refusal]);
  expect(await machinesOf(id)).toBe(0);
});

test('a host that joins by an enrolment token while the deletion begins keeps the workspace', async () => {
  const id = await aTeam();
  const made = await fleetOn(db).enrolment.create({ workspaceId: id }, enrolment, SYSTEM);
  const secret = made.kind === 'created' ? (made.secret.split('.')[2] ?? '') : '';
  const held = new HeldDb();
  const joined = fleetOn(held).enrolment.enrol(aHost(secret));
  await held.ran;
  const refused = expect(begin(db, id)).rejects.toMatchObject({ code: 'workspace_has_machines' });
  await blocked(1);
  held.letCommit();
  const { id: machineId } = await joined;
  await refused;
  expect((await workspaceById(db, id))?.deletingAtMs).toBeNull();
  // The token is as it was, until a deletion begins.
  await deleteMachine(db, machineId);
  const { enrolment: tokens } = fleetOn(db);
  await deleteMachine(db, (await tokens.enrol(aHost(secret))).id);
  await begin(db, id);
  await expect(tokens.enrol(aHost(secret))).rejects.toMatchObject({ code: 'enrolment_refused' });
  expect(await machinesOf(id)).toBe(0);
});
