// Changes to tasks and containers from outside: by users, by external runners, and by deployments that stop or go.
import { ContainerActions } from '../fleet/containers/actions.ts';
import type { Records } from './records.ts';
import { openTaskIdsOfQueue } from '../stores/store/queries/tasks.ts';
import { REPLACED } from '../domain/endings.ts';
import type { RevokeMessage } from '../replicas/outcome-messages.ts';
import type { TaskActionsParts } from '../tasks/actions.ts';
import { TaskActions } from '../tasks/actions.ts';
import type { CancellationParts } from '../tasks/completion/cancellation.ts';
import { CancelEvents } from '../tasks/completion/cancel-events.ts';
import { Cancellation } from '../tasks/completion/cancellation.ts';
import type { DeploymentStopsParts } from '../tasks/deployment-stops.ts';
import { DeploymentStops } from '../tasks/deployment-stops.ts';
import type { Singles } from '../tasks/admission/singles.ts';
import type { TaskBodies } from '../tasks/dispatch/bodies.ts';
import type { Targets } from '../workspaces/deployments/targets.ts';
import type { ClusterState } from './cluster-state.ts';
import type { DeferredParts } from './deferred-calls.ts';
import type { Events } from './events.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { LineParts } from './lines.ts';
import type { TaskMaintenance } from './task-maintenance.ts';
import type { TaskParts } from './tasks.ts';

export interface ActionsSetup {
  readonly infrastructure: Infrastructure;
  readonly events: Pick<Events, 'writer'>;
  readonly clusterState: ClusterState;
  readonly targets: Targets;
  readonly lineParts: LineParts;
  readonly records: Records;
  readonly bodies: TaskBodies;
  readonly taskParts: TaskParts;
  readonly maintenance: TaskMaintenance;
  readonly deferredParts: Pick<DeferredParts, 'deferredCalls'>;
}

/** Parts of other rooms, and questions to them, that changes from outside need. */
export type ActionNeeds = Omit<TaskActionsParts, 'cancellation'> &
  CancellationParts &
  Omit<DeploymentStopsParts, 'cancellation'> & {
    /** Cancels what a later call replaces. Absent: nothing is replaced. */
    readonly singles?: Pick<Singles, 'cancelBy'> | undefined;
  };

export interface OutsideActions {
  readonly actions: TaskActions;
  readonly cancellation: Cancellation;
  readonly deploymentStops: DeploymentStops;
}

export interface ActionParts extends OutsideActions {
  readonly containerActions: ContainerActions;
}

export function buildActions(needs: ActionNeeds): OutsideActions {
  const cancellation = new Cancellation(needs);
  needs.singles?.cancelBy((record) => cancellation.cancelRecorded(record, REPLACED));
  const deploymentStops = new DeploymentStops({ ...needs, cancellation });
  const actions = new TaskActions({ ...needs, cancellation });
  return { actions, cancellation, deploymentStops };
}

export function openActions(setup: ActionsSetup): ActionParts {
  const { infrastructure, clusterState, targets, lineParts, bodies, taskParts, maintenance } = setup;
  const { db, keys, clock, log } = infrastructure;
  const { bus, containers, slots, leases, credentials } = clusterState;
  const { attempts, completion, changes, singles } = taskParts;
  const containerActions = new ContainerActions(containers, slots, (id) => credentials.ended([id]));
  const built = buildActions({
    singles,
    attempts,
    completion,
    changes,
    queues: lineParts.lines,
    replies: lineParts.replies,
    records: setup.records.records,
    leases,
    bodies,
    foreign: maintenance.foreign,
    targets,
    containers: containerActions,
    deferred: setup.deferredParts.deferredCalls,
    clock,
    log,
    cancels: new CancelEvents({ db, events: setup.events.writer, clock, log }),
    openTasks: (queue, limit, after) => openTaskIdsOfQueue(db, queue, limit, after),
    stopSync: (taskId, ending) => taskParts.peers.questions.stop(taskId, ending),
    revokeElsewhere: (...revoked) => bus.publish(keys.revokeChannel, revoked satisfies RevokeMessage),
  });
  return { ...built, containerActions };
}
