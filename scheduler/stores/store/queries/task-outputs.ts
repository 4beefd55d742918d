// Files that tasks saved, each an object of the workspace.
import type { ObjectId, OutputId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Db, Queryable } from '../db.ts';
import { many, maybeOne, msOf, storableText } from '../rows.ts';
import { lockCounts } from './workspaces.ts';

export interface TaskOutputRow {
  readonly id: OutputId;
  readonly workspaceId: WorkspaceId;
  readonly taskId: TaskId;
  readonly objectId: ObjectId;
  readonly name: string;
  readonly createdAtMs: number;
}

interface Raw {
  id: OutputId;
  workspace_id: WorkspaceId;
  task_id: TaskId;
  object_id: ObjectId;
  name: string;
  created_at: Date;
}
const COLUMNS = 'id, workspace_id, task_id, object_id, name, created_at';
const map = (row: Raw): TaskOutputRow => ({
  id: row.id,
  workspaceId: row.workspace_id,
  taskId: row.task_id,
  objectId: row.object_id,
  name: row.name,
  createdAtMs: msOf(row.created_at),
});

/** Inserts an output. undefined: the task has `most` already. */
export function insertTaskOutput(
  db: Db,
  output: Omit<TaskOutputRow, 'createdAtMs'> & { readonly most: number },
): Promise<TaskOutputRow | undefined> {
  return db.transaction(async (tx) => {
    await lockCounts(tx, output.workspaceId);
    return await maybeOne(
      tx,
      `insert into task_outputs (id, workspace_id, task_id, object_id, name)
       select $1::text, $2::text, $3::text, $4::text, $5::text
       where (select count(*) from task_outputs where task_id = $3) < $6::int
       returning ${COLUMNS}`,
      [output.id, output.workspaceId, output.taskId, output.objectId, storableText(output.name), output.most],
      map,
    );
  });
}

/** Outputs of a task, oldest first. */
export function outputsOfTask(db: Queryable, workspaceId: WorkspaceId, taskId: TaskId): Promise<TaskOutputRow[]> {
  const sql = `select ${COLUMNS} from task_outputs where task_id = $1 and workspace_id = $2 order by created_at, id`;
  return many(db, sql, [taskId, workspaceId], map);
}

/** Outputs of several tasks, in the order of the tasks, each oldest first; no more than `most`. */
export function outputsOfTasks(
  db: Queryable,
  workspaceId: WorkspaceId,
  taskIds: readonly TaskId[],
  most: number,
): Promise<TaskOutputRow[]> {
  const sql = `select ${COLUMNS} from task_outputs where task_id = any ($1::text[]) and workspace_id = $2
    order by array_position($1::text[], task_id), created_at, id limit $3`;
  return many(db, sql, [taskIds, workspaceId, most], map);
}

export function taskOutputById(
  db: Queryable,
  workspaceId: WorkspaceId,
  id: string,
): Promise<TaskOutputRow | undefined> {
  const sql = `select ${COLUMNS} from task_outputs where id = $1 and workspace_id = $2`;
  return maybeOne(db, sql, [id, workspaceId], map);
}
