import { SearchAnswer, SearchQuery } from '#shared/api/rest/search.ts';
import { AppError } from '#shared/errors.ts';
import type { Directory } from '../../../workspaces/deployments/directory.ts';
import { READERS_OF_ALL, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

const LONGEST = 128;

/** Finds things of a workspace by their ids or names. */
export function searchRoute(directory: Pick<Directory, 'search'>): RestRoute {
  return restRoute({
    http: 'GET /search/{ws}',
    summary: 'Deployments, tasks, containers and apps by an id or a name, 20 at most',
    grants: READERS_OF_ALL,
    query: SearchQuery,
    answer: SearchAnswer,
    handle: async ({ workspaceId, query }) => {
      const text = (query.q ?? '').trim();
      if (text === '') throw new AppError('invalid_query', 'query parameter q must say what to look for');
      if (text.length > LONGEST || !text.isWellFormed())
        throw new AppError('invalid_query', `query parameter q must be text of at most ${LONGEST} characters`);
      return { data: [...(await directory.search(workspaceId, text))] };
    },
  });
}
