// Changes to tasks and containers from outside: by users, by external runners, and by deployments that stop or go.
import { outcomes } from '../api/http/invoke/outcomes.ts';
import { ContainerActions } from '../fleet/containers/actions.ts';
import type { Records } from './records.ts';
import { openTaskIdsOfQueue } from '../stores/store/queries/tasks.ts';
import { revokeMessage } from '../replicas/outcome-messages.ts';
import { TaskActions } from '../tasks/actions.ts';
import { Cancellation } from '../tasks/completion/cancellation.ts';
import { DeploymentStops } from '../tasks/deployment-stops.ts';
import type { Bodies } from '../tasks/dispatch/bodies.ts';
import type { Books } from './books.ts';
import type { Ground } from './ground.ts';
import type { Lanes } from './lanes.ts';
import type { TaskMaintenance } from './task-maintenance.ts';
import type { TaskParts } from './tasks.ts';

export interface ActionsSetup {
  readonly ground: Ground;
  readonly books: Books;
  readonly lanes: Lanes;
  readonly records: Records;
  readonly bodies: Bodies;
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
  const { ground, books, lanes, bodies, taskParts, maintenance } = setup;
  const { db, keys, clock, log } = ground;
  const { bus, book, slots, leases, credentials } = books;
  const { attempts, completion, changes } = taskParts;
  const { records } = setup.records;
  const { queues, replies } = lanes;
  const common = { attempts, completion, changes, queues, records, replies, leases, bodies, clock, log };
  const cancellation = new Cancellation({
    ...common,
    revokeElsewhere: (...revoked) => bus.say(keys.revokeChannel, revokeMessage(...revoked, outcomes)),
  });
  const containerActions = new ContainerActions(book, slots, (id) => credentials.ended([id]));
  const deploymentStops = new DeploymentStops({
    ...common,
    cancellation,
    containers: containerActions,
    openTasks: (queue, limit, after) => openTaskIdsOfQueue(db, queue, limit, after),
  });
  const actions = new TaskActions({ ...common, cancellation, foreign: maintenance.foreign });
  return { actions, cancellation, deploymentStops, containerActions };
}
