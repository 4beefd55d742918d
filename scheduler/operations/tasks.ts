import { timestampOf } from '#shared/api/fields.ts';
import { ListTasksRequest, ListTasksResponse } from '#shared/api/tasks.ts';
import { isUuid } from '#shared/domain/ids.ts';
import type { Caller } from '../identity/caller.ts';
import type { TaskFilter, TaskService } from '../tasks/task-service.ts';
import { filterValues, limitOf, spellings } from './list-rules.ts';
import type { Directory } from '../deployments/directory.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

export function listTasks(tasks: Pick<TaskService, 'list'>, directory: Directory): Operation {
  return operation({
    name: 'ListTasks',
    http: 'GET /tasks',
    scope: 'any',
    containers: true,
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
  // A container's credential sees its own stub's tasks, whatever else it asks for.
  const stubIds =
    caller.container === undefined ? filterValues(filters, spellings('stub', 'id')) : [caller.container.stubId];
  const stubNames = filterValues(filters, spellings('stub', 'name'));
  // Ids that are none are dropped; when none is left there is no such filter.
  const taskIds = filterValues(filters, ['id', 'ids', ...spellings('task', 'id')])?.filter(isUuid);
  const containerIds = filterValues(filters, spellings('container', 'id'));
  return {
    limit: limitOf(request.limit),
    ...(statuses === undefined ? {} : { statuses }),
    ...(stubIds === undefined ? {} : { stubIds }),
    ...(stubNames === undefined ? {} : { stubNames }),
    ...(taskIds === undefined || taskIds.length === 0 ? {} : { taskIds: taskIds.map((id) => id.toLowerCase()) }),
    ...(containerIds === undefined ? {} : { containerIds }),
  };
}
