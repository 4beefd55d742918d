import { AppList, AppQuery, AppWithLatest, AppsWithLatest } from '#shared/api/rest/apps.ts';
import { AppError } from '#shared/errors.ts';
import { isUuid } from '#shared/domain/ids.ts';
import type { ContainerReads } from '../../../fleet/containers/container-view.ts';
import { urlTargetOf } from '../../../workspaces/deployments/deployments.ts';
import type { Directory } from '../../../workspaces/deployments/directory.ts';
import { storedConfig } from '../../../domain/stub-config.ts';
import { isOutside, ownApp } from '../../../workspaces/identity/confinement.ts';
import type { Grants } from '../../../workspaces/identity/confinement.ts';
import type { UrlSettings } from '../../../workspaces/deployments/urls.ts';
import { invokeUrl } from '../../../workspaces/deployments/urls.ts';
import type { Origin } from '../../operations/operation.ts';
import type { AppRow } from '../../../stores/store/queries/apps.ts';
import type { DeploymentRow } from '../../../stores/store/queries/deployments.ts';
import type { StubRow } from '../../../stores/store/queries/stubs.ts';
import type { WorkspaceRow } from '../../../stores/store/queries/workspaces.ts';
import { longPage } from './long-pages.ts';
import { cursorOf, pageLimit, pageOf } from './paging.ts';
import { appRecord, deploymentRecord, stubRecord } from './records.ts';
import { servingRecord } from './serving-record.ts';
import { restRoute } from './route.ts';
import type { RestRequest, RestRoute } from './route.ts';
import { poolNameOf } from '../../../domain/pools.ts';

const READERS = { scopes: ['read'], confinesToApp: true } as const satisfies Grants;

export interface AppRouteParts {
  readonly directory: Pick<Directory, 'app' | 'apps' | 'latestDeployments' | 'latestStubs' | 'stubs' | 'workspace'>;
  readonly containers: Pick<ContainerReads, 'list'>;
  readonly urls: UrlSettings;
  readonly originOf: (request: RestRequest['http']) => Origin;
}

/**
 * Apps, latest activity first: the plain list, the list with the newest stub and deployment of each, and a single app.
 */
export function appRoutes(parts: AppRouteParts): readonly RestRoute[] {
  const page = async ({ caller, query, workspaceId }: RestRequest<AppQuery>) => {
    const limit = pageLimit(query);
    const before = cursorOf(query);
    const { name } = query;
    const { appId } = ownApp(caller);
    if (appId !== undefined) {
      const own = await parts.directory.app(workspaceId, appId);
      const isNamed = own?.name.toLowerCase().includes((name ?? '').toLowerCase()) === true;
      return { page: isNamed ? [own] : [], next: '' };
    }
    const rows = await parts.directory.apps({
      workspaceId,
      limit: limit + 1,
      ...(name === undefined ? {} : { nameContains: name }),
      ...(before === undefined ? {} : { before: { updatedAtMs: before.atMs, id: before.id } }),
    });
    return pageOf(rows, limit, cursorAt);
  };
  return [
    restRoute({
      http: 'GET /app/{ws}',
      summary: 'Apps, latest activity first',
      grants: READERS,
      query: AppQuery,
      answer: AppList,
      handle: async (request) => {
        const { page: rows, next } = await page(request);
        return { data: rows.map(appRecord), next };
      },
    }),
    restRoute({
      http: 'GET /app/{ws}/latest',
      summary: 'Apps with what was made last in each, latest activity first',
      grants: READERS,
      query: AppQuery,
      answer: AppsWithLatest,
      handle: async (request) => {
        const workspace = await parts.directory.workspace(request.workspaceId);
        return await longPage({
          ...(await page(request)),
          cursorAt,
          show: (some) => withLatest(parts, request, some, { workspace, counted: true }),
          stubOf: ({ deployment, stub }) => deployment?.stub ?? stub,
        });
      },
    }),
    restRoute({
      http: 'GET /app/{ws}/{appId}',
      summary: 'One app with what was made last in it',
      grants: READERS,
      answer: AppWithLatest,
      errors: ['not_found'],
      handle: async (request) => {
        const { caller, params, workspaceId } = request;
        const appId = params['appId']?.toLowerCase() ?? '';
        const row =
          isUuid(appId) && !isOutside(caller, appId) ? await parts.directory.app(workspaceId, appId) : undefined;
        const workspace = await parts.directory.workspace(workspaceId);
        const [app] = row === undefined ? [] : await withLatest(parts, request, [row], { workspace, counted: false });
        if (app === undefined) throw new AppError('not_found', 'app not found');
        return app;
      },
    }),
  ];
}

