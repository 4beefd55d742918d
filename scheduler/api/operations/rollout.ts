import type { Rollout } from '#shared/api/deployments.ts';
import { timestampOf } from '#shared/api/fields.ts';
import { startTimeoutMsOf } from '../../domain/start-timeout.ts';
import type { DeploymentRow } from '../../stores/store/queries/deployments.ts';

/** A version's rollout, as answers show it; null: it had none. @param config - of its stub, as stored */
export function rolloutOf(
  row: Pick<DeploymentRow, 'rollout' | 'rolloutSinceMs' | 'rolloutWhy'>,
  config: object | undefined,
): Rollout | null {
  const { rollout: state, rolloutSinceMs: sinceMs, rolloutWhy: why } = row;
  if (state === null) return null;
  const untilMs = state === 'waiting' && sinceMs !== null ? sinceMs + startTimeoutMsOf(config) : null;
  return { state, why, since: timestampOf(sinceMs), until: timestampOf(untilMs) };
}
