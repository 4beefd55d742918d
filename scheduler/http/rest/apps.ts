import type { Directory } from '../../deployments/directory.ts';
import { cursorOf, pageLimit, pageOf } from './paging.ts';
import { appRecord } from './records.ts';
import { textQuery } from './rest.ts';
import type { RestRoute } from './rest.ts';

/** Apps, latest activity first. */
export function listApps(directory: Pick<Directory, 'apps'>): RestRoute {
  return {
    http: 'GET /app/{ws}',
    handle: async ({ query, workspaceId }) => {
      const limit = pageLimit(query);
      const before = cursorOf(query);
      const name = textQuery(query, 'name');
      const rows = await directory.apps({
        workspaceId,
        limit: limit + 1,
        ...(name === undefined ? {} : { nameContains: name }),
        ...(before === undefined ? {} : { before: { updatedAtMs: before.atMs, id: before.id } }),
      });
      const { page, next } = pageOf(rows, limit, (row) => ({ atMs: row.updatedAtMs, id: row.id }));
      return { data: page.map(appRecord), next };
    },
  };
}
