import {
  CreateWorkspace,
  CreatedWorkspace,
  WorkspaceList,
  WorkspaceQuery,
  WorkspaceRecord,
} from '#shared/api/rest/workspaces.ts';
import { AppError } from '#shared/errors.ts';
import type { Directory } from '../../../workspaces/deployments/directory.ts';
import type { Tenants } from '../../../workspaces/identity/tenants.ts';
import type { WorkspaceRow } from '../../../stores/store/queries/workspaces.ts';
import { actorBehind } from '../origin.ts';
import { shareOf } from '../../../domain/workspace-share.ts';
import { workspaceRecord } from './records.ts';
import { NOT_LIMITED, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';
import { shareRecord } from './shares.ts';

/** Types of tokens that may sign in the workspace's name, and so see its signing key. */
const SIGNERS: ReadonlySet<string> = new Set(['admin', 'workspace_primary']);

export function currentWorkspace(parts: {
  readonly directory: Directory;
  readonly signingKeyOf: (row: WorkspaceRow) => string;
}): RestRoute {
  return restRoute({
    http: 'GET /workspace/current',
    summary: 'The workspace of the token',
    containers: true,
    // A browser never gets the signing key; `GET /session` names the workspace.
    byTokenOnly: true,
    grants: { scopes: ['invoke', 'read'], confinesToApp: true },
    answer: WorkspaceRecord,
    errors: ['workspace_not_found'],
    handle: async ({ caller }) => {
      const row = await parts.directory.workspace(caller.workspaceId);
      if (row === undefined) throw new AppError('workspace_not_found', 'workspace not found');
      return workspaceRecord(row, SIGNERS.has(caller.type) ? parts.signingKeyOf(row) : null);
    },
  });
}

const MAX_PAGE = 1_000;

/**
 * POST makes a workspace and returns its first token, this once;
 * GET lists all workspaces. Both are for the administrator.
 */
export function workspaceRoutes(tenants: Pick<Tenants, 'create' | 'list'>): readonly RestRoute[] {
  return [
    restRoute({
      http: 'POST /workspace',
      summary: 'Make a workspace; the answer holds its first token, this once (administrator)',
      scope: 'admin',
      status: 201,
      body: CreateWorkspace,
      answer: CreatedWorkspace,
      handle: async (request) => {
        const { body, caller } = request;
        const { workspace, token } = await tenants.create(body.name, actorBehind(request), caller.workspaceId);
        return { ...workspaceRecord(workspace, null), token };
      },
    }),
    restRoute({
      http: 'GET /workspace',
      grants: NOT_LIMITED,
      summary: 'All workspaces (administrator)',
      scope: 'admin',
      query: WorkspaceQuery,
      answer: WorkspaceList,
      handle: async ({ query }) => {
        const limit = Math.min(query.limit || MAX_PAGE, MAX_PAGE);
        // Rows are in the order of their numbers: the cursor is the number of the last one.
        const { cursor = '0' } = query;
        if (!/^[0-9]{1,15}$/.test(cursor)) {
          throw new AppError('invalid_cursor', 'query parameter cursor is not one of ours');
        }
        const rows = await tenants.list(Number(cursor), limit + 1);
        const page = rows.slice(0, limit);
        const next = rows.length > limit ? String(page.at(-1)?.number ?? '') : '';
        return {
          data: page.map((row) => ({
            ...workspaceRecord(row, null),
            ...(row.share === null ? {} : { share: shareRecord(shareOf(row.share)) }),
          })),
          next,
        };
      },
    }),
  ];
}
