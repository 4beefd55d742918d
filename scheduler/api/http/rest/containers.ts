import { ContainerList, ContainerQuery } from '#shared/api/rest/containers.ts';
import type { ContainerReads } from '../../../fleet/containers/container-view.ts';
import { isOutside } from '../../../workspaces/identity/confinement.ts';
import type { Directory } from '../../../workspaces/deployments/directory.ts';
import { containerRecord } from './records.ts';
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
