// Workers and their drains.
import type { Autoscaler } from '../control/autoscaler/loop.ts';
import type { ContainerRegistry } from '../fleet/containers/container-registry.ts';
import type { ContainerCredentials } from '../fleet/containers/credentials.ts';
import type { LeaderContainerRegistry } from '../fleet/containers/leader-container-registry.ts';
import type { SlotTable } from '../tasks/dispatch/slots.ts';
import { Drains } from '../fleet/drains.ts';
import type { MachineEvents } from '../fleet/machine-events.ts';
import type { Machines } from '../fleet/machines.ts';
import type { ProviderNames } from '../fleet/provisioning/provider-names.ts';
import { Workers } from '../fleet/workers.ts';
import type { Loads } from '../cluster/loads.ts';
import type { Db } from '../stores/store/db.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';

export interface WorkerParts {
  readonly workers: Workers;
  readonly drains: Drains;
}

export function openWorkers(parts: {
  readonly db: Db;
  readonly machines: Machines;
  readonly containers: ContainerRegistry;
  readonly credentials: ContainerCredentials;
  readonly leaderContainers: LeaderContainerRegistry;
  readonly slots: SlotTable;
  readonly loads: Loads;
  readonly autoscaler: Autoscaler;
  readonly clock: Clock;
  readonly log: Log;
  readonly fence: () => number | undefined;
  readonly cpuWorkAllowed: (poolName: string) => boolean;
  readonly machineEvents: MachineEvents;
  readonly providers: ProviderNames;
}): WorkerParts {
  const { autoscaler, credentials, fence } = parts;
  const drains = new Drains({
    ...parts,
    isLeader: () => fence() !== undefined,
    demandOf: (queue) => autoscaler.demandOf(queue),
  });
  return { drains, workers: new Workers({ ...parts, drains, tellEnded: (ids) => credentials.ended(ids) }) };
}
