// Dead tasks: asynchronous ones that failed for good and whose inputs are kept. `task_inputs.dead_until` marks them.
// The mark goes when the task is dropped or redriven, and with the input.
import type { TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { many } from '../rows.ts';
import { DEAD } from './task-inputs.ts';
import type { AcceptedTask } from './tasks.ts';
import { acceptedTasksInsert } from './tasks.ts';

/** The tasks among these that are dead, of a workspace. */
export async function deadAmong(
  db: Queryable,
  workspaceId: WorkspaceId,
  taskIds: readonly TaskId[],
): Promise<ReadonlySet<TaskId>> {
  const { rows } = await db.query<{ id: string }>(
    `select t.id from task_inputs i join tasks t on t.id = i.task_id
     where i.task_id = any ($1::text[]) and i.workspace_id = $2 and ${DEAD}`,
    [taskIds, workspaceId],
  );
  return new Set(rows.map(({ id }) => id as TaskId));
}

/** The tasks that stand for these dead ones, by the dead one. */
export async function redrivenAs(db: Queryable, taskIds: readonly TaskId[]): Promise<ReadonlyMap<TaskId, TaskId>> {
  const { rows } = await db.query<{ id: string; redriven_from: string }>(
    'select id, redriven_from from tasks where redriven_from = any ($1::text[])',
    [taskIds],
  );
  return new Map(rows.map((row) => [row.redriven_from as TaskId, row.id as TaskId]));
}

/** Takes tasks off the dead ones. Their inputs stay as long as others. @returns those that were dead */
export async function dropDead(
  db: Queryable,
  workspaceId: WorkspaceId,
  taskIds: readonly TaskId[],
): Promise<readonly TaskId[]> {
  const { rows } = await db.query<{ task_id: string }>(
    `update task_inputs i set dead_until = null from tasks t
     where t.id = i.task_id and i.task_id = any ($1::text[]) and i.workspace_id = $2 and ${DEAD} returning i.task_id`,
    [taskIds, workspaceId],
  );
  return rows.map((row) => row.task_id as TaskId);
}

/**
 * Commits tasks that stand for dead ones, which are dead no more, in one statement. No two of them stand for the same.
 * Rows are locked in the order of their ids, because other processes redrive, too.
 * @returns the tasks that were written; the others' are not dead, or were redriven before
 */
export async function insertRedriven(db: Queryable, tasks: readonly AcceptedTask[]): Promise<ReadonlySet<TaskId>> {
  if (tasks.length === 0) return new Set();
  const insert = acceptedTasksInsert(tasks);
  const dead = tasks.map(({ record }) => record.redrivenFrom ?? '');
  const { rows } = await db.query<{ id: string }>(
    `with claimed as materialized (
         select i.task_id from task_inputs i join tasks t on t.id = i.task_id
         where i.task_id = any ($${insert.params.length + 1}::text[]) and ${DEAD} order by i.task_id for update of i),
       alive as (update task_inputs set dead_until = null where task_id in (select task_id from claimed))
     ${insert.sql('where r.redriven_from in (select task_id from claimed)')} returning id`,
    [...insert.params, dead],
  );
  return new Set(rows.map(({ id }) => id as TaskId));
}

/** Number of dead tasks of a kind. */
export interface DeadCount {
  readonly kind: string;
  readonly count: number;
}

/** Most rows that are counted at once. */
const MOST_ROWS = 500_000;

/** Number of dead tasks, by kind. */
export function countDead(db: Queryable): Promise<DeadCount[]> {
  return many(
    db,
    `select t.kind, count(*)::int as count
     from (select task_id, dead_until from task_inputs where dead_until > now() limit $1) i
       join tasks t on t.id = i.task_id where ${DEAD} group by t.kind`,
    [MOST_ROWS],
    (row: DeadCount) => row,
  );
}
