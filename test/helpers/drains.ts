import { MachineEvents } from '#scheduler/fleet/machine-events.ts';
import { EventWriter } from '#scheduler/workspaces/events/writer.ts';
import type { Clock } from '#shared/clock.ts';
import { newInstanceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerControl, ContainerRegistry } from '../../scheduler/fleet/containers/container-registry.ts';
import type { SlotTable } from '../../scheduler/tasks/dispatch/slots.ts';
import { wireWorkers } from '../../scheduler/compose/wiring.ts';
import { Drains } from '../../scheduler/fleet/drains.ts';
import type { DrainsParts } from '../../scheduler/fleet/drains.ts';
import type { Machines } from '../../scheduler/fleet/machines.ts';
import { Workers } from '../../scheduler/fleet/workers.ts';
import { ALONE } from '../../scheduler/cluster/bus.ts';
import { Loads } from '../../scheduler/cluster/loads.ts';
import type { Db } from '../../scheduler/stores/store/db.ts';

/** Workers of a process without a scaling loop: queues want no containers, unless `parts` say otherwise. */
export function aWorkers(
  parts: {
    readonly db: Db;
    readonly machines: Machines;
    readonly containers: ContainerRegistry;
    readonly leaderContainers?: Pick<ContainerControl, 'transition'>;
    readonly slots: SlotTable;
    readonly clock: Clock;
    readonly log: Log;
    readonly fence?: () => number | undefined;
  } & Partial<Pick<DrainsParts, 'demandOf'>>,
): Workers {
  const { slots, fence = () => 1 } = parts;
  const loads = new Loads({
    bus: ALONE,
    channel: 'decide',
    instance: newInstanceId(),
    slots,
    isLive: () => true,
  });
  const drains = new Drains({
    leaderContainers: parts.containers,
    demandOf: () => Promise.resolve({ wanted: 0, minContainers: 0 }),
    ...parts,
    loads,
    isLeader: () => fence() !== undefined,
  });
  const machineEvents = new MachineEvents(parts.db, new EventWriter(), () => Date.now());
  const workers = new Workers({ ...parts, drains, fence, machineEvents, cpuWorkAllowed: () => true });
  wireWorkers({ ...parts, drains, workers });
  return workers;
}
