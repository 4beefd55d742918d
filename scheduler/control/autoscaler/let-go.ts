import type { ContainerId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerControl, Moved } from '../../fleet/containers/container-registry.ts';
import type { Loads } from '../../cluster/loads.ts';
import type { SlotTable } from '../../tasks/dispatch/slots.ts';

export interface LetGoParts {
  readonly containers: Pick<ContainerControl, 'get' | 'transition'>;
  readonly slots: Pick<SlotTable, 'get' | 'leave' | 'stay'>;
  readonly loads: Pick<Loads, 'isHere'>;
  readonly log: Log;
}

/**
 * Stops a container that still has no attempt at this very moment: it gets no more tasks, then the order to
 * stop. A container linked to another replica is only asked to leave, and stops when that one sees it idle.
 */
export async function letGo({ containers, slots, loads, log }: LetGoParts, id: ContainerId): Promise<void> {
  const entry = containers.get(id);
  if (entry === undefined) return;
  const container = slots.get(id);
  if (container !== undefined && container.inFlight > 0) return;
  slots.leave(id);
  const { state } = entry.row;
  const isServed = state === 'RUNNING' && !loads.isHere(id);
  const event = state === 'PENDING' || state === 'ASSIGNED' ? 'abandon' : isServed ? 'drain' : 'stop';
  let moved: Moved = 'refused';
  try {
    moved = await containers.transition(id, event, { change: { reason: 'scaled_in' } });
  } finally {
    // The container still counts as live, so it must go on taking tasks.
    if (moved === 'refused') slots.stay(id);
  }
  if (moved !== 'refused') log.info({ containerId: id, queue: entry.spec.queue }, 'scaling in');
}
