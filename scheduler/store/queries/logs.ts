import type { ContainerId, DeploymentId, StubId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { many, msOf, storableText } from '../rows.ts';

export interface NewLogLine {
  readonly workspaceId: WorkspaceId;
  readonly stubId: StubId;
  readonly deploymentId: DeploymentId | null;
  readonly containerId: ContainerId;
  readonly taskId: TaskId | null;
  readonly stream: 'stdout' | 'stderr';
  readonly line: string;
  readonly atMs: number;
}

export interface LogLineRow extends NewLogLine {
  /** Grows in the order of arrival. */
  readonly id: number;
}

interface Raw {
  id: number;
  workspace_id: string;
  stub_id: string;
  deployment_id: string | null;
  container_id: string;
  task_id: string | null;
  stream: string;
  line: string;
  at: Date;
}
const COLUMNS = 'id, workspace_id, stub_id, deployment_id, container_id, task_id, stream, line, at';
const map = (row: Raw): LogLineRow => ({
  id: row.id,
  workspaceId: row.workspace_id as WorkspaceId,
  stubId: row.stub_id as StubId,
  deploymentId: row.deployment_id as DeploymentId | null,
  containerId: row.container_id as ContainerId,
  taskId: row.task_id as TaskId | null,
  stream: row.stream === 'stderr' ? 'stderr' : 'stdout',
  line: row.line,
  atMs: msOf(row.at),
});

/** Rows of one statement. */
export const MAX_LOG_BATCH = 1_000;

/** Appends up to 1 000 lines in the order given. */
export async function insertLogLines(db: Queryable, lines: readonly NewLogLine[]): Promise<void> {
  if (lines.length === 0) return;
  if (lines.length > MAX_LOG_BATCH) throw new RangeError(`at most ${MAX_LOG_BATCH} log lines at a time`);
  const records = lines.map((line, index) => ({
    n: index,
    workspace_id: line.workspaceId,
    stub_id: line.stubId,
    deployment_id: line.deploymentId,
    container_id: line.containerId,
    task_id: line.taskId,
    stream: line.stream,
    line: storableText(line.line),
    at_s: line.atMs / 1000,
  }));
  await db.query(
    `insert into log_lines (workspace_id, stub_id, deployment_id, container_id, task_id, stream, line, at)
     select r.workspace_id, r.stub_id, r.deployment_id, r.container_id, r.task_id, r.stream, r.line, to_timestamp(r.at_s)
     from json_to_recordset($1::json) as r (n integer, workspace_id text, stub_id text, deployment_id text, container_id text,
       task_id text, stream text, line text, at_s double precision) order by r.n`,
    [JSON.stringify(records)],
  );
}

/**
 * Lines of a container, task, deployment, stub, app or machine, oldest first: the last `limit` ones, or with `afterId` the first `limit` that came after it.
 */
export async function readLogLines(
  db: Queryable,
  filter: {
    readonly workspaceId: WorkspaceId;
    readonly containerId?: string;
    readonly taskId?: string;
    readonly deploymentId?: string;
    readonly stubId?: string;
    readonly appId?: string;
    /** Where its container was last. */
    readonly machineId?: string;
    /** Case-insensitive part of the line. */
    readonly contains?: string;
    readonly afterId?: number;
    readonly fromMs?: number;
    /** Exclusive. */
    readonly toMs?: number;
    readonly limit: number;
    /** Newer lines to pass over (pages). */
    readonly skip?: number;
  },
): Promise<LogLineRow[]> {
  // Only the conditions that are given: the planner then picks the one index that serves them.
  const params: unknown[] = [filter.workspaceId];
  const where = ['workspace_id = $1'];
  const add = (condition: string, value: unknown, end = ''): void => {
    if (value === undefined) return;
    params.push(value);
    where.push(`${condition} $${params.length}${end}`);
  };
  add('container_id =', filter.containerId);
  add('task_id =', filter.taskId);
  add('deployment_id =', filter.deploymentId);
  add('stub_id =', filter.stubId);
  add('stub_id in (select s.id from stubs s where s.workspace_id = $1 and s.app_id =', filter.appId, ')');
  const onMachine = 'container_id in (select c.id from containers c where c.workspace_id = $1 and c.machine_id =';
  add(onMachine, filter.machineId, ')');
  add('id >', filter.afterId);
  add('at >=', filter.fromMs === undefined ? undefined : new Date(filter.fromMs));
  add('at <', filter.toMs === undefined ? undefined : new Date(filter.toMs));
  if (filter.contains !== undefined && filter.contains !== '') {
    params.push(filter.contains);
    where.push(`strpos(lower(line), lower($${params.length}::text)) > 0`);
  }
  params.push(filter.limit, filter.skip ?? 0);
  const lines = await many(
    db,
    `select ${COLUMNS} from log_lines where ${where.join(' and ')}
     order by id ${filter.afterId === undefined ? 'desc' : 'asc'} limit $${params.length - 1} offset $${params.length}`,
    params,
    map,
  );
  return filter.afterId === undefined ? lines.reverse() : lines;
}
