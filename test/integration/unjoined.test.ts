// How many machines may be created and not joined: over replicas at once, and as join tokens expire.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { Registry } from '#shared/metrics.ts';
import { FleetMetrics } from '#scheduler/fleet/metrics.ts';
import type { MachineParts } from '#scheduler/compose/machines.ts';
import { openMachines } from '#scheduler/compose/machines.ts';
import { TestClock } from '../helpers/test-clock.ts';
import { KINDS, aDb, aWorkspace, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const MOST = 4;

describe.each(KINDS)('on %s', (kind) => {
  let opened: OpenedDb;
  let clock: TestClock;
  beforeAll(async () => {
    opened = await aDb(kind);
    clock = new TestClock();
  });
  afterAll(() => opened.stop());

  const aReplica = (): MachineParts =>
    openMachines({
      db: opened.db,
      log: silent,
      clock,
      metrics: new FleetMetrics(new Registry()),
      caFingerprint: 'f',
      mostUnjoinedOf: () => MOST,
    });
  const rows = async (workspaceId: WorkspaceId): Promise<readonly MachineId[]> => {
    const { rows: found } = await opened.db.query<{ id: MachineId }>(
      `select m.id from machines m join pools p on p.id = m.pool_id where p.workspace_id = $1 and m.deleted_at is null`,
      [workspaceId],
    );
    return found.map(({ id }) => id);
  };

  test('replicas that create at once make no more than the bound together; others are not counted with them', async () => {
    const [flooding, calm] = [await aWorkspace(opened.db), await aWorkspace(opened.db)];
    const [here, there] = [aReplica(), aReplica()];
    const create = (at: number, workspaceId: WorkspaceId | null = flooding.id) =>
      (at % 2 === 0 ? here : there).joining.create({ workspaceId }, 'p');
    const made = await Promise.allSettled(Array.from({ length: 20 }, (_, at) => create(at)));
    expect(made.filter(({ status }) => status === 'fulfilled')).toHaveLength(MOST);
    const refused = made.find((one) => one.status === 'rejected');
    expect(refused?.reason).toMatchObject({ code: 'too_many_unjoined', details: { limit: MOST } });
    expect(await rows(flooding.id)).toHaveLength(MOST);
    await create(0, calm.id);
    await create(1, null);
    // A joined machine counts no more.
    const [joined] = await rows(flooding.id);
    await opened.db.query('update machines set joined_at = now(), updated_at = now() where id = $1', [joined]);
    for (const replica of [here, there]) await replica.machines.readMissed(() => undefined);
    await create(0);
    await expect(create(1)).rejects.toMatchObject({ code: 'too_many_unjoined' });
  });

  test('machines whose token has expired make room, the longest expired first, and are no more than the bound either', async () => {
    const workspace = await aWorkspace(opened.db);
    const { machines, joining } = aReplica();
    const create = () => joining.create({ workspaceId: workspace.id }, 'p');
    const first = await create();
    clock.aheadMs += 60_000;
    for (let more = 1; more < MOST; more += 1) await create();
    await expect(create()).rejects.toMatchObject({ code: 'too_many_unjoined' });
    clock.aheadMs += 30 * 60_000 - 30_000;
    const fifth = await create();
    expect(await rows(workspace.id)).toHaveLength(MOST);
    expect(await rows(workspace.id)).not.toContain(first.machineId);
    expect(await rows(workspace.id)).toContain(fifth.machineId);
    expect(machines.get(first.machineId)).toBeUndefined();
    clock.aheadMs += 31 * 60_000;
    for (let more = 0; more < MOST; more += 1) await create();
    expect(await rows(workspace.id)).toHaveLength(MOST);
  });
});
