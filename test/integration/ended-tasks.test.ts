import { expect, test } from 'vitest';
import type { QueueName, TaskId } from '#shared/domain/ids.ts';
import { newId } from '#shared/domain/ids.ts';
import type { EndedCursor } from '#scheduler/stores/store/queries/tasks.ts';
import { ENDED_PAGE_SQL, queuesOfEnded, upsertTaskRecords } from '#scheduler/stores/store/queries/tasks.ts';
import { aDb, aRecord, aStub, aWorkspace, KINDS } from './store-fixture.ts';

test.each(KINDS)('queues of tasks that ended within the hour are found page by page (%s)', async (kind) => {
  const opened = await aDb(kind);
  const { db } = opened;
  try {
    const workspace = await aWorkspace(db);
    const stub = await aStub(db, workspace.id);
    const record = (queue: string, status: 'COMPLETE' | 'RUNNING') =>
      aRecord({
        taskId: newId<TaskId>(),
        workspaceId: workspace.id,
        stubId: stub.id,
        deploymentId: null,
        queue: queue as QueueName,
        status,
        endedAtMs: status === 'COMPLETE' ? Date.now() : null,
        rank: status === 'COMPLETE' ? 3 : 2,
      });
    const ended = ['a', 'b', 'a', 'a', 'c', 'b'].map((name) => record(`tq-${name}`, 'COMPLETE'));
    // A single statement writes all of them, so that they share one time and a page ends within it.
    await upsertTaskRecords(db, [...ended, record('tq-open', 'RUNNING'), record('tq-old', 'COMPLETE')]);
    await db.query("update tasks set ended_at = now() - interval '2 hours' where queue = 'tq-old'");
    const seen: QueueName[] = [];
    let after: EndedCursor | undefined;
    let pages = 0;
    do {
      const page = await queuesOfEnded(db, 2, after);
      seen.push(...page.queues);
      after = page.next;
      pages += 1;
    } while (after !== undefined);
    expect([...new Set(seen)].toSorted()).toEqual(['tq-a', 'tq-b', 'tq-c']);
    expect(pages).toBe(4);
    if (kind === 'postgres') {
      // The planner scans and sorts a handful of rows despite any index; a long history must not be scanned.
      const text = await db.transaction(async (tx) => {
        for (const kind of ['seqscan', 'bitmapscan']) await tx.query(`set local enable_${kind} = off`);
        const plan = await tx.query<Record<string, string>>(`explain ${ENDED_PAGE_SQL}`, ['-infinity', '', 2_000]);
        return plan.rows.map((row) => Object.values(row).join()).join('\n');
      });
      expect(text).toContain('tasks_by_end');
      // An incremental sort covers only the rows of one moment.
      expect(text.replaceAll('Incremental Sort', '')).not.toContain('Sort  ');
    }
  } finally {
    await opened.stop();
  }
});
