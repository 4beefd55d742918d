// Preemption of a container by the administrator.
import { ContainerPreemption, PreemptContainer } from '#shared/api/rest/preemptions.ts';
import type { ContainerActions } from '../../../fleet/containers/actions.ts';
import type { InstallationTrail } from '../../../workspaces/events/installation-trail.ts';
import { actorBehind } from '../origin.ts';
import { restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

export interface PreemptionRouteParts {
  readonly containerActions: Pick<ContainerActions, 'preempt'>;
  readonly noticeMs: () => number;
  readonly trail: Pick<InstallationTrail, 'transaction'>;
}

/** Has a container leave as for another one. The audit trail of its workspace says who did it. */
export function preemptContainer(parts: PreemptionRouteParts): RestRoute {
  return restRoute({
    http: 'POST /container/{containerId}/preempt',
    tag: 'installation',
    summary: 'Have a container leave: its tasks get the notice, and then run elsewhere at no cost (administrator)',
    scope: 'admin',
    body: PreemptContainer,
    answer: ContainerPreemption,
    errors: ['container_not_found', 'container_not_running', 'container_made_by_hand'],
    handle: async (request) => {
      const { params, body } = request;
      const { row } = await parts.containerActions.preempt(params['containerId'] ?? '', body.end_calls);
      const { workspaceId } = row;
      const target = { type: 'container', id: row.id };
      await parts.trail.transaction((_tx, say) => {
        const attrs = { end_calls: body.end_calls };
        say(actorBehind(request), 'audit.container.preempted', { workspaceId, containerId: row.id, target, attrs });
        return Promise.resolve();
      });
      return {
        container_id: row.id,
        workspace_id: workspaceId,
        notice_seconds: parts.noticeMs() / 1000,
        ends_calls: body.end_calls,
      };
    },
  });
}
