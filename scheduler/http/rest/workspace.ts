import { AppError } from '#shared/errors.ts';
import type { Directory } from '../../deployments/directory.ts';
import type { Tenants } from '../../identity/tenants.ts';
import type { WorkspaceRow } from '../../store/queries/workspaces.ts';
import { workspaceRecord } from './records.ts';
import { integerQuery, textBody, textQuery } from './rest.ts';
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

const MAX_PAGE = 1_000;

/** POST makes a workspace and answers with its first token, this once; GET lists them all. Both for the administrator. */
export function workspaceRoutes(tenants: Pick<Tenants, 'create' | 'list'>): readonly RestRoute[] {
  return [
    {
      http: 'POST /workspace',
      scope: 'admin',
      status: 201,
      handle: async ({ body }) => {
        const { workspace, token } = await tenants.create(textBody(body, 'name'));
        return { ...workspaceRecord(workspace, null), token };
      },
    },
    {
      http: 'GET /workspace',
      scope: 'admin',
      handle: async ({ query }) => {
        const limit = Math.min(integerQuery(query, 'limit') || MAX_PAGE, MAX_PAGE);
        // Rows are in the order of their numbers: the cursor is the last one's.
        const cursor = textQuery(query, 'cursor') ?? '0';
        if (!/^[0-9]{1,15}$/.test(cursor)) {
          throw new AppError('invalid_cursor', 'query parameter cursor is not one of ours');
        }
        const rows = await tenants.list(Number(cursor), limit + 1);
        const page = rows.slice(0, limit);
        const next = rows.length > limit ? String(page.at(-1)?.number ?? '') : '';
        return { data: page.map((row) => workspaceRecord(row, null)), next };
      },
    },
  ];
}
