// Composition root of the scheduler: builds every part in order, passes it down, and gives back { start, stop }. Nothing below this file reads the environment or the clock by itself.
import { mkdir } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '#shared/clock.ts';
import { loadConfig } from '#shared/config.ts';
import { newInstanceId, queueNameOf } from '#shared/domain/ids.ts';
import type { StubId, TaskId } from '#shared/domain/ids.ts';
import { AppError, messageOf, StartupError } from '#shared/errors.ts';
import { Lifecycle } from '#shared/lifecycle.ts';
import type { Part } from '#shared/lifecycle.ts';
import type { Log } from '#shared/log.ts';
import { createLog } from '#shared/log.ts';
import { Registry } from '#shared/metrics.ts';
import { SETTING_NAMES } from '#shared/settings.ts';
import { Autoscaler } from './autoscaler/loop.ts';
import { AutoscalerMetrics } from './autoscaler/metrics.ts';
import { SchedulerSettings } from './config.ts';
import { ContainerStops } from './containers/actions.ts';
import { ContainerBook } from './containers/book.ts';
import { DEFAULT_LIMITS } from './deployments/normalise.ts';
import { Targets } from './deployments/targets.ts';
import { Dispatcher } from './dispatch/dispatcher.ts';
import { Leases } from './dispatch/leases.ts';
import { Replies } from './dispatch/replies.ts';
import { SlotTable } from './dispatch/slots.ts';
import { connectRedis, writeTogether } from './embedded/connect.ts';
import type { RedisTarget } from './embedded/connect.ts';
import { startEmbeddedRedis } from './embedded/redis.ts';
import { MachineHealth } from './fleet/health.ts';
import { Links } from './fleet/links.ts';
import { Machines } from './fleet/machines.ts';
import { FleetMetrics } from './fleet/metrics.ts';
import { SESSION_SETTINGS } from './fleet/session.ts';
import { Workers } from './fleet/workers.ts';
import { createSurfaces } from './http/surfaces.ts';
import { ensureFirstWorkspace } from './identity/bootstrap.ts';
import { openInstallation } from './identity/installation.ts';
import { createInvalidation } from './identity/invalidation.ts';
import { issueMachineCredential, verifyMachineCredential } from './identity/machine-credentials.ts';
import { Tenants } from './identity/tenants.ts';
import { createTokens } from './identity/tokens.ts';
import { signingKeyOf } from './identity/workspaces.ts';
import { LeaderLease } from './leader.ts';
import { LoopMetrics } from './loop-metrics.ts';
import { LogReader } from './logs/log-reads.ts';
import { LogSink } from './logs/log-sink.ts';
import { openFileObjects } from './objects/files.ts';
import { createObjects } from './objects/service.ts';
import { Placer } from './placement/commit.ts';
import { Presence } from './presence.ts';
import { openTaskQueues } from './queues/bullmq.ts';
import { DueTimes } from './queues/due.ts';
import { keysOf } from './queues/keys.ts';
import { totalOf } from './queues/task-queues.ts';
import { openSealer } from './secrets/seal.ts';
import { openDb } from './store/db.ts';
import { migrate } from './store/migrate.ts';
import { listWorkspaces } from './store/queries/workspaces.ts';
import {
  insertAcceptedTasks,
  listTasks,
  openTaskIdsOfQueue,
  taskById,
  upsertTaskRecords,
  acceptedJobOf,
} from './store/queries/tasks.ts';
import { Bodies } from './tasks/bodies.ts';
import { Drainer } from './tasks/drainer.ts';
import { TaskMetrics } from './tasks/metrics.ts';
import { TaskRecords } from './tasks/records.ts';
import { GroupCommit } from './tasks/accepting.ts';
import { Actions } from './tasks/actions.ts';
import { recordOfRow } from './tasks/recording.ts';
import { Tasks } from './tasks/service.ts';
import { TaskSweep } from './tasks/sweep.ts';

export interface Scheduler {
  readonly httpAddress: string;
  readonly agentAddress: string;
  readonly caFingerprint: string;
  /**
   * The first workspace, made when there is none. The token, of type admin, is in clear this once: when the workspace was made now, or when a new one is asked for
   * (whoever may ask over the IPC channel owns the data directory).
   */
  ensureFirstWorkspace(options?: {
    readonly issueToken?: boolean;
  }): Promise<{ readonly workspaceId: string; readonly token?: string }>;
  /** A machine of the shared `default` pool for an agent on this host. */
  createLocalMachine(): Promise<string>;
  stop(): Promise<void>;
}

