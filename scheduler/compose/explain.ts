// Explanations: the replica that was asked gathers them, and asks the leader for facts that only the leader has.
import { DeploymentHealth } from '../api/explain/health.ts';
import { ScalingRelay } from '../api/explain/relay.ts';
import { Explain } from '../api/explain/service.ts';
import type { ProvisioningLoop } from '../control/provisioning/loop.ts';
import type { Target } from '../domain/stub-config.ts';
import type { ServeLeases } from '../workspaces/deployments/serve-leases.ts';
import { TaskStatistics } from '../tasks/records/task-stats.ts';
import { EventReads } from '../workspaces/events/reads.ts';
import type { Targets } from '../workspaces/deployments/targets.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { Identity } from './identity.ts';
import type { LineParts } from './lines.ts';
import type { LinkParts } from './links.ts';
import type { Scaling } from './scaling.ts';
import type { TaskParts } from './tasks.ts';

export interface ExplainSetup {
  readonly infrastructure: Infrastructure;
  readonly identity: Identity;
  readonly clusterState: ClusterState;
  readonly targets: Targets;
  readonly lineParts: LineParts;
  readonly taskParts: TaskParts;
  readonly scaling: Scaling;
  readonly provisioning: ProvisioningLoop;
  readonly linkParts: LinkParts;
  readonly serves: Pick<ServeLeases, 'refusal'>;
}

export interface ExplainRoom {
  readonly explain: Explain;
  readonly deploymentHealth: DeploymentHealth;
  readonly taskStatistics: TaskStatistics;
  readonly relay: ScalingRelay;
}

/** Opened before the bus starts, which subscribes to the channels named by then. */
export function openExplain(setup: ExplainSetup): ExplainRoom {
  const { infrastructure, identity, clusterState, targets, lineParts, taskParts, scaling, linkParts } = setup;
  const relay = new ScalingRelay({
    bus: clusterState.bus,
    channel: infrastructure.keys.explainChannel,
    isLeader: clusterState.isLeader,
    log: infrastructure.log,
  });
  const shared = {
    ...infrastructure,
    ...clusterState,
    refusalOf: (target: Target) => setup.serves.refusal(target) ?? clusterState.feasibility.refusal(target),
    targets,
    tasks: taskParts.reads,
  };
  const explain = new Explain({
    ...shared,
    hasRegistry: infrastructure.settings.LONGSHORE_REGISTRY !== undefined,
    limits: identity.limits,
    usage: linkParts.usage,
    placer: scaling.placer,
    provisioning: setup.provisioning,
    autoscaler: scaling.autoscaler,
    queues: lineParts.lines,
    events: new EventReads(infrastructure.db),
    scaling: (queue) => relay.scaling(queue),
  });
  const taskStatistics = new TaskStatistics({ ...infrastructure, caughtUp: () => taskParts.reads.caughtUp() });
  const deploymentHealth = new DeploymentHealth({
    ...shared,
    statistics: taskStatistics,
    scalings: (queues) => relay.scalings(queues),
  });
  return { explain, deploymentHealth, taskStatistics, relay };
}
