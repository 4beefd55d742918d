// Facts about the present: the replicas and the leader among them,
// the machines, the containers on them, and the load of those.
// Invariant: a process that starts reads everything here again from the stores.
// Only the leader's own container registry makes the writes that are reserved to the leader.
import type { Part } from '#shared/lifecycle.ts';
import type { InstanceId } from '#shared/domain/ids.ts';
import { ContainerRegistry } from '../fleet/containers/container-registry.ts';
import { ContainerCredentials } from '../fleet/containers/credentials.ts';
import { LeaderContainerRegistry } from '../fleet/containers/leader-container-registry.ts';
import { Leases } from '../tasks/dispatch/leases.ts';
import { SlotTable } from '../tasks/dispatch/slots.ts';
import { FleetMetrics } from '../fleet/metrics.ts';
import { mostShared } from '../fleet/pool-admission.ts';
import type { MostPools } from '../fleet/pool-admission.ts';
import { LeaderLease } from '../cluster/leader.ts';
import { LeaderLoop } from '../cluster/leader-loop.ts';
import type { LeaderLoopOptions } from '../cluster/leader-loop.ts';
import { FeasibilityCheck } from '../control/placement/feasibility-check.ts';
import { Presence } from '../cluster/presence.ts';
import { RedisData } from '../stores/queues/redis-data.ts';
import type { Bus } from '../cluster/bus.ts';
import { ALONE, RedisBus } from '../cluster/bus.ts';
import { Loads } from '../cluster/loads.ts';
import { ReservedTokens } from '../cluster/reserved-tokens.ts';
import { RemoteCapacity } from '../replicas/remote-capacity.ts';
import { TakeOver } from '../replicas/take-over.ts';
import type { Infrastructure } from './infrastructure.ts';
import { InstallationTrail } from '../workspaces/events/installation-trail.ts';
import { MachineEvents } from '../fleet/machine-events.ts';
import type { Events } from './events.ts';
import type { Identity } from './identity.ts';
import { openMachines } from './machines.ts';
import type { MachineParts } from './machines.ts';

export interface ClusterState extends MachineParts {
  readonly bus: Bus;
  /** Whether no other scheduler process can have the same stores. */
  readonly isAlone: boolean;
  readonly redisData: RedisData;
  readonly presence: Presence;
  readonly isAlive: (replica: InstanceId) => boolean | Promise<boolean>;
  readonly leader: LeaderLease;
  readonly takeOver: TakeOver;
  readonly isLeader: () => boolean;
  /** Makes a part of work that the leader alone does, again and again. */
  readonly leaderLoop: <T>(options: Omit<LeaderLoopOptions<T>, 'leader' | 'log'>) => Part;
  /** The fencing number of the leader's writes; undefined: this replica does not lead. */
  readonly fence: () => number | undefined;
  readonly fleetMetrics: FleetMetrics;
  readonly machineEvents: MachineEvents;
  readonly mostPoolsOf: MostPools;
  readonly feasibility: FeasibilityCheck;
  readonly containers: ContainerRegistry;
  readonly leaderContainers: LeaderContainerRegistry;
  readonly credentials: ContainerCredentials;
  readonly slots: SlotTable;
  readonly leases: Leases;
  readonly loads: Loads;
  readonly reservedTokens: ReservedTokens;
  readonly remoteCapacity: RemoteCapacity;
}

export function openClusterState(
  infrastructure: Infrastructure,
  { installation, invalidation, limits }: Identity,
  { writer: events }: Pick<Events, 'writer'>,
): ClusterState {
  const { db, hot, general, subscriber, keys, instance, clock, log, registry } = infrastructure;
  // Embedded records have one owner at a time, so there is no other replica.
  const bus = db.kind === 'pglite' ? ALONE : new RedisBus(hot, subscriber, log);
  const isAlone = bus === ALONE;
  const slots = new SlotTable();
  const leases = new Leases(hot, keys);
  const presence = new Presence({ redis: general, keys, instance, log });
  const fleetMetrics = new FleetMetrics(registry);
  const containers = new ContainerRegistry({ db, log, clock, told: { db, events } });
  const machineEvents = new MachineEvents(db, events, () => clock.nowMs());
  const mostPoolsOf: MostPools = async (workspaceId) =>
    workspaceId === null ? mostShared(null) : (await limits.of(workspaceId)).counts.pools;
  const machineParts = openMachines({
    db,
    machineEvents,
    trail: new InstallationTrail(db, events, () => clock.nowMs()),
    log,
    clock,
    metrics: fleetMetrics,
    caFingerprint: installation.caFingerprint,
    containers,
    mostUnjoinedOf: async (workspaceId) => (await limits.of(workspaceId)).counts.unjoined_machines,
    mostPoolsOf,
    instance,
    isAlive: (replica) => presence.isAlive(replica),
  });
  const { machines } = machineParts;
  const takeOver = new TakeOver({ db, machines, containers });
  const leader = new LeaderLease({
    client: general,
    keys,
    instance,
    log,
    raise: (fence) => takeOver.raise(fence),
    onFreed: () => bus.publish(keys.leaderChannel, instance),
  });
  bus.on(keys.leaderChannel, () => leader.freed());
  const loads = new Loads({
    bus,
    channel: keys.decideChannel,
    instance,
    slots,
    isLive: (containerId) => containers.get(containerId) !== undefined,
  });
  return {
    bus,
    isAlone,
    redisData: new RedisData({ client: hot, keys, instance, clock, log }),
    presence,
    isAlive: (replica) => presence.isAlive(replica) || presence.ask(replica),
    leader,
    takeOver,
    isLeader: () => leader.isLeader(),
    leaderLoop: (options) => new LeaderLoop({ ...options, leader, log }),
    fence: () => leader.fence(),
    fleetMetrics,
    machineEvents,
    mostPoolsOf,
    ...machineParts,
    feasibility: new FeasibilityCheck(machines, clock),
    containers,
    leaderContainers: new LeaderContainerRegistry(containers, () => leader.fence()),
    credentials: new ContainerCredentials({
      db,
      containers,
      invalidation,
      isAlone,
      hasMachine: (id) => machines.get(id) !== undefined,
    }),
    slots,
    leases,
    loads,
    reservedTokens: new ReservedTokens({ bus, channel: keys.decideChannel, instance }),
    remoteCapacity: new RemoteCapacity({ instance, containers, machines, loads }),
  };
}