/** What an installer of agents fetches. */
const RELEASE_CHANNEL = 'stable';
const VERSION = '0.1.0';
/** The local pool of `longshore up` runs many small containers on few cores. */
const LOCAL_OVERCOMMIT = 8;

/** @throws StartupError with the sentence and the cure when something it needs is missing */
export async function startScheduler(settings: SchedulerSettings, log: Log): Promise<Scheduler> {
  const started: Part[] = [];
  const undo = async (): Promise<void> => {
    const lifecycle = new Lifecycle(started, log);
    await lifecycle.start();
    await lifecycle.stop();
  };
  try {
    return await build(settings, log, started);
  } catch (error) {
    await undo();
    throw error;
  }
}

async function build(settings: SchedulerSettings, log: Log, opened: Part[]): Promise<Scheduler> {
  const dataDir = settings.LONGSHORE_DATA_DIR;
  await makeDataDir(dataDir);
  const clock = systemClock;
  const instance = newInstanceId();
  const keys = keysOf(settings.LONGSHORE_REDIS_PREFIX);
  const registry = new Registry();
  const later = (name: string, stop: () => Promise<void> | void): void => void opened.push({ name, stop });

  // Stores: the database and Redis come up side by side.
  const [db, redisTarget] = await bothOrNeither(
    openDb({ databaseUrl: settings.DATABASE_URL, dataDir, log }).then(async (database) => {
      later('database', () => database.close());
      await migrate(database, log);
      return database;
    }),
    redisOf(settings, log, later),
  );
  const connect = async (role: string) => {
    const client = await connectRedis(redisTarget, role, log);
    later(`redis ${role}`, () => client.disconnect());
    return client;
  };
  const [hot, general, subscriber] = await Promise.all([connect('tasks'), connect('control'), connect('subscribe')]);
  writeTogether(hot);
  const sealer = await openSealer({ keyFile: settings.LONGSHORE_SECRET_KEY_FILE, dataDir });
  const installation = await openInstallation(db, sealer);

  // Identity and what can be invoked.
  const invalidation = createInvalidation({ publisher: general, subscriber, log });
  const tokens = createTokens({ db, installation, invalidation, clock });
  const targets = new Targets({ db, log, invalidation });
  const objects = createObjects({
    db,
    backend: await openFileObjects(join(dataDir, 'objects')),
    installation,
    maxObjectBytes: settings.LONGSHORE_MAX_OBJECT_BYTES,
    clock,
  });

  // Tasks.
  const queues = await openTaskQueues({ client: hot, log, prefix: keys.prefix });
  later('task queues', () => queues.close());
  const records = new TaskRecords({
    client: hot,
    keys,
    log,
    registry,
    loadFromDb: async (taskId: TaskId) => {
      const row = await taskById(db, taskId);
      return row === undefined ? undefined : recordOfRow(row);
    },
  });
  const drainer = new Drainer({
    client: general,
    keys,
    log,
    registry,
    write: (batch) => upsertTaskRecords(db, batch),
    onDrained: (left) => records.drained(left),
  });
  const leader = new LeaderLease({ client: general, keys, instance, log });
  const isLeader = (): boolean => leader.isLeader();
  const presence = new Presence({ redis: general, keys, instance, log });
  const book = new ContainerBook({ db, log, clock });
  const slots = new SlotTable();
  const leases = new Leases(hot, keys);
  const fleetMetrics = new FleetMetrics(registry);
  const loops = new LoopMetrics(registry, clock);
  const replies = new Replies((waiting) => tasks.waitLimitReached(waiting));
  const due = new DueTimes(clock, (queue) => {
    dispatcher.wake(queue);
    autoscaler.wake(queue);
  });
  const tasks: Tasks = new Tasks({
    queues,
    records,
    leases,
    slots,
    bodies: new Bodies(objects, {
      maxResultBytes: settings.LONGSHORE_MAX_RESULT_BYTES,
      maxInputBytes: settings.LONGSHORE_MAX_INVOKE_BODY_BYTES,
    }),
    accepting: new GroupCommit((batch) => insertAcceptedTasks(db, batch)),
    due,
    replies,
    instance,
    clock,
    log,
    metrics: new TaskMetrics(registry),
    isAlive: (replica) => presence.isAlive(replica),
    isActive: async (target) => (await targets.byQueue(target.queue))?.active === true,
    onDepth: (target, depth) => autoscaler.depthSeen(target, depth),
    onAttemptEnded: (queue, containerId) => autoscaler.attemptEnded(queue, containerId),
    listRows: async (workspaceId, filter) => {
      const { taskIds, ...rest } = filter;
      const rows = await listTasks(db, { workspaceId, ...rest, ...(taskIds === undefined ? {} : { ids: taskIds }) });
      return rows.map(recordOfRow);
    },
  });
  const dispatcher = new Dispatcher({
    queues,
    slots,
    instance,
    log,
    begin: (claim) => tasks.begin(claim),
    onIdle: (container) => autoscaler.attemptEnded(container.queue, container.containerId),
    onDue: (queue, dueMs) => due.add(queue, dueMs),
  });
  tasks.attach(dispatcher);

  // Deciding, and the machines.
  const machines = new Machines({ db, log, clock, metrics: fleetMetrics, caFingerprint: installation.caFingerprint });
  machines.attach(book);
  const autoscaler: Autoscaler = new Autoscaler({
    targets,
    queues,
    book,
    slots,
    clock,
    log,
    metrics: new AutoscalerMetrics(registry),
    loops,
    due,
    isLeader,
    maxContainers: settings.LONGSHORE_MAX_CONTAINERS,
    onStartFailed: (queue, lastLines) => void tasks.failWaiting(queue, lastLines),
  });
  const placer = new Placer({ book, machines, clock, log, metrics: fleetMetrics, loops, isLeader });
  const links = new Links({
    machines,
    book,
    slots,
    tasks,
    logs: new LogSink(db, book),
    identity: {
      verify: (credential) => verifyMachineCredential(installation, credential),
      issue: (machineId, version) => issueMachineCredential(installation, machineId, version),
    },
    openObject: async (objectId) => (await objects.open(objectId))?.stream,
    server: installation.server,
    address: settings.LONGSHORE_AGENT_ADDRESS,
    clock,
    log,
    metrics: fleetMetrics,
    settings: SESSION_SETTINGS,
    onServable: (served) => {
      for (const queue of served) dispatcher.wake(queue);
    },
  });
  book.onChange(({ entry, to, machineBefore }) => {
    if (entry.row.machineId !== null) links.machineChanged(entry.row.machineId);
    if (machineBefore !== null && machineBefore !== entry.row.machineId) links.machineChanged(machineBefore);
    if (to === 'STOPPING' || to === 'DRAINING') slots.leave(entry.row.id);
    if (to === 'STOPPED' || to === 'FAILED' || to === 'LOST' || to === 'PENDING') {
      slots.remove(entry.row.id);
      void tasks.containerGone(entry.row.id);
    }
  });
  const stops = new ContainerStops(book, slots);
  const actions = new Actions({
    attempts: tasks.attempts,
    ender: tasks.ender,
    queues,
    records,
    replies,
    stops,
    clock,
    log,
    openTasks: (queue, limit, after) => openTaskIdsOfQueue(db, queue, limit, after),
    leases,
    onQueueChanged: (queue) => autoscaler.wake(queue),
  });
  targets.onChange(({ deploymentId, target }) => {
    if (target?.active !== true) void actions.answerStopped(queueNameOf(deploymentId, '' as StubId));
  });
  const workers = new Workers({ db, machines, book, slots, clock, log, isLeader });
  // Wake-ups that came while another (perhaps a dead one) held the lease were for nobody.
  leader.onChange((now) => {
    if (now.kind !== 'leading') return;
    autoscaler.sweep();
    placer.wake();
  });
  const surfaces = createSurfaces({
    clock,
    workers,
    containerActions: stops,
    deploymentEffects: actions,
    taskActions: actions,
    db,
    log,
    registry,
    tokens,
    tenants: new Tenants(db, sealer, installation, clock),
    limitsOf: () => ({ ...DEFAULT_LIMITS, maxContainers: settings.LONGSHORE_MAX_CONTAINERS }),
    objects,
    targets,
    tasks,
    machines,
    containers: book,
    logs: new LogReader(db),
    settings: {
      externalUrl: settings.LONGSHORE_EXTERNAL_URL ?? null,
      invokeDomain: settings.LONGSHORE_INVOKE_DOMAIN ?? null,
      maxInvokeBodyBytes: settings.LONGSHORE_MAX_INVOKE_BODY_BYTES,
      metricsToken: settings.LONGSHORE_METRICS_TOKEN ?? null,
      version: VERSION,
    },
    bootstrap: {
      token: settings.LONGSHORE_BOOTSTRAP_TOKEN ?? null,
      ensureFirstWorkspace: () => ensureFirstWorkspace(db, sealer, installation),
    },
    signingKeyOf: (workspace) => signingKeyOf(workspace, sealer),
    queueDepth: async (queue) => totalOf(await queues.depth(queue)),
    agentUpstream: {
      url: () => `grpcs://${settings.LONGSHORE_EXTERNAL_AGENT_ADDRESS ?? links.address}`,
      branch: RELEASE_CHANNEL,
    },
    checks: {
      database: async () => void (await db.query('select 1')),
      redis: async () => void (await general.ping()),
    },
  });

  const lifecycle = new Lifecycle(
    [
      ...opened.splice(0),
      { name: 'invalidation', start: () => invalidation.start(), stop: () => invalidation.stop() },
      { name: 'targets', start: () => targets.start() },
      { name: 'machines', start: () => machines.start(), stop: () => machines.stop() },
      { name: 'containers', start: () => book.load() },
      // Embedded records have one owner at a time: a leader or a replica that Redis still names is one that died.
      { name: 'predecessors', start: () => (db.kind === 'pglite' ? presence.forgetOthers() : undefined) },
      presence,
      leader,
      {
        name: 'task records',
        start: () => drainWhileLeading(drainer, records, leader),
        stop: async () => {
          await records.close();
          if (leader.isLeader()) await drainer.flush();
        },
      },
      { name: 'tasks', start: () => tasks.start(), stop: () => tasks.stop() },
      {
        name: 'dispatcher',
        stop: () => {
          dispatcher.stop();
          due.stop();
        },
      },
      { name: 'placement', start: () => placer.start(), stop: () => placer.stop() },
      { name: 'autoscaler', start: () => autoscaler.start(), stop: () => autoscaler.stop() },
      { name: 'agent links', start: () => links.start(), stop: () => links.stop() },
      new MachineHealth({ machines, book, slots, tasks, clock, isLeader, log }),
      { name: 'workers', start: () => workers.start(), stop: () => workers.stop() },
      new TaskSweep({
        db,
        queues,
        records,
        clock,
        log,
        isLeader,
        leases,
        ender: tasks.ender,
        jobOf: (taskId) => acceptedJobOf(db, taskId),
        isAlive: (replica) => presence.isAlive(replica),
        onReturned: (queue) => {
          dispatcher.wake(queue);
          autoscaler.wake(queue);
        },
      }),
      {
        name: 'http',
        start: async () => void (await surfaces.server.start(settings.LONGSHORE_HTTP_ADDRESS)),
        stop: () => surfaces.server.stop(),
      },
    ],
    log,
  );
  await lifecycle.start();
  log.info({ http: surfaces.server.address, agents: links.address, instance, database: db.kind }, 'scheduler ready');
  return {
    get httpAddress() {
      return surfaces.server.address;
    },
    get agentAddress() {
      return links.address;
    },
    caFingerprint: installation.caFingerprint,
    ensureFirstWorkspace: async (options = {}) => {
      const first = await ensureFirstWorkspace(db, sealer, installation);
      if (first.kind === 'created') return { workspaceId: first.workspaceId, token: first.token };
      const admin = (await listWorkspaces(db)).find((workspace) => workspace.isAdmin);
      if (admin === undefined) throw new AppError('workspace_not_found', 'this installation has no admin workspace');
      if (options.issueToken !== true) return { workspaceId: admin.id };
      const issued = await tokens.issue({ workspaceId: admin.id }, 'admin');
      return { workspaceId: admin.id, token: issued.token };
    },
    createLocalMachine: async () =>
      (await machines.create({ workspaceId: null }, 'default', LOCAL_OVERCOMMIT)).joinToken,
    stop: () => lifecycle.stop(),
  };
}