const cursorAt = (row: AppRow) => ({ atMs: row.updatedAtMs, id: row.id });

/** An app with its newest deployment, or with its newest stub while it has no deployment. */
export interface Latest {
  readonly app: AppRow;
  readonly deployment: DeploymentRow | undefined;
  /** The deployment's stub, where there is one. */
  readonly stub: StubRow | undefined;
  /** Where that is called. undefined: nothing was made in it. */
  readonly url: string | undefined;
}

/** Apps with their newest deployment or stub. */
export async function latestOf(
  { directory, urls, originOf }: AppRouteParts,
  request: RestRequest,
  apps: readonly AppRow[],
): Promise<Latest[]> {
  const { workspaceId } = request;
  const ids = apps.map((app) => app.id);
  const [deployments, stubs] = await Promise.all([
    directory.latestDeployments(workspaceId, ids),
    directory.latestStubs(workspaceId, ids),
  ]);
  const deployed = await directory.stubs([...deployments.values()].map((row) => row.stubId));
  const { baseUrl } = originOf(request.http);
  return apps.map((app) => {
    const deployment = deployments.get(app.id);
    const stub = deployment === undefined ? stubs.get(app.id) : deployed.get(deployment.stubId);
    const url = stub === undefined ? undefined : invokeUrl(baseUrl, urlTargetOf(stub, deployment ?? null), urls);
    return { app, deployment, stub, url };
  });
}

/** Apps with their newest stub and deployment. @param counted - with the number of running containers; else 0 */
async function withLatest(
  parts: AppRouteParts,
  request: RestRequest,
  apps: readonly AppRow[],
  { workspace, counted }: { readonly workspace: WorkspaceRow | undefined; readonly counted: boolean },
): Promise<AppWithLatest[]> {
  const { workspaceId } = request;
  const latest = await latestOf(parts, request, apps);
  const running = counted ? runningOf(parts.containers.list(workspaceId)) : new Map<string, number>();
  return latest.map(({ app, deployment, stub, url }) => {
    const config = stub === undefined ? undefined : storedConfig(stub.config);
    return {
      ...appRecord(app),
      deployment: shown(deployment, (row) => deploymentRecord(row, { stub, app, workspace, invokeUrl: url ?? '' })),
      stub: deployment === undefined ? shown(stub, stubRecord) : null,
      ...(url === undefined ? {} : { url, invoke_url: url }),
      pool_name: config === undefined ? '' : poolNameOf(config.extra),
      running_containers: stub === undefined ? 0 : (running.get(stub.id) ?? 0),
      is_service: config?.extra['isService'] === true,
      serving: config === undefined ? null : servingRecord(config),
    };
  });
}

const shown = <Row extends DeploymentRow | StubRow, Record>(row: Row | undefined, show: (row: Row) => Record) =>
  row === undefined ? null : show(row);

/** Number of running containers by stub. */
function runningOf(containers: ReturnType<ContainerReads['list']>): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const { stubId, status } of containers) {
    if (status === 'RUNNING') counts.set(stubId, (counts.get(stubId) ?? 0) + 1);
  }
  return counts;
}
