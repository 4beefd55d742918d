import { timestampOf } from '#shared/api/fields.ts';
import { LogPage, LogQuery } from '#shared/api/rest/logs.ts';
import type { LogRecord } from '#shared/api/rest/logs.ts';
import { AppError } from '#shared/errors.ts';
import { isOutside, ownApp } from '../../../workspaces/identity/confinement.ts';
import { isUuid } from '#shared/domain/ids.ts';
import type { DeploymentId, MachineId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { LogFilter, LogLine, LogReads } from '../../../fleet/logs/log-service.ts';
import { ownedLines } from '../../../fleet/logs/live-logs.ts';
import type { LogOwner, LogOwners } from '../../../fleet/logs/live-logs.ts';
import type { TaskReads } from '../../../tasks/records/reads.ts';
import type { Directory } from '../../../workspaces/deployments/directory.ts';
import { restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 1_000;
/** Most lines that pages pass over; `before_seq` goes further. */
const MAX_SKIPPED = 10_000;
const OBJECT_TYPES = ['workspace', 'deployment', 'task', 'stub', 'container', 'app', 'machine'] as const;
type ObjectType = (typeof OBJECT_TYPES)[number];

export interface LogObjectParts {
  readonly directory: Pick<Directory, 'stub' | 'app' | 'hasDeployment' | 'hasMachine'>;
  readonly tasks: Pick<TaskReads, 'read'>;
}

export interface LogRecordParts {
  readonly directory: LogOwners;
}

export interface LogRouteParts {
  readonly logs: LogReads;
  readonly directory: LogObjectParts['directory'] & LogRecordParts['directory'];
  readonly tasks: LogObjectParts['tasks'];
}

/** Log lines, newest page first, oldest line first inside it; with `after_seq` pages go forward instead. */
export function readLogs(parts: LogRouteParts): RestRoute {
  return restRoute({
    http: 'GET /logs/{ws}',
    summary: 'Log lines',
    grants: { scopes: ['read'], confinesToApp: true },
    query: LogQuery,
    answer: LogPage,
    errors: OBJECT_ERRORS,
    handle: async ({ caller, workspaceId, query }) => {
      const { objectType, objectId, about } = aboutOf(query, workspaceId);
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
      const shown = { object_id: objectId, object_type: objectType };
      if (about.appId !== undefined && isOutside(caller, about.appId)) return { ...shown, logs: [], total_expected: 0 };
      await checkLogObjects(parts, about, { workspaceId, isAdmin: caller.isAdmin });
      const filter = {
        ...about,
        ...ownApp(caller),
        ...textFilter(query),
        ...timeFilter(query),
        limit,
        page,
      };
      const { lines, isFull, nextSeq } = await parts.logs.read(workspaceId, filter);
      const more = isFull && nextSeq !== undefined;
      const isForward = filter.afterSeq !== undefined;
      return {
        ...shown,
        logs: await logRecords(parts, workspaceId, lines),
        // Lower bound of the total: one more than the lines so far while more remain.
        total_expected: page * limit + lines.length + (nextSeq === undefined ? 0 : 1),
        ...(more && !isForward && (page + 1) * limit <= MAX_SKIPPED ? { next_cursor: String(page + 1) } : {}),
        ...(nextSeq === undefined || isForward ? {} : { next_before_seq: nextSeq }),
        ...(nextSeq === undefined || !isForward ? {} : { next_after_seq: nextSeq }),
      };
    },
  });
}

/**
 * Objects that a query names.
 * @throws AppError `invalid_query`; `not_found`: the object is another workspace, or an id without its type
 */
export function aboutOf(
  query: Pick<LogQuery, AboutKey>,
  workspaceId: WorkspaceId,
): { readonly objectType: ObjectType; readonly objectId: string; readonly about: Named } {
  const objectType = objectTypeOf(query.object_type);
  const named = namedIds(query);
  if (objectType === 'workspace' && (query.object_id ?? workspaceId) !== workspaceId)
    throw new AppError('not_found', 'workspace not found');
  const objectId = query.object_id ?? firstNamed(named) ?? workspaceId;
  return { objectType, objectId, about: { ...named, ...byObject(objectType, objectId) } };
}

type AboutKey =
  | 'object_type'
  | 'object_id'
  | 'container_id'
  | 'task_id'
  | 'stub_id'
  | 'deployment_id'
  | 'app_id'
  | 'machine_id'
  | 'worker_id';

/** Refusals of a query about objects that the workspace lacks. */
export const OBJECT_ERRORS: readonly string[] = [
  'not_found',
  'task_not_found',
  'deployment_not_found',
  'machine_not_found',
];

type Named = Pick<LogFilter, 'containerId' | 'taskId' | 'stubId' | 'deploymentId' | 'appId' | 'machineId'>;

function namedIds(query: Pick<LogQuery, AboutKey>): Named {
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
  const name = text.toLowerCase().replace(/^beta9_/, '');
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

/**
 * Refuses a query about an object that the workspace has not. A container is not looked up: its lines outlive its row.
 * @throws AppError `not_found`, `task_not_found`, `deployment_not_found`, `machine_not_found`
 */
export async function checkLogObjects(
  { directory, tasks }: LogObjectParts,
  about: Named,
  reader: { readonly workspaceId: WorkspaceId; readonly isAdmin: boolean },
): Promise<void> {
  const { workspaceId } = reader;
  // Ids of machines are short.
  const isThere = async (id: string | undefined, found: (id: string) => Promise<boolean>): Promise<boolean> =>
    id === undefined || ((id === about.machineId || isUuid(id)) && (await found(id.toLowerCase())));
  const checks: readonly (readonly [string | undefined, string, string, (id: string) => Promise<boolean>])[] = [
    [about.taskId, 'task_not_found', 'task', async (id) => (await tasks.read(workspaceId, id)) !== undefined],
    [
      about.stubId,
      'not_found',
      'stub',
      async (id) => (await directory.stub(id as StubId))?.workspaceId === workspaceId,
    ],
    [
      about.deploymentId,
      'deployment_not_found',
      'deployment',
      (id) => directory.hasDeployment(workspaceId, id as DeploymentId),
    ],
    [about.appId, 'not_found', 'app', async (id) => (await directory.app(workspaceId, id)) !== undefined],
    [about.machineId, 'machine_not_found', 'machine', (id) => directory.hasMachine(reader, id as MachineId)],
  ];
  const answers = await Promise.all(checks.map(([id, , , found]) => isThere(id, found)));
  const missing = checks[answers.indexOf(false)];
  if (missing !== undefined) throw new AppError(missing[1], `${missing[2]} not found`);
}

/** Lines as records. */
export const logRecords = async (
  { directory }: LogRecordParts,
  workspaceId: WorkspaceId,
  lines: readonly LogLine[],
): Promise<LogRecord[]> => (await ownedLines(directory, workspaceId, lines)).map(logRecord);

export const logRecord = (line: LogLine & LogOwner & { readonly workspaceId: WorkspaceId }): LogRecord => ({
  seq_num: line.seq,
  stored_at_ns: line.atMs * 1_000_000,
  timestamp: timestampOf(line.atMs),
  message: line.line,
  stream: line.stream,
  container_id: line.containerId,
  stub_id: line.stubId,
  ...(line.stubType === undefined ? {} : { stub_type: line.stubType }),
  ...(line.appId === undefined ? {} : { app_id: line.appId }),
  ...(line.deploymentId === null ? {} : { deployment_id: line.deploymentId }),
  ...(line.taskId === null ? {} : { task_id: line.taskId }),
  ...(line.machineId === undefined ? {} : { machine_id: line.machineId, worker_id: line.machineId }),
  workspace_id: line.workspaceId,
});
