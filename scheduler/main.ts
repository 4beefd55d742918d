// Composition root of the scheduler: builds every part in order, passes it down, and gives back { start, stop }. Nothing below this file reads the environment or the clock by itself.
import { systemClock } from '#shared/clock.ts';
import { newInstanceId, queueNameOf } from '#shared/domain/ids.ts';
import type { StubId } from '#shared/domain/ids.ts';
import { isTerminalContainer } from '#shared/domain/status.ts';
import { AppError } from '#shared/errors.ts';
import { Lifecycle } from '#shared/lifecycle.ts';
import type { Log } from '#shared/log.ts';
import { Registry } from '#shared/metrics.ts';
import { Breakers } from './autoscaler/breakers.ts';
import { Autoscaler } from './autoscaler/loop.ts';
import { AutoscalerMetrics } from './autoscaler/metrics.ts';
import { registerGauges } from './compose/gauges.ts';
import { openExplain } from './compose/explain.ts';
import { openObjectBackend } from './compose/objects.ts';
import { openLanes, watchLanes } from './compose/lanes.ts';
import { cpuPoolsOf, openPlacement, tellGivenUp } from './compose/placement.ts';
import { openRecords, recordsPart } from './compose/records.ts';
import { joinReplicas } from './compose/replicas.ts';
import { openSchedules } from './compose/schedules.ts';
import { beginStores } from './compose/stores.ts';
import type { Opening } from './compose/stores.ts';
import { openWebhooks } from './compose/webhooks.ts';
import { openWorkers } from './compose/workers.ts';
import { openTaskOwners } from './compose/task-owners.ts';
import type { TaskOwners } from './compose/task-owners.ts';
import type { SchedulerSettings } from './config.ts';
import { ContainerStops } from './containers/actions.ts';
import { ContainerBook } from './containers/book.ts';
import { ContainerCredentials } from './containers/credentials.ts';
import { LeaderBook } from './containers/leader-book.ts';
import { RegistryCredentials } from './images/credentials.ts';
import { ImageOrders } from './images/orders.ts';
import { PullPlaces } from './images/places.ts';
import { Directory } from './deployments/directory.ts';
import { Targets } from './deployments/targets.ts';
import { Dispatcher } from './dispatch/dispatcher.ts';
import { LastAttempts } from './dispatch/last-attempts.ts';
import { Leases } from './dispatch/leases.ts';
import { Replies } from './dispatch/replies.ts';
import { SlotTable } from './dispatch/slots.ts';
import { MachineHealth } from './fleet/health.ts';
import { MachineCredentials } from './fleet/credentials.ts';
import { MachinePages } from './fleet/machine-pages.ts';
import { Usage } from './fleet/usage.ts';
import { Links } from './fleet/links.ts';
import { Machines } from './fleet/machines.ts';
import { Pools } from './fleet/pools.ts';
import { readPoolsFile } from './fleet/pools-file.ts';
import { FleetMetrics } from './fleet/metrics.ts';
import { SESSION_SETTINGS } from './fleet/session.ts';
import { StallDetector } from './fleet/stall.ts';
import { ContainerCalls } from './http/container-calls.ts';
import { createSurfaces } from './http/surfaces.ts';
import { ensureFirstWorkspace } from './identity/bootstrap.ts';
import { openInstallation } from './identity/installation.ts';
import { createInvalidation } from './identity/invalidation.ts';
import { machineSigner } from './identity/machine-credentials.ts';
import { IdentityMetrics } from './identity/metrics.ts';
import { Rates } from './identity/rates.ts';
import { Refusals } from './identity/refusals.ts';
import { Tenants } from './identity/tenants.ts';
import { createTokens } from './identity/tokens.ts';
import { Limits } from './identity/workspace-limits.ts';
import { signingKeyOf } from './identity/workspaces.ts';
import { LeaderLease } from './leader.ts';
import { LoopMetrics } from './loop-metrics.ts';
import { LogReader } from './logs/log-reads.ts';
import { LogSink } from './logs/log-sink.ts';
import { ObjectCollector, ObjectMetrics } from './objects/collector.ts';
import { createObjects } from './objects/service.ts';
import { Releases } from './ops/releases.ts';
import { hostAddress, reachableAt } from './ops/host-address.ts';
import { useOf } from './placement/world.ts';
import { Servable } from './placement/servable.ts';
import { Presence } from './presence.ts';
import { ALONE, RedisBus } from './replicas/bus.ts';
import { Loads } from './replicas/loads.ts';
import { Room } from './replicas/room.ts';
import { takeOver } from './replicas/take-over.ts';
import { openTaskQueues } from './queues/bullmq.ts';
import { DueTimes } from './queues/due.ts';
import { keysOf } from './queues/keys.ts';
import { totalOf } from './queues/task-queues.ts';
import { sealAnew } from './identity/seal-anew.ts';
import { openSealer } from './secrets/seal.ts';
import { Secrets } from './secrets/service.ts';
import { containerById } from './store/queries/containers.ts';
import type { NewDelivery } from './store/queries/deliveries.ts';
import { listWorkspaces, workspaceById } from './store/queries/workspaces.ts';
import { insertAcceptedTasks, listTasks, openTaskIdsOfQueue, runningTasksOn, taskById } from './store/queries/tasks.ts';
import { Bodies, taskOfInputKey } from './tasks/bodies.ts';
import { TaskMetrics } from './tasks/metrics.ts';
import { GroupCommit, keptJobs } from './tasks/accepting.ts';
import { Actions } from './tasks/actions.ts';
import { recordOfRow } from './tasks/recording.ts';
import { Tasks } from './tasks/service.ts';

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
  /** Reads the pools file again; a bad one changes nothing and is logged. */
  readPoolsAgain(): Promise<void>;
  stop(): Promise<void>;
}

