// This process among the other replicas: their messages, and the take-over of
// one that died. With embedded stores there are no others, and no messages.
import type { Part } from '#shared/lifecycle.ts';
import { outcomes } from '../api/http/invoke/outcomes.ts';
import { Answers } from '../replicas/answers.ts';
import { RedisBus } from '../cluster/bus.ts';
import { DeadReplicas } from '../replicas/dead-replicas.ts';
import { Decisions } from '../replicas/decisions.ts';
import { Leaving } from '../replicas/leaving.ts';
import { SharedState } from '../replicas/shared-state.ts';
import { Wakes } from '../replicas/wakes.ts';
import { openQueues } from '../stores/store/queries/tasks.ts';
import type { Bodies } from '../tasks/dispatch/bodies.ts';
import type { Books } from './books.ts';
import type { Ground } from './ground.ts';
import type { Lanes } from './lanes.ts';
import type { Records } from './records.ts';
import type { Scaling } from './scaling.ts';
import type { TaskParts } from './tasks.ts';

export interface ReplicasSetup {
  readonly ground: Ground;
  readonly books: Books;
  readonly lanes: Lanes;
  readonly records: Records;
  readonly bodies: Bodies;
  readonly taskParts: TaskParts;
  readonly scaling: Pick<Scaling, 'autoscaler'>;
}

export interface Replicas {
  /** Parts that listen before rows are read for the first time. */
  readonly listening: readonly Part[];
  /** Parts that run beside everything else. */
  readonly running: readonly Part[];
  readonly sharedState: SharedState;
  readonly wakes: Wakes;
  readonly decisions: Decisions;
  readonly leaving: Leaving;
  readonly answers: Answers;
  readonly deadReplicas: DeadReplicas;
}

export function joinReplicas(setup: ReplicasSetup): Replicas {
  const { db, keys, instance, log } = setup.ground;
  const { bus, leader, presence, book, machines, slots, leases, loads, room } = setup.books;
  const { queues, replies } = setup.lanes;
  const { records } = setup.records;
  const { attempts, completion, dispatcher } = setup.taskParts;
  const { autoscaler } = setup.scaling;
  const sharedState = new SharedState({
    bus,
    channel: keys.stateChannel,
    instance,
    book,
    machines,
    log,
  });
  const wakes = new Wakes({
    bus,
    channelOf: keys.linkChannel,
    instance,
    book,
    presence,
    room,
    dispatcher,
  });
  const decisions = new Decisions(bus, keys.decideChannel, () => leader.isLeader(), autoscaler);
  const answers = new Answers({
    bus,
    channelOf: keys.repliesChannel,
    instance,
    replies,
    attempts,
    completion,
    bodies: setup.bodies,
    records,
    dispatcher,
    presentation: outcomes,
    log,
  });
  const leaving = new Leaving(book, slots, log);
  const deadReplicas = new DeadReplicas({
    presence,
    machines,
    book,
    queues,
    leases,
    openQueues: () => openQueues(db),
    fence: () => leader.fence(),
    log,
  });
  const isAlone = !(bus instanceof RedisBus);
  return {
    listening: isAlone ? [] : [bus, sharedState],
    running: isAlone ? [leaving, deadReplicas] : [leaving, loads, answers, deadReplicas],
    sharedState,
    wakes,
    decisions,
    leaving,
    answers,
    deadReplicas,
  };
}

/** Embedded records have one owner at a time: any other leader or replica that Redis still names is dead. */
export function predecessorsPart({ db }: Ground, { presence }: Books): Part {
  return { name: 'predecessors', start: () => (db.kind === 'pglite' ? presence.othersDied() : undefined) };
}
