import type { FastifyRequest } from 'fastify';
import {
  CancelQuery,
  CancelTasks,
  Cancelled,
  OneTaskQuery,
  RestTask,
  RestTaskList,
  TaskQuery,
  TaskSummaries,
  TaskSummaryQuery,
} from '#shared/api/rest/tasks.ts';
import { AppError } from '#shared/errors.ts';
import { isUuid } from '#shared/domain/ids.ts';
import type { QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import type { ContainerReads } from '../../../fleet/containers/container-view.ts';
import type { Directory } from '../../../workspaces/deployments/directory.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { isOutside, ownApp, seesOwnTasksOnly } from '../../../workspaces/identity/confinement.ts';
import type { TaskActions } from '../../../tasks/actions.ts';
import type { AddressedOutput } from '../../../tasks/outputs/service.ts';
import type { TaskRecord } from '../../../tasks/records/task-record.ts';
import { DEFERRED_CALLS_QUEUE } from '../../../domain/inference.ts';
import { wholeAddress } from '../../../stores/objects/signatures.ts';
import type { WorkspaceRow } from '../../../stores/store/queries/workspaces.ts';
import type { TaskFilter, TaskReads } from '../../../tasks/records/reads.ts';
import { longPage } from './long-pages.ts';
import { cursorOf, pageLimit, pageOf, pageOffset } from './paging.ts';
import type { OutputRouteParts } from './outputs.ts';
import type { TaskInputs } from '../../../tasks/inputs/inputs.ts';
import { inputBytesOf } from '../../../tasks/records/recording.ts';
import { taskRecord, taskSummary } from './records.ts';
import { restRoute } from './route.ts';
import type { RestRequest, RestRoute } from './route.ts';

export interface TaskRouteParts {
  readonly directory: Directory;
  readonly tasks: Pick<TaskReads, 'read' | 'resultText'>;
  readonly containers: Pick<ContainerReads, 'countOfStub'>;
  /** Whether a task's input can be had. */
  readonly taskInputs: Pick<TaskInputs, 'about'>;
  readonly outputs: OutputRouteParts['outputs'];
  readonly publicBaseOf: OutputRouteParts['publicBaseOf'];
  /** Number of tasks that wait in a queue now. */
  readonly queueDepth: (queue: QueueName) => Promise<number>;
}

/** Whether a deployment has a name. */
export interface NamedParts {
  readonly directory: Pick<Directory, 'hasDeploymentNamed'>;
}

export interface TaskListParts extends Omit<TaskRouteParts, 'tasks' | 'taskInputs'> {
  readonly tasks: Pick<TaskReads, 'list'>;
}

/** Characters of a result that a short answer has. */
const MOST_SHORT_RESULT = 16 * 1024;

/** Error code while Redis is away, which has the depths and results. */
export const QUEUES_AWAY = 'queues_unavailable';

/** Reads a task, from the moment its id is known. */
export function readTask(parts: TaskRouteParts): RestRoute {
  return restRoute({
    http: 'GET /task/{ws}/{taskId}',
    summary: 'One task, with its result',
    containers: true,
    grants: { scopes: ['invoke', 'read'], confinesToApp: true },
    query: OneTaskQuery,
    answer: RestTask,
    errors: ['task_not_found', QUEUES_AWAY],
    handle: async (request) =>
      await wholeTask(parts, await taskFor(parts, request), request.http, request.query.short === true),
  });
}

/** @throws AppError `task_not_found`: there is none, or the caller may not read it */
export async function taskFor(
  { tasks, directory }: Pick<TaskRouteParts, 'tasks' | 'directory'>,
  { caller, workspaceId, params }: Pick<RestRequest, 'caller' | 'workspaceId' | 'params'>,
): Promise<TaskRecord> {
  const taskId = params['taskId']?.toLowerCase() ?? '';
  const record = isUuid(taskId) ? await tasks.read(workspaceId, taskId) : undefined;
  const isHidden =
    record === undefined ||
    !mayRead(caller, record) ||
    (caller.confined?.appId !== undefined && isOutside(caller, (await directory.stub(record.stubId))?.appId));
  if (isHidden) throw new AppError('task_not_found', 'task not found');
  return record;
}

/**
 * The task with its result and outputs.
 * @param isShort - a long result is left out; one that is an object is not even read
 */
export async function wholeTask(
  parts: TaskRouteParts,
  record: TaskRecord,
  http: FastifyRequest,
  isShort = false,
): Promise<RestTask> {
  const { workspaceId } = record;
  const stub = await parts.directory.stub(record.stubId);
  const [apps, workspace, callers, deployment, queueDepth, resultText, outputs, input] = await Promise.all([
    parts.directory.appsOf(workspaceId, stub === undefined ? [] : [stub.appId]),
    parts.directory.workspace(workspaceId),
    callersOf(parts.directory, [record]),
    record.deploymentId === null ? undefined : parts.directory.deployment(record.deploymentId),
    isOfModel(record) ? 0 : parts.queueDepth(record.queue),
    record.result ?? (isShort && record.resultObjectId !== undefined ? undefined : parts.tasks.resultText(record)),
    record.startedAtMs === null ? [] : parts.outputs.ofTask(workspaceId, record.taskId),
    parts.taskInputs.about(record),
  ]);
  const base = parts.publicBaseOf(http);
  const isLong = record.resultObjectId !== undefined || (resultText?.length ?? 0) > MOST_SHORT_RESULT;
  return taskRecord(record, {
    stub,
    app: stub === undefined ? undefined : apps.get(stub.appId),
    workspace,
    caller: callerOf(record, callers),
    deployment,
    stats: isOfModel(record)
      ? null
      : { active_containers: parts.containers.countOfStub(record.stubId), queue_depth: queueDepth },
    resultText,
    isResultLeftOut: isShort && isLong,
    outputs: outputsAt(base, outputs),
    input:
      'why' in input
        ? { kept: false, bytes: record.inputBytes ?? null, why_not: input.why }
        : { kept: true, bytes: inputBytesOf(input.job), why_not: '' },
  });
}

/**
 * Whether the caller may read the task. A container reads its own
 * stub's tasks, and those that its stub's containers submitted.
 */
function mayRead(caller: Caller, record: TaskRecord): boolean {
  const { container } = caller;
  if (seesOwnTasksOnly(caller)) return caller.tokenId === record.putBy;
  return container === undefined || container.stubId === record.stubId || container.stubId === record.putBy;
}

/** Lists tasks in short: a page of a hundred takes as many bytes as two with their configurations. */
export function listTaskSummaries({ tasks, directory }: Pick<TaskListParts, 'tasks' | 'directory'>): RestRoute {
  return restRoute({
    http: 'GET /task-summary/{ws}',
    summary: 'Tasks in short, newest first',
    grants: { scopes: ['read'], confinesToApp: true },
    query: TaskSummaryQuery,
    answer: TaskSummaries,
    errors: ['deployment_not_found'],
    handle: async ({ caller, query, workspaceId }) => {
      const limit = pageLimit(query);
      const before = cursorOf(query);
      const filter = filterOf(query, caller);
      if (filter === undefined) return { data: [], next: '' };
      const records = await tasks.list(workspaceId, {
        ...filter,
        withErrors: true,
        limit: limit + 1,
        ...(before === undefined ? {} : { before: { createdAtMs: before.atMs, taskId: before.id } }),
      });
      if (records.length === 0) await mustBeNamed({ directory }, { caller, query, workspaceId });
      const { page, next } = pageOf(records, limit, (record) => ({ atMs: record.createdAtMs, id: record.taskId }));
      const deploymentIds = page.map((record) => record.deploymentId).filter((id) => id !== null);
      const [stubs, deployments] = await Promise.all([
        directory.stubs(page.map((record) => record.stubId)),
        directory.deployments(deploymentIds),
      ]);
      const data = page.map((record) =>
        taskSummary(
          record,
          stubs.get(record.stubId),
          record.deploymentId === null ? undefined : deployments.get(record.deploymentId),
        ),
      );
      return { data, next };
    },
  });
}

/** Lists tasks, newest first; without results, and with `skip_details` without counts. */
export function listTasks(parts: TaskListParts): RestRoute {
  return restRoute({
    http: 'GET /task/{ws}',
    summary: 'Tasks, newest first',
    grants: { scopes: ['read'], confinesToApp: true },
    query: TaskQuery,
    answer: RestTaskList,
    errors: ['deployment_not_found', QUEUES_AWAY],
    handle: async ({ caller, query, workspaceId, http }) => {
      const limit = pageLimit(query);
      const before = cursorOf(query);
      if (query.dead === true && (query.all === true || query.public === true))
        throw new AppError(
          'bad_request',
          'dead: only the own tasks of a workspace are listed, so without all and public',
        );
      const asked = filterOf(query, caller);
      if (asked === undefined) return { data: [], next: '' };
      const whose = query.all === true ? ('all' as const) : query.public === true ? ('public' as const) : undefined;
      const filter = {
        ...asked,
        ...(query.dead === true ? { dead: true } : {}),
        ...(whose === undefined ? {} : { whose }),
      };
      const records = await parts.tasks.list(workspaceId, {
        ...filter,
        limit: limit + 1,
        offset: pageOffset(query),
        ...(before === undefined ? {} : { before: { createdAtMs: before.atMs, taskId: before.id } }),
      });
      if (records.length === 0) await mustBeNamed(parts, { caller, query, workspaceId });
      const isDetailed = query.skip_details !== true;
      const own = records.slice(0, limit).filter((record) => record.workspaceId === workspaceId);
      const ids = own.map((record) => record.taskId);
      const saved = isDetailed ? await parts.outputs.ofTasks(workspaceId, ids) : undefined;
      // A page with more outputs than a list has ends before the task whose outputs are not all there.
      const cut = saved === undefined || saved.complete === ids.length ? undefined : ids[saved.complete];
      const most = cut === undefined ? limit : records.findIndex((record) => record.taskId === cut);
      const cursorAt = (record: TaskRecord) => ({
        atMs: (query.dead === true ? record.endedAtMs : null) ?? record.createdAtMs,
        id: record.taskId,
      });
      const { page, next } = pageOf(records, most, cursorAt);
      const shown = page.filter((record) => record.workspaceId === workspaceId);
      const deploymentIds = shown.map((record) => record.deploymentId).filter((id) => id !== null);
      const [workspace, callers, deployments, depths] = await Promise.all([
        parts.directory.workspace(workspaceId),
        callersOf(parts.directory, page),
        parts.directory.deployments(deploymentIds),
        isDetailed ? depthsOf(parts, shown) : undefined,
      ]);
      const base = parts.publicBaseOf(http);
      const show = async (some: readonly TaskRecord[]): Promise<RestTask[]> => {
        const stubs = await parts.directory.stubs(
          some.filter((record) => record.workspaceId === workspaceId).map((record) => record.stubId),
        );
        return some.map((record) => {
          const caller = callerOf(record, callers);
          if (record.workspaceId !== workspaceId) return foreignTask(record, caller);
          const depth = depths?.get(record.queue);
          return taskRecord(record, {
            caller,
            outputs: outputsAt(base, saved?.byTask.get(record.taskId) ?? []),
            stub: stubs.get(record.stubId),
            workspace,
            deployment: record.deploymentId === null ? undefined : deployments.get(record.deploymentId),
            stats:
              depth === undefined || isOfModel(record)
                ? null
                : { active_containers: parts.containers.countOfStub(record.stubId), queue_depth: depth },
            resultText: undefined,
          });
        });
      };
      return await longPage({ page, next, cursorAt, show, stubOf: ({ stub }) => stub });
    },
  });
}

const outputsAt = (base: string, outputs: readonly AddressedOutput[]) =>
  outputs.map(({ name, path, lifeSeconds }) => ({ name, url: wholeAddress(path, base), expires_in: lifeSeconds }));

/** Workspaces that called public deployments of others, by id. */
async function callersOf(
  directory: Pick<Directory, 'workspace'>,
  records: readonly TaskRecord[],
): Promise<ReadonlyMap<WorkspaceId, WorkspaceRow>> {
  const ids = new Set(records.map((record) => record.calledBy).filter((id) => id !== undefined));
  const rows = await Promise.all([...ids].map((id) => directory.workspace(id)));
  return new Map(rows.filter((row) => row !== undefined).map((row) => [row.id, row]));
}

/** A call of a model that is answered later: it has no stub, and its queue is that of all workspaces. */
const isOfModel = ({ queue }: TaskRecord): boolean => queue === DEFERRED_CALLS_QUEUE;

const callerOf = ({ calledBy }: TaskRecord, callers: ReadonlyMap<WorkspaceId, WorkspaceRow>) =>
  calledBy === undefined ? undefined : callers.get(calledBy);

/** A call of another workspace's deployment, as its caller sees it: nothing of the other's records. */
const foreignTask = (record: TaskRecord, caller: WorkspaceRow | undefined): RestTask =>
  taskRecord(
    { ...record, deploymentId: null, containerId: null },
    { stub: undefined, workspace: undefined, deployment: undefined, caller, stats: null, resultText: undefined },
  );

async function depthsOf(
  parts: Pick<TaskListParts, 'queueDepth'>,
  records: readonly TaskRecord[],
): Promise<ReadonlyMap<QueueName, number>> {
  const queues = [...new Set(records.filter((record) => !isOfModel(record)).map((record) => record.queue))];
  return new Map(await Promise.all(queues.map(async (queue) => [queue, await parts.queueDepth(queue)] as const)));
}

/**
 * Where a filter found nothing: says so if it has a name that no deployment has.
 * @throws AppError `deployment_not_found`
 */
export async function mustBeNamed(
  { directory }: NamedParts,
  {
    caller,
    workspaceId,
    query: { deployment_name: name },
  }: Pick<RestRequest<Pick<TaskSummaryQuery, 'deployment_name'>>, 'caller' | 'workspaceId' | 'query'>,
): Promise<void> {
  if (name === undefined || (await directory.hasDeploymentNamed(workspaceId, name, ownApp(caller).appId))) return;
  throw new AppError('deployment_not_found', `deployment_name: no deployment is called ${name}`);
}

/** @returns undefined: no task that the caller may see can match */
export function filterOf(
  query: Omit<TaskSummaryQuery, 'cursor'>,
  caller: Caller,
): Omit<TaskFilter, 'limit'> | undefined {
  if (query.app_id !== undefined && isOutside(caller, query.app_id)) return undefined;
  const statuses = query.status?.map((status) => status.toUpperCase());
  const taskIds = query.task_ids?.filter(isUuid);
  // Ids were given, and none of them is valid: the list is empty, not unfiltered.
  if (taskIds?.length === 0) return undefined;
  const { stub_ids: stubIds, stub_names: stubNames, stub_types: stubTypes, app_id: appId } = query;
  const { container_ids: containerIds, created_at_start: createdFromMs, created_at_end: createdToMs } = query;
  const { min_duration: minDurationMs, max_duration: maxDurationMs } = query;
  const { deployment_ids: deploymentIds, deployment_name: deploymentName, failure_reasons: failureReasons } = query;
  return {
    ...(statuses === undefined ? {} : { statuses }),
    ...(taskIds === undefined ? {} : { taskIds }),
    ...(stubIds === undefined ? {} : { stubIds }),
    ...(stubNames === undefined ? {} : { stubNames }),
    ...(stubTypes === undefined ? {} : { stubTypes }),
    ...(containerIds === undefined ? {} : { containerIds }),
    ...(deploymentIds === undefined ? {} : { deploymentIds }),
    ...(deploymentName === undefined ? {} : { deploymentName }),
    ...(failureReasons === undefined ? {} : { failureReasons }),
    ...(appId === undefined ? {} : { appId }),
    ...(createdFromMs === undefined ? {} : { createdFromMs }),
    ...(createdToMs === undefined ? {} : { createdToMs }),
    ...(minDurationMs === undefined ? {} : { minDurationMs }),
    ...(maxDurationMs === undefined ? {} : { maxDurationMs }),
    ...ownApp(caller),
  };
}

/** Tasks that a request cancels at most. */
const MAX_CANCELLED = 1_000;

/** Cancels tasks by the ids of the query or the body; unknown and ended ones are passed over. */
export function cancelTasks(actions: Pick<TaskActions, 'stopTasks'>): RestRoute {
  return restRoute({
    http: 'DELETE /task/{ws}',
    summary: 'Cancel tasks',
    grants: { confinesToApp: true },
    query: CancelQuery,
    body: CancelTasks,
    answer: Cancelled,
    errors: [QUEUES_AWAY],
    handle: async ({ caller, workspaceId, query, body }) => {
      const sent = [...(query.task_ids ?? []), ...body.ids, ...body.task_ids];
      if (sent.length === 0) throw new AppError('bad_request', 'task_ids (query) or ids (body) must name tasks');
      if (sent.length > MAX_CANCELLED) {
        throw new AppError('bad_request', `at most ${MAX_CANCELLED} tasks can be cancelled at a time`);
      }
      const ids = new Set(sent.filter(isUuid).map((id) => id.toLowerCase()));
      // Stopped separately: an unknown id must not keep the others from being stopped.
      for (const id of ids) await actions.stopTasks({ ...caller, workspaceId }, [id]);
      return {};
    },
  });
}
