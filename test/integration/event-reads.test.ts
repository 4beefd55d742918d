// Reads of many events: the plan of each statement, and the bounds of a read.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import {
  AFTER_SQL,
  SEQ_AT_SQL,
  TYPES_SQL,
  edgeStatement,
  readStatement,
} from '#scheduler/stores/store/queries/event-reads.ts';
import type { EventMatch, EventStart } from '#scheduler/stores/store/queries/event-reads.ts';
import { EventReads } from '#scheduler/workspaces/events/reads.ts';
import { aDb } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const ROWS = 200_000;
const W = newId<WorkspaceId>();
const OTHER = newId<WorkspaceId>();
const BEGIN_MS = Date.UTC(2030, 0, 1);
/** An event a second; of a hundred stubs and ten apps; every 20 000th is a stub that was deployed. */
const INSERT = `insert into events (workspace_id, seq, id, type, at, stored_at, app_id, stub_id, stub_type, task_id, container_id, data)
  select $1, n, lpad(to_hex(n), 24, '0'),
    case when n % 20000 = 0 then 'stub.deploy' when n % 1000 = 7 then 'audit.token.created'
      when n % 3 = 0 then 'task.created' else 'task.updated' end,
    to_timestamp($2) + n * interval '1 second', to_timestamp($2) + n * interval '1 second' + interval '200 ms',
    'app-' || n % 10, 'stub-' || n % 100, 'endpoint/deployment', 'task-' || $3 || n / 3, 'container-' || $3 || n / 500,
    json_build_object('n', n, 'action', case when n % 2 = 0 then 'even' else 'odd' end)
  from generate_series($4::int, $5::int) n`;
/** Rows of one statement: a busy machine writes them within the time limit of a statement. */
const INSERTED_AT_ONCE = 20_000;

