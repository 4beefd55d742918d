// All Redis keys and channels that are ours. BullMQ's own keys are `<prefix>:tq-…`;
// ours cannot collide with them, because no name below starts with `tq-`.
import type { InstanceId, MachineId, QueueName, TaskId, TokenId, WorkspaceId } from '#shared/domain/ids.ts';

/** Keys and channels under one prefix; tests give each file its own. */
export interface Keys {
  /** BullMQ's prefix: the queues are `<prefix>:<queue>:…`. */
  readonly prefix: string;
  /** List of batches of task records that the database could not take yet, and the hash of its totals. */
  readonly spilledRecords: string;
  readonly spilledTotals: string;
  /** Questions to all replicas for the records that they hold, and the answers for the one that asked. */
  readonly pendingRecordsChannel: string;
  readonly pendingRepliesChannel: (instance: InstanceId) => string;
  /** Stream of task records that the database refuses, for a person to look at. */
  readonly recordsAside: string;
  /** Lease of the attempt that runs a task: which attempt, and on which machine. */
  readonly lease: (task: TaskId) => string;
  /**
   * All leases by their machine: `<machine>:<task>` in a sorted set. An
   * entry whose lease is gone is removed when its machine is asked about.
   */
  readonly leased: string;
  /** Tasks under flow control: all, their slots, those that wait for one, and the number of these by queue. */
  readonly flow: readonly [string, string, string, string];
  /** Paces of keys in a workspace's flow control (take-pace.lua); the key expires. */
  readonly flowPaces: (workspace: WorkspaceId) => string;
  /** Turns of keys in a queue (take-turn.lua); the key expires. */
  readonly flowTurns: (queue: QueueName) => string;
  /** How far each process has added the jobs of the tasks that it accepted (added-marks.ts). */
  readonly added: string;
  /** Last attempt of a task that ended without its agent's word. */
  readonly lastAttempt: (task: TaskId) => string;
  /** More messages to addresses that users named are due than one replica has places for. */
  readonly deliveriesChannel: string;
  /** Number of that replica that only grows. A key that is gone, or lower, shows that Redis lost data. */
  readonly data: (instance: InstanceId) => string;
  /** Lease of the leader (`<instance>`), and the fencing number, which only grows. */
  readonly leader: string;
  readonly leaderFence: string;
  /** Set while a replica lives (10 s, renewed every 3 s). */
  readonly presence: (instance: InstanceId) => string;
  /** Instances that were present; those without a presence key are dead. */
  readonly instances: string;
  /** Machines that pull one image or wait for it: the six sorted sets of queues/lua/pull-line.lua. */
  readonly pullLine: (image: string) => readonly [string, string, string, string, string, string];
  /** Starts of containers that got on, for replicas that their machines are not linked to. */
  readonly startsChannel: string;
  /** Images of which a machine gave its permit back. */
  readonly pullLinesChannel: string;
  /** Answers for callers who wait at that replica. */
  readonly repliesChannel: (instance: InstanceId) => string;
  /** Wake-ups for containers on machines linked to that replica. */
  readonly linkChannel: (instance: InstanceId) => string;
  /** Messages for that replica about synchronous tasks (scheduler/tasks/lines/). */
  readonly linesChannel: (instance: InstanceId) => string;
  /** Counts of the replicas' lines. */
  readonly lineCountsChannel: string;
  /** Questions to all replicas about synchronous tasks. */
  readonly lineQuestionsChannel: string;
  /** Attempts whose task another replica ended. */
  readonly revokeChannel: string;
  /** Rows of containers and machines that a replica wrote; the others read them. */
  readonly stateChannel: string;
  /** Changes of cached things; payload: JSON `{kind, id}`. */
  readonly invalidateChannel: string;
  /** Messages for the leader's decisions: queues that want a look, and loads of containers linked to other replicas. */
  readonly decideChannel: string;
  /** The leader gave its lease back. */
  readonly leaderChannel: string;
  /** Questions that only the leader can explain, and its answers. */
  readonly explainChannel: string;
  /** Channel on which a replica says that it wrote a pool. */
  readonly poolsChannel: string;
  /** Metrics pages of machines that are linked to another replica. */
  readonly pagesChannel: string;
  /** Streams ordered from machines that are linked to another replica. */
  readonly orderedStreamsChannel: string;
  /** Cache volumes that were deleted. */
  readonly deletedCachesChannel: string;
  /** Builds of images ordered from machines that are linked to another replica. */
  readonly orderedBuildsChannel: string;
  readonly containerChangesChannel: string;
  /** Streams into containers ordered from machines that are linked to another replica. */
  readonly orderedContainersChannel: string;
  /** Workspaces that got events, for live readers at other replicas. */
  readonly eventsChannel: string;
  /** Workspaces that got log lines, likewise. */
  readonly logsChannel: string;
  /** Leases of development servers, by the time at which they run out. */
  readonly serveLeases: string;
  /** Leases that began, were renewed or ended. */
  readonly serveLeasesChannel: string;
  /** Callers of functions that came back to their task. */
  readonly lostCallersChannel: string;
  /** Channel of events that are not stored, and of the kinds that live readers ask for. */
  readonly passingChannel: string;
  /** Number of requests of a workspace, or of a session, in one minute; the key expires. */
  readonly rate: (kind: string, of: string, minute: number) => string;
  /** Ticket for a terminal of the web console; the key expires. */
  readonly terminalTicket: (hash: string) => string;
  /** Requests to models and their tokens that a workspace may still send in this minute; the key expires. */
  readonly inferenceRate: (workspace: WorkspaceId) => string;
  /** Account of a workspace's credits, with the sums of its holds and of its entries on their way to the database. */
  readonly creditAccount: (workspace: WorkspaceId) => string;
  /** Holds of requests under way, the times at which they lapse, and the usage noted so far. */
  readonly creditHolds: string;
  readonly creditDeadlines: string;
  readonly creditUsage: string;
  /** Stream of ledger entries on their way to the database. */
  readonly creditLedger: string;
  /** Entries that nobody can read or the database refuses, for a person to look at. */
  readonly creditLedgerAside: string;
  /** Answer of a call to a model under an idempotency key of a token; the key expires. */
  readonly keptAnswer: (token: TokenId, digest: string) => string;
  /** Begin of the counters of a workspace's idempotency keys; they expire. */
  readonly keptAnswers: (workspace: WorkspaceId) => string;
  /** Resource usage of the containers of a machine; the key expires. */
  readonly usage: (machineId: MachineId) => string;
  /** Use of the GPUs of a machine; the key expires. */
  readonly deviceUse: (machineId: MachineId) => string;
  /** Use of the machines linked to a replica, summed up by pool; the key expires. */
  readonly poolUse: (instance: InstanceId) => string;
}

