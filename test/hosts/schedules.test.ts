// A schedule of one tick a second on two schedulers. Every ten seconds one of them is killed with −9 and started again,
// the leader among them. Each second has its task, and no task comes twice. Not part of `npm test`: it takes two
// minutes, and the tasks of a dead process come back up to two more minutes later.
import { expect } from 'vitest';
import { createLog } from '#shared/log.ts';
import { tickTaskId } from '#shared/domain/ids.ts';
import type { DeploymentId } from '#shared/domain/ids.ts';
import { openDb } from '#scheduler/stores/store/db.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import { test as base, waitFor } from '../helpers/services.ts';

const ROUNDS = 12;
const ROUND_MS = 10_000;
/**
 * Rows without a job are queued again after a minute, attempts
 * that no process names end after one, and locks after two.
 */
const SETTLE_MS = 240_000;

interface Played {
  readonly set: ReplicaSet;
  readonly db: Db;
}

const test = base.extend('two', { scope: 'file' }, async ({ postgres, redis }, { onCleanup }): Promise<Played> => {
  const set = new ReplicaSet(postgres, redis);
  const opened: Db[] = [];
  onCleanup(async () => {
    for (const db of opened) await db.close();
    await set.stop();
  });
  await set.add();
  await set.add();
  for (let n = 0; n < 2; n += 1) await set.agent();
  const db = await openDb({
    databaseUrl: postgres.url,
    dataDir: set.directory,
    log: createLog({ name: 'test', level: 'silent' }),
  });
  opened.push(db);
  return { set, db };
});

test(
  'every second has its task, once, although one of two schedulers dies every ten seconds',
  { timeout: ROUNDS * ROUND_MS + SETTLE_MS + 120_000 },
  async ({ two }) => {
    const { set, db } = two;
    const [first, second] = set.replicas;
    if (first === undefined || second === undefined) throw new Error('there are no two replicas');
    const { deploymentId } = await set.deploy(first, 'clock', {
      stubType: 'schedule/deployment',
      extra: '{"when": "* * * * * *"}',
      maxPendingTasks: 1_000,
    });
    const read = async (): Promise<{ readonly fromMs: number; readonly tickedToMs: number }> => {
      const { rows } = await db.query<{ created_at: Date; ticked_to: Date }>(
        'select created_at, ticked_to from deployments where id = $1',
        [deploymentId],
      );
      return { fromMs: rows[0]?.created_at.getTime() ?? 0, tickedToMs: rows[0]?.ticked_to.getTime() ?? 0 };
    };
    const { fromMs } = await read();
    let leaders = 0;
    for (let round = 1; round <= ROUNDS; round += 1) {
      // The leader dies in every other round, the other one in those between.
      const leader = await set.leader();
      const victim = round % 2 === 1 ? (leader ?? first) : leader === first ? second : first;
      if (victim === leader) leaders += 1;
      await victim.daemon.kill();
      await set.start(victim);
      await waitFor(
        async () => (await read()).tickedToMs >= fromMs + round * ROUND_MS,
        `round ${round}: the schedule has come ${round * 10} s far`,
        60_000,
      );
    }
    expect(leaders).toBeGreaterThanOrEqual(ROUNDS / 2 - 1);
    const seconds: number[] = [];
    for (let ms = Math.floor(fromMs / 1000) * 1000 + 1000; ms <= fromMs + ROUNDS * ROUND_MS; ms += 1000)
      seconds.push(ms);
    const idOf = (ms: number): string => tickTaskId(deploymentId as DeploymentId, ms);
    const expected = seconds.map(idOf);
    const open = async (): Promise<readonly string[]> => {
      const { rows } = await db.query<{ id: string }>('select id from tasks where id = any ($1) and rank < 3', [
        expected,
      ]);
      return rows.map((row) => row.id);
    };
    await waitFor(async () => (await open()).length === 0, 'the tasks of all these seconds are over', SETTLE_MS);
    await set.gateway(first, `/deployments/${deploymentId}/stop`, {});
    const { rows } = await db.query<{ id: string; status: string }>(
      'select id, status from tasks where deployment_id = $1',
      [deploymentId],
    );
    const statuses = new Map(rows.map((row) => [row.id, row.status]));
    const missing = seconds.filter((ms) => statuses.get(idOf(ms)) !== 'COMPLETE');
    expect(missing.map((ms) => `${new Date(ms).toISOString()} ${statuses.get(idOf(ms))}`)).toEqual([]);
    // No other tasks exist, but for later ticks.
    const { tickedToMs } = await read();
    const later = Array.from({ length: Math.round((tickedToMs - (seconds.at(-1) ?? 0)) / 1000) }, (_, n) =>
      idOf((seconds.at(-1) ?? 0) + (n + 1) * 1000),
    );
    const ticks = new Set([...expected, ...later]);
    expect(rows.filter((row) => !ticks.has(row.id))).toEqual([]);
    const runs = set.agents.flatMap((agent) => agent.runs.map((run) => run.taskId));
    expect(expected.filter((id) => runs.filter((run) => run === id).length !== 1)).toEqual([]);
  },
);
