// Pods and sandboxes: containers made by hand, their uses, and the streams into containers.
import { Snapshots } from '../fleet/builds/snapshots.ts';
import { ContainerStreams } from '../fleet/container-streams.ts';
import type { ContainerActions } from '../fleet/containers/actions.ts';
import { HandMadeContainers } from '../fleet/containers/hand-made.ts';
import { ContainerUses } from '../fleet/containers/uses.ts';
import { ContainerWaits } from '../fleet/containers/waits.ts';
import { Access } from '../fleet/inside/access.ts';
import { ContainerChanges } from '../fleet/inside/changes.ts';
import { Inside } from '../fleet/inside/inside.ts';
import { Engines } from '../fleet/engines/engines.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Identity } from './identity.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { TaskParts } from './tasks.ts';

export interface PodParts {
  readonly containerStreams: ContainerStreams;
  readonly handMade: HandMadeContainers;
  readonly containerUses: ContainerUses;
  readonly containerWaits: ContainerWaits;
  readonly containerChanges: ContainerChanges;
  readonly access: Access;
  readonly inside: Inside;
  readonly engines: Engines;
  readonly snapshots: Snapshots;
}

export function openPods(
  { db, keys, instance, clock, log }: Infrastructure,
  { limits }: Identity,
  { bus, containers, machines, slots, isLeader }: ClusterState,
  { streams }: Pick<TaskParts, 'streams'>,
  actions: ContainerActions,
): PodParts {
  const containerStreams = new ContainerStreams({
    instance,
    bus,
    channel: keys.orderedContainersChannel,
    streams,
    machines,
  });
  const containerUses = new ContainerUses({ db, containers, actions, isLeader, clock, log });
  const containerWaits = new ContainerWaits(containers, db);
  const containerChanges = new ContainerChanges({ bus, channel: keys.containerChangesChannel });
  const inside = new Inside({ streams: containerStreams, hold: (containerId) => containerUses.hold(containerId) });
  return {
    containerStreams,
    handMade: new HandMadeContainers({
      containers,
      mostOf: async (workspaceId) => (await limits.of(workspaceId)).counts.sandboxes,
    }),
    containerUses,
    containerWaits,
    containerChanges,
    access: new Access({ waits: containerWaits }),
    inside,
    engines: new Engines({ slots, containers, inside, log }),
    snapshots: new Snapshots({ db, instance, changes: containerChanges, log }),
  };
}
