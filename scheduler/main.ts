// Composition root of the scheduler: builds every part in order, passes it down, and returns { start, stop }. The files
// of compose/ build the parts of a subject. This file says which part notifies which, and in which order all of them
// start; they stop in the reverse order. Nothing below this file reads the environment or the clock by itself.
// Invariant: before the lifecycle starts, the stores are open
// and nothing else has begun; a start that fails closes them.
import { systemClock } from '#shared/clock.ts';
import { newInstanceId, queueNameOf } from '#shared/domain/ids.ts';
import type { ContainerId, QueueName, StubId } from '#shared/domain/ids.ts';
import { Lifecycle } from '#shared/lifecycle.ts';
import type { Log } from '#shared/log.ts';
import { Registry } from '#shared/metrics.ts';
import { watchProcess } from '#shared/process-metrics.ts';
import { openBooks } from './compose/books.ts';
import { openExplain } from './compose/explain.ts';
import { ReadMetrics } from './stores/store/metrics.ts';
import { registerGauges } from './compose/gauges.ts';
import type { Ground } from './compose/ground.ts';
import { openHealth } from './compose/health.ts';
import { openIdentity } from './compose/identity.ts';
import { openLanes, watchLanes } from './compose/lanes.ts';
import { openLinks } from './compose/links.ts';
import { openObjects } from './compose/objects.ts';
import { tellGivenUp } from './compose/placement.ts';
import { openRecords, recordsPart } from './compose/records.ts';
import { openRedisMemory } from './compose/redis-memory.ts';
import { joinReplicas } from './compose/replicas.ts';
import { openRetention } from './compose/retention.ts';
import { openScaling } from './compose/scaling.ts';
import { openSchedules } from './compose/schedules.ts';
import { beginStores } from './compose/stores.ts';
import type { Opening } from './compose/stores.ts';
import { openCertificate, openSurfaces } from './compose/surfaces.ts';
import { openTaskOwners } from './compose/task-owners.ts';
import type { TaskOwners } from './compose/task-owners.ts';
import { openTasks } from './compose/tasks.ts';
import { openWebhooks } from './compose/webhooks.ts';
import { openWorkers } from './compose/workers.ts';
import type { SchedulerSettings } from './config.ts';
import { ContainerStops } from './fleet/containers/actions.ts';
import { Directory } from './workspaces/deployments/directory.ts';
import { Targets } from './workspaces/deployments/targets.ts';
import { Pools } from './fleet/pools.ts';
import { readPoolsFile } from './fleet/pools-file.ts';
import { StallDetector } from './fleet/stall.ts';
import { firstWorkspaceOfOwner } from './workspaces/identity/bootstrap.ts';
import { outcomes } from './api/http/invoke/outcomes.ts';
import { reachableAt } from './api/ops/host-address.ts';
import { revokeMessage } from './replicas/outcome-messages.ts';
import { keysOf } from './stores/queues/keys.ts';
import { openTaskIdsOfQueue } from './stores/store/queries/tasks.ts';
import { Actions } from './tasks/actions.ts';

export interface Scheduler {
  readonly httpAddress: string;
  readonly agentAddress: string;
  readonly caFingerprint: string;
  /**
   * The first workspace, made when there is none. The token, of type admin, is in
   * clear this once. The caller gets it when the workspace was made now, or when a
   * new token is asked for: a caller over the IPC channel owns the data directory.
   */
  ensureFirstWorkspace(options?: {
    readonly issueToken?: boolean;
  }): Promise<{ readonly workspaceId: string; readonly token?: string }>;
  /** Creates a machine in the shared `default` pool for an agent on this host. */
  createLocalMachine(): Promise<string>;
  /** Reads the pools file and the certificate of HTTP again; bad files change nothing, and are logged. */
  readFilesAgain(): Promise<void>;
  /** Ends HTTP: running calls continue for LONGSHORE_DRAIN_SECONDS at most. */
  drain(): Promise<void>;
  stop(): Promise<void>;
}

/** The local pool of `longshore up` runs many small containers on few cores. */
const LOCAL_POOL = { cpuOvercommit: 8 };

/**
 * Builds and starts a scheduler.
 * @param opening - its stores, when the caller has begun to open them while this file was loaded
 * @throws StartupError with the sentence and the cure when a necessary thing is missing
 */
export async function startScheduler(
  settings: SchedulerSettings,
  log: Log,
  opening: Opening = beginStores(settings, log),
): Promise<Scheduler> {
  const undo = async (): Promise<void> => {
    const lifecycle = new Lifecycle(opening.parts, log);
    await lifecycle.start();
    await lifecycle.stop();
  };
  try {
    return await build(settings, log, opening);
  } catch (error) {
    await undo();
    throw error;
  }
}

