import { ListContainersRequest, ListContainersResponse } from '#shared/api/containers.ts';
import { timestampOf } from '#shared/api/fields.ts';
import type { ContainerReads } from '../containers/container-view.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

export function listContainers(containers: Pick<ContainerReads, 'list'>): Operation {
  return operation({
    name: 'ListContainers',
    http: 'GET /containers',
    scope: 'any',
    request: ListContainersRequest,
    response: ListContainersResponse,
    handle: (caller) => {
      // The administrator sees those of every workspace.
      const found = containers.list(caller.isAdmin ? null : caller.workspaceId);
      const newestFirst = found.toSorted((a, b) => (b.scheduledAtMs ?? Infinity) - (a.scheduledAtMs ?? Infinity) || 0);
      return {
        ok: true,
        errorMsg: '',
        containers: newestFirst.map((container) => ({
          containerId: container.containerId,
          stubId: container.stubId,
          status: container.status,
          scheduledAt: timestampOf(container.scheduledAtMs),
          startedAt: timestampOf(container.startedAtMs),
          workspaceId: container.workspaceId,
          // A machine offers one worker; its id is the machine's.
          workerId: container.machineId ?? '',
          machineId: container.machineId ?? '',
          deploymentId: container.deploymentId ?? '',
        })),
      };
    },
  });
}
