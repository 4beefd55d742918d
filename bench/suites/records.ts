// `records` (G14): task records per second into the database, as their owner writes them. Beside it a plain
// loop inserts the same rows, a hundred at a time, into a table of the same shape.
import { createLog } from '#shared/log.ts';
import { newId, newInstanceId, queueNameOf } from '#shared/domain/ids.ts';
import type { ContainerId, DeploymentId, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { keysOf } from '#scheduler/stores/queues/keys.ts';
import { openDb } from '#scheduler/stores/store/db.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { migrate } from '#scheduler/stores/store/migrate.ts';
import { writeRecords } from '#scheduler/tasks/webhooks/callbacks.ts';
import { TaskRecords } from '#scheduler/tasks/records/records.ts';
import type { TaskRecord } from '#scheduler/tasks/records/task-record.ts';
import { aRedis } from '../../test/helpers/redis.ts';
import { measureOf } from '../measure.ts';
import { inTurn } from '../rounds.ts';
import type { Check, SuiteContext, SuiteResult } from './suite.ts';

const FULL_ROWS = 20_000;
const QUICK_ROWS = 5_000;
const BY_THE_HUNDRED = 100;
const RESULT = JSON.stringify({ greeting: 'Hello, bench!', numbers: Array.from({ length: 20 }, (_, n) => n) });

export async function records(context: SuiteContext): Promise<SuiteResult> {
  const { place } = context;
  const postgres = await context.postgres();
  const log = createLog({ name: 'bench', level: 'silent' });
  const redis = await aRedis();
  place.later(() => redis.stop());
  const client = redis.connect();
  const db = await openDb({ databaseUrl: await postgres.createDatabase('records'), dataDir: place.directory, log });
  place.later(() => db.close());
  await migrate(db, log);
  await db.query('create table raw_tasks (like tasks including all)');
  const keys = keysOf('ls');
  const store = new TaskRecords({
    client,
    keys,
    log,
    instance: newInstanceId(),
    load: () => Promise.resolve(undefined),
    ended: () => Promise.resolve([]),
    running: () => Promise.resolve(new Map()),
    write: (batch, changes) => writeRecords(db, batch, changes),
  });
  place.later(() => store.close());
  const rows = context.isQuick ? QUICK_ROWS : FULL_ROWS;
  let written = 0;

  const product = async (): Promise<{ rate: number }> => {
    place.signal.throwIfAborted();
    const batch = recordsOf(rows);
    const startedMs = performance.now();
    await Promise.all(batch.map((record) => store.append(record)));
    written += rows;
    return { rate: rows / ((performance.now() - startedMs) / 1000) };
  };
  const baseline = async (): Promise<{ rate: number }> => {
    place.signal.throwIfAborted();
    const batch = recordsOf(rows);
    const startedMs = performance.now();
    for (let at = 0; at < rows; at += BY_THE_HUNDRED) await insertRaw(db, batch.slice(at, at + BY_THE_HUNDRED));
    return { rate: rows / ((performance.now() - startedMs) / 1000) };
  };
  // The first runs are thrown away: they prepare statements and grow files.
  await baseline();
  await product();
  const rounds = await context.runRounds('records', inTurn(baseline, product));
  return {
    measures: [measureOf('records', 'rate', 'rows/s', rounds, context.slack)],
    rounds,
    checks: [await everyRow(db, written)],
  };
}

async function everyRow(db: Db, expected: number): Promise<Check> {
  const { rows } = await db.query<{ count: number }>(
    `select count(*)::int as count from tasks where status = 'COMPLETE'`,
  );
  const found = rows[0]?.count ?? 0;
  return {
    suite: 'records',
    name: 'every record has a row',
    isRight: found === expected,
    text: `${found} rows of ${expected} records`,
  };
}

/** Tasks that ended well, a new one each. */
function recordsOf(count: number): readonly TaskRecord[] {
  const stubId = newId<StubId>();
  const deploymentId = newId<DeploymentId>();
  const queue = queueNameOf(deploymentId, stubId);
  const workspaceId = newId<WorkspaceId>();
  const nowMs = Date.now();
  return Array.from({ length: count }, (_, n) => ({
    taskId: newId<TaskId>(),
    workspaceId,
    stubId,
    deploymentId,
    queue,
    kind: 'endpoint',
    sync: true,
    status: 'COMPLETE',
    attempt: 1,
    rank: 3,
    containerId: `endpoint-${stubId}-${(n % 10).toString(16).padStart(8, '0')}` as ContainerId,
    failureReason: '',
    createdAtMs: nowMs,
    startedAtMs: nowMs + 1,
    endedAtMs: nowMs + 2,
    durationMs: 1,
    result: RESULT,
    deadlineMs: nowMs + 600_000,
  }));
}

const COLUMNS = [
  ['id', 'text'],
  ['workspace_id', 'text'],
  ['stub_id', 'text'],
  ['deployment_id', 'text'],
  ['queue', 'text'],
  ['kind', 'text'],
  ['sync', 'boolean'],
  ['status', 'text'],
  ['attempt', 'integer'],
  ['rank', 'integer'],
  ['container_id', 'text'],
  ['failure_reason', 'text'],
  ['result', 'text'],
  ['created_at', 'timestamptz'],
  ['started_at', 'timestamptz'],
  ['ended_at', 'timestamptz'],
  ['deadline_at', 'timestamptz'],
  ['duration_ms', 'double precision'],
] as const;
const INSERT = `insert into raw_tasks (${COLUMNS.map(([name]) => name).join(', ')})
  select * from unnest(${COLUMNS.map(([, type], index) => `$${index + 1}::${type}[]`).join(', ')})`;

/** The quickest plain way: one statement, an array per column. */
async function insertRaw(db: Db, batch: readonly TaskRecord[]): Promise<void> {
  const at = (ms: number | null): Date | null => (ms === null ? null : new Date(ms));
  await db.query(INSERT, [
    batch.map((record) => record.taskId),
    batch.map((record) => record.workspaceId),
    batch.map((record) => record.stubId),
    batch.map((record) => record.deploymentId),
    batch.map((record) => record.queue),
    batch.map((record) => record.kind),
    batch.map((record) => record.sync),
    batch.map((record) => record.status),
    batch.map((record) => record.attempt),
    batch.map((record) => record.rank),
    batch.map((record) => record.containerId),
    batch.map((record) => record.failureReason),
    batch.map((record) => record.result ?? null),
    batch.map((record) => at(record.createdAtMs)),
    batch.map((record) => at(record.startedAtMs)),
    batch.map((record) => at(record.endedAtMs)),
    batch.map((record) => at(record.deadlineMs)),
    batch.map((record) => record.durationMs),
  ]);
}
