// Changes to tasks and containers from outside: by users, by external runners, and by deployments that stop or go.
import { outcomes } from '../api/http/invoke/outcomes.ts';
import { ContainerActions } from '../fleet/containers/actions.ts';
import type { Records } from './records.ts';
import { openTaskIdsOfQueue } from '../stores/store/queries/tasks.ts';
import { revokeMessage } from '../replicas/outcome-messages.ts';
import { TaskActions } from '../tasks/actions.ts';
import { Cancellation } from '../tasks/completion/cancellation.ts';
import { DeploymentStops } from '../tasks/deployment-stops.ts';
import type { TaskBodies } from '../tasks/dispatch/bodies.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { LocalQueueParts } from './local-queue.ts';
import type { TaskMaintenance } from './task-maintenance.ts';
import type { TaskParts } from './tasks.ts';

export interface ActionsSetup {
  readonly infrastructure: Infrastructure;
  readonly clusterState: ClusterState;
  readonly localQueue: LocalQueueParts;
  readonly records: Records;
  readonly bodies: TaskBodies;
  readonly taskParts: TaskParts;
  readonly maintenance: TaskMaintenance;
}

export interface ActionParts {
  readonly actions: TaskActions;
  readonly cancellation: Cancellation;
  readonly deploymentStops: DeploymentStops;
  readonly containerActions: ContainerActions;
}

export function openActions(setup: ActionsSetup): ActionParts {
  const { infrastructure, clusterState, localQueue, bodies, taskParts, maintenance } = setup;
  const { db, keys, clock, log } = infrastructure;
  const { bus, containers, slots, leases, credentials } = clusterState;
  const { attempts, completion, changes } = taskParts;
  const { records } = setup.records;
  const { queues, replies } = localQueue;
  const common = { attempts, completion, changes, queues, records, replies, leases, bodies, clock, log };
  const cancellation = new Cancellation({
    ...common,
    revokeElsewhere: (...revoked) => bus.publish(keys.revokeChannel, revokeMessage(...revoked, outcomes)),
  });
  const containerActions = new ContainerActions(containers, slots, (id) => credentials.ended([id]));
  const deploymentStops = new DeploymentStops({
    ...common,
    cancellation,
    containers: containerActions,
    openTasks: (queue, limit, after) => openTaskIdsOfQueue(db, queue, limit, after),
  });
  const actions = new TaskActions({ ...common, cancellation, foreign: maintenance.foreign });
  return { actions, cancellation, deploymentStops, containerActions };
}
