// Counts the product's records. Spilled records are in its Redis.
// Stored records come from its own database, once no process has that open.
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { sleep } from '#shared/backoff.ts';
import { createLog } from '#shared/log.ts';
import { socketPathIn } from '#shared/socket-path.ts';
import { keysOf } from '#scheduler/stores/queues/keys.ts';
import { openDb } from '#scheduler/stores/store/db.ts';

export interface TaskCounts {
  readonly all: number;
  readonly complete: number;
}

/** @param stubId - tasks of this stub only */
export async function countTasks(dataDir: string, stubId: string): Promise<TaskCounts> {
  const db = await openDb({ dataDir, log: createLog({ name: 'bench', level: 'silent' }) });
  try {
    const { rows } = await db.query<{ all: number; complete: number }>(
      `select count(*) as all, count(*) filter (where status = 'COMPLETE') as complete from tasks where stub_id = $1`,
      [stubId],
    );
    return { all: Number(rows[0]?.all ?? 0), complete: Number(rows[0]?.complete ?? 0) };
  } finally {
    await db.close();
  }
}

const STORED_MS = 60_000;
const POLL_MS = 100;
const COLLECTED_MS = 3_000;

/** Waits until no record is on its way to the database any more; the product must be running. */
export async function untilStored(dataDir: string): Promise<void> {
  const path = socketPathIn(join(dataDir, 'redis'), 'redis.sock');
  const client = new Redis({ path, commandTimeout: 5_000, maxRetriesPerRequest: 0, retryStrategy: () => null });
  client.on('error', () => undefined);
  try {
    const deadlineMs = performance.now() + STORED_MS;
    // No record is longer on its way than it is collected and written, unless it is spilled.
    await sleep(COLLECTED_MS);
    while ((await client.exists(keysOf('ls').spilledRecords)) > 0) {
      if (performance.now() > deadlineMs)
        throw new Error(`records were still on their way after ${STORED_MS / 1000} s`);
      await sleep(POLL_MS);
    }
  } finally {
    client.disconnect();
  }
}
