// Reads of long log lines: no statement and no answer takes more than a bounded number of bytes, and whoever goes on
// where an answer was cut gets each line once.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { LogReader } from '#scheduler/fleet/logs/log-reads.ts';
import type { LogFilter } from '#scheduler/fleet/logs/log-service.ts';
import type { Queryable } from '#scheduler/stores/store/db.ts';
import { insertLogLines } from '#scheduler/stores/store/queries/logs.ts';
import { KINDS, aContainerId, aDb, aStub, aWorkspace } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const LINES = 40;
const PORTION = 6;

describe.each(KINDS)('long lines on %s', (kind) => {
  let opened: OpenedDb;
  let workspaceId: WorkspaceId;
  /** Lines that each statement returned. */
  const returned: number[] = [];
  let reader: LogReader;

  beforeAll(async () => {
    opened = await aDb(kind);
    const { db } = opened;
    const owner = await aWorkspace(db);
    workspaceId = owner.id;
    const stub = await aStub(db, workspaceId);
    const containerId = aContainerId();
    await insertLogLines(
      db,
      Array.from({ length: LINES }, (_, at) => ({
        workspaceId,
        stubId: stub.id,
        deploymentId: null,
        containerId,
        taskId: null,
        stream: 'stdout' as const,
        line: `${String(at).padStart(2, '0')} ${'x'.repeat(2_000)}`,
        atMs: 1_800_000_000_000 + at,
      })),
    );
    const of = (asking: WorkspaceId): Queryable => ({
      query: async <R>(sql: string, params?: readonly unknown[]) => {
        const answer = await db.reads.of(asking).query<R>(sql, params);
        returned.push(answer.rows.length);
        return answer;
      },
    });
    reader = new LogReader({ kind: db.kind, reads: { ...db.reads, of } }, { portion: PORTION, mostCharacters: 20_000 });
  });
  afterAll(() => opened.stop());

  const read = (filter: Partial<LogFilter>) => reader.read(workspaceId, { limit: 1_000, page: 0, ...filter });
  const numbersOf = ({ lines }: Awaited<ReturnType<typeof read>>): number[] =>
    lines.map(({ line }) => Number(line.slice(0, 2)));
  const ALL = Array.from({ length: LINES }, (_, at) => at);

  test('are cut at a number of bytes, and read on from there, both ways', async () => {
    const back: number[] = [];
    let beforeSeq: number | undefined;
    do {
      const page = await read(beforeSeq === undefined ? {} : { beforeSeq });
      expect(page.isFull).toBe(false);
      // Two portions reach the bound of an answer.
      expect(page.lines.length).toBeLessThanOrEqual(2 * PORTION);
      back.unshift(...numbersOf(page));
      beforeSeq = page.nextSeq;
    } while (beforeSeq !== undefined);
    expect(back).toEqual(ALL);
    const forward: number[] = [];
    let afterSeq: number | undefined = 0;
    do {
      const page: Awaited<ReturnType<typeof read>> = await read({ afterSeq });
      expect(page.lines.length).toBeLessThanOrEqual(2 * PORTION);
      forward.push(...numbersOf(page));
      afterSeq = page.nextSeq;
    } while (afterSeq !== undefined);
    expect(forward).toEqual(ALL);
    expect(Math.max(...returned)).toBeLessThanOrEqual(PORTION);
  });

  test('that a page passes over are counted and not kept; the last one of them is known', async () => {
    returned.length = 0;
    const page = await read({ limit: 5, page: 6 });
    expect([numbersOf(page), page.isFull]).toEqual([[5, 6, 7, 8, 9], true]);
    expect(Math.max(...returned)).toBeLessThanOrEqual(PORTION);
    const all = await new LogReader(opened.db).read(workspaceId, { limit: 1_000, page: 0 });
    expect([all.lines.length, all.isFull, all.nextSeq]).toEqual([LINES, false, undefined]);
    const seqOf = (number: number) => all.lines[number]?.seq;
    expect((await read({ limit: 1, page: 16 })).lastSeq).toBe(seqOf(LINES - 17));
    // Fewer lines than that: the oldest one.
    const beyond = await read({ limit: 1, page: LINES });
    expect([beyond.lines, beyond.lastSeq]).toEqual([[], seqOf(0)]);
    expect((await reader.read(newId<WorkspaceId>(), { limit: 1, page: 3 })).lastSeq).toBeUndefined();
  });
});
