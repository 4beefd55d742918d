// Comparison of what the planner counts for containers with their rows, which decide. Every change is told to the
// planner, so a difference is a fault of this program. It is corrected and counted.
import type { ContainerId } from '#shared/domain/ids.ts';
import { isTerminalContainer } from '#shared/domain/status.ts';
import type { ContainerControl } from '../../fleet/containers/container-registry.ts';
import type { Holding, Ledger } from '../plan/ledger.ts';
import type { Planner } from '../plan/planner.ts';
import { holdingOf } from './snapshot.ts';

const COMPARED = ['workspaceId', 'queue', 'machineId', 'gpuCount', 'cpuMillicores', 'memoryBytes'] as const;

/**
 * Corrects what is counted, container by container. Must not run while choices are being written.
 * @returns after each container: whether it was counted wrongly. Other work may have its turn then
 */
export function* corrections(
  planner: Pick<Planner, 'hold' | 'release'> & { readonly ledger: Pick<Ledger, 'get' | 'ids'> },
  containers: Pick<ContainerControl, 'all' | 'get'>,
  nowMs: () => number,
): Generator<ContainerId | undefined> {
  const corrected = (id: ContainerId): ContainerId | undefined => {
    const entry = containers.get(id);
    const hasPlace = entry !== undefined && entry.row.state !== 'PENDING' && !isTerminalContainer(entry.row.state);
    const its: Holding | undefined = hasPlace ? holdingOf(entry, nowMs()) : undefined;
    const counted = planner.ledger.get(id);
    if (COMPARED.every((name) => its?.[name] === counted?.[name])) return undefined;
    if (counted !== undefined) planner.release(id, counted.workspaceId);
    if (its !== undefined) planner.hold(id, its);
    return id;
  };
  for (const id of planner.ledger.ids()) yield corrected(id);
  for (const { row } of containers.all()) if (planner.ledger.get(row.id) === undefined) yield corrected(row.id);
}
