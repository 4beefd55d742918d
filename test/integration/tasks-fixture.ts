/**
 * Tasks, dispatcher and queues of one scheduler process on a
 * real Redis, with an agent's task stream played by the test.
 */
import type { Redis } from 'ioredis';
import type {
  AppId,
  AttemptToken,
  ContainerId,
  InstanceId,
  MachineId,
  ObjectId,
  QueueName,
  StubId,
  TaskId,
  WorkspaceId,
} from '#shared/domain/ids.ts';
import { newId, newInstanceId, queueNameOf } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { Registry } from '#shared/metrics.ts';
import { systemClock } from '#shared/clock.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import { Leases } from '#scheduler/tasks/dispatch/leases.ts';
import type { ReadyContainer, RunOrder, TaskLink } from '#scheduler/tasks/dispatch/slots.ts';
import { SlotTable } from '#scheduler/tasks/dispatch/slots.ts';
import type { Lines } from '#scheduler/tasks/lines/lines.ts';
import type { Replies } from '#scheduler/tasks/dispatch/replies.ts';
import { Answers } from '#scheduler/replicas/answers.ts';
import { RedisBus } from '#scheduler/cluster/bus.ts';
import type { ContainerRow } from '#scheduler/stores/store/queries/containers.ts';
import { RedisData } from '#scheduler/stores/queues/redis-data.ts';
import { Rebuild, writeAgain } from '#scheduler/tasks/maintenance/rebuild.ts';
import { AddedMarks } from '#scheduler/stores/queues/added-marks.ts';
import type { Keys } from '#scheduler/stores/queues/keys.ts';
import { keysOf } from '#scheduler/stores/queues/keys.ts';
import { openTaskQueues } from '#scheduler/stores/queues/bullmq.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import type { TaskQueues } from '#scheduler/stores/queues/task-queues.ts';
import type { AcceptedTask } from '#scheduler/stores/store/queries/tasks.ts';
import { TaskBodies } from '#scheduler/tasks/dispatch/bodies.ts';
import type { ByteStore } from '#scheduler/tasks/dispatch/bodies.ts';
import type { TaskRecord } from '#scheduler/tasks/records/task-record.ts';
import { TaskRecords } from '#scheduler/tasks/records/records.ts';
import type { TaskRecordsOptions } from '#scheduler/tasks/records/records.ts';
import { mayReplace } from '#scheduler/tasks/state.ts';
import type { GracePeriods } from '#scheduler/tasks/maintenance/grace-periods.ts';
import type { AttemptOutcome } from '#scheduler/tasks/state.ts';
import type { PeerNeeds } from '#scheduler/compose/lines.ts';
import { buildLines, NO_PEERS } from '#scheduler/compose/lines.ts';
import type { TaskNeeds, TaskPath } from '#scheduler/compose/tasks.ts';
import { buildTasks } from '#scheduler/compose/tasks.ts';
import { wireTasks } from '#scheduler/compose/wiring.ts';
import type { PrivateRedis } from '../helpers/services.ts';

export const quiet = createLog({ name: 'test', level: 'silent' });
export const MACHINE = 'm-1' as MachineId;

/** Workspaces of the targets that were made, by their queues. */
const workspaces = new Map<QueueName, WorkspaceId>();

/** Bytes in memory; can be told to fail. */
export class MemoryBytes implements ByteStore {
  readonly objects = new Map<ObjectId, Uint8Array>();
  failure: Error | undefined;
  putBytes(bytes: Uint8Array, key?: ObjectId): Promise<ObjectId> {
    if (this.failure !== undefined) return Promise.reject(this.failure);
    const id = key ?? newId<ObjectId>();
    this.objects.set(id, bytes);
    return Promise.resolve(id);
  }
  getBytes(id: ObjectId): Promise<Uint8Array | undefined> {
    return Promise.resolve(this.objects.get(id));
  }
  removeBytes(id: ObjectId): Promise<void> {
    this.objects.delete(id);
    return Promise.resolve();
  }
}

export function aTarget(changes: Partial<Target['config']> = {}): Target {
  const stubId = newId<StubId>();
  const workspaceId = newId<WorkspaceId>();
  const queue = queueNameOf(null, stubId);
  workspaces.set(queue, workspaceId);
  return {
    workspaceId,
    appId: newId<AppId>(),
    stubId,
    deploymentId: null,
    deploymentName: 'd',
    subdomain: null,
    version: 1,
    kind: 'endpoint',
    sync: true,
    active: true,
    supersededBy: null,
    rollout: null,
    queue,
    code: null,
    scale: null,
    imageDigest: '',
    config: {
      stubType: 'endpoint/deployment',
      handler: 'app:handler',
      onStart: '',
      pythonVersion: 'python3',
      imageId: '',
      cpuMillicores: 100,
      memoryMib: 64,
      gpu: [],
      gpuCount: 0,
      workers: 1,
      concurrentRequests: 1,
      keepWarmSeconds: 0,
      maxPendingTasks: 1000,
      timeoutSeconds: 60,
      ttlSeconds: 60,
      retries: 0,
      authorized: true,
      volumes: [],
      env: [],
      secrets: [],
      blockNetwork: false,
      allowList: [],
      callbackUrl: '',
      tracebacks: false,
      autoscaler: { type: 'queue_depth', minContainers: 0, maxContainers: 3, tasksPerContainer: 1 },
      extra: {},
      ...changes,
    },
  };
}

