// The open task of a key of flow control (docs/flow.md). A claim is written before its task's row.
import type { QueueName, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';

/** Seconds for which a claim without a task's row counts: the row is being committed. */
const CLAIM_SECONDS = 10;

export interface SinglePlace {
  readonly queue: QueueName;
  readonly key: string;
  readonly workspaceId: WorkspaceId;
}

/**
 * Claims the key for a task: where nobody has it, its task has ended or was never written, or that task is to be
 * replaced.
 * @returns the task that has the key now; undefined: another claim is being written
 */
export async function claimSingle(
  db: Queryable,
  { queue, key, workspaceId }: SinglePlace,
  taskId: TaskId,
  replaced: TaskId | undefined,
): Promise<TaskId | undefined> {
  const { rows } = await db.query<{ task_id: string }>(
    `with mine as (
       insert into task_singles as s (queue, key, workspace_id, task_id) values ($1, $2, $3, $4)
       on conflict (queue, key) do update set task_id = excluded.task_id, claimed_at = now()
         where s.task_id = $5 or exists (select 1 from tasks t where t.id = s.task_id and t.rank >= 3)
           or (s.claimed_at < now() - make_interval(secs => ${CLAIM_SECONDS})
             and not exists (select 1 from tasks t where t.id = s.task_id))
       returning task_id)
     select task_id from mine
     union all select task_id from task_singles where queue = $1 and key = $2 and not exists (select 1 from mine)`,
    [queue, key, workspaceId, taskId, replaced ?? null],
  );
  return rows[0]?.task_id as TaskId | undefined;
}

/** Gives the key of a task up that is not accepted. */
export async function releaseSingle(db: Queryable, { queue, key }: SinglePlace, taskId: TaskId): Promise<void> {
  await db.query('delete from task_singles where queue = $1 and key = $2 and task_id = $3', [queue, key, taskId]);
}

/** Deletes up to `limit` claims of that age whose tasks are not open. @returns their number */
export async function pruneSingles(db: Queryable, beforeSeconds: number, limit: number): Promise<number> {
  const { rows } = await db.query<{ key: string }>(
    `delete from task_singles where (queue, key) in (
       select s.queue, s.key from task_singles s where s.claimed_at < now() - make_interval(secs => $1)
         and not exists (select 1 from tasks t where t.id = s.task_id and t.rank < 3) order by s.claimed_at limit $2)
     returning key`,
    [beforeSeconds, limit],
  );
  return rows.length;
}

/**
 * Gives a task that was not begun another input.
 * @returns false: it has begun, or is over
 */
export async function replaceInput(
  db: Queryable,
  { taskId, job, inputState, inputBytes }: ReplacedInput,
): Promise<boolean> {
  const { rows } = await db.query<{ id: string }>(
    `update tasks set job = $2, input_state = $3, input_bytes = $4
     where id = $1 and rank = 0 and attempt = 0 and job is not null returning id`,
    [taskId, job, inputState, inputBytes],
  );
  return rows.length === 1;
}

export interface ReplacedInput {
  readonly taskId: TaskId;
  /** The queue entry, encoded. */
  readonly job: string;
  readonly inputState: string;
  readonly inputBytes: number;
}
