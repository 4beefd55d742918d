// Events of a breaker: a stub warns, is degraded, or starts again. Pure. Source: REST §9.2.
import type { Target } from '../../domain/stub-config.ts';
import type { EventGiven } from '../../workspaces/events/writer.ts';
import type { Breaker } from './breaker.ts';

export type StubState = 'healthy' | 'warning' | 'degraded';

/** warning: starts failed; degraded: so many in a row that the breaker is open. */
export const stubStateOf = ({ failures, opened }: Pick<Breaker, 'failures' | 'opened'>): StubState =>
  opened > 0 ? 'degraded' : failures > 0 ? 'warning' : 'healthy';

/** The event of a change; undefined: the state is the one before. */
export function stubStateChanged(
  target: Target,
  before: Breaker,
  after: Breaker,
  atMs: number,
): EventGiven | undefined {
  const [previous, state] = [stubStateOf(before), stubStateOf(after)];
  if (previous === state) return undefined;
  const last = after.last ?? before.last;
  const containers = state === 'healthy' || last === null ? [] : [last.containerId];
  return {
    workspaceId: target.workspaceId,
    appId: target.appId,
    stubId: target.stubId,
    stubType: target.config.stubType,
    ...(target.deploymentId === null ? {} : { deploymentId: target.deploymentId }),
    type: `stub.state.${state}`,
    atMs,
    data: {
      id: target.stubId,
      workspace_id: target.workspaceId,
      deployment_id: target.deploymentId ?? '',
      state,
      previous_state: previous,
      reason: state === 'healthy' ? '' : (last?.reason ?? ''),
      failures: after.failures,
      failed_containers: containers,
    },
  };
}
