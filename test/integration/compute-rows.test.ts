// Time of containers on the ledger: a row for each container and hour, written once, on both kinds of stores.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { usageBy, usageTotal } from '#scheduler/stores/store/queries/ledger-usage.ts';
import { ComputeRows } from '#scheduler/workspaces/credits/compute-rows.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { DOUBTS, DoubtfulDb, doubtAt } from '../helpers/doubtful-db.ts';
import { waitFor } from '../helpers/services.ts';
import { StandingDb } from '../helpers/standing-db.ts';
import { KINDS, aDb } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

describe.each(KINDS)('time of containers on %s', (kind) => {
  let opened: OpenedDb;
  beforeAll(async () => {
    opened = await aDb(kind);
  });
  afterAll(() => opened.stop());

  const at = (time: string): number => Date.parse(`2026-03-02T${time}Z`);
  const signal = new AbortController().signal;
  const container = async (
    workspaceId: WorkspaceId,
    ran: { state: string; from: string | null; to: string | null; gpus: number },
  ): Promise<string> => {
    const id = `pod-${newId()}`;
    const dateOf = (time: string | null): Date | null => (time === null ? null : new Date(at(time)));
    await opened.db.query(
      `insert into containers (id, workspace_id, stub_id, state, spec, slots, gpu_uuids, started_at, ended_at)
       values ($1, $2, 'stub', $3, '{}', 1, $4::jsonb, $5, $6)`,
      [
        id,
        workspaceId,
        ran.state,
        JSON.stringify(Array.from({ length: ran.gpus }, (_, n) => `GPU-${n}`)),
        dateOf(ran.from),
        dateOf(ran.to),
      ],
    );
    return id;
  };
  const rowsOf = async (containerId: string): Promise<readonly (readonly [string, number, number])[]> => {
    const { rows } = await opened.db.query<{ request_id: string; container_ms: number; gpu_ms: number }>(
      'select request_id, container_ms, gpu_ms from credit_ledger where container_id = $1 order by request_id',
      [containerId],
    );
    return rows.map((row) => [row.request_id.slice(-5), Number(row.container_ms), Number(row.gpu_ms)]);
  };

  test('is a row for each hour, while it runs for whole hours, and up to its end', async () => {
    const workspaceId = newId<WorkspaceId>();
    let nowMs = at('12:10:00');
    const rows = new ComputeRows(opened.db, { nowMs: () => nowMs });
    const ended = await container(workspaceId, { state: 'STOPPED', from: '09:30:00', to: '11:00:30', gpus: 2 });
    const live = await container(workspaceId, { state: 'RUNNING', from: '10:45:00', to: null, gpus: 0 });
    const short = await container(workspaceId, { state: 'FAILED', from: '12:00:00', to: '12:00:01.500', gpus: 1 });
    const waiting = await container(workspaceId, { state: 'PENDING', from: null, to: null, gpus: 1 });
    expect(await rows.write(signal)).toBe(6);
    expect(await rowsOf(ended)).toEqual([
      ['02T09', 1_800_000, 3_600_000],
      ['02T10', 3_600_000, 7_200_000],
      ['02T11', 30_000, 60_000],
    ]);
    expect(await rowsOf(live)).toEqual([
      ['02T10', 900_000, 0],
      ['02T11', 3_600_000, 0],
    ]);
    expect(await rowsOf(short)).toEqual([['02T12', 1_500, 1_500]]);
    expect(await rowsOf(waiting)).toEqual([]);
    // Nothing is written twice, by this leader or the next.
    expect(await rows.write(signal)).toBe(0);
    expect(await new ComputeRows(opened.db, { nowMs: () => nowMs }).write(signal)).toBe(0);

    await opened.db.query(`update containers set state = 'STOPPED', ended_at = $2 where id = $1`, [
      live,
      new Date(at('12:20:00')),
    ]);
    nowMs = at('12:21:00');
    expect(await rows.write(signal)).toBe(1);
    expect((await rowsOf(live)).at(-1)).toEqual(['02T12', 1_200_000, 0]);

    const range = { workspaceId, fromMs: at('00:00:00'), toMs: at('23:00:00') };
    const sums = { requests: 0, costMicros: 0, containerMs: 11_131_500, gpuMs: 10_861_500 };
    expect(await usageTotal(opened.db, range)).toMatchObject(sums);
    expect(await usageBy(opened.db, range, ['day', 'model'], 10)).toMatchObject([
      { day: '2026-03-02', model: '', ...sums },
    ]);
  });

  test('is told by app, deployment and GPU model, also when these are gone', async () => {
    const [workspaceId, appId, stubId, deploymentId] = [newId<WorkspaceId>(), newId(), newId(), newId()];
    const { db } = opened;
    const rows = new ComputeRows(db, { nowMs: () => at('20:10:00') });
    await db.query(`insert into workspaces (id, name, signing_key) values ($1, $1, 'x')`, [workspaceId]);
    await db.query(`insert into apps (id, workspace_id, name) values ($1, $2, 'shop')`, [appId, workspaceId]);
    await db.query(
      `insert into stubs (id, workspace_id, app_id, name, type, config, config_hash)
       values ($1, $2, $3, 'embed', 'endpoint/deployment', '{}', $1)`,
      [stubId, workspaceId, appId],
    );
    await db.query(
      `insert into deployments (id, workspace_id, app_id, stub_id, name, version, stub_type, subdomain, active)
       values ($1, $2, $3, $4, 'embed', 1, 'endpoint/deployment', $1, true)`,
      [deploymentId, workspaceId, appId, stubId],
    );
    const ran = { state: 'STOPPED', from: '19:00:00', to: '19:30:00', gpus: 2 };
    const own = await container(workspaceId, ran);
    await container(workspaceId, { ...ran, gpus: 0 });
    await db.query(`update containers set stub_id = $2, deployment_id = $3, spec = '{"gpu": ["H100"]}' where id = $1`, [
      own,
      stubId,
      deploymentId,
    ]);
    await rows.write(signal);
    await db.query('delete from deployments where id = $1', [deploymentId]);
    const range = { workspaceId, fromMs: at('00:00:00'), toMs: at('23:00:00') };
    expect(await usageBy(db, range, ['app', 'deployment', 'gpu_model'], 10)).toMatchObject([
      { appId: '', deployment: '', gpuModel: '', containerMs: 1_800_000, gpuMs: 0 },
      { appId, deployment: 'embed', gpuModel: 'H100', containerMs: 1_800_000, gpuMs: 3_600_000 },
    ]);
  });

  test('is looked for anew at each hour, within it only where containers ended since', async () => {
    const workspaceId = newId<WorkspaceId>();
    let nowMs = at('15:10:00');
    const rows = new ComputeRows(opened.db, { nowMs: () => nowMs });
    const look = async (time: string): Promise<number> => {
      nowMs = at(time);
      return rows.write(signal);
    };
    await look('15:10:00');
    const running = await container(workspaceId, { state: 'RUNNING', from: '15:11:00', to: null, gpus: 0 });
    const late = await container(workspaceId, { state: 'LOST', from: '15:00:00', to: '15:01:00', gpus: 0 });
    const soon = await container(workspaceId, { state: 'STOPPED', from: '15:11:00', to: '15:11:30', gpus: 0 });
    expect(await look('15:12:00')).toBe(1);
    expect(await rowsOf(soon)).toEqual([['02T15', 30_000, 0]]);
    // An end that was told late, and the whole hour of what runs.
    expect(await look('16:00:10')).toBe(2);
    expect(await rowsOf(late)).toEqual([['02T15', 60_000, 0]]);
    expect(await rowsOf(running)).toEqual([['02T15', 2_940_000, 0]]);
    // A leader that looked at nothing for hours leaves no gap.
    expect(await look('18:30:00')).toBe(2);
    expect((await rowsOf(running)).map(([hour]) => hour)).toEqual(['02T15', '02T16', '02T17']);
    await opened.db.query('delete from containers where workspace_id = $1', [workspaceId]);
  });

  const endOf = async (id: string, time: string): Promise<void> => {
    await opened.db.query(`update containers set state = 'STOPPED', ended_at = $2 where id = $1`, [
      id,
      new Date(at(time)),
    ]);
  };

  test('is corrected where whole hours were written before an end was committed', async () => {
    const workspaceId = newId<WorkspaceId>();
    let nowMs = at('20:10:00');
    const rows = new ComputeRows(opened.db, { nowMs: () => nowMs });
    const look = async (time: string): Promise<number> => {
      nowMs = at(time);
      return rows.write(signal);
    };
    await look('20:10:00');
    const brief = await container(workspaceId, { state: 'RUNNING', from: '20:00:00', to: null, gpus: 2 });
    const long = await container(workspaceId, { state: 'RUNNING', from: '20:00:00', to: null, gpus: 1 });
    const on = await container(workspaceId, { state: 'RUNNING', from: '20:00:00', to: null, gpus: 0 });
    expect(await look('21:00:01')).toBe(3);
    expect(await rowsOf(brief)).toEqual([['02T20', 3_600_000, 7_200_000]]);
    // The scheduler learned of the end before the hour, and the row came a moment after the leader looked.
    await endOf(brief, '20:59:30');
    expect(await look('21:00:31')).toBe(1);
    expect(await rowsOf(brief)).toEqual([['02T20', 3_570_000, 7_140_000]]);
    expect(await look('21:01:01')).toBe(0);
    // The database refused the row of another end for more than an hour.
    expect(await look('22:00:01')).toBe(2);
    await endOf(long, '20:45:00');
    await look('22:00:31');
    expect(await look('22:40:00')).toBe(0);
    expect(await new ComputeRows(opened.db, { nowMs: () => nowMs }).write(signal)).toBe(2);
    expect(await rowsOf(long)).toEqual([
      ['02T20', 2_700_000, 2_700_000],
      ['02T21', 0, 0],
    ]);
    expect(await rowsOf(on)).toEqual([
      ['02T20', 3_600_000, 0],
      ['02T21', 3_600_000, 0],
    ]);
    await opened.db.query('delete from containers where workspace_id = $1', [workspaceId]);
  });

  /** A container ends while two leaders look at the hour. @returns its row */
  async function hourOf(
    first: Db,
    meanwhile: () => Promise<void>,
  ): Promise<readonly (readonly [string, number, number])[]> {
    const workspaceId = newId<WorkspaceId>();
    const id = await container(workspaceId, { state: 'RUNNING', from: '20:00:00', to: null, gpus: 1 });
    const leader = (db: Db, time: string) => new ComputeRows(db, { nowMs: () => at(time) }).write(signal);
    const former = leader(first, '21:00:01').catch(() => undefined);
    if (first instanceof StandingDb) await first.stands;
    else await former;
    await endOf(id, '20:50:00');
    await leader(opened.db, '21:00:31');
    await meanwhile();
    await former;
    await leader(opened.db, '21:01:01');
    const found = await rowsOf(id);
    await opened.db.query('delete from containers where workspace_id = $1', [workspaceId]);
    return found;
  }

  test('is there once where a statement is in doubt, or its leader stands still', async () => {
    const once = [['02T20', 3_000_000, 3_000_000]];
    for (const doubt of DOUBTS) {
      const db = new DoubtfulDb(opened.db, doubtAt(doubt, 0));
      expect(await hourOf(db, () => db.letGo()), doubt).toEqual(once);
      expect(db.met).toBe(1);
    }
    for (const isAfter of [false, true]) {
      const db = new StandingDb(opened.db, 0, isAfter);
      expect(await hourOf(db, () => Promise.resolve(db.goOn())), `still, after: ${isAfter}`).toEqual(once);
    }
  });

  if (kind === 'postgres')
    test('is not raised by a statement that began before the end', async () => {
      const workspaceId = newId<WorkspaceId>();
      const id = await container(workspaceId, { state: 'RUNNING', from: '20:00:00', to: null, gpus: 1 });
      let raising: Promise<number> | undefined;
      await opened.db.transaction(async (tx) => {
        await tx.query(
          `insert into credit_ledger (request_id, kind, workspace_id, status, container_id, container_ms, gpu_ms, created_at)
         values ($1, 'compute', $2, 'complete', $3, 3000000, 3000000, $4)`,
          [`compute:${id}:2026-03-02T20`, workspaceId, id, new Date(at('20:50:00'))],
        );
        raising = new ComputeRows(opened.db, { nowMs: () => at('21:00:01') }).write(signal);
        await waitFor(async () => {
          // A transaction sees the activity as it was at its first look.
          const { rows } = await opened.db.query(
            `select from pg_stat_activity where wait_event_type = 'Lock' and query like 'with ran as%'`,
          );
          return rows.length > 0;
        }, 'the statement waits for the row');
      });
      await raising;
      expect(await rowsOf(id)).toEqual([['02T20', 3_000_000, 3_000_000]]);
      await opened.db.query('delete from containers where workspace_id = $1', [workspaceId]);
    });

  test('is found after more rows than one statement writes', async () => {
    const workspaceId = newId<WorkspaceId>();
    await opened.db.query(
      `insert into containers (id, workspace_id, stub_id, state, spec, slots, started_at, ended_at)
       select 'pod-' || $1::text || '-' || n, $1, 'stub', 'STOPPED', '{}', 1, $2, $3 from generate_series(1, 1500) n`,
      [workspaceId, new Date(at('05:00:00')), new Date(at('06:30:00'))],
    );
    const rows = new ComputeRows(opened.db, { nowMs: () => at('13:00:00') });
    expect(await rows.write(signal)).toBeGreaterThanOrEqual(3_000);
    const range = { workspaceId, fromMs: at('00:00:00'), toMs: at('23:00:00') };
    expect(await usageTotal(opened.db, range)).toMatchObject({ containerMs: 1_500 * 5_400_000 });
  });
});
