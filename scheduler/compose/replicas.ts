// This process among the other replicas: their messages, and the take-over of
// one that died. With embedded stores there are no others, and no messages.
import type { Part } from '#shared/lifecycle.ts';
import { Answers } from '../replicas/answers.ts';
import { RedisBus } from '../cluster/bus.ts';
import { DeadReplicas } from '../replicas/dead-replicas.ts';
import { DecisionRequests } from '../replicas/decision-requests.ts';
import { StopWhenDrained } from '../replicas/stop-when-drained.ts';
import { SharedState } from '../replicas/shared-state.ts';
import { Wakes } from '../replicas/wakes.ts';
import { openQueues } from '../stores/store/queries/tasks.ts';
import type { TaskBodies } from '../tasks/dispatch/bodies.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Identity } from './identity.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { LineParts } from './lines.ts';
import type { Records } from './records.ts';
import type { Scaling } from './scaling.ts';
import type { TaskParts } from './tasks.ts';

export interface ReplicasSetup {
  readonly infrastructure: Infrastructure;
  readonly identity: Pick<Identity, 'invalidation'>;
  readonly clusterState: ClusterState;
  readonly lineParts: LineParts;
  readonly records: Records;
  readonly bodies: TaskBodies;
  readonly taskParts: TaskParts;
  readonly scaling: Pick<Scaling, 'autoscaler'>;
}

const DEAD_REPLICAS_MS = 1_000;

export interface Replicas {
  /** Parts that listen before rows are read for the first time. */
  readonly listening: readonly Part[];
  /** Parts that run beside everything else. */
  readonly running: readonly Part[];
  readonly sharedState: SharedState;
  readonly wakes: Wakes;
  readonly decisionRequests: DecisionRequests;
  readonly stopWhenDrained: StopWhenDrained;
  readonly answers: Answers;
  readonly deadReplicas: DeadReplicas;
}

export function joinReplicas(setup: ReplicasSetup): Replicas {
  const { db, keys, instance, log } = setup.infrastructure;
  const {
    bus,
    leader,
    leaderLoop,
    presence,
    containers,
    machines,
    slots,
    leases,
    loads,
    reservedTokens,
    remoteCapacity,
  } = setup.clusterState;
  const { queues, lines, replies } = setup.lineParts;
  const { records } = setup.records;
  const { attempts, completion, dispatcher } = setup.taskParts;
  const { autoscaler } = setup.scaling;
  const sharedState = new SharedState({
    bus,
    channel: keys.stateChannel,
    instance,
    containers,
    machines,
    log,
  });
  const wakes = new Wakes({
    bus,
    channelOf: keys.linkChannel,
    instance,
    containers,
    presence,
    remoteCapacity,
    dispatcher,
  });
  const decisionRequests = new DecisionRequests(bus, keys.decideChannel, () => leader.isLeader(), autoscaler);
  const answers = new Answers({
    bus,
    channelOf: keys.repliesChannel,
    instance,
    replies,
    lines,
    attempts,
    completion,
    bodies: setup.bodies,
    records,
    log,
  });
  const stopWhenDrained = new StopWhenDrained(containers, slots, log);
  const deadReplicas = new DeadReplicas({
    presence,
    machines,
    containers,
    queues,
    leases,
    openQueues: () => openQueues(db),
    fence: () => leader.fence(),
    unannounced: () => setup.identity.invalidation.unsure(),
    log,
  });
  const takingOver = leaderLoop({
    name: 'dead replicas',
    everyMs: DEAD_REPLICAS_MS,
    round: () => deadReplicas.round(),
    failed: 'what dead replicas left is not seen to yet',
  });
  const isAlone = !(bus instanceof RedisBus);
  return {
    listening: isAlone ? [] : [bus, sharedState],
    running: isAlone ? [stopWhenDrained, takingOver] : [stopWhenDrained, loads, reservedTokens, answers, takingOver],
    sharedState,
    wakes,
    decisionRequests,
    stopWhenDrained,
    answers,
    deadReplicas,
  };
}

/** Embedded records have one owner at a time: any other leader or replica that Redis still names is dead. */
export function predecessorsPart({ db }: Infrastructure, { presence }: ClusterState): Part {
  return { name: 'predecessors', start: () => (db.kind === 'pglite' ? presence.othersDied() : undefined) };
}
