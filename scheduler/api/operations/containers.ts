import {
  CheckpointContainerRequest,
  CheckpointContainerResponse,
  ListContainersRequest,
  ListContainersResponse,
  StopContainerRequest,
  StopContainerResponse,
} from '#shared/api/containers.ts';
import { timestampOf } from '#shared/api/fields.ts';
import type { ContainerActions } from '../../fleet/containers/actions.ts';
import type { ContainerReads } from '../../fleet/containers/container-view.ts';
import type { ContainerUsage, Usage } from '../../fleet/usage.ts';
import type { Directory } from '../../workspaces/deployments/directory.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

export function listContainers(
  containers: Pick<ContainerReads, 'list'>,
  usage: Pick<Usage, 'of'>,
  directory: Pick<Directory, 'stubs'>,
): Operation {
  return operation({
    name: 'ListContainers',
    http: 'GET /containers',
    scope: 'any',
    grants: { scopes: ['read'] },
    request: ListContainersRequest,
    response: ListContainersResponse,
    handle: async (caller) => {
      // The administrator sees containers of every workspace.
      const found = containers.list(caller.isAdmin ? null : caller.workspaceId);
      const used = await usage.of(found.flatMap(({ machineId }) => machineId ?? []));
      const stubs = await directory.stubs(found.map(({ stubId }) => stubId));
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
          // The id of a machine's only worker is the machine's id.
          workerId: container.machineId ?? '',
          machineId: container.machineId ?? '',
          deploymentId: container.deploymentId ?? '',
          usage: usageOf(used.get(container.containerId)),
          stubName: stubs.get(container.stubId)?.name ?? '',
        })),
      };
    },
  });
}

function usageOf(usage: ContainerUsage | undefined) {
  if (usage === undefined) return null;
  const { sampledAtMs, ...numbers } = usage;
  return { ...numbers, sampledAt: timestampOf(sampledAtMs) };
}

/** Stops a container; the administrator may stop those of every workspace. */
export function stopContainer(containers: Pick<ContainerActions, 'stopContainer'>): Operation {
  return operation({
    name: 'StopContainer',
    http: 'POST /containers/{containerId}/stop',
    scope: 'any',
    request: StopContainerRequest,
    response: StopContainerResponse,
    handle: async (caller, { containerId }) => {
      const stopped = await containers.stopContainer(caller, containerId);
      return stopped ? { ok: true, errorMsg: '' } : { ok: false, errorMsg: `Container not found: ${containerId}` };
    },
  });
}

/** Checkpoints are not available yet; the answer says so in the shape that clients read. */
export function checkpointContainer(): Operation {
  return operation({
    name: 'CheckpointContainer',
    http: 'POST /containers/{containerId}/checkpoint',
    scope: 'any',
    request: CheckpointContainerRequest,
    response: CheckpointContainerResponse,
    handle: () => ({ ok: false, checkpointId: '', errorMsg: 'checkpoints are not available in this version' }),
  });
}