/** The task stream of a machine: keeps what is sent, and answers when the test says so. */
export class PlayedLink implements TaskLink {
  readonly machineId: MachineId;
  readonly agentInstance: string;
  sessionEpoch = 1;
  readonly orders: RunOrder[] = [];
  readonly cancelled: string[] = [];
  /** Effect of `run`: takes the order, has no room for it, or loses it. */
  mode: 'take' | 'full' | 'lose' = 'take';
  runs = 0;
  onRun: ((order: RunOrder) => void) | undefined;

  constructor(machineId: MachineId = MACHINE, agentInstance = 'agent-1') {
    this.machineId = machineId;
    this.agentInstance = agentInstance;
  }
  run(order: RunOrder): boolean {
    this.runs += 1;
    if (this.mode === 'full') return false;
    if (this.mode === 'lose') return true;
    this.orders.push(order);
    this.onRun?.(order);
    return true;
  }
  cancel(taskId: TaskId, token: AttemptToken): void {
    this.cancelled.push(`${taskId} ${token}`);
  }
  acked(): void {}
}

export interface Process extends TaskPath {
  readonly instance: InstanceId;
  readonly client: Redis;
  readonly keys: Keys;
  readonly queues: TaskQueues;
  readonly lines: Lines;
  readonly records: TaskRecords;
  readonly leases: Leases;
  readonly slots: SlotTable;
  readonly replies: Replies;
  readonly bytes: MemoryBytes;
  readonly bodies: TaskBodies;
  readonly registry: Registry;
  readonly redisData: RedisData | undefined;
  readonly marks: AddedMarks;
  /** A container on a machine whose stream is `link`. */
  container(queue: QueueName, link: TaskLink | undefined, slots?: number, id?: ContainerId): ReadyContainer;
  /** Writes again what this process knows, after Redis lost its data. */
  redisLost(): Promise<void>;
  result(order: RunOrder, body?: string, outcome?: AttemptOutcome): Promise<boolean>;
  /** Kills the process as kill -9 does: nothing of it reaches Redis, the rows or another process any more. */
  readonly kill: () => void;
  readonly stop: () => Promise<void>;
}

/** Where records are written and read. */
export type TaskTable = Pick<TaskRecordsOptions, 'load' | 'ended' | 'running' | 'write'>;

const tables = new WeakMap<PrivateRedis, TaskTable>();
const peers = new WeakMap<PrivateRedis, Set<TaskRecords>>();

/** Rows in memory with the guard of the real statement. */
export function aTable(): TaskTable {
  const rows = new Map<TaskId, TaskRecord>();
  return {
    load: (taskId) => Promise.resolve(rows.get(taskId)),
    ended: (taskIds) => Promise.resolve(taskIds.filter((taskId) => (rows.get(taskId)?.rank ?? 0) >= 3)),
    running: (taskIds) => {
      const found = taskIds.map((taskId) => rows.get(taskId)).filter((row) => row?.rank === 1);
      return Promise.resolve(new Map(found.map((row) => [row!.taskId, row!.attempt])));
    },
    write: (records) => {
      for (const record of records) {
        const held = rows.get(record.taskId);
        if (held === undefined || mayReplace(record, held)) rows.set(record.taskId, record);
      }
      return Promise.resolve();
    },
  };
}

function tableOf(redis: PrivateRedis): TaskTable {
  const table = tables.get(redis) ?? aTable();
  tables.set(redis, table);
  return table;
}

function peersOf(redis: PrivateRedis): Set<TaskRecords> {
  const found = peers.get(redis) ?? new Set();
  peers.set(redis, found);
  return found;
}

let containers = 0;

type RowOfContainer = Pick<ContainerRow, 'machineId' | 'workspaceId' | 'deploymentId' | 'stubId'>;

/** Rows of containers, for all processes. */
const containerRows = new Map<ContainerId, RowOfContainer>();

