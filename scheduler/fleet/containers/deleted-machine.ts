import type { ContainerRow } from '../../stores/store/queries/containers.ts';
import type { Book, Moved } from './book.ts';

/**
 * Moves a container off its deleted machine: one that was not taken
 * there yet looks for another place, every other one is lost.
 */
export function endOnDeleted(book: Pick<Book, 'transition'>, row: ContainerRow): Promise<Moved> {
  const { id, state, epoch } = row;
  return state === 'ASSIGNED'
    ? book.transition(id, 'revoke', { epoch, change: { machineId: null, assignmentId: null } })
    : book.transition(id, 'delete', { epoch, change: { reason: 'lost' } });
}
