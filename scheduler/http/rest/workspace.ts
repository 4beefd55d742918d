import { AppError } from '#shared/errors.ts';
import type { Queryable } from '../../store/db.ts';
import { workspaceById } from '../../store/queries/workspaces.ts';
import type { WorkspaceRow } from '../../store/queries/workspaces.ts';
import { workspaceRecord } from './records.ts';
import type { RestRoute } from './rest.ts';

/** Tokens that may sign in the workspace's name see the key for it. */
const SIGNERS: ReadonlySet<string> = new Set(['admin', 'workspace_primary']);

export function currentWorkspace(parts: {
  readonly db: Queryable;
  readonly signingKeyOf: (row: WorkspaceRow) => string;
}): RestRoute {
  return {
    http: 'GET /workspace/current',
    containers: true,
    handle: async ({ caller }) => {
      const row = await workspaceById(parts.db, caller.workspaceId);
      if (row === undefined) throw new AppError('workspace_not_found', 'workspace not found');
      return workspaceRecord(row, SIGNERS.has(caller.type) ? parts.signingKeyOf(row) : null);
    },
  };
}
