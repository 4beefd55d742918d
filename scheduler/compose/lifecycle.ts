// The parts that start, in order; they stop in the reverse order. A start that fails stops the parts before it.
import type { Part } from '#shared/lifecycle.ts';
import type { RedisMemory } from '../stores/queues/redis-memory.ts';
import type { Surfaces } from '../api/http/surfaces.ts';
import type { MachineHealth } from '../fleet/health.ts';
import { exportsPart } from './exports.ts';
import type { ObjectParts } from './objects.ts';
import type { PoolParts } from './pools.ts';
import { recordsPart } from './records.ts';
import { predecessorsPart } from './replicas.ts';
import { grpcPart, httpPart } from './surfaces.ts';
import type { Wired } from './wired.ts';

export interface Started extends Wired {
  readonly poolParts: PoolParts;
  readonly objectParts: ObjectParts;
  readonly redisMemory: RedisMemory;
  readonly health: MachineHealth;
  readonly retention: Part;
  readonly surfaces: Surfaces;
}

/** @param opened - stores that are open already, and are closed last */
export function startOrder(opened: readonly Part[], parts: Started): readonly Part[] {
  const {
    infrastructure,
    identity,
    clusterState,
    targets,
    taskParts,
    scaling,
    linkParts,
    maintenance,
    replicas,
    workers,
  } = parts;
  const { presence, machines, containers, leader } = clusterState;
  return [
    ...opened,
    identity.invalidation,
    identity.closed,
    parts.tokenUses,
    targets,
    predecessorsPart(infrastructure, clusterState),
    presence,
    // Listening comes first, so that writes during the reading of rows are noticed.
    ...replicas.listening,
    parts.poolParts.declaring,
    parts.poolParts.poolDirectory,
    machines,
    clusterState.agentReports,
    { name: 'containers', start: () => containers.load() },
    leader,
    parts.serves,
    parts.redisMemory,
    recordsPart(parts.records),
    parts.records.moving,
    ...parts.credits.parts,
    parts.settingParts.runtimeSettings,
    parts.webhooks.deliveries,
    parts.webhooks.counting,
    parts.eventWebhooks.part,
    parts.events.hub,
    parts.events.passing,
    parts.events.collected,
    parts.liveLogs.hub,
    exportsPart(parts.exporters),
    ...maintenance.beforeTasks,
    taskParts.tasks,
    taskParts.queueing,
    taskParts.due,
    taskParts.dispatcher,
    parts.seriesParts.containerSamples,
    parts.seriesParts.poolSamples,
    scaling.leaseChecks,
    scaling.placer,
    scaling.recordings,
    scaling.autoscaler,
    scaling.rollouts,
    // Links close in between: before that no more calls come from other replicas, and after it their attempts go there.
    { name: 'hand-over of calls', stop: () => taskParts.peers.moves.over() },
    linkParts.links,
    { name: 'offers of calls', stop: () => taskParts.peers.crossing.leave() },
    parts.gauges.openTasks,
    infrastructure.stall,
    parts.health,
    workers,
    parts.provisioned,
    parts.provisioning,
    ...maintenance.afterTasks,
    parts.objectParts.collecting,
    ...parts.imageUpkeep,
    parts.builds,
    parts.podParts.containerUses,
    parts.podParts.engines,
    ...[parts.registryParts.builtRegistry?.sweeping].filter((part) => part !== undefined),
    parts.retention,
    parts.deletionRounds,
    ...replicas.running,
    parts.scheduleParts.looks,
    parts.deferredUpkeep,
    parts.deferredExecutor,
    httpPart(parts.surfaces, infrastructure, clusterState),
    grpcPart(parts.surfaces),
  ];
}
