/** Searches through many log lines, and other long reads, must not hold up what the platform asks of the database. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { LogReader } from '../../scheduler/fleet/logs/log-reads.ts';
import type { Db } from '../../scheduler/stores/store/db.ts';
import { logEdge, readLogLines } from '../../scheduler/stores/store/queries/logs.ts';
import { aDb } from '../integration/store-fixture.ts';
import type { OpenedDb } from '../integration/store-fixture.ts';
import { Examined } from '../helpers/examined-rows.ts';
import { waitFor } from '../helpers/services.ts';

const LINES = { pglite: 200_000, postgres: 2_000_000 } as const;
const FILLED_AT_ONCE = 20_000;
const SEARCHERS = 4;

describe.each(['pglite', 'postgres'] as const)('%s', (kind) => {
  let opened: OpenedDb;
  let db: Db;
  const attackers = Array.from({ length: SEARCHERS }, () => newId<WorkspaceId>());

  beforeAll(async () => {
    opened = await aDb(kind);
    db = opened.db;
    for (let at = 0; at < LINES[kind]; at += FILLED_AT_ONCE) {
      await db.query(
        `insert into log_lines (workspace_id, stub_id, container_id, stream, line, at)
         select ($1::text[])[1 + n % $2], 's', 'c', 'stdout', repeat('hay ', 30) || n, now() from generate_series(1, $3::int) n`,
        [attackers, SEARCHERS, FILLED_AT_ONCE],
      );
    }
  }, 600_000);
  afterAll(async () => {
    await opened.stop();
  });

  test('each statement of a search looks at few rows', async () => {
    // Postgres does so by itself, and the upkeep of PGlite does.
    await db.query('analyze log_lines');
    const examined = new Examined(db);
    const match = { workspaceId: attackers[0] as WorkspaceId, contains: 'needle' };
    for (const start of [{ beforeId: Number.MAX_SAFE_INTEGER }, { afterId: 0 }]) {
      const edge = await logEdge(examined, match, start, 2_000);
      await readLogLines(examined, match, start, edge?.id, 100);
    }
    expect(examined.most).toBeLessThan(2_500);
  });

  test('the platform’s statements are answered between those of the searches of four workspaces', async () => {
    const reader = new LogReader(db);
    let reads = 0;
    db.reads.onRead = () => void (reads += 1);
    let searching = SEARCHERS;
    const searches = attackers.map(async (workspaceId) => {
      let beforeSeq: number | undefined;
      for (let request = 0; request < 10; request += 1) {
        const { lines, nextSeq } = await reader.read(workspaceId, {
          limit: 100,
          page: 0,
          query: 'needle',
          ...(beforeSeq === undefined ? {} : { beforeSeq }),
        });
        expect(lines).toEqual([]);
        beforeSeq = nextSeq;
        if (beforeSeq === undefined) break;
      }
      searching -= 1;
    });
    const seconds: number[] = [];
    let most = 0;
    while (searching > 0) {
      const [from, readsBefore] = [performance.now(), reads];
      await db.query('select count(*) from workspaces');
      seconds.push((performance.now() - from) / 1000);
      most = Math.max(most, reads - readsBefore);
    }
    await Promise.all(searches);
    expect(reads).toBeGreaterThan(SEARCHERS * 2);
    // On PGlite a statement waits for the read that runs, and for no second one.
    if (kind === 'pglite') expect(most).toBeLessThanOrEqual(2);
    seconds.sort((a, b) => a - b);
    expect(seconds.length).toBeGreaterThan(reads / 2);
    expect(seconds[Math.floor(seconds.length * 0.95)]).toBeLessThan(0.25);
  }, 300_000);

  test.runIf(kind === 'postgres')(
    'reads that last leave the platform its connections, and are cancelled',
    async () => {
      const slow = attackers.flatMap((workspaceId) =>
        Array.from({ length: 8 }, () => db.reads.of(workspaceId).query('select pg_sleep(60) /* slow read */')),
      );
      const ended = Promise.allSettled(slow);
      const running = async (): Promise<number> => {
        const { rows } = await db.query<{ n: number }>(
          `select count(*)::int as n from pg_stat_activity where state = 'active' and query like '%/* slow read */' and pid <> pg_backend_pid()`,
        );
        return rows[0]?.n ?? 0;
      };
      await waitFor(async () => (await running()) === 4, 'as many run as there are connections for reads');
      await Promise.all(Array.from({ length: 200 }, () => db.query('select 1')));
      expect(await running()).toBe(4);
      for (const result of await ended) expect(result.status).toBe('rejected');
      await waitFor(async () => (await running()) === 0, 'the server has cancelled them');
    },
    60_000,
  );
});
