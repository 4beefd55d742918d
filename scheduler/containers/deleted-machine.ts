import type { ContainerRow } from '../store/queries/containers.ts';
import type { Book, Moved } from './book.ts';

/** Its machine is deleted: what had not been taken there looks for another place, everything else is lost. */
export function endOnDeleted(book: Pick<Book, 'transition'>, row: ContainerRow): Promise<Moved> {
  const { id, state, epoch } = row;
  return state === 'ASSIGNED'
    ? book.transition(id, 'revoke', { epoch, change: { machineId: null, assignmentId: null } })
    : book.transition(id, 'delete', { epoch, change: { reason: 'lost' } });
}
