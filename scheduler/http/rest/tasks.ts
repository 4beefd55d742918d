import { AppError } from '#shared/errors.ts';
import { isUuid } from '#shared/domain/ids.ts';
import type { QueueName } from '#shared/domain/ids.ts';
import type { ContainerReads } from '../../containers/container-view.ts';
import type { Directory } from '../../deployments/directory.ts';
import type { TaskService } from '../../tasks/task-service.ts';
import { taskRecord } from './records.ts';
import type { RestRoute } from './rest.ts';

export interface TaskRouteParts {
  readonly directory: Directory;
  readonly tasks: Pick<TaskService, 'read' | 'resultText'>;
  readonly containers: Pick<ContainerReads, 'countOfStub'>;
  /** Tasks waiting in a queue now. */
  readonly queueDepth: (queue: QueueName) => Promise<number>;
}

/** One task, from the moment its id is known. */
export function readTask(parts: TaskRouteParts): RestRoute {
  const notFound = () => new AppError('task_not_found', 'task not found');
  return {
    http: 'GET /task/{ws}/{taskId}',
    containers: true,
    handle: async ({ caller, workspaceId, params }) => {
      const taskId = params['taskId']?.toLowerCase() ?? '';
      if (!isUuid(taskId)) throw notFound();
      const record = await parts.tasks.read(workspaceId, taskId);
      if (record === undefined) throw notFound();
      if (caller.container !== undefined && caller.container.stubId !== record.stubId) throw notFound();
      const [stub, workspace, deployment, queueDepth, resultText] = await Promise.all([
        parts.directory.stub(record.stubId),
        parts.directory.workspace(workspaceId),
        record.deploymentId === null ? undefined : parts.directory.deployment(record.deploymentId),
        parts.queueDepth(record.queue),
        record.result ?? parts.tasks.resultText(record),
      ]);
      return taskRecord(record, {
        stub,
        workspace,
        deployment,
        stats: { active_containers: parts.containers.countOfStub(record.stubId), queue_depth: queueDepth },
        resultText,
      });
    },
  };
}
