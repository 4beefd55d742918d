// Containers that wait for a machine: of a workspace, and of all for the administrator.
import { timestampOf } from '#shared/api/fields.ts';
import { WaitingList } from '#shared/api/rest/waiting.ts';
import type { WaitingGroup } from '#shared/api/rest/waiting.ts';
import type { DeploymentId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Directory } from '../../../workspaces/deployments/directory.ts';
import type { Waiting, WaitingReads } from '../../explain/waiting.ts';
import { NOT_LIMITED, READERS_OF_ALL, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

export interface WaitingRouteParts {
  readonly waiting: Pick<WaitingReads, 'of'>;
  readonly directory: Pick<Directory, 'deploymentNames' | 'stubs' | 'workspaceName'>;
}

export function waitingRoutes({ waiting, directory }: WaitingRouteParts): readonly RestRoute[] {
  const shown = async (workspaceId: WorkspaceId | null): Promise<WaitingList> => {
    const { groups, groupCount, containerCount, atMs } = await waiting.of(workspaceId);
    return {
      data: await named(groups, directory),
      next: '',
      groups: groupCount,
      containers: containerCount,
      looked_at: timestampOf(atMs) ?? '',
    };
  };
  return [
    restRoute({
      http: 'GET /workspace/{ws}/waiting',
      summary: 'Containers that wait for a machine, by deployment: why, what is kept for them, whether a pool grows',
      grants: READERS_OF_ALL,
      answer: WaitingList,
      errors: ['not_leading'],
      handle: async ({ workspaceId }) => await shown(workspaceId),
    }),
    restRoute({
      http: 'GET /waiting',
      tag: 'installation',
      summary: 'Containers of all workspaces that wait for a machine (administrator)',
      scope: 'admin',
      grants: NOT_LIMITED,
      answer: WaitingList,
      errors: ['not_leading'],
      handle: async () => await shown(null),
    }),
  ];
}

async function named(groups: readonly Waiting[], directory: WaitingRouteParts['directory']): Promise<WaitingGroup[]> {
  const workspaces = [...new Set(groups.map((group) => group.workspace_id))];
  const [deployments, stubs, workspaceNames] = await Promise.all([
    directory.deploymentNames(groups.flatMap(({ deployment_id: id }) => (id === null ? [] : [id as DeploymentId]))),
    directory.stubs(groups.flatMap(({ deployment_id: id, stub_id }) => (id === null ? [stub_id as StubId] : []))),
    Promise.all(workspaces.map((id) => directory.workspaceName(id))),
  ]);
  const names = new Map(workspaces.map((id, at) => [id, workspaceNames[at] ?? '']));
  return groups.map((group) => ({
    ...group,
    workspace_name: names.get(group.workspace_id) ?? '',
    name:
      (group.deployment_id === null
        ? stubs.get(group.stub_id as StubId)?.name
        : deployments.get(group.deployment_id as DeploymentId)) ?? '',
  }));
}
