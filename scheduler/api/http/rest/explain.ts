import { Explanation } from '#shared/api/explain.ts';
import { timestampOf } from '#shared/api/fields.ts';
import { HEALTH_STATES, HealthList, HealthQuery } from '#shared/api/rest/deployment-health.ts';
import type { HealthRow } from '#shared/api/rest/deployment-health.ts';
import { AppError } from '#shared/errors.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { worstFirst } from '../../explain/health.ts';
import type { DeploymentHealth } from '../../explain/health.ts';
import { isOutside } from '../../../workspaces/identity/confinement.ts';
import { pageLimit, placeCursor, writePlaceCursor } from './paging.ts';
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

/** Lists the names of deployments by their health, the worst first. */
export function healthRoute(health: Pick<DeploymentHealth, 'of'>): RestRoute {
  return restRoute({
    http: 'GET /deployment-health/{ws}',
    grants: { scopes: ['read'], confinesToApp: true },
    summary: 'How each deployment is and why, the worst first: a row for each name',
    query: HealthQuery,
    answer: HealthList,
    errors: ['queues_unavailable'],
    handle: async ({ caller, workspaceId, query }) => {
      const states = query.state?.map((state) => stateOf(state));
      const behind = placeCursor(query);
      const { rows, leaderAnswered, atMs } = await health.of(workspaceId);
      const own = rows.filter((row) => !isOutside(caller, row.app_id));
      const counts: Record<string, number> = {};
      for (const { state } of own) counts[state] = (counts[state] ?? 0) + 1;
      const kept = own.filter(
        (row) =>
          (states === undefined || states.includes(row.state)) &&
          row.name.includes(query.name ?? '') &&
          (behind === undefined || worstFirst(behind, row) < 0),
      );
      const limit = pageLimit(query);
      const page = kept.slice(0, limit);
      const last = kept.length > limit ? page.at(-1) : undefined;
      return {
        data: page,
        next: last === undefined ? '' : writePlaceCursor(last),
        total: own.length,
        states: counts,
        leader_answered: leaderAnswered,
        at: timestampOf(atMs) ?? '',
      };
    },
  });
}

/** @throws AppError `invalid_query` */
function stateOf(text: string): HealthRow['state'] {
  const state = text.toUpperCase();
  if (HEALTH_STATES.some((known) => known === state)) return state;
  throw new AppError('invalid_query', `query parameter state must be of ${HEALTH_STATES.join(', ')}`);
}
