// Counts what the product wrote down: how much is still on its way, from its metrics; what has arrived, from its own database once nobody else has that open.
import { sleep } from '#shared/backoff.ts';
import { createLog } from '#shared/log.ts';
import { openDb } from '#scheduler/store/db.ts';
import type { Client } from '#cli/client.ts';

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

/** Waits until no record is on its way to the database any more. */
export async function untilStored(client: Client): Promise<void> {
  const deadlineMs = performance.now() + STORED_MS;
  while (performance.now() < deadlineMs) {
    const page = (await client.call('/metrics')).body.toString('utf8');
    const backlog = /^longshore_task_records_backlog(?:\{[^}]*\})? (\S+)$/m.exec(page)?.[1];
    if (backlog === undefined) throw new Error('the scheduler does not say how many records are on their way');
    if (Number(backlog) === 0) return;
    await sleep(POLL_MS);
  }
  throw new Error(`records were still on their way after ${STORED_MS / 1000} s`);
}
