// Deletion of workspaces, for the administrator: what would go and how far it is, and its begin.
import { timestampOf } from '#shared/api/fields.ts';
import { WorkspaceDeletionRecord } from '#shared/api/rest/workspaces.ts';
import type { DeletionState, WorkspaceDeletion } from '../../../workspaces/deletion/deletion.ts';
import { actorBehind } from '../origin.ts';
import { NOT_LIMITED, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

export function workspaceDeletionRoutes(deletion: Pick<WorkspaceDeletion, 'state' | 'begin'>): readonly RestRoute[] {
  return [
    restRoute({
      http: 'GET /workspace/{workspaceId}/deletion',
      grants: NOT_LIMITED,
      summary: 'What the deletion of a workspace would remove, or how far it is; changes nothing (administrator)',
      scope: 'admin',
      answer: WorkspaceDeletionRecord,
      errors: ['workspace_not_found'],
      handle: async ({ params }) => recordOf(await deletion.state(params['workspaceId'] ?? '')),
    }),
    restRoute({
      http: 'DELETE /workspace/{workspaceId}',
      summary: 'Delete a workspace with all that it owns: nobody comes in from the answer on (administrator)',
      scope: 'admin',
      status: 202,
      answer: WorkspaceDeletionRecord,
      errors: ['workspace_not_found', 'workspace_is_administrators', 'workspace_has_machines'],
      handle: async (request) => {
        const { params, caller } = request;
        return recordOf(await deletion.begin(params['workspaceId'] ?? '', actorBehind(request), caller.workspaceId));
      },
    }),
  ];
}

const recordOf = ({ workspace, contents, refusal }: DeletionState): WorkspaceDeletionRecord => ({
  id: workspace.id,
  name: workspace.name,
  state: workspace.deletingAtMs === null ? 'present' : 'deleting',
  deleting_at: timestampOf(workspace.deletingAtMs),
  hold: workspace.deletionHold,
  refusal,
  deployments: contents.deployments,
  containers: contents.containers,
  volumes: contents.volumes,
  volume_bytes: contents.volumeBytes,
  objects: contents.objects,
  object_bytes: contents.objectBytes,
  images: contents.images,
  secrets: contents.secrets,
  models: contents.models,
  machines: contents.machines,
});
