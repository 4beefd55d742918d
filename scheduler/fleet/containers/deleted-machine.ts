import type { ContainerRow } from '../../stores/store/queries/containers.ts';
import type { ContainerControl, Moved } from './container-registry.ts';

/**
 * Moves a container off its deleted machine: one that was not taken
 * there yet looks for another place, every other one is lost.
 */
export function endOnDeleted(containers: Pick<ContainerControl, 'transition'>, row: ContainerRow): Promise<Moved> {
  const { id, state, epoch } = row;
  return state === 'ASSIGNED'
    ? containers.transition(id, 'revoke', { epoch, change: { machineId: null, assignmentId: null } })
    : containers.transition(id, 'delete', { epoch, change: { reason: 'lost' } });
}
