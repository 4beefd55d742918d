import { AppError } from '#shared/errors.ts';
import { isUuid } from '#shared/domain/ids.ts';
import { kindOf } from '#shared/domain/status.ts';
import type { ChangeOutcome, DeploymentFilter, Deployments } from '../../deployments/deployments.ts';
import { urlTargetOf } from '../../deployments/deployments.ts';
import type { Directory } from '../../deployments/directory.ts';
import { invokeUrl } from '../../deployments/urls.ts';
import type { UrlSettings } from '../../deployments/urls.ts';
import type { Caller } from '../../identity/caller.ts';
import type { Origin } from '../../operations/operation.ts';
import type { DeploymentRow } from '../../store/queries/deployments.ts';
import type { StubRow } from '../../store/queries/stubs.ts';
import type { WorkspaceRow } from '../../store/queries/workspaces.ts';
import { cursorOf, pageLimit, pageOf, pageOffset } from './paging.ts';
import { deploymentRecord } from './records.ts';
import { booleanQuery, integerQuery, listQuery, textQuery, timeQuery } from './rest.ts';
import type { Query, RestRequest, RestRoute } from './rest.ts';

export interface DeploymentRouteParts {
  readonly directory: Directory;
  readonly deployments: Deployments;
  readonly urls: UrlSettings;
  readonly originOf: (request: RestRequest['http']) => Origin;
}

export function deploymentRoutes(parts: DeploymentRouteParts): readonly RestRoute[] {
  const show = (request: RestRequest, row: DeploymentRow, stub?: StubRow, workspace?: WorkspaceRow) => {
    const { baseUrl } = parts.originOf(request.http);
    const target =
      stub === undefined
        ? { stubId: row.stubId, stubType: row.stubType, public: false, deployment: row }
        : urlTargetOf(stub, row);
    return deploymentRecord(row, { stub, workspace, invokeUrl: invokeUrl(baseUrl, target, parts.urls) });
  };
  return [
    {
      http: 'GET /deployment/{ws}',
      handle: async (request) => {
        const { query, workspaceId } = request;
        const limit = pageLimit(query);
        const before = cursorOf(query);
        const rows = await parts.deployments.list(
          { workspaceId },
          {
            ...filterOf(query),
            limit: limit + 1,
            offset: pageOffset(query),
            ...(before === undefined ? {} : { before: { createdAtMs: before.atMs, id: before.id } }),
          },
        );
        const { page, next } = pageOf(rows, limit, (row) => ({ atMs: row.createdAtMs, id: row.id }));
        const workspace = await parts.directory.workspace(workspaceId);
        const stubs = await parts.directory.stubs(page.map((row) => row.stubId));
        const data = page.map((row) => show(request, row, stubs.get(row.stubId), workspace));
        if (booleanQuery(query, 'pagination') === false) return data;
        return { data, next };
      },
    },
    {
      http: 'GET /deployment/{ws}/{deploymentId}',
      handle: async (request) => {
        const { workspaceId, params } = request;
        const row = await parts.deployments.find({ workspaceId }, params['deploymentId'] ?? '');
        if (row === undefined) throw notFound();
        const [stub, workspace] = await Promise.all([
          parts.directory.stub(row.stubId),
          parts.directory.workspace(workspaceId),
        ]);
        return show(request, row, stub, workspace);
      },
    },
    {
      http: 'GET /deployment/{id}/url',
      handle: async (request) => {
        const { caller, params } = request;
        const row = await parts.deployments.find(caller, params['id'] ?? '');
        if (row === undefined) throw notFound();
        return { url: show(request, row, await parts.directory.stub(row.stubId)).url };
      },
    },
    verb('POST /deployment/{ws}/start/{deploymentId}', (owner, id) => parts.deployments.start(owner, id)),
    verb('POST /deployment/{ws}/stop/{deploymentId}', (owner, id) => parts.deployments.stop(owner, id)),
    verb('DELETE /deployment/{ws}/{deploymentId}', (owner, id) => parts.deployments.delete(owner, id)),
  ];
}

const notFound = (): AppError => new AppError('deployment_not_found', 'deployment not found');

/** Done: an empty answer. */
function verb(
  http: string,
  act: (owner: Pick<Caller, 'workspaceId'>, deploymentId: string) => Promise<ChangeOutcome>,
): RestRoute {
  return {
    http,
    scope: 'full',
    handle: async ({ workspaceId, params }) => {
      const outcome = await act({ workspaceId }, params['deploymentId'] ?? '');
      if (outcome.kind === 'not_found') throw notFound();
      if (outcome.kind === 'refused') throw new AppError('bad_request', outcome.text);
      return undefined;
    },
  };
}

function filterOf(query: Query): Omit<DeploymentFilter, 'limit'> {
  const search = textQuery(query, 'search_query');
  const name = textQuery(query, 'name') ?? (search !== undefined && !isUuid(search) ? search : undefined);
  const active = booleanQuery(query, 'active');
  const version = versionOf(textQuery(query, 'version'));
  // A bare kind is what its deployments have as type.
  const stubTypes = listQuery(query, 'stub_type')?.map((type) => (kindOf(type) === type ? `${type}/deployment` : type));
  const subdomain = textQuery(query, 'subdomain');
  const stubIds = listQuery(query, 'stub_ids');
  const appId = textQuery(query, 'app_id');
  const minContainers = integerQuery(query, 'min_containers');
  const createdFromMs = timeQuery(query, 'created_at_start');
  const createdToMs = timeQuery(query, 'created_at_end');
  return {
    ...(search === undefined || !isUuid(search) ? {} : { ids: [search.toLowerCase()] }),
    ...(name === undefined ? {} : { nameContains: name }),
    ...(active === undefined ? {} : { active }),
    ...(version === undefined ? {} : { version }),
    ...(stubTypes === undefined ? {} : { stubTypes }),
    ...(subdomain === undefined ? {} : { subdomain }),
    ...(stubIds === undefined ? {} : { stubIds }),
    ...(appId === undefined ? {} : { appId }),
    ...(minContainers === undefined ? {} : { minContainers: Math.min(minContainers, 2 ** 31 - 1) }),
    ...(createdFromMs === undefined ? {} : { createdFromMs }),
    ...(createdToMs === undefined ? {} : { createdToMs }),
    showDeleted: booleanQuery(query, 'show_deleted') ?? false,
  };
}

/** `3` and `v3`; 0, `latest` and a client's `undefined` mean any. */
function versionOf(text: string | undefined): number | undefined {
  if (text === undefined || text === 'latest' || text === 'undefined') return undefined;
  const [, digits] = /^v?([0-9]{1,9})$/.exec(text) ?? [];
  if (digits === undefined)
    throw new AppError('invalid_query', 'query parameter version must be a number or v and a number');
  return Number(digits) === 0 ? undefined : Number(digits);
}