/** The leader drains; a replica that is not only appends. */
function drainWhileLeading(drainer: Drainer, records: TaskRecords, leader: LeaderLease): void {
  let abort: AbortController | undefined;
  const follow = (leading: boolean): void => {
    if (leading === (abort !== undefined)) return;
    abort?.abort();
    abort = leading ? new AbortController() : undefined;
    if (abort !== undefined) void drainer.start(abort.signal);
  };
  records.onAppended(() => {
    if (abort !== undefined) drainer.wake();
  });
  leader.onChange((now) => follow(now.kind === 'leading'));
  follow(leader.isLeader());
}

async function redisOf(
  settings: SchedulerSettings,
  log: Log,
  later: (name: string, stop: () => Promise<void>) => void,
): Promise<RedisTarget> {
  if (settings.REDIS_URL !== undefined) return { url: settings.REDIS_URL };
  if (settings.LONGSHORE_REDIS_SOCKET !== undefined) return { socketPath: settings.LONGSHORE_REDIS_SOCKET };
  const embedded = await startEmbeddedRedis({ dataDir: settings.LONGSHORE_DATA_DIR, log });
  later('redis server', () => embedded.stop());
  return { socketPath: embedded.socketPath };
}

async function makeDataDir(dataDir: string): Promise<void> {
  try {
    await mkdir(dataDir, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new StartupError(
      'data_dir_unusable',
      `cannot use data directory ${dataDir} (${messageOf(error)}): make it writable for this user, or set LONGSHORE_DATA_DIR`,
      { cause: error },
    );
  }
}

/** Waits for both, so that a failure of one does not leave the other opening behind our back. */
async function bothOrNeither<A, B>(a: Promise<A>, b: Promise<B>): Promise<[A, B]> {
  const [first, second] = await Promise.allSettled([a, b]);
  if (first.status === 'rejected') throw first.reason;
  if (second.status === 'rejected') throw second.reason;
  return [first.value, second.value];
}

/**
 * Runs the scheduler until a signal, or until its supervisor is gone. Over an IPC channel it says `ready` (or `failed`) and answers `ensureFirstWorkspace` and `createLocalMachine`.
 * @returns the exit code
 */
export async function runScheduler(env: Readonly<Record<string, string | undefined>>): Promise<number> {
  const defaults = { LONGSHORE_DATA_DIR: env['LONGSHORE_DATA_DIR'] || defaultDataDir() };
  const settings = loadConfig(SchedulerSettings, { ...env, ...defaults }, { known: SETTING_NAMES });
  const log = createLog({ name: 'longshore-scheduler', level: settings.LONGSHORE_LOG_LEVEL });
  const stopping = new Promise<void>((resolve) => {
    process.once('SIGTERM', () => resolve());
    process.once('SIGINT', () => resolve());
    process.once('disconnect', () => resolve());
  });
  const scheduler = await startScheduler(settings, log);
  process.on('message', (message: unknown) => void answer(scheduler, message, log));
  process.send?.({
    kind: 'ready',
    httpAddress: scheduler.httpAddress,
    agentAddress: scheduler.agentAddress,
    caFingerprint: scheduler.caFingerprint,
  });
  await stopping;
  log.info('scheduler stopping');
  await scheduler.stop();
  return 0;
}

async function answer(scheduler: Scheduler, message: unknown, log: Log): Promise<void> {
  if (typeof message !== 'object' || message === null) return;
  const { kind, id, issueToken } = message as { kind?: unknown; id?: unknown; issueToken?: unknown };
  try {
    if (kind === 'ensureFirstWorkspace') {
      process.send?.({
        kind: 'firstWorkspace',
        id,
        ...(await scheduler.ensureFirstWorkspace({ issueToken: issueToken === true })),
      });
    } else if (kind === 'createLocalMachine') {
      process.send?.({ kind: 'localMachine', id, joinToken: await scheduler.createLocalMachine() });
    }
  } catch (error) {
    log.error({ err: error, kind }, 'request of the supervisor failed');
    process.send?.({ kind: 'requestFailed', id, message: messageOf(error) });
  }
}

/** `/var/lib/longshore` for root under a service manager, else below the home directory. */
function defaultDataDir(): string {
  return join(homedir(), '.local', 'share', 'longshore');
}
