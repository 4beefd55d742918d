// Two replicas make pools: the trail tells once that a pool was made, and an owner's bound holds over both.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { Registry } from '#shared/metrics.ts';
import { openMachines } from '#scheduler/compose/machines.ts';
import { FleetMetrics } from '#scheduler/fleet/metrics.ts';
import { Pools } from '#scheduler/fleet/pools.ts';
import type { Transaction } from '#scheduler/stores/store/db.ts';
import { listPools, poolByName } from '#scheduler/stores/store/queries/pools.ts';
import { InstallationTrail } from '#scheduler/workspaces/events/installation-trail.ts';
import { EventWriter } from '#scheduler/workspaces/events/writer.ts';
import { waitFor } from '../helpers/services.ts';
import { TestClock } from '../helpers/test-clock.ts';
import { aDb, aWorkspace, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const MOST = 4;
const mostPoolsOf = (): number => MOST;

describe('pools that two replicas make', () => {
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
    return new Pools({
      db: opened.db,
      machines: { poolChanged: () => undefined },
      trail,
      mostOf: mostPoolsOf,
      log: silent,
    });
  };
  const waitsForALock = async (): Promise<boolean> => {
    const sql = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    return (await opened.db.query(sql)).rows.length > 0;
  };
  const isIdle = async (): Promise<boolean> => {
    const sql = "select 1 from pg_stat_activity where datname = current_database() and state = 'idle in transaction'";
    return (await opened.db.query(sql)).rows.length > 0;
  };

  test.each(['by a call', 'by a file'])('one of them %s is told once', async (way) => {
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

  test('are together no more than the bound of their owner, by CreatePool and by the first machines of pools', async () => {
    const [{ id: workspaceId }, calm] = [await aWorkspace(opened.db), await aWorkspace(opened.db)];
    const [here, there] = [aReplica(), aReplica()];
    const { joining } = openMachines({
      db: opened.db,
      log: silent,
      clock: new TestClock(),
      metrics: new FleetMetrics(new Registry()),
      caFingerprint: 'f',
      mostPoolsOf,
    });
    const make = (at: number, of: WorkspaceId | null = workspaceId): Promise<unknown> => {
      const [owner, name] = [{ workspaceId: of }, `p-${at}`];
      if (at % 3 === 0) return joining.create(owner, name);
      return (at % 3 === 1 ? here : there).create(owner, name, {});
    };
    const made = await Promise.allSettled(Array.from({ length: 24 }, (_, at) => make(at)));
    const refused = made.filter((one) => one.status === 'rejected').map(({ reason }) => reason as unknown);
    const pools = await listPools(opened.db, workspaceId);
    expect(pools).toHaveLength(MOST);
    expect(refused).toHaveLength(24 - MOST);
    for (const error of refused)
      expect(error).toMatchObject({
        code: 'too_many_pools',
        details: { limit: MOST },
        message: expect.stringContaining('counts.pools'),
      });
    // A pool that is there counts as made at the bound, and takes machines; a deleted one makes room.
    const [name = ''] = pools.map((pool) => pool.name);
    expect(await there.create({ workspaceId }, name, {})).toEqual({ kind: 'made' });
    await joining.create({ workspaceId }, name);
    await opened.db.query('update machines set deleted_at = now(), updated_at = now()');
    expect(await here.delete({ workspaceId }, name)).toEqual({ kind: 'deleted' });
    await make(24);
    await expect(make(25)).rejects.toMatchObject({ code: 'too_many_pools' });
    await make(25, calm.id);
    await make(25, null);
  });
});
