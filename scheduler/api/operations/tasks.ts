import { Done, timestampOf } from '#shared/api/fields.ts';
import {
  EndTaskRequest,
  ListTasksRequest,
  ListTasksResponse,
  StartTaskRequest,
  StopTasksRequest,
  TaskVerbResponse,
} from '#shared/api/tasks.ts';
import { isUuid } from '#shared/domain/ids.ts';
import type { Caller } from '../../workspaces/identity/caller.ts';
import type { TaskActions } from '../../tasks/actions.ts';
import type { TaskFilter, TaskReads } from '../../tasks/records/reads.ts';
import { ownApp } from '../../workspaces/identity/confinement.ts';
import { filterValues, limitOf, spellings } from './list-rules.ts';
import type { Directory } from '../../workspaces/deployments/directory.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

export function listTasks(tasks: Pick<TaskReads, 'list'>, directory: Directory): Operation {
  return operation({
    name: 'ListTasks',
    http: 'GET /tasks',
    scope: 'any',
    containers: true,
    grants: { scopes: ['read'], confinesToApp: true },
    request: ListTasksRequest,
    response: ListTasksResponse,
    handle: async (caller, request) => {
      const records = await tasks.list(caller.workspaceId, filterOf(caller, request));
      const workspaceName = await directory.workspaceName(caller.workspaceId);
      const stubs = await directory.stubs(records.map((record) => record.stubId));
      const list = records.map((record) => ({
        id: record.taskId,
        status: record.status,
        containerId: record.containerId ?? '',
        startedAt: timestampOf(record.startedAtMs),
        endedAt: timestampOf(record.endedAtMs),
        stubId: record.stubId,
        stubName: stubs.get(record.stubId)?.name ?? '',
        workspaceId: record.workspaceId,
        workspaceName,
        rerunOf: record.rerunOf ?? '',
        createdAt: timestampOf(record.createdAtMs),
        updatedAt: timestampOf(record.endedAtMs ?? record.startedAtMs ?? record.createdAtMs),
      }));
      return { ok: true, errMsg: '', tasks: list, total: list.length };
    },
  });
}

function filterOf(caller: Caller, request: ListTasksRequest): TaskFilter {
  const { filters } = request;
  const statuses = filterValues(filters, ['status']);
  // A container's credential sees its own stub's tasks, with any filter.
  const stubIds =
    caller.container === undefined ? filterValues(filters, spellings('stub', 'id')) : [caller.container.stubId];
  const stubNames = filterValues(filters, spellings('stub', 'name'));
  // Invalid ids are dropped; when no id is left, there is no such filter.
  const taskIds = filterValues(filters, ['id', 'ids', ...spellings('task', 'id')])?.filter(isUuid);
  const containerIds = filterValues(filters, spellings('container', 'id'));
  const rerunOf = filterValues(filters, ['rerun-of', 'rerun_of'])?.map((id) => id.toLowerCase());
  return {
    limit: limitOf(request.limit),
    ...ownApp(caller),
    ...(statuses === undefined ? {} : { statuses }),
    ...(stubIds === undefined ? {} : { stubIds }),
    ...(stubNames === undefined ? {} : { stubNames }),
    ...(taskIds === undefined || taskIds.length === 0 ? {} : { taskIds: taskIds.map((id) => id.toLowerCase()) }),
    ...(containerIds === undefined ? {} : { containerIds }),
    ...(rerunOf === undefined ? {} : { rerunOf }),
  };
}

/** Claims a task and marks it started, for runners of others. */
export function startTask(tasks: Pick<TaskActions, 'startTask'>): Operation {
  return operation({
    name: 'StartTask',
    http: 'POST /tasks/start',
    scope: 'full',
    containers: true,
    request: StartTaskRequest,
    response: TaskVerbResponse,
    handle: async (caller, request) => {
      const taskId = request.taskId.toLowerCase();
      if (!isUuid(taskId)) return { ok: false };
      return { ok: (await tasks.startTask(caller, taskId, request.containerId)) === 'started' };
    },
  });
}

/** Ends the attempt with its result, for runners of others. */
export function endTask(tasks: Pick<TaskActions, 'endTask'>): Operation {
  return operation({
    name: 'EndTask',
    http: 'POST /tasks/end',
    scope: 'full',
    containers: true,
    request: EndTaskRequest,
    response: TaskVerbResponse,
    handle: async (caller, request) => {
      const taskId = request.taskId.toLowerCase();
      if (!isUuid(taskId)) return { ok: false };
      const outcome = await tasks.endTask(caller, {
        taskId,
        taskStatus: request.taskStatus,
        containerId: request.containerId,
        durationSeconds: Math.max(0, request.taskDuration),
        containerHostname: request.containerHostname,
        keepWarmSeconds: request.keepWarmSeconds,
        result: request.result,
      });
      return { ok: outcome !== 'refused' };
    },
  });
}

/** Tasks that a request ends at most. */
const MAX_STOPPED = 1_000;
const NOT_STOPPED = { unknown: 'Task not found', not_cancelled: 'failed to cancel task' } as const;

export function stopTasks(tasks: Pick<TaskActions, 'stopTasks'>): Operation {
  return operation({
    name: 'StopTasks',
    http: 'POST /tasks/stop',
    scope: 'any',
    grants: { confinesToApp: true },
    request: StopTasksRequest,
    response: Done,
    handle: async (caller, { taskIds }) => {
      if (taskIds.length > MAX_STOPPED)
        return { ok: false, errMsg: `taskIds must have at most ${MAX_STOPPED} entries` };
      // No task can have such an id; the stores would give the same answer, later.
      const bad = taskIds.find((id) => !isUuid(id));
      const known = bad === undefined ? taskIds : taskIds.slice(0, taskIds.indexOf(bad));
      const outcome = await tasks.stopTasks(
        caller,
        known.map((id) => id.toLowerCase()),
      );
      if (outcome.kind === 'refused') return { ok: false, errMsg: NOT_STOPPED[outcome.reason] };
      return bad === undefined ? { ok: true, errMsg: '' } : { ok: false, errMsg: NOT_STOPPED.unknown };
    },
  });
}