/** @param prefix - letters, digits, `-`, `_`, `{`, `}`; no `:` */
export function keysOf(prefix = 'ls'): Keys {
  if (!/^[A-Za-z0-9_{}-]{1,64}$/.test(prefix))
    throw new TypeError(`Redis key prefix ${JSON.stringify(prefix)} is not usable`);
  return Object.freeze({
    prefix,
    spilledRecords: `${prefix}:spilled-records`,
    spilledTotals: `${prefix}:spilled-totals`,
    pendingRecordsChannel: `${prefix}:pending-records`,
    pendingRepliesChannel: (instance: InstanceId) => `${prefix}:pending-records:${instance}`,
    recordsAside: `${prefix}:records-aside`,
    lease: (task: TaskId) => `${prefix}:lease:${task}`,
    leased: `${prefix}:leased`,
    flow: [
      `${prefix}:flow`,
      `${prefix}:flow-slots`,
      `${prefix}:flow-held`,
      `${prefix}:flow-held-counts`,
    ] as Keys['flow'],
    flowTurns: (queue: QueueName) => `${prefix}:flow-turns:${queue}`,
    flowPaces: (workspace: WorkspaceId) => `${prefix}:flow-paces:${workspace}`,
    added: `${prefix}:added`,
    lastAttempt: (task: TaskId) => `${prefix}:last:${task}`,
    deliveriesChannel: `${prefix}:deliveries`,
    data: (instance: InstanceId) => `${prefix}:data:${instance}`,
    leader: `${prefix}:leader`,
    leaderFence: `${prefix}:leader-fence`,
    presence: (instance: InstanceId) => `${prefix}:presence:${instance}`,
    instances: `${prefix}:instances`,
    pullLine: (image: string): ReturnType<Keys['pullLine']> => [
      `${prefix}:pulls:${image}`,
      `${prefix}:pulls-begun:${image}`,
      `${prefix}:pull-line:${image}`,
      `${prefix}:pull-places:${image}`,
      `${prefix}:pulls-served:${image}`,
      `${prefix}:pull-numbers:${image}`,
    ],
    startsChannel: `${prefix}:starts`,
    pullLinesChannel: `${prefix}:pull-lines`,
    repliesChannel: (instance: InstanceId) => `${prefix}:replies:${instance}`,
    linkChannel: (instance: InstanceId) => `${prefix}:links:${instance}`,
    linesChannel: (instance: InstanceId) => `${prefix}:lines:${instance}`,
    lineCountsChannel: `${prefix}:line-counts`,
    lineQuestionsChannel: `${prefix}:line-questions`,
    revokeChannel: `${prefix}:revoke`,
    stateChannel: `${prefix}:state`,
    invalidateChannel: `${prefix}:invalidate`,
    decideChannel: `${prefix}:decide`,
    leaderChannel: `${prefix}:leader-freed`,
    explainChannel: `${prefix}:explain`,
    poolsChannel: `${prefix}:pools`,
    pagesChannel: `${prefix}:pages`,
    orderedStreamsChannel: `${prefix}:ordered-streams`,
    deletedCachesChannel: `${prefix}:deleted-caches`,
    eventsChannel: `${prefix}:events`,
    logsChannel: `${prefix}:logs`,
    passingChannel: `${prefix}:passing`,
    lostCallersChannel: `${prefix}:lost-callers`,
    serveLeases: `${prefix}:serve-leases`,
    serveLeasesChannel: `${prefix}:serve-leases-changed`,
    orderedBuildsChannel: `${prefix}:ordered-builds`,
    containerChangesChannel: `${prefix}:container-changes`,
    orderedContainersChannel: `${prefix}:ordered-containers`,
    rate: (kind: string, of: string, minute: number) => `${prefix}:rate:${kind}:${of}:${minute}`,
    terminalTicket: (hash: string) => `${prefix}:terminal-ticket:${hash}`,
    inferenceRate: (workspace: WorkspaceId) => `${prefix}:inference-rate:${workspace}`,
    creditAccount: (workspace: WorkspaceId) => `${prefix}:credit:${workspace}`,
    creditHolds: `${prefix}:credit-holds`,
    creditDeadlines: `${prefix}:credit-deadlines`,
    creditUsage: `${prefix}:credit-usage`,
    creditLedger: `${prefix}:credit-ledger`,
    creditLedgerAside: `${prefix}:credit-ledger-aside`,
    keptAnswer: (token: TokenId, digest: string) => `${prefix}:kept-answer:${token}:${digest}`,
    keptAnswers: (workspace: WorkspaceId) => `${prefix}:kept-answers:${workspace}`,
    usage: (machineId: MachineId) => `${prefix}:usage:${machineId}`,
    deviceUse: (machineId: MachineId) => `${prefix}:device-use:${machineId}`,
    poolUse: (instance: InstanceId) => `${prefix}:pool-use:${instance}`,
  });
}
