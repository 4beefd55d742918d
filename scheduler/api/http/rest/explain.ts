import { Explanation } from '#shared/api/explain.ts';
import { AppError } from '#shared/errors.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { READERS_OF_ALL, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

export interface Explains {
  /** Explains a thing; undefined: the workspace has nothing of that id or name. */
  explain(workspaceId: WorkspaceId, reference: string): Promise<Explanation | undefined>;
}

/** Explains the state of a task, a container or a deployment. */
export function explainRoute(explains: Explains): RestRoute {
  return restRoute({
    http: 'GET /explain/{ws}/{id}',
    grants: READERS_OF_ALL,
    summary: 'Why a task, a container or a deployment (by its id, or its name) is as it is',
    answer: Explanation,
    errors: ['not_found', 'queues_unavailable'],
    handle: async ({ workspaceId, params }) => {
      const found = await explains.explain(workspaceId, params['id'] ?? '');
      if (found !== undefined) return found;
      throw new AppError('not_found', 'there is no task, container or deployment of that id or name');
    },
  });
}
