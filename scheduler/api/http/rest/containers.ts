import { ContainerList, ContainerQuery, EndedContainerQuery, EndedContainers } from '#shared/api/rest/containers.ts';
import type { ContainerReads } from '../../../fleet/containers/container-view.ts';
import { isOutside, ownApp } from '../../../workspaces/identity/confinement.ts';
import type { Directory } from '../../../workspaces/deployments/directory.ts';
import { cursorOf, pageLimit, pageOf } from './paging.ts';
import { containerRecord, endedContainer } from './records.ts';
import { restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

/** Lists all live containers, as a plain list without an envelope. */
export function listContainers(containers: Pick<ContainerReads, 'list'>, directory: Directory): RestRoute {
  return restRoute({
    http: 'GET /container/{ws}',
    summary: 'Live containers',
    grants: { scopes: ['read'], confinesToApp: true },
    query: ContainerQuery,
    answer: ContainerList,
    handle: async ({ caller, query, workspaceId }) => {
      const { stub_id: stubId, app_id: appId } = query;
      const statuses = query.status?.map((status) => status.toUpperCase());
      const live = containers
        .list(workspaceId)
        .filter((view) => stubId === undefined || view.stubId === stubId)
        .filter((view) => statuses === undefined || statuses.includes(view.status));
      const stubs = await directory.stubs(live.map((view) => view.stubId));
      return live
        .map((view) => containerRecord(view, stubs.get(view.stubId)))
        .filter((record) => (appId === undefined || record.app_id === appId) && !isOutside(caller, record.app_id));
    },
  });
}

/** Lists containers that ended, with the reason of each, as far as their rows are kept. */
export function listEndedContainers(directory: Directory): RestRoute {
  return restRoute({
    http: 'GET /ended-container/{ws}',
    summary: 'Containers that ended, those that were made last first',
    grants: { scopes: ['read'], confinesToApp: true },
    query: EndedContainerQuery,
    answer: EndedContainers,
    handle: async ({ caller, query, workspaceId }) => {
      const { stub_ids: stubIds, deployment_ids: deploymentIds, reasons, app_id: appId } = query;
      if (appId !== undefined && isOutside(caller, appId)) return { data: [], next: '' };
      const limit = pageLimit(query);
      const before = cursorOf(query);
      const rows = await directory.endedContainers({
        workspaceId,
        ...(stubIds === undefined ? {} : { stubIds }),
        ...(deploymentIds === undefined ? {} : { deploymentIds }),
        ...(reasons === undefined ? {} : { reasons }),
        ...(appId === undefined ? {} : { appId }),
        ...ownApp(caller),
        limit: limit + 1,
        ...(before === undefined ? {} : { before: { createdAtMs: before.atMs, id: before.id } }),
      });
      const { page, next } = pageOf(rows, limit, (row) => ({ atMs: row.createdAtMs, id: row.id }));
      const stubs = await directory.stubs(page.map((row) => row.stubId));
      return { data: page.map((row) => endedContainer(row, stubs.get(row.stubId))), next };
    },
  });
}
