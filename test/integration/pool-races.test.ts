// Two replicas make one pool: the trail tells once that it was made.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Pools } from '#scheduler/fleet/pools.ts';
import type { Transaction } from '#scheduler/stores/store/db.ts';
import { poolByName } from '#scheduler/stores/store/queries/pools.ts';
import { InstallationTrail } from '#scheduler/workspaces/events/installation-trail.ts';
import { EventWriter } from '#scheduler/workspaces/events/writer.ts';
import { waitFor } from '../helpers/services.ts';
import { aDb, aWorkspace, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

describe('a pool that two replicas make', () => {
  let opened: OpenedDb;
  beforeAll(async () => {
    opened = await aDb('postgres');
  });
  afterAll(() => opened.stop());

  /** A replica's pools. @param gate - its transactions commit when that resolves */
  const aReplica = (gate: Promise<void> = Promise.resolve()): Pools => {
    const events = new EventWriter();
    const gated: Pick<EventWriter, 'transaction'> = {
      transaction: (db, run) =>
        events.transaction(db, async (tx: Transaction, emit) => {
          const value = await run(tx, emit);
          await gate;
          return value;
        }),
    };
    const trail = new InstallationTrail(opened.db, gated, () => Date.now());
    return new Pools({ db: opened.db, machines: { poolChanged: () => undefined }, trail, log: silent });
  };
  const waitsForALock = async (): Promise<boolean> => {
    const sql = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    return (await opened.db.query(sql)).rows.length > 0;
  };
  const isIdle = async (): Promise<boolean> => {
    const sql = "select 1 from pg_stat_activity where datname = current_database() and state = 'idle in transaction'";
    return (await opened.db.query(sql)).rows.length > 0;
  };

  test.each(['by a call', 'by a file'])('%s is told once', async (way) => {
    const { id: workspaceId } = await aWorkspace(opened.db);
    await opened.db.query('update workspaces set is_admin = ($1 = id)', [workspaceId]);
    const owner = { workspaceId: null };
    const name = way.replaceAll(' ', '-');
    const settings = { cpuOvercommit: 2 };
    const make = (pools: Pools, path: string): Promise<unknown> =>
      way === 'by a call' ? pools.create(owner, name, settings) : pools.declare({ path, pools: [{ name, settings }] });
    let open = (): void => undefined;
    const gate = new Promise<void>((resolve) => (open = resolve));
    const first = make(aReplica(gate), '/a');
    await waitFor(isIdle, 'the first replica has made it, and has not committed', 20_000);
    const second = make(aReplica(), '/b');
    await waitFor(waitsForALock, 'the second one waits for it', 20_000);
    open();
    await Promise.all([first, second]);
    expect(await poolByName(opened.db, { name, workspaceId: null })).toMatchObject({ settings });
    const { rows } = await opened.db.query<{ type: string }>(
      'select type from events where workspace_id = $1 order by seq',
      [workspaceId],
    );
    expect(rows.map(({ type }) => type)).toEqual(
      way === 'by a call' ? ['audit.pool.created'] : ['audit.pool.created', 'audit.pool.updated'],
    );
  });
});
