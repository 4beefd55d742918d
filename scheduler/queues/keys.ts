// Every Redis key and channel that is ours. BullMQ's own keys are `<prefix>:tq-…`; nothing here collides with them, because no name below starts with `tq-`.
import type { InstanceId, MachineId, QueueName, TaskId, WorkspaceId } from '#shared/domain/ids.ts';

/** Keys and channels under one prefix; tests give each file its own. */
export interface Keys {
  /** BullMQ's prefix: the queues are `<prefix>:<queue>:…`. */
  readonly prefix: string;
  /** Newest record of a task, JSON, for an hour. */
  readonly task: (id: TaskId) => string;
  /** Stream of records on their way to the database. */
  readonly records: string;
  /** Stream of records that the database refuses, for a person to look at. */
  readonly recordsAside: string;
  /** Tasks of one queue that replicas keep in their memory instead of in the queue: task → its job (scheduler/lane/). */
  readonly lane: (queue: QueueName) => string;
  /** Queues that have, or had, such tasks. */
  readonly lanes: string;
  /** One attempt's lease: who runs it, until when. */
  readonly lease: (task: TaskId) => string;
  /** All leases by their machine: `<machine>:<task>` in a sorted set. An entry whose lease is gone goes when its machine is asked about. */
  readonly leased: string;
  /** The last attempt of a task that ended without its agent's word. */
  readonly lastAttempt: (task: TaskId) => string;
  /** Name of the queue of messages to addresses that people named. */
  readonly deliveriesQueue: string;
  /** A number of that replica's that only grows, and the server for which it has said what it runs; gone, or lower: Redis lost data. */
  readonly data: (instance: InstanceId) => string;
  /** The leader's lease (`<instance>`) and the fencing number, which only grows. */
  readonly leader: string;
  readonly leaderFence: string;
  /** Set while a replica lives (10 s, renewed every 3 s). */
  readonly presence: (instance: InstanceId) => string;
  /** Set of instances that were present; those without a presence key are dead. */
  readonly instances: string;
  /** What placement may still take of a machine, what holds the rest, and which devices are leased to whom (queues/lua/reserve.lua). */
  readonly capacity: (machine: MachineId) => string;
  readonly reservations: (machine: MachineId) => string;
  readonly devices: (machine: MachineId) => string;
  /** Which assignment a container has. */
  readonly assignments: string;
  /** Reservations that no row names yet, by when they run out. */
  readonly reserving: string;
  /** Machines that pull one image: by when their places run out. */
  readonly pulls: (image: string) => string;
  /** Answers travel to the replica whose caller waits. */
  readonly repliesChannel: (instance: InstanceId) => string;
  /** Wake-ups for containers on machines linked to that replica. */
  readonly linkChannel: (instance: InstanceId) => string;
  /** Tasks lent to that replica, and those it gives back (scheduler/lane/). */
  readonly loansChannel: (instance: InstanceId) => string;
  /** Attempts whose task another replica ended. */
  readonly revokeChannel: string;
  /** Rows of containers and machines that a replica wrote; the others read them. */
  readonly stateChannel: string;
  /** Something cached changed; payload: JSON `{kind, id}`. */
  readonly invalidateChannel: string;
  /** What only the leader decides on: queues that want a look, and what containers linked to other replicas do. */
  readonly decideChannel: string;
  /** What only the leader can explain: questions of other replicas, and its answers. */
  readonly explainChannel: string;
  /** Metrics pages of machines that are linked to another replica. */
  readonly pagesChannel: string;
  /** Requests of a workspace in one minute; lapses by itself. */
  readonly rate: (kind: string, workspace: WorkspaceId, minute: number) => string;
  /** What the containers of a machine use; lapses by itself. */
  readonly usage: (machineId: MachineId) => string;
}

/** @param prefix - letters, digits, `-`, `_`, `{`, `}`; no `:` */
export function keysOf(prefix = 'ls'): Keys {
  if (!/^[A-Za-z0-9_{}-]{1,64}$/.test(prefix))
    throw new TypeError(`Redis key prefix ${JSON.stringify(prefix)} is not usable`);
  return Object.freeze({
    prefix,
    task: (id: TaskId) => `${prefix}:task:${id}`,
    records: `${prefix}:records`,
    recordsAside: `${prefix}:records-aside`,
    lane: (queue: QueueName) => `${prefix}:lane:${queue}`,
    lanes: `${prefix}:lanes`,
    lease: (task: TaskId) => `${prefix}:lease:${task}`,
    leased: `${prefix}:leased`,
    lastAttempt: (task: TaskId) => `${prefix}:last:${task}`,
    deliveriesQueue: 'deliveries',
    data: (instance: InstanceId) => `${prefix}:data:${instance}`,
    leader: `${prefix}:leader`,
    leaderFence: `${prefix}:leader-fence`,
    presence: (instance: InstanceId) => `${prefix}:presence:${instance}`,
    instances: `${prefix}:instances`,
    capacity: (machine: MachineId) => `${prefix}:capacity:${machine}`,
    reservations: (machine: MachineId) => `${prefix}:reservations:${machine}`,
    devices: (machine: MachineId) => `${prefix}:devices:${machine}`,
    assignments: `${prefix}:assignments`,
    reserving: `${prefix}:reserving`,
    pulls: (image: string) => `${prefix}:pulls:${image}`,
    repliesChannel: (instance: InstanceId) => `${prefix}:replies:${instance}`,
    linkChannel: (instance: InstanceId) => `${prefix}:links:${instance}`,
    loansChannel: (instance: InstanceId) => `${prefix}:loans:${instance}`,
    revokeChannel: `${prefix}:revoke`,
    stateChannel: `${prefix}:state`,
    invalidateChannel: `${prefix}:invalidate`,
    decideChannel: `${prefix}:decide`,
    explainChannel: `${prefix}:explain`,
    pagesChannel: `${prefix}:pages`,
    rate: (kind: string, workspace: WorkspaceId, minute: number) => `${prefix}:rate:${kind}:${workspace}:${minute}`,
    usage: (machineId: MachineId) => `${prefix}:usage:${machineId}`,
  });
}
