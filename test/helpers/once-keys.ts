// A story of one Idempotency-Key: two callers at two replicas call until they are answered, while statements meet
// faults. The key has one task, which a container gets once.
import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import type { TaskId } from '#shared/domain/ids.ts';
import { taskRows } from '#scheduler/compose/records.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import type { Submission } from '#scheduler/tasks/admission/calls.ts';
import { IdempotencyKeys } from '#scheduler/tasks/admission/idempotency-keys.ts';
import { aProcess, PlayedLink, quiet } from '../integration/tasks-fixture.ts';
import type { Process } from '../integration/tasks-fixture.ts';
import { rowsOf } from '../integration/tasks-world.ts';
import { DoubtfulDb } from './doubtful-db.ts';
import type { Doubt } from './doubtful-db.ts';
import { waitFor } from './programs.ts';
import type { PrivateRedis } from './redis.ts';

/** Statements of two callers until both are answered, and one more. */
export const KEY_STATEMENTS = 6;
const LOOK_MS = 20;

/** Notes for which tasks it claims keys. */
class NotedKeys extends IdempotencyKeys {
  readonly claimed: TaskId[] = [];

  override insert(key: Parameters<IdempotencyKeys['insert']>[0]): Promise<boolean> {
    this.claimed.push(key.taskId);
    return super.insert(key);
  }

  override move(...[held, next]: Parameters<IdempotencyKeys['move']>): Promise<boolean> {
    this.claimed.push(next.taskId);
    return super.move(held, next);
  }
}

interface Caller {
  readonly process: Process;
  readonly keys: NotedKeys;
  readonly link: PlayedLink;
}

export interface KeyStory {
  readonly redis: PrivateRedis;
  readonly db: Db;
  readonly target: Target;
  /** The fault of the next statement. */
  readonly next: () => Doubt | undefined;
}

/** @returns the number of faults that were met */
export async function playKeyStory({ redis, db: real, target, next }: KeyStory): Promise<number> {
  const db = new DoubtfulDb(real, next);
  const caller = async (): Promise<Caller> => {
    const keys = new NotedKeys({ db, log: quiet });
    const process = await aProcess(redis, { ...taskRows(db), rows: rowsOf(real), more: { idempotencyKeys: keys } });
    const link = new PlayedLink();
    link.onRun = (order) => void process.result(order, '"done"').catch(() => undefined);
    process.container(target.queue, link);
    return { process, keys, link };
  };
  const callers = [await caller(), await caller()];
  const { records } = (callers[0] as Caller).process;
  try {
    const ids = new Set(await Promise.all(callers.map((one) => untilAnswered(real, one, target))));
    // Statements that nobody waits for any more come behind all others.
    await db.letGo();
    ids.add(await untilAnswered(real, callers[0] as Caller, target));
    assert.equal(ids.size, 1, `the key has ${ids.size} tasks`);
    const [taskId] = ids;
    const openRows = async () => {
      for (const { process } of callers) await process.records.flush();
      const { rows } = await real.query('select id from tasks where stub_id = $1 and rank < 3', [target.stubId]);
      return rows.length;
    };
    await waitFor(async () => (await openRows()) === 0, 'every task is over');
    const orders = callers.flatMap(({ link }) => link.orders.map((order) => order.taskId));
    assert.deepEqual(orders, [taskId], 'a container got another task, or the task twice');
    const { rows } = await real.query(
      `select id, status, attempt from tasks where stub_id = $1 and (status <> 'CANCELLED' or attempt > 0)`,
      [target.stubId],
    );
    assert.deepEqual(rows, [{ id: taskId, status: 'COMPLETE', attempt: 1 }]);
    assert.equal((await records.read(taskId as TaskId))?.status, 'COMPLETE');
    return db.met;
  } finally {
    for (const { process } of callers) await process.stop();
  }
}

/** Calls again until the call is accepted, as a client does. A claim whose call failed is made half a minute old. */
async function untilAnswered(real: Db, { process, keys }: Caller, target: Target): Promise<TaskId> {
  for (;;) {
    const answered = accepted(process, target);
    const taskId = await answered;
    if (taskId !== undefined) return taskId;
    // Nothing of the failed call goes on that would queue a task under its claim.
    await real.query(
      `update idempotency_keys set claimed_at = now() - interval '31 s' where task_id = any ($1) and not is_accepted`,
      [keys.claimed],
    );
    await pause(LOOK_MS);
  }
}

async function accepted(process: Process, target: Target): Promise<TaskId | undefined> {
  const idempotency = { key: 'k-1', fingerprint: 'same', asksNewest: true, callerScope: '', isOwn: true };
  let submission: Submission;
  try {
    submission = await process.submissions.submit(target, { input: '{"x":1}', idempotency });
  } catch {
    return undefined;
  }
  if (submission.kind !== 'accepted') return undefined;
  if (target.sync) await submission.finished;
  return submission.taskId;
}
