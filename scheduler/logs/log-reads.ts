import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../store/db.ts';
import { readLogLines } from '../store/queries/logs.ts';
import type { LogFilter, LogLine, LogReads } from './log-service.ts';

/** Reads what was kept of people's output. */
export class LogReader implements LogReads {
  readonly #db: Queryable;

  constructor(db: Queryable) {
    this.#db = db;
  }

  async read(workspaceId: WorkspaceId, filter: LogFilter): Promise<readonly LogLine[]> {
    const rows = await readLogLines(this.#db, {
      workspaceId,
      limit: filter.limit,
      skip: filter.page * filter.limit,
      ...(filter.containerId === undefined ? {} : { containerId: filter.containerId }),
      ...(filter.taskId === undefined ? {} : { taskId: filter.taskId }),
      ...(filter.stubId === undefined ? {} : { stubId: filter.stubId }),
      ...(filter.deploymentId === undefined ? {} : { deploymentId: filter.deploymentId }),
      ...(filter.appId === undefined ? {} : { appId: filter.appId }),
      ...(filter.machineId === undefined ? {} : { machineId: filter.machineId }),
      ...(filter.query === undefined ? {} : { contains: filter.query }),
      ...(filter.fromMs === undefined ? {} : { fromMs: filter.fromMs }),
      ...(filter.toMs === undefined ? {} : { toMs: filter.toMs }),
      ...(filter.afterSeq === undefined ? {} : { afterId: filter.afterSeq }),
    });
    return rows.map((row) => ({
      seq: row.id,
      atMs: row.atMs,
      stream: row.stream,
      line: row.line,
      containerId: row.containerId,
      stubId: row.stubId,
      deploymentId: row.deploymentId,
      taskId: row.taskId,
    }));
  }
}