const VERSION = '0.1.0';
/** The local pool of `longshore up` runs many small containers on few cores. */
const LOCAL_POOL = { cpuOvercommit: 8 };

const listOf = (text: string | undefined): readonly string[] =>
  (text ?? '')
    .split(',')
    .map((one) => one.trim())
    .filter((one) => one !== '');

/**
 * @param opening - its stores, when the caller has begun to open them while this file was loaded
 * @throws StartupError with the sentence and the cure when something it needs is missing
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
  const dataDir = settings.LONGSHORE_DATA_DIR;
  const clock = systemClock;
  const instance = newInstanceId();
  const keys = keysOf(settings.LONGSHORE_REDIS_PREFIX);
  const registry = new Registry();
  const { db, hot, general, subscriber } = await opening.stores;
  const opened = opening.parts;
  const { LONGSHORE_POOLS_FILE: poolsPath } = settings;
  const poolsFile = poolsPath === undefined ? undefined : await readPoolsFile(poolsPath);
  const sealer = await openSealer({
    keyFile: settings.LONGSHORE_SECRET_KEY_FILE,
    previousKeyFile: settings.LONGSHORE_SECRET_KEY_FILE_PREVIOUS,
    dataDir,
  });
  if (settings.LONGSHORE_SECRET_KEY_FILE_PREVIOUS !== undefined) await sealAnew(db, sealer, log);
  const installation = await openInstallation(db, sealer);

  // Embedded records have one owner at a time: there is nobody else to talk to.
  const bus = db.kind === 'pglite' ? ALONE : new RedisBus(hot, subscriber, log);

  // Identity and what can be invoked.
  const invalidation = createInvalidation({ publisher: general, subscriber, log, channel: keys.invalidateChannel });
  installation.ring.attach(invalidation);
  const identityMetrics = new IdentityMetrics(registry);
  const tokens = createTokens({
    db,
    installation,
    invalidation,
    clock,
    isContainerLive: (id, epoch) => containerCredentials.isLive(id, epoch),
  });
  const limits = new Limits({ db, clock, invalidation, maxContainers: settings.LONGSHORE_MAX_CONTAINERS });
  const rates =
    settings.LONGSHORE_RATE_LIMITS === 'off'
      ? undefined
      : new Rates({
          redis: general,
          keys,
          clock,
          onLimited: (limit) => identityMetrics.rateLimited.inc({ limit }),
        });
  const targets = new Targets({ db, log, invalidation });
  const directory = new Directory(db);
  const secrets = new Secrets(db, sealer);
  const backend = await openObjectBackend(settings);
  opened.push({ name: 'objects', stop: () => backend.close?.() });
  const objects = createObjects({
    db,
    backend,
    installation,
    maxObjectBytes: settings.LONGSHORE_MAX_OBJECT_BYTES,
    clock,
    onReplaced: (objectId) => targets.codeChanged(objectId),
  });

  // Tasks.
  const slots = new SlotTable();
  const leases = new Leases(hot, keys);
  const inner = await openTaskQueues({ client: hot, log, prefix: keys.prefix });
  const isAlone = bus === ALONE;
  const lanes = openLanes({
    inner,
    client: hot,
    keys,
    leases,
    slots,
    log,
    isAlone,
    book: () => book,
    lending: {
      instance,
      bus,
      channelOf: keys.loansChannel,
      borrowerOf: (queue, lentTo) => room.borrowerOf(queue, lentTo),
      jobOf: (taskId) => replies.get(taskId)?.job,
    },
    wakeHere: (queue, taskId) => dispatcher.wakeHere(queue, taskId),
  });
  const { queues } = lanes;
  opened.push({ name: 'task queues', stop: () => queues.close() });
  const collector = new ObjectCollector({
    db,
    kept: () => objects.keptBytes(),
    remove: (key) => objects.removeBytes(key),
    takeUploads: (beforeMs, most) => objects.takeUploads(beforeMs, most),
    isOthers: (key) => taskOfInputKey(key) !== undefined,
    metrics: new ObjectMetrics(registry),
    clock,
    log,
    isLeader: () => leader.isLeader(),
    graceMs: settings.LONGSHORE_OBJECT_GRACE_HOURS * 3_600_000,
  });
  const bodies = new Bodies(objects, {
    maxResultBytes: settings.LONGSHORE_MAX_RESULT_BYTES,
    maxInputBytes: settings.LONGSHORE_MAX_INVOKE_BODY_BYTES,
  });
  const webhooks = openWebhooks({
    db,
    general,
    keys,
    clock,
    log,
    registry,
    settings,
    isLeader: () => leader.isLeader(),
    signingKeyOf: async (workspaceId) => {
      const workspace = await workspaceById(db, workspaceId);
      return workspace === undefined ? undefined : signingKeyOf(workspace, sealer);
    },
    loadResult: (id) => bodies.loadResult(id),
  });
  const onCallbacks = (deliveries: readonly NewDelivery[]): void => webhooks.deliveries.announce(deliveries);
  const { records, drainer } = openRecords({ db, hot, general, keys, log, registry, onCallbacks });
  const leader = new LeaderLease({
    client: general,
    keys,
    instance,
    log,
    raise: (fence) => takeOver({ db, machines, book, onSuperseded: (machineId) => links.superseded(machineId) }, fence),
  });
  const isLeader = (): boolean => leader.isLeader();
  const presence = new Presence({ redis: general, keys, instance, log });
  const fleetMetrics = new FleetMetrics(registry);
  const book = new ContainerBook({ db, log, clock });
  const leaderBook = new LeaderBook(book, () => leader.fence());
  const loops = new LoopMetrics(registry, clock);
  const replies = new Replies((waiting) => tasks.waitLimitReached(waiting));
  const loads = new Loads({
    bus,
    channel: keys.decideChannel,
    instance,
    slots,
    onIdle: (containerId) => {
      const entry = book.get(containerId);
      if (entry !== undefined) autoscaler.attemptEnded(entry.spec.queue, containerId);
    },
  });
  const room: Room = new Room({ instance, book, machines: { get: (id) => machines.get(id) }, loads, presence, bus });
  const due = new DueTimes(clock, (queue) => {
    dispatcher.wake(queue);
    replicas.decisions.wanted(queue);
  });
  const tasks: Tasks = new Tasks({
    queues,
    records,
    leases,
    lastAttempts: new LastAttempts(general, keys),
    slots,
    bodies,
    accepting: new GroupCommit((batch) => insertAcceptedTasks(db, batch)),
    keepJob: keptJobs(db),
    due,
    replies,
    instance,
    clock,
    log,
    metrics: new TaskMetrics(registry),
    isAlive: (replica) => presence.isAlive(replica) || presence.ask(replica),
    refusalOf: (target) => servable.refusal(target),
    limitsOf: (workspaceId) => limits.of(workspaceId),
    ...(rates === undefined ? {} : { rates }),
    isActive: async (target) => (await targets.byQueue(target.queue))?.active === true,
    rowOf: async (taskId) => {
      const row = await taskById(db, taskId);
      return row === undefined ? undefined : recordOfRow(row);
    },
    queuesOn: async (machineId) => [
      ...[...book.ofMachine(machineId)].map(({ spec }) => spec.queue),
      ...(await runningTasksOn(db, [machineId])).map(({ queue }) => queue),
    ],
    isCutOff: (id) => {
      const row = book.get(id)?.row;
      if (row?.state !== 'STOPPING' || row.reason !== 'drained' || row.machineId === null) return false;
      return machines.get(row.machineId)?.health === 'READY';
    },
    cancel: (taskId, ending) => actions.cancel(taskId, ending),
    onAccepted: (job, queue) => owners.accepted(job, queue),
    onDepth: (target, depth) => autoscaler.depthSeen(target, depth, (queue) => replicas.decisions.wanted(queue)),
    onAttemptEnded: (queue, containerId) => {
      autoscaler.attemptEnded(queue, containerId);
      replicas.leaving.look(containerId);
    },
    listRows: async (workspaceId, filter) => {
      const { taskIds, ...rest } = filter;
      const rows = await listTasks(db, { workspaceId, ...rest, ...(taskIds === undefined ? {} : { ids: taskIds }) });
      return rows.map(recordOfRow);
    },
    stubsOf: (ids) => directory.stubs(ids),
  });
  const dispatcher = new Dispatcher({
    queues,
    slots,
    instance,
    log,
    begin: (claim) => tasks.begin(claim),
    beforeFetch: (queue) => owners.beforeFetch(queue),
    onIdle: (container) => autoscaler.attemptEnded(container.queue, container.containerId),
    onDue: (queue, dueMs) => due.add(queue, dueMs),
    onNoRoom: (queue, taskId) => replicas.wakes.noRoom(queue, taskId),
  });
  tasks.attach(dispatcher);

  // Deciding, and the machines.
  const machines = new Machines({
    db,
    log,
    clock,
    metrics: fleetMetrics,
    caFingerprint: installation.caFingerprint,
    instance,
    isAlive: (replica) => presence.isAlive(replica),
  });
  machines.attach(book);
  const containerCredentials = new ContainerCredentials({
    db,
    book,
    tokens,
    invalidation,
    isAlone,
    hasMachine: (id) => machines.get(id) !== undefined,
  });
  const servable = new Servable(machines);
  const breakers = new Breakers({ db, clock, log, fence: () => leader.fence() });
  const autoscaler: Autoscaler = new Autoscaler({
    targets,
    queues,
    book: leaderBook,
    create: (target, count) => placer.create(target, count),
    slots,
    loads,
    breakers,
    clock,
    log,
    metrics: new AutoscalerMetrics(registry),
    loops,
    due,
    isLeader,
    maxContainers: (workspaceId) => limits.peek(workspaceId).stub.max_replicas,
    graceMs: settings.LONGSHORE_RESTART_GRACE_SECONDS * 1000,
    silentSinceMs: (id) => machines.get(id)?.suspectSinceMs ?? null,
    isGuarded: (queue) => health.isGuarded(queue),
    onStartFailed: (queue, lastLines) => void tasks.failWaiting(queue, lastLines),
  });
  const fence = (): number | undefined => leader.fence();
  const cpuWorkAllowed = cpuPoolsOf(settings.LONGSHORE_CPU_WORK_ON_GPU_POOLS);
  const { accounting, placer, quotas } = openPlacement({
    db,
    general,
    keys,
    book: leaderBook,
    machines,
    clock,
    log,
    metrics: fleetMetrics,
    loops,
    fence,
    cpuWorkAllowed,
  });
  limits.onChange((workspaceId) => {
    quotas.forget(workspaceId);
    placer.wake();
    autoscaler.sweep();
  });
  const gauges = registerGauges({
    registry,
    fleetMetrics,
    machines,
    book,
    autoscaler,
    db,
    hot,
    general,
    clock,
    log,
    isLeader,
  });
  const usage = new Usage({ redis: bus === ALONE ? undefined : general, keyOf: keys.usage, clock, log });
  const pages: MachinePages = new MachinePages({
    bus,
    channel: keys.pagesChannel,
    machines,
    order: (machineId, requestId) => links.orderMetrics(machineId, requestId),
  });
  const images = new ImageOrders({
    machines,
    book,
    credentials: new RegistryCredentials(settings.LONGSHORE_REGISTRY_CONFIG, log),
    send: (machineId, order) => links.prepareImage(machineId, order),
    places: new PullPlaces(general, keys),
    cpuWorkAllowed,
    log,
  });
  const containerCalls = new ContainerCalls({
    book,
    tokenOf: (row) => containerCredentials.tokenOf(row),
    tokens,
    server: () => surfaces.server.app.server,
    metrics: fleetMetrics,
    log,
  });
  const links: Links = new Links({
    usage,
    pages,
    machines,
    book,
    slots,
    tasks,
    logs: new LogSink(db, book),
    credentials: new MachineCredentials({ machines, signer: machineSigner(installation), clock, log }),
    secretsOf: (workspaceId, names) => secrets.valuesOf(workspaceId, names),
    tokenOf: (row) => containerCredentials.tokenOf(row),
    serveCall: (machineId, call) => containerCalls.serve(machineId, call),
    images,
    openObject: async (objectId) => (await objects.open(objectId))?.stream,
    server: installation.server,
    address: settings.LONGSHORE_AGENT_ADDRESS,
    socketPath: settings.LONGSHORE_LINK_SOCKET,
    clock,
    log,
    metrics: fleetMetrics,
    settings: SESSION_SETTINGS,
    onServable: (served) => {
      for (const queue of served) dispatcher.wake(queue);
    },
  });
  tellGivenUp(book, tasks);
  watchLanes(lanes, book, machines, (queue) => dispatcher.wake(queue));
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
    db,
    general,
    keys,
    clock,
    log,
    instance,
    lanes,
    records,
    leases,
    slots,
    replies,
    objects,
    tasks,
    presence,
    machines,
    isLeader,
    isAlive: (replica) => presence.isAlive(replica) || presence.ask(replica),
    wakeDispatch: (queue) => dispatcher.wake(queue),
    pruneDispatch: () => dispatcher.prune(),
    served: () => book.queues(),
    containerEnded: async (containerId) => {
      const row = await containerById(db, containerId);
      return row !== undefined && isTerminalContainer(row.state);
    },
    wakeScaling: (queue) => (queue === undefined ? autoscaler.sweep() : autoscaler.wake(queue)),
  });
  const stall = new StallDetector(clock, log);
  const guardMetric = fleetMetrics.guard;
  const health = new MachineHealth({
    machines,
    book: leaderBook,
    slots,
    tasks,
    clock,
    isLeader,
    fence,
    log,
    guardMetric,
    stall,
    lostAfterMs: settings.LONGSHORE_MACHINE_LOST_SECONDS * 1000,
    startGraceMs: settings.LONGSHORE_RESTART_GRACE_SECONDS * 1000,
  });
  const stops = new ContainerStops(book, slots, (id) => containerCredentials.ended([id]));
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
    revokeElsewhere: (...revoked) => bus.say(keys.revokeChannel, revoked),
  });
  targets.onChange(({ deploymentId, target }) => {
    if (target?.active === true) images.prepare(target);
    else void actions.answerStopped(queueNameOf(deploymentId, '' as StubId));
  });
  const replicas = joinReplicas({
    bus,
    db,
    keys,
    instance,
    log,
    leader,
    presence,
    book,
    machines,
    links,
    slots,
    loads,
    room,
    queues,
    leases,
    records,
    replies,
    tasks,
    actions,
    dispatcher,
    autoscaler,
  });
  machines.onChange((machine) => {
    // Said by the leader; whoever sent its attempts ends them.
    if (machine.health === 'LOST' && !isLeader()) void tasks.machineLost(machine.row.id);
  });
  const workers = openWorkers({
    db,
    machines,
    book,
    tellEnded: (ids) => containerCredentials.ended(ids),
    leaderBook,
    slots,
    loads,
    autoscaler,
    clock,
    log,
    fence,
    cpuWorkAllowed,
  });
  const pools = new Pools({ db, machines, log });
  // Wake-ups that came while another (perhaps a dead one) held the lease were for nobody.
  leader.onChange((now) => {
    if (now.kind !== 'leading') return;
    autoscaler.leads();
    void accounting.recount().then(() => placer.wake());
  });
  const schedules = openSchedules({ db, general, keys, targets, queues, tasks, leader, clock, log, registry });
  const explains = openExplain({
    bus,
    channel: keys.explainChannel,
    refusalOf: (target) => servable.refusal(target),
    isLeader,
    log,
    db,
    book,
    slots,
    loads,
    machines,
    placer,
    autoscaler,
    targets,
    queues,
    tasks,
    clock,
  });
  const surfaces = createSurfaces({
    clock,
    workers,
    pools,
    usage,
    discovery: { machines, pages, replicas: () => presence.addresses },
    containerActions: stops,
    deploymentEffects: actions,
    images,
    taskActions: actions,
    db,
    log,
    registry,
    tokens,
    ...(settings.LONGSHORE_RATE_LIMITS === 'off'
      ? {}
      : { refusals: new Refusals(clock, () => identityMetrics.rateLimited.inc({ limit: 'refused_tokens' })) }),
    signingKeys: installation.ring,
    tenants: new Tenants(db, sealer, installation, clock),
    callbackProblem: webhooks.urlProblem,
    limits,
    ...(rates === undefined ? {} : { rates }),
    usageOf: (workspaceId) => useOf(book, workspaceId),
    objects,
    secrets,
    directory,
    targets,
    tasks,
    machines,
    containers: book,
    logs: new LogReader(db),
    explains,
    settings: {
      externalUrl: settings.LONGSHORE_EXTERNAL_URL ?? null,
      invokeDomain: settings.LONGSHORE_INVOKE_DOMAIN ?? null,
      volumeDriver: settings.LONGSHORE_VOLUME_DRIVER,
      maxInvokeBodyBytes: settings.LONGSHORE_MAX_INVOKE_BODY_BYTES,
      trustedProxies: listOf(settings.LONGSHORE_TRUSTED_PROXIES),
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
      hostAddress,
      branch: settings.LONGSHORE_RELEASE_CHANNEL,
    },
    releases: new Releases({
      directory: settings.LONGSHORE_RELEASES_DIR,
      dataDir,
      channel: settings.LONGSHORE_RELEASE_CHANNEL,
    }),
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
      // Embedded records have one owner at a time: a leader or a replica that Redis still names is one that died.
      { name: 'predecessors', start: () => (db.kind === 'pglite' ? presence.othersDied() : undefined) },
      presence,
      // Listening first: what is written while the rows are read is heard.
      ...replicas.listening,
      { name: 'pools', start: async () => (poolsFile === undefined ? undefined : pools.declare(poolsFile)) },
      { name: 'machines', start: () => machines.start(), stop: () => machines.stop() },
      { name: 'containers', start: () => book.load() },
      leader,
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
    createLocalMachine: async () => (await machines.create({ workspaceId: null }, 'default', LOCAL_POOL)).joinToken,
    readPoolsAgain: async () => {
      if (poolsPath !== undefined) await pools.readAgain(poolsPath);
    },
    stop: () => lifecycle.stop(),
  };
}
