import { AppError } from '#shared/errors.ts';
import { isUuid } from '#shared/domain/ids.ts';
import { kindOf } from '#shared/domain/status.ts';
import type { Deployments } from '../../deployments/deployments.ts';
import { urlTargetOf } from '../../deployments/deployments.ts';
import type { Directory } from '../../deployments/directory.ts';
import { invokeUrl } from '../../deployments/urls.ts';
import type { UrlSettings } from '../../deployments/urls.ts';
import type { Origin } from '../../operations/operation.ts';
import type { DeploymentRow } from '../../store/queries/deployments.ts';
import type { StubRow } from '../../store/queries/stubs.ts';
import type { WorkspaceRow } from '../../store/queries/workspaces.ts';
import { deploymentRecord } from './records.ts';
import { booleanQuery, integerQuery, listQuery, textQuery } from './rest.ts';
import type { Query, RestRequest, RestRoute } from './rest.ts';

export interface DeploymentRouteParts {
  readonly directory: Directory;
  readonly deployments: Deployments;
  readonly urls: UrlSettings;
  readonly originOf: (request: RestRequest['http']) => Origin;
}

const DEFAULT_PAGE = 10;
const MAX_PAGE = 1_000;

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
        const limit = Math.min(integerQuery(query, 'limit') || DEFAULT_PAGE, MAX_PAGE);
        const before = cursorOf(query);
        const rows = await parts.deployments.list({ workspaceId }, { ...filterOf(query), limit: MAX_PAGE });
        const wanted = before === null ? rows : rows.filter((row) => isAfter(row, before));
        const page = wanted.slice(0, limit);
        const last = page.at(-1);
        const workspace = await parts.directory.workspace(workspaceId);
        const stubs = await parts.directory.stubs(page.map((row) => row.stubId));
        const data = page.map((row) => show(request, row, stubs.get(row.stubId), workspace));
        if (booleanQuery(query, 'pagination') === false) return data;
        return { data, next: last !== undefined && wanted.length > limit ? writeCursor(last) : '' };
      },
    },
    {
      http: 'GET /deployment/{ws}/{deploymentId}',
      handle: async (request) => {
        const { workspaceId, params } = request;
        const row = await parts.deployments.find({ workspaceId }, params['deploymentId'] ?? '');
        if (row === undefined) throw new AppError('deployment_not_found', 'deployment not found');
        const [stub, workspace] = await Promise.all([
          parts.directory.stub(row.stubId),
          parts.directory.workspace(workspaceId),
        ]);
        return show(request, row, stub, workspace);
      },
    },
  ];
}

function filterOf(query: Query) {
  const search = textQuery(query, 'search_query');
  const name = textQuery(query, 'name') ?? (search !== undefined && !isUuid(search) ? search : undefined);
  const active = booleanQuery(query, 'active');
  const version = versionOf(textQuery(query, 'version'));
  // A bare kind is what its deployments have as type.
  const stubTypes = listQuery(query, 'stub_type')?.map((type) => (kindOf(type) === type ? `${type}/deployment` : type));
  const subdomain = textQuery(query, 'subdomain');
  return {
    ...(name === undefined ? {} : { nameContains: name }),
    ...(active === undefined ? {} : { active }),
    ...(version === undefined ? {} : { version }),
    ...(stubTypes === undefined ? {} : { stubTypes }),
    ...(subdomain === undefined ? {} : { subdomain }),
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

interface Cursor {
  readonly createdAtMs: number;
  readonly id: string;
}

const writeCursor = (row: Cursor): string => Buffer.from(`${row.createdAtMs}:${row.id}`).toString('base64url');

function cursorOf(query: Query): Cursor | null {
  const text = textQuery(query, 'cursor');
  if (text === undefined) return null;
  const [, ms, id] = /^([0-9]{1,15}):([0-9a-f-]{36})$/.exec(Buffer.from(text, 'base64url').toString('utf8')) ?? [];
  if (ms === undefined || id === undefined)
    throw new AppError('invalid_cursor', 'query parameter cursor is not one of ours');
  return { createdAtMs: Number(ms), id };
}

const isAfter = (row: Cursor, cursor: Cursor): boolean =>
  row.createdAtMs < cursor.createdAtMs || (row.createdAtMs === cursor.createdAtMs && row.id < cursor.id);
