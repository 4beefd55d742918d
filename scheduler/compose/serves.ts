// Leases of development servers.
import { ServeLeaseStore } from '../stores/queues/serve-leases.ts';
import { ServeLeases } from '../workspaces/deployments/serve-leases.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Infrastructure } from './infrastructure.ts';

/** Opened before the bus starts, which subscribes to the channels named by then. */
export const openServeLeases = (
  { general, keys, clock, log }: Infrastructure,
  { bus, isLeader }: Pick<ClusterState, 'bus' | 'isLeader'>,
): ServeLeases =>
  new ServeLeases({
    store: new ServeLeaseStore(general, keys),
    bus,
    channel: keys.serveLeasesChannel,
    isLeader,
    clock,
    log,
  });
