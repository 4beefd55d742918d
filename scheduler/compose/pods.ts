// Pods and sandboxes: containers made by hand, their uses, and the streams into containers.
import { ContainerStreams } from '../fleet/container-streams.ts';
import type { ContainerActions } from '../fleet/containers/actions.ts';
import { HandMadeContainers } from '../fleet/containers/hand-made.ts';
import { ContainerUses } from '../fleet/containers/uses.ts';
import { ContainerWaits } from '../fleet/containers/waits.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Identity } from './identity.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { TaskParts } from './tasks.ts';

export interface PodParts {
  readonly containerStreams: ContainerStreams;
  readonly handMade: HandMadeContainers;
  readonly containerUses: ContainerUses;
  readonly containerWaits: ContainerWaits;
}

export function openPods(
  { db, keys, instance, clock, log }: Infrastructure,
  { limits }: Identity,
  { bus, containers, isLeader }: ClusterState,
  { streams }: Pick<TaskParts, 'streams'>,
  actions: ContainerActions,
): PodParts {
  return {
    containerStreams: new ContainerStreams({ instance, bus, channel: keys.orderedContainersChannel, streams }),
    handMade: new HandMadeContainers({
      containers,
      mostOf: async (workspaceId) => (await limits.of(workspaceId)).counts.sandboxes,
    }),
    containerUses: new ContainerUses({ db, containers, actions, isLeader, clock, log }),
    containerWaits: new ContainerWaits(containers, db),
  };
}
