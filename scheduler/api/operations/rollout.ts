import type { Rollout } from '#shared/api/deployments.ts';
import { timestampOf } from '#shared/api/fields.ts';
import { START_TIMEOUT_MS } from '../../fleet/containers/spec.ts';
import type { DeploymentRow } from '../../stores/store/queries/deployments.ts';

/** A version's rollout, as answers show it; null: it had none. */
export function rolloutOf(row: Pick<DeploymentRow, 'rollout' | 'rolloutSinceMs' | 'rolloutWhy'>): Rollout | null {
  const { rollout: state, rolloutSinceMs: sinceMs, rolloutWhy: why } = row;
  if (state === null) return null;
  const untilMs = state === 'waiting' && sinceMs !== null ? sinceMs + START_TIMEOUT_MS : null;
  return { state, why, since: timestampOf(sinceMs), until: timestampOf(untilMs) };
}
