// Records of tasks on their way to the database, with faults at each statement and two leaders at once: the events and
// the callback of a task are there once, whatever was tried again.
import { expect } from 'vitest';
import type { ContainerId } from '#shared/domain/ids.ts';
import { openPostgres } from '#scheduler/stores/store/postgres.ts';
import { migrate } from '#scheduler/stores/store/migrate.ts';
import type { TaskRecord } from '#scheduler/tasks/records/task-record.ts';
import { writeRecords } from '#scheduler/tasks/webhooks/callbacks.ts';
import { BRIEF, FaultyDb } from '../helpers/faulty-db.ts';
import type { PlantedFault } from '../helpers/faulty-db.ts';
import { test } from '../helpers/services.ts';
import { aDeployment, aRecord, aStub, aWorkspace, silent, storedEvents } from './store-fixture.ts';

/** Statements of the transaction that writes a batch, and one more. */
const STATEMENTS = 5;

test('a task that ended has its events and its callback once, after a fault at any statement and a second try', async ({
  postgres,
}) => {
  const connections = { platform: 4, reads: 1 };
  const real = await openPostgres({ url: postgres.url, connections, log: silent });
  const brief = await openPostgres({ url: postgres.url, connections, log: silent, deadlines: BRIEF });
  const faults: PlantedFault[] = [];
  const db = new FaultyDb(real, brief, () => faults.shift());
  try {
    await migrate(real);
    for (const kind of ['expire', 'lose', 'unanswered'] as const) {
      for (let before = 0; before <= STATEMENTS; before += 1) {
        const { id } = await aWorkspace(real);
        const stub = await aStub(real, id);
        const deployment = await aDeployment(real, stub);
        const callbackUrl = 'https://receiver.example/end';
        const pending = { ...aRecord({ workspaceId: id, stubId: stub.id, deploymentId: deployment.id }), callbackUrl };
        const ended = {
          ...pending,
          status: 'COMPLETE',
          attempt: 1,
          rank: 4,
          containerId: 'c' as ContainerId,
          startedAtMs: pending.createdAtMs + 10,
          endedAtMs: pending.createdAtMs + 20,
        };
        const streamed = [pending, ended].map((record) => ({ record: record as TaskRecord, atMs: Date.now() }));
        faults.push({ kind, before });
        // The old leader meets the fault while its successor writes the same batch; then both try again.
        const write = () => writeRecords(db, [ended as TaskRecord], streamed);
        await Promise.allSettled([write(), write()]);
        await Promise.all([write(), write()]);
        await db.quiet();
        const statuses = (await storedEvents(real, id)).map(({ data }) => data['status']);
        expect(statuses, `${kind} before statement ${before}`).toEqual(['PENDING', 'RUNNING', 'COMPLETE']);
        const { rows } = await real.query('select id from deliveries where subject = $1', [pending.taskId]);
        expect(rows, `callbacks after ${kind} before statement ${before}`).toHaveLength(1);
      }
    }
    // Which of the two meets a fault, and whether it still has that many statements, is a race.
    for (const count of Object.values(db.met)) expect(count).toBeGreaterThan(0);
  } finally {
    await db.close();
  }
});
