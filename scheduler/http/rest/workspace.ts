import { AppError } from '#shared/errors.ts';
import type { Directory } from '../../deployments/directory.ts';
import type { WorkspaceRow } from '../../store/queries/workspaces.ts';
import { workspaceRecord } from './records.ts';
import type { RestRoute } from './rest.ts';

/** Tokens that may sign in the workspace's name see the key for it. */
const SIGNERS: ReadonlySet<string> = new Set(['admin', 'workspace_primary']);

export function currentWorkspace(parts: {
  readonly directory: Directory;
  readonly signingKeyOf: (row: WorkspaceRow) => string;
}): RestRoute {
  return {
    http: 'GET /workspace/current',
    containers: true,
    handle: async ({ caller }) => {
      const row = await parts.directory.workspace(caller.workspaceId);
      if (row === undefined) throw new AppError('workspace_not_found', 'workspace not found');
      return workspaceRecord(row, SIGNERS.has(caller.type) ? parts.signingKeyOf(row) : null);
    },
  };
}
