// Lines that share rows are read as if each had one, on both kinds of stores. The same lines are written in one batch,
// and one by one; then everything that reads lines is asked about both.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ContainerId, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { newId } from '#shared/domain/ids.ts';
import { LogReader } from '#scheduler/fleet/logs/log-reads.ts';
import { LiveLogs } from '#scheduler/fleet/logs/live-logs.ts';
import type { LogFilter } from '#scheduler/fleet/logs/log-service.ts';
import { insertLogLines, lastLogIds, logEdge, logIdAt, readLogLines } from '#scheduler/stores/store/queries/logs.ts';
import type { NewLogLine } from '#scheduler/stores/store/queries/logs.ts';
import { Examined } from '../helpers/examined-rows.ts';
import { aDb, KINDS, silent } from '../integration/store-fixture.ts';
import type { OpenedDb } from '../integration/store-fixture.ts';

const START_MS = 1_800_000_000_000;
const COUNT = 300;

/** Live reads of lines whose owners are not asked for. */
const liveLogs = ({ db }: OpenedDb): LiveLogs =>
  new LiveLogs({
    db,
    owners: { stubs: () => Promise.resolve(new Map()), machinesOf: () => Promise.resolve(new Map()) },
  });

/** Runs of lines of a few containers, tasks and streams; some are empty, long, late, or have line ends of their own. */
function someLines(): Omit<NewLogLine, 'workspaceId'>[] {
  const tasks = [newId<TaskId>(), newId<TaskId>(), null];
  return Array.from({ length: COUNT }, (_, at) => ({
    stubId: `stub-${at % 150 < 75 ? 1 : 2}` as StubId,
    deploymentId: null,
    containerId: `container-${Math.floor(at / 40) % 3}` as ContainerId,
    taskId: tasks[Math.floor(at / 25) % 3] ?? null,
    stream: Math.floor(at / 11) % 4 === 0 ? 'stderr' : 'stdout',
    line: textOf(at),
    // Some lines come late, and one pair is a long time apart.
    atMs: START_MS + at * 10 + (at % 17 === 0 ? -35 : 0) + (at > 200 ? 90_000 : 0),
  }));
}

function textOf(at: number): string {
  if (at % 31 === 7) return '';
  if (at % 53 === 9) return `line ${at}\nhas ends\n`;
  if (at % 71 === 5) return `line ${at} ${'long '.repeat(500)}`;
  return `${at % 10 === 3 ? 'Needle' : 'Hay'} ${at} äß€`;
}

