// Changes to tasks and containers from outside: by users, by external runners, and by deployments that stop or go.
import { outcomes } from '../api/http/invoke/outcomes.ts';
import { ContainerActions } from '../fleet/containers/actions.ts';
import type { Records } from './records.ts';
import { openTaskIdsOfQueue } from '../stores/store/queries/tasks.ts';
import { revokeMessage } from '../replicas/outcome-messages.ts';
import { TaskActions } from '../tasks/actions.ts';
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
  readonly taskParts: TaskParts;
  readonly maintenance: TaskMaintenance;
}

export interface ActionParts {
  readonly actions: TaskActions;
  readonly stops: ContainerActions;
}

export function openActions({ ground, books, lanes, records, taskParts, maintenance }: ActionsSetup): ActionParts {
  const { db, keys, clock, log } = ground;
  const { bus, book, slots, leases, credentials } = books;
  const { attempts, completion, changes } = taskParts;
  const stops = new ContainerActions(book, slots, (id) => credentials.ended([id]));
  const actions = new TaskActions({
    foreign: maintenance.foreign,
    attempts,
    completion,
    changes,
    queues: lanes.queues,
    records: records.records,
    replies: lanes.replies,
    stops,
    clock,
    log,
    openTasks: (queue, limit, after) => openTaskIdsOfQueue(db, queue, limit, after),
    leases,
    revokeElsewhere: (...revoked) => bus.say(keys.revokeChannel, revokeMessage(...revoked, outcomes)),
  });
  return { actions, stops };
}
