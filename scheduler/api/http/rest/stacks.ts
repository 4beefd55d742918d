import { timestampOf } from '#shared/api/fields.ts';
import {
  ChangeStack,
  CreateStack,
  MAX_STACK_PAGE,
  StackDeleted,
  StackList,
  StackQuery,
  StackRecord,
} from '#shared/api/rest/stacks.ts';
import type { AppId } from '#shared/domain/ids.ts';
import { kindOf } from '#shared/domain/status.ts';
import type { StackRow } from '../../../stores/store/queries/stacks.ts';
import type { Stacks } from '../../../workspaces/deployments/stacks.ts';
import { latestOf } from './apps.ts';
import type { AppRouteParts } from './apps.ts';
import { cursorOf, pageLimit, pageOf } from './paging.ts';
import { READERS_OF_ALL, restRoute } from './route.ts';
import type { RestRequest, RestRoute } from './route.ts';

const APPS_AT_ONCE = 100;

export interface StackRouteParts extends AppRouteParts {
  readonly stacks: Pick<Stacks, 'list' | 'appsOf' | 'create' | 'change' | 'delete'>;
}

/** Named groups of apps, the last changed first. */
export function stackRoutes(parts: StackRouteParts): readonly RestRoute[] {
  const shown = async (request: RestRequest, row: StackRow): Promise<StackRecord> => {
    const [record] = await stackRecords(parts, request, [row]);
    if (record === undefined) throw new Error('a stack has a record');
    return record;
  };
  return [
    restRoute({
      http: 'GET /stack/{ws}',
      grants: READERS_OF_ALL,
      summary: 'Stacks, the last changed first',
      query: StackQuery,
      answer: StackList,
      handle: async (request) => {
        const { query, workspaceId } = request;
        const limit = Math.min(pageLimit(query), MAX_STACK_PAGE);
        const before = cursorOf(query);
        const rows = await parts.stacks.list({
          workspaceId,
          limit: limit + 1,
          ...(before === undefined ? {} : { before: { updatedAtMs: before.atMs, id: before.id } }),
        });
        const { page, next } = pageOf(rows, limit, (row) => ({ atMs: row.updatedAtMs, id: row.id }));
        return { data: await stackRecords(parts, request, page), next };
      },
    }),
    restRoute({
      http: 'POST /stack/{ws}',
      summary: 'Make a stack of apps',
      scope: 'full',
      status: 201,
      body: CreateStack,
      answer: StackRecord,
      errors: ['stack_exists', 'too_many_stacks'],
      handle: async (request) => shown(request, await parts.stacks.create(request.workspaceId, request.body)),
    }),
    restRoute({
      http: 'PUT /stack/{ws}/{stackId}',
      summary: 'Replace the name or the apps of a stack, or add apps and take them out',
      scope: 'full',
      body: ChangeStack,
      answer: StackRecord,
      errors: ['stack_not_found', 'stack_exists'],
      handle: async (request) => {
        const { workspaceId, params, body } = request;
        return shown(request, await parts.stacks.change(workspaceId, params['stackId'] ?? '', body));
      },
    }),
    restRoute({
      http: 'DELETE /stack/{ws}/{stackId}',
      summary: 'Delete a stack; its apps stay as they are',
      scope: 'full',
      answer: StackDeleted,
      errors: ['stack_not_found'],
      handle: async ({ workspaceId, params }) => {
        await parts.stacks.delete(workspaceId, params['stackId'] ?? '');
        return {};
      },
    }),
  ];
}

/** Stacks with their apps as they are now; apps that were deleted are left out. */
async function stackRecords(
  parts: StackRouteParts,
  request: RestRequest,
  rows: readonly StackRow[],
): Promise<StackRecord[]> {
  const apps = [...(await parts.stacks.appsOf(request.workspaceId, rows)).values()];
  const known = new Map<AppId, StackRecord['members'][number]>();
  // A page may have thousands of apps, whose stubs are not kept in memory all at once.
  for (let from = 0; from < apps.length; from += APPS_AT_ONCE) {
    for (const { app, deployment, stub, url } of await latestOf(parts, request, apps.slice(from, from + APPS_AT_ONCE)))
      known.set(app.id, {
        app_id: app.id,
        name: app.name,
        kind: stub === undefined ? '' : kindOf(stub.type),
        active: deployment?.active ?? false,
        url: url ?? '',
      });
  }
  return rows.map((row) => {
    const members = row.appIds.map((id) => known.get(id)).filter((one) => one !== undefined);
    return {
      id: row.id,
      external_id: row.id,
      name: row.name,
      apps: members.map((member) => member.name),
      members,
      layout: row.layout,
      created_at: timestampOf(row.createdAtMs),
      updated_at: timestampOf(row.updatedAtMs),
    };
  });
}