async function build(settings: SchedulerSettings, log: Log, opening: Opening): Promise<Scheduler> {
  const ground: Ground = {
    settings,
    log,
    clock: systemClock,
    stall: new StallDetector(systemClock, log),
    instance: newInstanceId(),
    keys: keysOf(settings.LONGSHORE_REDIS_PREFIX),
    registry: new Registry(),
    ...(await opening.stores),
  };
  const { clock, stall, instance, keys, db } = ground;
  const opened = opening.parts;
  opened.push({ name: 'process metrics', stop: watchProcess(ground.registry) });
  const { LONGSHORE_POOLS_FILE: poolsPath } = settings;
  const poolsFile = poolsPath === undefined ? undefined : await readPoolsFile(poolsPath);
  const certificate = await openCertificate(settings, log);

  // Identity and permissions, targets of invocations, and knowledge of replicas, machines and containers.
  const identity = await openIdentity(ground, (id, epoch) => books.credentials.isLive(id, epoch));
  const { invalidation, installation, limits, tokens } = identity;
  const targets = new Targets({ db, log, invalidation });
  const directory = new Directory(db);
  new ReadMetrics(ground.registry, db.reads);
  const books = openBooks(ground, identity, {
    onSuperseded: (machineId) => links.superseded(machineId),
    onIdle: (queue, containerId) => autoscaler.attemptEnded(queue, containerId),
  });
  const { bus, presence, leader, isLeader, machines, book, slots, leases, loads } = books;

  // Tasks.
  const { objects, bodies, collector, closing } = await openObjects(
    ground,
    installation,
    limits,
    isLeader,
    (objectId) => targets.codeChanged(objectId),
  );
  opened.push(closing);
  const lanes = await openLanes({
    ground,
    books,
    jobOf: (taskId) => replies.get(taskId)?.job,
    wakeHere: (queue, taskId) => dispatcher.wakeHere(queue, taskId),
  });
  const { queues } = lanes;
  opened.push({ name: 'task queues', stop: () => queues.close() });
  const webhooks = openWebhooks({
    ...ground,
    isLeader,
    signingKeyOf: identity.signingKeyOf,
    loadResult: (id) => bodies.loadResult(id),
  });
  const { records, drainer, caughtUp } = openRecords({
    ...ground,
    isLeader,
    onCallbacks: (deliveries) => webhooks.deliveries.announce(deliveries),
  });
  const redisMemory = openRedisMemory(ground);
  const { tasks, dispatcher, replies, due } = openTasks({
    ground,
    identity,
    books,
    targets,
    directory,
    queues,
    records,
    caughtUp: () => caughtUp.caughtUp(),
    bodies,
    redisMemory,
    events: {
      cancel: (taskId, ending) => actions.cancel(taskId, ending),
      onAccepted: (job, queue) => owners.accepted(job, queue),
      beforeFetch: (queue) => owners.beforeFetch(queue),
      onDepth: (target, depth) => autoscaler.depthSeen(target, depth, (queue) => replicas.decisions.wanted(queue)),
      onAttemptEnded: (queue, containerId) => {
        autoscaler.attemptEnded(queue, containerId);
        replicas.leaving.look(containerId);
      },
      onIdle: (queue, containerId) => autoscaler.attemptEnded(queue, containerId),
      onDue: (queue) => replicas.decisions.wanted(queue),
      onNoRoom: (queue, taskId) => replicas.wakes.noRoom(queue, taskId),
    },
  });
  const wake = (queue: QueueName): void => dispatcher.wake(queue);

  // The deciding loops, and the machines.
  const { autoscaler, placer, accounting, cpuWorkAllowed } = openScaling({
    ground,
    books,
    limits,
    targets,
    queues,
    tasks,
    due,
    isGuarded: (queue) => health.isGuarded(queue),
  });
  const gauges = registerGauges({ ...ground, ...books, autoscaler });
  const linkParts = openLinks({
    ground,
    identity,
    books,
    tasks,
    objects,
    cpuWorkAllowed,
    onServable: (served) => {
      for (const queue of served) wake(queue);
    },
    httpServer: () => surfaces.server.app.server,
    isHttpOpen: () => surfaces.server.isOpen,
  });
  const { links, images } = linkParts;

  // Notifications between parts, in this order.
  tellGivenUp(book, tasks);
  watchLanes(lanes, book, machines, wake);
  book.onChange((change) => {
    const { entry, to } = change;
    links.containerMoved(change);
    if (to === 'STOPPING' || to === 'DRAINING') slots.leave(entry.row.id);
    if (to === 'STOPPING') tasks.containerStops(entry.row.id);
    if (to === 'STOPPED' || to === 'FAILED' || to === 'LOST' || to === 'PENDING') {
      slots.remove(entry.row.id);
      loads.forget(entry.row.id);
      void tasks.containerGone(entry.row.id);
    }
  });
  const owners: TaskOwners = openTaskOwners({
    ...ground,
    ...books,
    lanes,
    records,
    replies,
    objects,
    tasks,
    wakeDispatch: wake,
    pruneDispatch: () => dispatcher.prune(),
    wakeScaling: (queue) => (queue === undefined ? autoscaler.sweep() : autoscaler.wake(queue)),
  });
  const health = openHealth(ground, books, tasks);
  const tellEnded = (ids: readonly ContainerId[]): Promise<void> => books.credentials.ended(ids);
  const stops = new ContainerStops(book, slots, (id) => tellEnded([id]));
  const actions: Actions = new Actions({
    foreign: owners.foreign,
    attempts: tasks.attempts,
    ender: tasks.ender,
    changes: tasks.changes,
    queues,
    records,
    replies,
    stops,
    clock,
    log,
    openTasks: (queue, limit, after) => openTaskIdsOfQueue(db, queue, limit, after),
    leases,
    onQueueChanged: (queue) => replicas.decisions.wanted(queue),
    revokeElsewhere: (...revoked) => bus.say(keys.revokeChannel, revokeMessage(...revoked, outcomes)),
  });
  targets.onChange(({ deploymentId, target }) => {
    if (target?.active === true) images.prepare(target);
    else void actions.answerStopped(queueNameOf(deploymentId, '' as StubId));
  });
  const replicas = joinReplicas({
    ...ground,
    ...books,
    links,
    queues,
    records,
    replies,
    tasks,
    actions,
    dispatcher,
    autoscaler,
  });
  machines.onChange((machine) => {
    // The leader decides this; every replica ends the attempts that it sent to the machine.
    if (machine.health === 'LOST' && !isLeader()) void tasks.machineLost(machine.row.id);
  });
  const workers = openWorkers({ ...ground, ...books, tellEnded, autoscaler, cpuWorkAllowed });
  const pools = new Pools({ db, machines, log });
  // Wake-ups that came while another (perhaps a dead) replica held the lease had no effect.
  leader.onChange((now) => {
    if (now.kind !== 'leading') return;
    autoscaler.leads();
    void accounting.recount().then(() => placer.wake());
  });

  // Requests from outside, and work by time.
  const schedules = openSchedules({ ...ground, targets, queues, tasks, leader });
  const explains = openExplain({
    ...ground,
    ...books,
    channel: keys.explainChannel,
    refusalOf: (target) => books.servable.refusal(target),
    limits: identity.limits,
    usage: linkParts.usage,
    placer,
    autoscaler,
    targets,
    queues,
    tasks,
  });
  const surfaces = openSurfaces({
    ground,
    identity,
    books,
    linkParts,
    queues,
    actions,
    certificate,
    objects,
    directory,
    targets,
    tasks,
    workers,
    pools,
    explains,
    containerActions: stops,
    callbackProblem: webhooks.urlProblem,
  });

  const lifecycle = new Lifecycle(
    [
      ...opened.splice(0),
      { name: 'invalidation', start: () => invalidation.start(), stop: () => invalidation.stop() },
      { name: 'targets', start: () => targets.start() },
      // Embedded records have one owner at a time: any other leader or replica that Redis still names is dead.
      { name: 'predecessors', start: () => (db.kind === 'pglite' ? presence.othersDied() : undefined) },
      presence,
      // Listening comes first, so that writes during the reading of rows are noticed.
      ...replicas.listening,
      { name: 'pools', start: async () => (poolsFile === undefined ? undefined : pools.declare(poolsFile)) },
      { name: 'machines', start: () => machines.start(), stop: () => machines.stop() },
      { name: 'containers', start: () => book.load() },
      leader,
      redisMemory,
      recordsPart(records, drainer, leader),
      webhooks.deliveries,
      ...owners.beforeTasks,
      { name: 'tasks', start: () => tasks.start(), stop: () => tasks.stop() },
      {
        name: 'dispatcher',
        stop: () => {
          dispatcher.stop();
          due.stop();
        },
      },
      accounting,
      { name: 'placement', start: () => placer.start(), stop: () => placer.stop() },
      { name: 'autoscaler', start: () => autoscaler.start(), stop: () => autoscaler.stop() },
      { name: 'agent links', start: () => links.start(), stop: () => links.stop() },
      gauges,
      stall,
      health,
      { name: 'workers', start: () => workers.start(), stop: () => workers.stop() },
      ...owners.afterTasks,
      collector,
      openRetention({ ground, objects, machines, isLeader }),
      ...replicas.running,
      schedules,
      {
        name: 'http',
        start: async () => {
          const address = await surfaces.server.start(settings.LONGSHORE_HTTP_ADDRESS);
          await presence.announce(reachableAt(address));
        },
        stop: () => surfaces.server.stop(),
      },
    ],
    log,
  );
  const drain = (): Promise<void> => surfaces.server.stop(settings.LONGSHORE_DRAIN_SECONDS * 1000);
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
    ensureFirstWorkspace: (options = {}) =>
      firstWorkspaceOfOwner({ db, sealer: identity.sealer, keys: installation, tokens }, options.issueToken === true),
    createLocalMachine: async () => (await machines.create({ workspaceId: null }, 'default', LOCAL_POOL)).joinToken,
    drain,
    readFilesAgain: async () => {
      await certificate?.look();
      if (poolsPath !== undefined) await pools.readAgain(poolsPath);
    },
    stop: async () => {
      await drain();
      await lifecycle.stop();
    },
  };
}
