// Ids of log lines, on both kinds of stores: a live reader that goes on behind the last id misses nothing.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ContainerId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { insertLogLines, readLogLines } from '#scheduler/stores/store/queries/logs.ts';
import type { NewLogLine } from '#scheduler/stores/store/queries/logs.ts';
import { aDb, aWorkspace, KINDS } from '../integration/store-fixture.ts';
import type { OpenedDb } from '../integration/store-fixture.ts';

const aLine = (workspaceId: WorkspaceId, line: string): NewLogLine => ({
  workspaceId,
  stubId: 'stub' as StubId,
  deploymentId: null,
  containerId: 'endpoint-stub-00000001' as ContainerId,
  taskId: null,
  stream: 'stdout',
  line,
  atMs: Date.now(),
});

describe.each(KINDS)('log lines on %s', (kind) => {
  let opened: OpenedDb;
  beforeAll(async () => {
    opened = await aDb(kind);
  });
  afterAll(() => opened.stop());

  const idsOf = async (workspaceId: WorkspaceId): Promise<number[]> => {
    const lines = await readLogLines(opened.db, { workspaceId }, { afterId: 0 }, undefined, 10_000);
    return lines.map(({ id }) => id);
  };

  test('of a workspace have ids in the order of commits, whoever writes them', async () => {
    const { db } = opened;
    const [first, second] = [await aWorkspace(db), await aWorkspace(db)];
    let isOver = false;
    const reads = (async () => {
      const seen: number[] = [];
      while (!isOver) {
        const ids = await idsOf(first.id);
        expect(ids.slice(0, seen.length)).toEqual(seen);
        seen.splice(0, seen.length, ...ids);
      }
    })();
    const lasts = await Promise.all(
      Array.from({ length: 60 }, async (_, turn) => {
        const lines = Array.from({ length: 1 + (turn % 7) * 20 }, (_one, at) => aLine(first.id, `${turn} ${at}`));
        // The other workspace's lines come first in one batch, and last in the next.
        const other = aLine(second.id, `${turn}`);
        // Later batches are longer under way: the transaction stays open behind the statement.
        return db.transaction(async (tx) => {
          const written = await insertLogLines(tx, turn % 2 === 0 ? [other, ...lines] : [...lines, other]);
          await tx.query('select pg_sleep($1)', [(turn % 5) / 200]);
          return written.get(first.id)?.lastId ?? 0;
        });
      }),
    );
    isOver = true;
    await reads;
    expect(Math.max(...lasts)).toBe((await idsOf(first.id)).at(-1));
    expect(await idsOf(second.id)).toHaveLength(60);
  });

  test('keep their order within a batch, and tell the bytes of the day', async () => {
    const { db } = opened;
    const { id } = await aWorkspace(db);
    await insertLogLines(db, [aLine(id, 'a')]);
    const written = await insertLogLines(
      db,
      ['b', 'c', 'd'].map((text) => aLine(id, text)),
    );
    const rows = await readLogLines(db, { workspaceId: id }, { afterId: 0 }, undefined, 100);
    expect(rows.map(({ line }) => line)).toEqual(['a', 'b', 'c', 'd']);
    expect(written.get(id)?.dayBytes).toBe(4 * (64 + 1));
  });
});