describe.each(KINDS)('lines that share rows, on %s', (kind) => {
  let opened: OpenedDb;
  let packed: WorkspaceId;
  let single: WorkspaceId;
  const lines = someLines();

  beforeAll(async () => {
    opened = await aDb(kind);
    packed = newId<WorkspaceId>();
    single = newId<WorkspaceId>();
    await insertLogLines(
      opened.db,
      lines.map((line) => ({ ...line, workspaceId: packed })),
    );
    for (const line of lines) await insertLogLines(opened.db, [{ ...line, workspaceId: single, ...apart(line) }]);
  });
  afterAll(() => opened.stop());

  /** The other workspace's lines have other owners: an index on one belongs to one workspace. */
  const apart = ({ stubId, containerId, taskId }: Omit<NewLogLine, 'workspaceId'>) => ({
    stubId: `${stubId}-single` as StubId,
    containerId: `${containerId}-single` as ContainerId,
    taskId: taskId === null ? null : (`${taskId}-single` as TaskId),
  });

  /** Pages of a read, to the end, in the order they come. */
  async function walk(filter: Partial<LogFilter>, isForward: boolean): Promise<string[][]> {
    const reader = new LogReader(opened.db);
    const of = async (workspaceId: WorkspaceId, own: Partial<LogFilter>): Promise<string[]> => {
      const texts: string[] = [];
      let place: Partial<LogFilter> = isForward ? { afterSeq: 0 } : {};
      for (;;) {
        const read = await reader.read(workspaceId, { limit: 7, page: 0, ...own, ...place });
        const page = read.lines.map(({ line, atMs, stream, seq }) => ({ text: `${atMs} ${stream} ${line}`, seq }));
        const ids = page.map(({ seq }) => seq);
        expect(ids).toEqual(ids.toSorted((one, other) => one - other));
        texts.push(...(isForward ? page : page.toReversed()).map(({ text }) => text));
        if (read.nextSeq === undefined) return texts;
        place = isForward ? { afterSeq: read.nextSeq } : { beforeSeq: read.nextSeq };
      }
    };
    const { containerId, taskId, stubId } = filter;
    return [
      await of(packed, filter),
      await of(single, {
        ...filter,
        ...(containerId === undefined ? {} : { containerId: `${containerId}-single` }),
        ...(taskId === undefined ? {} : { taskId: `${taskId}-single` }),
        ...(stubId === undefined ? {} : { stubId: `${stubId}-single` }),
      }),
    ];
  }

  test('the batch has fewer rows than lines', async () => {
    const sql = 'select count(*)::int as rows, sum(line_count)::int as lines from log_lines where workspace_id = $1';
    const { rows } = await opened.db.query<{ rows: number; lines: number }>(sql, [packed]);
    expect(rows[0]?.lines).toBe(COUNT);
    expect(rows[0]?.rows).toBeLessThan(COUNT / 3);
  });

  const has = (line: { readonly line: string }, text: string): boolean => line.line.toLowerCase().includes(text);
  test.each([
    ['everything', {}, () => true],
    ['a container', { containerId: 'container-1' }, (line) => line.containerId === 'container-1'],
    ['a task', { taskId: lines[0]?.taskId ?? '' }, (line) => line.taskId === lines[0]?.taskId],
    ['a stub', { stubId: 'stub-2' }, (line) => line.stubId === 'stub-2'],
    ['a text', { query: 'NEEDLE' }, (line) => has(line, 'needle')],
    [
      'a text of a container',
      { containerId: 'container-0', query: 'hay' },
      (line) => line.containerId === 'container-0' && has(line, 'hay'),
    ],
    ['a time on', { fromMs: START_MS + 1_555 }, (line) => line.atMs >= START_MS + 1_555],
    ['lines until a time', { toMs: START_MS + 1_555 }, (line) => line.atMs < START_MS + 1_555],
    [
      'a span of time',
      { fromMs: START_MS + 505, toMs: START_MS + 92_055 },
      (line) => line.atMs >= START_MS + 505 && line.atMs < START_MS + 92_055,
    ],
  ] satisfies [string, Partial<LogFilter>, (line: (typeof lines)[number]) => boolean][])(
    'a read of %s has the same lines in both directions',
    async (_name, filter, isWanted) => {
      const wanted = lines.filter(isWanted);
      expect(wanted.length).toBeGreaterThan(20);
      const [back, alone] = await walk(filter, false);
      expect(back).toEqual(alone);
      expect(back).toEqual(wanted.map((one) => `${one.atMs} ${one.stream} ${one.line}`).toReversed());
      if ('fromMs' in filter) return;
      const [forward, one] = await walk(filter, true);
      expect(forward).toEqual(one);
      expect(forward).toEqual(back?.toReversed());
    },
  );

  test('a reader that goes on behind any line gets the next one', async () => {
    const all = await readLogLines(opened.db, { workspaceId: packed }, { afterId: 0 }, undefined, COUNT);
    expect(all.map(({ line }) => line)).toEqual(lines.map(({ line }) => line));
    expect(all.map(({ atMs }) => atMs)).toEqual(lines.map(({ atMs }) => atMs));
    expect(new Set(all.map(({ id }) => id)).size).toBe(COUNT);
    for (const [at, { id }] of all.entries()) {
      // Each place within a row, and the ends of rows, come soon enough.
      if (at % 7 !== 0) continue;
      const next = await readLogLines(opened.db, { workspaceId: packed }, { afterId: id }, undefined, 2);
      expect(next.map((one) => one.id)).toEqual(all.slice(at + 1, at + 3).map((one) => one.id));
      const back = await readLogLines(opened.db, { workspaceId: packed }, { beforeId: id }, undefined, 2);
      expect(back.map((one) => one.id)).toEqual(
        all
          .slice(Math.max(0, at - 2), at)
          .map((one) => one.id)
          .toReversed(),
      );
      const one = await readLogLines(opened.db, { workspaceId: packed }, { afterId: id - 1 }, id, 10);
      expect(one.map((found) => found.id)).toEqual([id]);
    }
    expect((await lastLogIds(opened.db, [packed])).get(packed)).toBe(all.at(-1)?.id);
  });

  test('the first line of a time lies inside a row', async () => {
    const all = await readLogLines(opened.db, { workspaceId: packed }, { afterId: 0 }, undefined, COUNT);
    for (const at of [60, 93, 130, 262]) {
      const id = await logIdAt(opened.db, packed, lines[at]?.atMs ?? 0);
      expect(all.find((line) => line.id === id)?.line).toBe(textOf(at));
    }
    expect(await logIdAt(opened.db, packed, START_MS + 10 ** 9)).toBe((all.at(-1)?.id ?? 0) + 1);
  });

  test('statements read few rows, also of a workspace that the database has no statistics of', async () => {
    const known = Array.from({ length: 10 }, () => newId<WorkspaceId>());
    const fill = (workspaces: readonly WorkspaceId[]): Promise<unknown> =>
      opened.db.query(
        `insert into log_lines (workspace_id, stub_id, container_id, stream, line, at, line_count, after_ms)
         select ($1::text[])[1 + n % $2], 's', 'many', 'stdout', E'a\\nb', to_timestamp(1800000000 + n), 2, array[0, 5]
         from generate_series(1, 20000) n`,
        [workspaces, workspaces.length],
      );
    await fill(known);
    await opened.db.query('analyze log_lines');
    // Rows of another workspace came after the statistics were taken.
    const fresh = newId<WorkspaceId>();
    await fill([fresh]);
    for (const id of [known[3] as WorkspaceId, fresh]) {
      const examined = new Examined(opened.db);
      const all = await readLogLines(opened.db, { workspaceId: id }, { afterId: 0 }, undefined, 2_000);
      const middle = all.at(-1);
      await logIdAt(examined, id, middle?.atMs ?? 0);
      await readLogLines(examined, { workspaceId: id }, { afterId: middle?.id ?? 0 }, undefined, 200);
      await readLogLines(examined, { workspaceId: id }, { beforeId: middle?.id ?? 0 }, undefined, 200);
      await logEdge(examined, { workspaceId: id }, { beforeId: Number.MAX_SAFE_INTEGER }, 200);
      await lastLogIds(examined, [id]);
      expect(examined.most).toBeLessThan(500);
    }
  });

  test('a hub opens with the newest lines, however many share a row', async () => {
    const workspaceId = newId<WorkspaceId>();
    const lines = Array.from({ length: 700 }, (_, at) => ({
      ...someLines()[0],
      workspaceId,
      containerId: 'quiet' as ContainerId,
      line: `line ${at}`,
    })) as NewLogLine[];
    // Rows of one line, as quiet containers write them, and at last rows of many.
    for (const line of lines.slice(0, 300)) await insertLogLines(opened.db, [line]);
    await insertLogLines(opened.db, lines.slice(300));
    const live = liveLogs(opened);
    let pages = 0;
    const hub = live.hub(({ line }) => Buffer.from(line), { log: silent, onPage: () => void (pages += 1) });
    const all = await live.next(workspaceId, 0, 1_000);
    const got: string[] = [];
    const done = Promise.withResolvers<void>();
    const reader = await hub.subscribe(workspaceId, {}, all.at(-400)?.seq, {
      take: (row) => {
        got.push(row.line);
        return 'more';
      },
      atTail: () => done.resolve(),
      failed: (error) => done.reject(error),
    });
    reader.start();
    await done.promise;
    reader.end();
    hub.stop();
    expect(got).toEqual(lines.slice(-400).map(({ line }) => line));
    expect(pages).toBe(0);
  });

  test('pages of a live reader end at the line that was asked', async () => {
    const live = liveLogs(opened);
    const all = await live.next(packed, 0, COUNT);
    expect(await live.next(packed, all[100]?.seq ?? 0, 3)).toMatchObject(
      all.slice(101, 104).map(({ seq, line }) => ({ seq, line })),
    );
  });
});
