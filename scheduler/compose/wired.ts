// The parts that are wired: all of them, and those around the links of agents.
import type { ScalingRelay } from '../api/explain/relay.ts';
import type { Explain } from '../api/explain/service.ts';
import type { ContainerCalls } from '../api/http/container-calls.ts';
import type { ContainerUses } from '../fleet/containers/uses.ts';
import type { Loads } from '../cluster/loads.ts';
import type { Drains } from '../fleet/drains.ts';
import type { CacheVolumes } from '../fleet/cache-volumes.ts';
import type { VolumeStreams } from '../fleet/volume-streams.ts';
import type { Workers } from '../fleet/workers.ts';
import type { StreamRelay } from '../replicas/stream-relay.ts';
import type { Objects } from '../stores/objects/service.ts';
import type { ProvisioningLoop } from '../control/provisioning/loop.ts';
import type { Cancellation } from '../tasks/completion/cancellation.ts';
import type { DeploymentStops } from '../tasks/deployment-stops.ts';
import type { ServeLeases } from '../workspaces/deployments/serve-leases.ts';
import type { Targets } from '../workspaces/deployments/targets.ts';
import type { BuildParts } from './builds.ts';
import type { ClusterState } from './cluster-state.ts';
import type { CreditParts } from './credits.ts';
import type { DeferredParts } from './deferred-calls.ts';
import type { Events } from './events.ts';
import type { Exporter } from '../fleet/exports/exporter.ts';
import type { Gauges } from './gauges.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { Identity, TokenParts } from './identity.ts';
import type { LineParts } from './lines.ts';
import type { LinkParts } from './links.ts';
import type { LiveLogParts } from './live-logs.ts';
import type { PoolParts } from './pools.ts';
import type { Provisioner } from '../fleet/provisioning/provisioner.ts';
import type { Records } from './records.ts';
import type { PodParts } from './pods.ts';
import type { RegistryParts } from './registry.ts';
import type { Replicas } from './replicas.ts';
import type { Scaling } from './scaling.ts';
import type { ScheduleParts } from './schedules.ts';
import type { SeriesParts } from './series.ts';
import type { TaskMaintenance } from './task-maintenance.ts';
import type { TaskParts } from './tasks.ts';
import type { EventWebhooks } from './event-webhooks.ts';
import type { Webhooks } from './webhooks.ts';
import type { WorkspaceDeletionParts } from './workspace-deletion.ts';

export interface Wired extends DeferredParts, Pick<WorkspaceDeletionParts, 'deletionRounds'> {
  readonly infrastructure: Infrastructure;
  readonly events: Events;
  readonly liveLogs: LiveLogParts;
  readonly exporters: readonly Exporter[];
  readonly identity: Identity;
  readonly tokenUses: TokenParts['tokenUses'];
  readonly clusterState: ClusterState;
  readonly targets: Targets;
  readonly objects: Objects;
  readonly lineParts: LineParts;
  readonly records: Records;
  readonly credits: CreditParts;
  readonly taskParts: TaskParts;
  readonly scaling: Scaling;
  readonly linkParts: LinkParts;
  readonly maintenance: TaskMaintenance;
  readonly cancellation: Cancellation;
  readonly deploymentStops: DeploymentStops;
  readonly serves: ServeLeases;
  readonly replicas: Replicas;
  readonly workers: Workers;
  readonly drains: Drains;
  readonly provisioned: Provisioner;
  readonly provisioning: ProvisioningLoop;
  readonly poolParts: Pick<PoolParts, 'poolDirectory'>;
  readonly containerCalls: ContainerCalls;
  readonly streamRelay: StreamRelay;
  readonly volumeStreams: VolumeStreams;
  readonly podParts: PodParts;
  readonly cacheVolumes: CacheVolumes;
  readonly buildStreams: BuildParts['buildStreams'];
  readonly builds: BuildParts['builds'];
  readonly rebuilds: BuildParts['rebuilds'];
  readonly imageCollector: BuildParts['imageCollector'];
  readonly imageUpkeep: BuildParts['imageUpkeep'];
  readonly registryParts: RegistryParts;
  readonly explain: Explain;
  readonly relay: ScalingRelay;
  readonly gauges: Gauges;
  readonly scheduleParts: ScheduleParts;
  readonly seriesParts: SeriesParts;
  readonly webhooks: Webhooks;
  readonly eventWebhooks: EventWebhooks;
}

/** Parts around the links of agents. */
export interface WiredLinks {
  readonly clusterState: Pick<ClusterState, 'containers' | 'machines' | 'slots'> & {
    readonly loads: Pick<Loads, 'of' | 'tellLast' | 'forget'>;
  };
  readonly linkParts: LinkParts;
  readonly podParts: { readonly containerUses: Pick<ContainerUses, 'hold'> };
  readonly taskParts: Pick<TaskParts, 'attempts' | 'changes' | 'dispatcher' | 'drainCutoff' | 'reports' | 'streams'>;
}