/** Rows of containers by id, without those that have none. */
export const rowsAmong = <Row>(
  ids: Iterable<ContainerId>,
  rowOf: (id: ContainerId) => Row | undefined,
): Promise<ReadonlyMap<ContainerId, Row>> => {
  const rows = new Map<ContainerId, Row>();
  for (const id of ids) {
    const row = rowOf(id);
    if (row !== undefined) rows.set(id, row);
  }
  return Promise.resolve(rows);
};

/** Row of a container of {@link aTarget}'s stub. */
function rowOf({ queue, machineId }: ReadyContainer): RowOfContainer | undefined {
  const workspaceId = workspaces.get(queue);
  if (workspaceId === undefined) return undefined;
  const stubId = queue.slice(queueNameOf(null, '' as StubId).length) as StubId;
  return { machineId, workspaceId, deploymentId: null, stubId };
}

/** A scheduler process as far as tasks go. */
export async function aProcess(
  redis: PrivateRedis,
  options: {
    readonly alive?: (replica: InstanceId) => boolean;
    /** Rows of tasks; absent: they are in memory, for all processes of this Redis. */
    readonly rows?: TaskTable;
    /** Reads the row of a task whose commit was not answered; absent: as the others. */
    readonly rowsOf?: (taskIds: readonly TaskId[]) => Promise<readonly TaskRecord[]>;
    /** How long records are collected. */
    readonly collectMs?: number;
    /** How long a silent database is waited for. */
    readonly patienceMs?: number;
    readonly maxResultBytes?: number;
    readonly graces?: Partial<GracePeriods>;
    readonly queues?: (queues: TaskQueues) => TaskQueues;
    /** No other process has this Redis. */
    readonly isAlone?: boolean;
    /** Other replicas. When given, messages of this process and of the others cross. */
    readonly peers?: Partial<Omit<PeerNeeds, 'bus'>>;
    /** Monotonic milliseconds at which the process went on after it stood still. */
    readonly stalledAtMs?: () => number | null;
    /** Commits rows of asynchronous tasks; absent: no rows are written. */
    readonly commit?: (tasks: readonly AcceptedTask[]) => Promise<void>;
    readonly onAccepted?: (job: TaskJob, queue: QueueName) => void;
    /** Whether a drain of that container is past its deadline. */
    readonly isCutOff?: (containerId: ContainerId) => boolean;
    readonly isPreempted?: (containerId: ContainerId) => boolean;
    readonly endsCalls?: (containerId: ContainerId) => boolean;
    readonly stopContainer?: (containerId: ContainerId) => Promise<unknown>;
    readonly noticeMs?: () => number;
    readonly keepJob?: (job: TaskJob) => Promise<void>;
    readonly redrives?: TaskNeeds['redrives'];
    readonly singleRows?: TaskNeeds['singleRows'];
    readonly jobsOf?: (taskIds: readonly TaskId[]) => Promise<readonly string[]>;
    /** Parts that replace the fixture's own. */
    readonly more?: Partial<TaskNeeds>;
    /** The process checks whether Redis has come back older, and rebuilds. */
    readonly looksAtData?: boolean;
  } = {},
): Promise<Process> {
  const instance = newInstanceId();
  const registry = new Registry();
  const client = redis.connect({
    maxRetriesPerRequest: 1,
    enableOfflineQueue: false,
    commandTimeout: 1000,
    retryStrategy: () => 20,
  });
  await new Promise<void>((resolve) => (client.status === 'ready' ? resolve() : client.once('ready', () => resolve())));
  const keys = keysOf();
  const slots = new SlotTable();
  const leases = new Leases(client, keys);
  const subscriber = options.peers && redis.connect({ maxRetriesPerRequest: null, retryStrategy: () => 20 });
  const bus = subscriber && new RedisBus(client, subscriber, quiet);
  const alive = options.alive ?? (() => false);
  const stalledAtMs = options.stalledAtMs ?? (() => null);
  const real = await openTaskQueues({ client, log: quiet, prefix: keys.prefix });
  const queues = options.queues?.(real) ?? real;
  const { lines, replies } = buildLines({ queues, instance, isPresent: alive, stalledAtMs });
  const redisData =
    options.looksAtData === true
      ? new RedisData({ client, keys, instance, clock: systemClock, log: quiet, everyMs: 50 })
      : undefined;
  let isKilled = false;
  const table = options.rows ?? tableOf(redis);
  const write: TaskTable['write'] = (...batch) => (isKilled ? Promise.resolve() : table.write(...batch));
  const rows = { ...table, write };
  const others = peersOf(redis);
  const records: TaskRecords = new TaskRecords({
    client,
    keys,
    log: quiet,
    instance,
    ...rows,
    // Every process of this Redis writes what it holds before a row is read.
    present: async () => {
      await Promise.all([...others].map((one) => one.flush()));
      return [];
    },
    collectMs: options.collectMs ?? 5,
    // No leader here moves what a slow machine would have spilled.
    patienceMs: options.patienceMs ?? 30_000,
  });
  others.add(records);
  const bytes = new MemoryBytes();
  const limits = { maxResultBytes: options.maxResultBytes ?? 10_000_000, maxInputBytes: 10_000_000 };
  const bodies = new TaskBodies(bytes, limits);
  const path = buildTasks({
    client,
    keys,
    instance,
    clock: systemClock,
    log: quiet,
    registry,
    queues,
    lines,
    replies,
    peerNeeds: { ...NO_PEERS, isPresent: alive, ...options.peers, ...(bus && { bus }) },
    containersOf: (ids) => rowsAmong(ids, (id) => containerRows.get(id)),
    records,
    leases,
    slots,
    bodies,
    maxKeptInputBytes: 1024 ** 2,
    commit: options.commit ?? (() => Promise.resolve()),
    keepJob: options.keepJob ?? (() => Promise.resolve()),
    redrives: options.redrives,
    singleRows: options.singleRows,
    jobsOf: options.jobsOf ?? (() => Promise.resolve([])),
    stopMs: 100,
    graces: options.graces ?? { limitMs: 10_000, reportMs: 100, restartedAgentMs: 200 },
    rowsOf:
      options.rowsOf ??
      (async (taskIds) => (await Promise.all(taskIds.map(rows.load))).filter((row) => row !== undefined)),
    redisData,
    isAlone: options.isAlone,
    isActive: () => true,
    isCutOff: options.isCutOff ?? (() => false),
    isPreempted: options.isPreempted ?? (() => false),
    endsCalls: options.endsCalls ?? (() => false),
    stopContainer: options.stopContainer ?? (() => Promise.resolve()),
    noticeMs: options.noticeMs ?? (() => 0),
    sinceStallMs: () => performance.now() - (stalledAtMs() ?? -Infinity),
    listRows: () => Promise.resolve([]),
    stubsOf: () => Promise.resolve(new Map()),
    ...options.more,
  });
  const { dispatcher, due, reports, asynchronous, queueing, renewal, tasks } = path;
  const marks = new AddedMarks(client, keys);
  wireTasks({ ...path, queues, lines, replies });
  if (options.onAccepted !== undefined) asynchronous.onAccepted(options.onAccepted);
  tasks.start();
  queueing.start();
  const rebuild =
    redisData &&
    new Rebuild({
      ...path,
      marks,
      data: redisData,
      queues: real,
      records,
      presence: { redisLost: () => Promise.resolve() },
      endedQueues: () => Promise.resolve({ queues: [] }),
      log: quiet,
      isLeader: () => false,
    });
  await redisData?.start();
  rebuild?.onRebuilt(() => {
    for (const queue of slots.queues()) dispatcher.wake(queue);
  });
  rebuild?.start();
  let answers: Answers | undefined;
  if (bus !== undefined) {
    answers = new Answers({
      ...path,
      bus,
      channelOf: keys.repliesChannel,
      instance,
      replies,
      lines,
      bodies,
      records,
      log: quiet,
      lookUpEveryMs: 200,
    });
    answers.start();
    await bus.start();
  }
  return {
    ...path,
    instance,
    client,
    keys,
    queues: real,
    lines,
    records,
    leases,
    slots,
    replies,
    bytes,
    bodies,
    registry,
    redisData,
    marks,
    container: (queue, link, count = 1, id) => {
      containers += 1;
      const containerId = id ?? (`endpoint-c-${containers}` as ContainerId);
      const machineId = link?.machineId ?? MACHINE;
      const ready = slots.ready({ containerId, queue, machineId, slots: count }, link, Date.now());
      const row = rowOf(ready);
      if (row !== undefined) containerRows.set(containerId, row);
      reports.containerReady(ready);
      if (link !== undefined) dispatcher.wake(queue);
      return ready;
    },
    result: (order, body = '{"ok":true}', outcome = 'ok') =>
      reports.result(MACHINE, {
        taskId: order.taskId,
        token: order.token,
        containerId: order.containerId,
        outcome,
        durationMs: 5,
        body: Buffer.from(body),
      }),
    redisLost: () => writeAgain({ renewal, records }),
    kill: () => {
      isKilled = true;
      others.delete(records);
      answers?.stop();
      dispatcher.stop();
      bus?.stop();
      subscriber?.disconnect();
      client.disconnect();
    },
    stop: async () => {
      rebuild?.stop();
      redisData?.stop();
      answers?.stop();
      dispatcher.stop();
      due.stop();
      await queueing.stop();
      tasks.stop();
      await records.close();
      others.delete(records);
      await real.close();
      bus?.stop();
      subscriber?.disconnect();
      client.disconnect();
    },
  };
}
