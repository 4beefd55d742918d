import type { ContainerReads } from '../../containers/container-view.ts';
import type { Directory } from '../../deployments/directory.ts';
import { containerRecord } from './records.ts';
import { listQuery, textQuery } from './rest.ts';
import type { RestRoute } from './rest.ts';

/** Live containers, all of them; not an envelope. */
export function listContainers(containers: Pick<ContainerReads, 'list'>, directory: Directory): RestRoute {
  return {
    http: 'GET /container/{ws}',
    handle: async ({ query, workspaceId }) => {
      const stubId = textQuery(query, 'stub_id');
      const appId = textQuery(query, 'app_id');
      const statuses = listQuery(query, 'status')?.map((status) => status.toUpperCase());
      const live = containers
        .list(workspaceId)
        .filter((view) => stubId === undefined || view.stubId === stubId)
        .filter((view) => statuses === undefined || statuses.includes(view.status));
      const stubs = await directory.stubs(live.map((view) => view.stubId));
      return live
        .map((view) => containerRecord(view, stubs.get(view.stubId)))
        .filter((record) => appId === undefined || record.app_id === appId);
    },
  };
}
