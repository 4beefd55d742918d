import { timestampOf } from '#shared/api/fields.ts';
import { LogPage, LogQuery } from '#shared/api/rest/logs.ts';
import type { LogRecord } from '#shared/api/rest/logs.ts';
import { AppError } from '#shared/errors.ts';
import { isOutside, ownApp } from '../../../workspaces/identity/confinement.ts';
import type { LogFilter, LogLine, LogReads } from '../../../fleet/logs/log-service.ts';
import { restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 1_000;
/** Most lines that pages pass over; `before_seq` goes further. */
const MAX_SKIPPED = 10_000;
const OBJECT_TYPES = ['workspace', 'deployment', 'task', 'stub', 'container', 'app', 'machine'] as const;
type ObjectType = (typeof OBJECT_TYPES)[number];

/** Log lines, newest page first, oldest line first inside it; with `after_seq` pages go forward instead. */
export function readLogs(logs: LogReads): RestRoute {
  return restRoute({
    http: 'GET /logs/{ws}',
    summary: 'Log lines',
    grants: { scopes: ['read'], confinesToApp: true },
    query: LogQuery,
    answer: LogPage,
    handle: async ({ caller, workspaceId, query }) => {
      const objectType = objectTypeOf(query.object_type);
      const named = namedIds(query);
      const objectId = query.object_id ?? firstNamed(named) ?? workspaceId;
      const limit = Math.min(query.limit || query.size || DEFAULT_LIMIT, MAX_LIMIT);
      const page = query.page ?? 0;
      if (page * limit > MAX_SKIPPED) {
        throw new AppError(
          'invalid_query',
          `query parameter page goes back ${MAX_SKIPPED} lines: use before_seq instead`,
        );
      }
      if (query.before_seq !== undefined && query.after_seq !== undefined) {
        throw new AppError('invalid_query', 'query parameters before_seq and after_seq exclude each other');
      }
      const asked = { ...named, ...byObject(objectType, objectId) };
      const shown = { object_id: objectId, object_type: objectType };
      if (asked.appId !== undefined && isOutside(caller, asked.appId)) return { ...shown, logs: [], total_expected: 0 };
      const filter = {
        ...asked,
        ...ownApp(caller),
        ...textFilter(query),
        ...timeFilter(query),
        limit,
        page,
      };
      const { lines, isFull, nextSeq } = await logs.read(workspaceId, filter);
      const more = isFull && nextSeq !== undefined;
      const isForward = filter.afterSeq !== undefined;
      return {
        ...shown,
        logs: lines.map((line) => logRecord(workspaceId, line)),
        // Lower bound of the total: one more than the lines so far while more remain.
        total_expected: page * limit + lines.length + (nextSeq === undefined ? 0 : 1),
        ...(more && !isForward && (page + 1) * limit <= MAX_SKIPPED ? { next_cursor: String(page + 1) } : {}),
        ...(nextSeq === undefined || isForward ? {} : { next_before_seq: nextSeq }),
        ...(nextSeq === undefined || !isForward ? {} : { next_after_seq: nextSeq }),
      };
    },
  });
}

type Named = Pick<LogFilter, 'containerId' | 'taskId' | 'stubId' | 'deploymentId' | 'appId' | 'machineId'>;

function namedIds(query: LogQuery): Named {
  const { container_id: containerId, task_id: taskId, stub_id: stubId } = query;
  const { deployment_id: deploymentId, app_id: appId } = query;
  // The id of a machine's only worker is the machine's id.
  const machineId = query.machine_id ?? query.worker_id;
  return {
    ...(containerId === undefined ? {} : { containerId }),
    ...(taskId === undefined ? {} : { taskId }),
    ...(stubId === undefined ? {} : { stubId }),
    ...(deploymentId === undefined ? {} : { deploymentId }),
    ...(appId === undefined ? {} : { appId }),
    ...(machineId === undefined ? {} : { machineId }),
  };
}

const firstNamed = (named: Named): string | undefined =>
  named.containerId ?? named.taskId ?? named.stubId ?? named.deploymentId ?? named.appId ?? named.machineId;

function textFilter(query: LogQuery): Pick<LogFilter, 'query' | 'afterSeq' | 'beforeSeq'> {
  const { query: text, after_seq: afterSeq, before_seq: beforeSeq } = query;
  return {
    ...(text === undefined ? {} : { query: text }),
    ...(afterSeq === undefined ? {} : { afterSeq }),
    ...(beforeSeq === undefined ? {} : { beforeSeq }),
  };
}

/** Range of time: from `start_time` on, before `end_time`. */
function timeFilter({ start_time: fromMs, end_time: toMs }: LogQuery): Pick<LogFilter, 'fromMs' | 'toMs'> {
  if (fromMs !== undefined && toMs !== undefined && toMs <= fromMs) {
    throw new AppError('invalid_query', 'query parameter end_time must be after start_time');
  }
  return { ...(fromMs === undefined ? {} : { fromMs }), ...(toMs === undefined ? {} : { toMs }) };
}

/** Type of the object, with or without the prefix that clients send. */
function objectTypeOf(text: string | undefined): ObjectType {
  if (text === undefined) return 'workspace';
  const name = text.replace(/^BETA9_/, '').toLowerCase();
  const known = OBJECT_TYPES.find((type) => type === name);
  if (known === undefined) {
    throw new AppError('invalid_query', `query parameter object_type must be one of ${OBJECT_TYPES.join(', ')}`);
  }
  return known;
}

function byObject(type: ObjectType, id: string): Named {
  switch (type) {
    case 'deployment':
      return { deploymentId: id };
    case 'task':
      return { taskId: id };
    case 'stub':
      return { stubId: id };
    case 'container':
      return { containerId: id };
    case 'workspace':
      return {};
    case 'app':
      return { appId: id };
    case 'machine':
      return { machineId: id };
  }
}

const logRecord = (workspaceId: string, line: LogLine): LogRecord => ({
  seq_num: line.seq,
  stored_at_ns: line.atMs * 1_000_000,
  timestamp: timestampOf(line.atMs),
  message: line.line,
  stream: line.stream,
  container_id: line.containerId,
  stub_id: line.stubId,
  ...(line.deploymentId === null ? {} : { deployment_id: line.deploymentId }),
  ...(line.taskId === null ? {} : { task_id: line.taskId }),
  workspace_id: workspaceId,
});