describe('200 000 events', () => {
  let opened: OpenedDb;
  let reads: EventReads;
  beforeAll(async () => {
    opened = await aDb('postgres');
    const { db } = opened;
    reads = new EventReads(db);
    for (const [workspace, rows] of [
      [W, ROWS],
      [OTHER, 1_000],
    ] as const) {
      await db.query('insert into event_counters (workspace_id, last_seq) values ($1, $2)', [workspace, rows]);
      for (let from = 1; from <= rows; from += INSERTED_AT_ONCE) {
        const to = Math.min(rows, from + INSERTED_AT_ONCE - 1);
        await db.query(INSERT, [workspace, BEGIN_MS / 1000, workspace.slice(0, 4), from, to]);
      }
    }
    await db.query('analyze events');
  }, 120_000);
  afterAll(() => opened.stop());

  const planOf = async (sql: string, params: readonly unknown[]): Promise<string> => {
    const { rows } = await opened.db.query<Record<string, string>>(`explain ${sql}`, params);
    return rows.map((row) => Object.values(row)[0]).join('\n');
  };

  const FILTERS: Readonly<Record<string, Omit<EventMatch, 'workspaceId'>>> = {
    'no filter': { withoutTypes: 'audit.' },
    'a task': { taskId: 'task-x' },
    'a container': { containerId: 'container-x' },
    'a stub': { stubId: 'stub-7' },
    'an app': { appId: 'app-7' },
    'one kind': { types: ['stub.deploy'] },
    'many kinds': { types: ['task.created', 'task.updated', 'stub.deploy', 'none'] },
    'a kind of a stub': { stubId: 'stub-7', types: ['stub.deploy'] },
    actions: { withoutActions: ['even'] },
    'a range of time': { fromMs: BEGIN_MS, toMs: BEGIN_MS + 1000 },
  };
  const STARTS: Readonly<Record<string, EventStart>> = {
    backwards: { beforeSeq: ROWS / 2 },
    forwards: { afterSeq: ROWS / 2, untilSeq: ROWS },
  };

  test.each(
    Object.keys(FILTERS).flatMap((filter) => Object.keys(STARTS).map((direction) => [filter, direction] as const)),
  )('by %s, %s, are read along an index, and never sorted or read as a whole', async (filter, direction) => {
    const match = { workspaceId: W, ...FILTERS[filter] };
    const start = STARTS[direction] ?? { beforeSeq: 1 };
    const edge = edgeStatement(match, start, 5_000);
    const near = 'beforeSeq' in start ? start.beforeSeq - 5_000 : start.afterSeq + 5_000;
    const read = readStatement(match, start, near, 1_000, 5_000);
    for (const { sql, params } of [edge, read]) {
      const plan = await planOf(sql, params);
      expect(plan).toMatch(/Index/);
      expect(plan).not.toMatch(/Seq Scan/);
      if (filter === 'a task') expect(plan).toMatch(/events_by_task[^]*events_of_tasks/);
    }
  });

  test.each([
    ['the next events', AFTER_SQL, [W, 100, 500]],
    ['the number at a time', SEQ_AT_SQL, [W, new Date(BEGIN_MS)]],
    ['the kinds that there are', TYPES_SQL, [W]],
  ])('%s are found along an index', async (_what, sql, params) => {
    const plan = await planOf(sql, params);
    expect(plan).toMatch(/Index/);
    expect(plan).not.toMatch(/Seq Scan/);
  });

  const seqs = (events: readonly { readonly seq: number }[]) => events.map(({ seq }) => seq);

  test('a time is found exactly, also before the first and after the last event', async () => {
    const at = (seq: number): number => BEGIN_MS + seq * 1000 + 200;
    for (const seq of [1, 2, 77_777, ROWS]) {
      expect(await reads.seqAt(W, at(seq))).toBe(seq);
      expect(await reads.seqAt(W, at(seq) + 1)).toBe(seq + 1);
    }
    expect([await reads.seqAt(W, 0), await reads.seqAt(newId<WorkspaceId>(), 0)]).toEqual([1, 1]);
  });

  test('a range of time is read without the rows behind it', async () => {
    const [from, to] = [100_000, 100_050];
    const range = { fromMs: BEGIN_MS + from * 1000, toMs: BEGIN_MS + to * 1000 };
    const { events, scanned, nextBeforeSeq } = await reads.latest(W, range, 1_000);
    const wanted = Array.from({ length: to - from }, (_, n) => from + n).filter((n) => n % 1000 !== 7);
    expect(seqs(events)).toEqual(wanted);
    expect(nextBeforeSeq).toBeUndefined();
    expect(scanned).toBeLessThan(5_000);
  });

  test('kinds that are rare are found wherever they are', async () => {
    const { events, scanned } = await reads.latest(W, { types: ['stub.*'] }, 1_000);
    expect(seqs(events)).toEqual(Array.from({ length: 10 }, (_, n) => (n + 1) * 20_000));
    expect(scanned).toBeLessThan(1_000);
    expect(seqs((await reads.latest(W, { types: ['audit.*'] }, 3)).events)).toEqual([197_007, 198_007, 199_007]);
    expect((await reads.latest(W, { types: ['none', 'nothing.*'] }, 3)).events).toEqual([]);
  });

  test('a read looks at 50 000 rows at most, says so, and goes on from there', async () => {
    const filter = { stubId: 'stub-0', types: ['stub.deploy'] };
    const all: number[] = [];
    let before: number | undefined;
    for (let turn = 0; ; turn += 1) {
      const read = await reads.latest(W, { withoutActions: ['odd', 'even'] }, 10, before);
      expect(read.events).toEqual([]);
      expect(read.scanned).toBeLessThanOrEqual(50_000);
      before = read.nextBeforeSeq;
      if (before === undefined) {
        expect(turn).toBeGreaterThanOrEqual(3);
        break;
      }
      expect(before).toBe(ROWS - 50_000 * (turn + 1) + 1);
    }
    for (let next: number | undefined; ;) {
      const read = await reads.latest(W, filter, 4, next);
      all.unshift(...seqs(read.events));
      next = read.nextBeforeSeq;
      if (next === undefined) break;
    }
    expect(all).toEqual(Array.from({ length: 10 }, (_, n) => (n + 1) * 20_000));
  });

  test('a read is cut at a number of bytes, with few events of each statement, and goes on from there', async () => {
    // An event counts for its data twice, and 1000 bytes beside them: three portions reach the bound.
    const cut = new EventReads(opened.db, { portion: 7, mostBytes: 20_000 });
    const found: number[] = [];
    let next: number | undefined;
    for (let turn = 0; turn < 4; turn += 1) {
      const read: Awaited<ReturnType<EventReads['latest']>> = await cut.latest(W, { stubId: 'stub-50' }, 1_000, next);
      expect(read.events).toHaveLength(21);
      found.unshift(...seqs(read.events));
      next = read.nextBeforeSeq;
    }
    expect(found).toEqual(Array.from({ length: 84 }, (_, n) => ROWS - 50 - 100 * (83 - n)));
    expect(seqs((await cut.latest(W, { stubId: 'stub-50' }, 5)).events)).toEqual(found.slice(-5));
  });

  test('pages forwards have each matching event once, of the own workspace alone', async () => {
    const found: number[] = [];
    let after = 0;
    while (after < ROWS) {
      const page = await reads.after(W, { stubId: 'stub-50' }, after, ROWS, 300);
      found.push(...seqs(page.rows));
      after = page.nextSeq - 1;
    }
    expect(found).toEqual(Array.from({ length: 2_000 }, (_, n) => n * 100 + 50));
    const others = `task-${OTHER.slice(0, 4)}3`;
    expect((await reads.latest(W, { taskId: others }, 10)).events).toEqual([]);
    expect((await reads.after(W, { taskId: others }, 0, ROWS, 10)).rows).toEqual([]);
    expect(seqs((await reads.latest(OTHER, { taskId: others }, 10)).events)).toEqual([9, 10, 11]);
  });
});
