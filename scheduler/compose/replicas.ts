// This process among the other replicas: their messages, and the take-over of
// one that died. With embedded stores there are no others, and no messages.
import type { InstanceId } from '#shared/domain/ids.ts';
import type { Part } from '#shared/lifecycle.ts';
import type { Log } from '#shared/log.ts';
import type { Autoscaler } from '../control/autoscaler/loop.ts';
import type { ContainerBook } from '../fleet/containers/book.ts';
import type { Dispatcher } from '../tasks/dispatch/dispatcher.ts';
import type { Leases } from '../tasks/dispatch/leases.ts';
import type { Replies } from '../tasks/dispatch/replies.ts';
import type { SlotTable } from '../tasks/dispatch/slots.ts';
import type { Links } from '../fleet/links.ts';
import type { Machines } from '../fleet/machines.ts';
import type { LaneQueues } from '../tasks/local-queue/queues.ts';
import type { LeaderLease } from '../cluster/leader.ts';
import type { Presence } from '../cluster/presence.ts';
import type { Keys } from '../stores/queues/keys.ts';
import { outcomes } from '../api/http/invoke/outcomes.ts';
import { Answers } from '../replicas/answers.ts';
import { readRevoke } from '../replicas/outcome-messages.ts';
import type { Bus } from '../cluster/bus.ts';
import { RedisBus } from '../cluster/bus.ts';
import { DeadReplicas } from '../replicas/dead-replicas.ts';
import { Decisions } from '../replicas/decisions.ts';
import { Leaving } from '../replicas/leaving.ts';
import type { Loads } from '../cluster/loads.ts';
import { SharedState } from '../replicas/shared-state.ts';
import type { Room } from '../replicas/room.ts';
import { Wakes } from '../replicas/wakes.ts';
import type { Db } from '../stores/store/db.ts';
import { openQueues } from '../stores/store/queries/tasks.ts';
import type { Actions } from '../tasks/actions.ts';
import type { TaskRecords } from '../tasks/records.ts';
import type { Tasks } from '../tasks/service.ts';

export interface ReplicasParts {
  readonly bus: Bus;
  readonly db: Db;
  readonly keys: Keys;
  readonly instance: InstanceId;
  readonly log: Log;
  readonly leader: LeaderLease;
  readonly presence: Presence;
  readonly book: ContainerBook;
  readonly machines: Machines;
  readonly links: Links;
  readonly slots: SlotTable;
  readonly loads: Loads;
  readonly room: Room;
  readonly queues: LaneQueues;
  readonly leases: Leases;
  readonly records: TaskRecords;
  readonly replies: Replies;
  readonly tasks: Tasks;
  readonly actions: Actions;
  readonly dispatcher: Dispatcher;
  readonly autoscaler: Autoscaler;
}

export interface Replicas {
  /** Parts that listen before rows are read for the first time. */
  readonly listening: readonly Part[];
  /** Parts that run beside everything else. */
  readonly running: readonly Part[];
  readonly wakes: Wakes;
  readonly decisions: Decisions;
  readonly leaving: Leaving;
}

export function joinReplicas(parts: ReplicasParts): Replicas {
  const { bus, db, keys, instance, log, leader, presence, book, machines, slots, loads, dispatcher, autoscaler } =
    parts;
  const { queues, leases, tasks } = parts;
  const sharedState = new SharedState({
    bus,
    channel: keys.stateChannel,
    instance,
    book,
    machines,
    onSuperseded: (machineId) => {
      parts.links.superseded(machineId);
      tasks.machineMoved(machineId);
    },
    log,
  });
  machines.onChange(({ row, health, sessionId }) => {
    const isElsewhere = sessionId === undefined && row.replica !== null && row.replica !== instance;
    if (isElsewhere && (health === 'RECONCILING' || health === 'READY')) tasks.machineMoved(row.id);
  });
  const wakes = new Wakes({
    bus,
    channelOf: keys.linkChannel,
    instance,
    book,
    machines,
    presence,
    room: parts.room,
    dispatcher: () => dispatcher,
  });
  const decisions = new Decisions(bus, keys.decideChannel, () => leader.isLeader(), autoscaler);
  const answers = new Answers({
    bus,
    channelOf: keys.repliesChannel,
    instance,
    replies: parts.replies,
    attempts: tasks.attempts,
    ender: tasks.ender,
    records: parts.records,
    dispatcher,
    onAnswered: (taskId) => queues.answered(taskId),
    presentation: outcomes,
    log,
  });
  bus.on(keys.revokeChannel, (message) => {
    parts.actions.revokedElsewhere(...readRevoke(message, outcomes));
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
    onReturned: (queue) => {
      dispatcher.wake(queue);
      autoscaler.wake(queue);
    },
    log,
  });
  const isAlone = !(bus instanceof RedisBus);
  return {
    listening: isAlone ? [] : [bus, sharedState],
    running: isAlone ? [leaving, deadReplicas] : [leaving, loads, answers, deadReplicas],
    wakes,
    decisions,
    leaving,
  };
}
