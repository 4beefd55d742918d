// Composition root of the scheduler, in three steps. The files of compose/ build the parts of a room each, and a part
// asks only of parts built before it. compose/wiring.ts says which part notifies which. compose/lifecycle.ts says in
// which order they start. Nothing below this file reads the environment or the clock by itself.
// Invariant: before the lifecycle starts, the stores are open and nothing else has begun. A start that fails closes
// them.
import { splitAddress } from '#shared/address.ts';
import { Lifecycle } from '#shared/lifecycle.ts';
import type { Log } from '#shared/log.ts';
import { watchProcess } from '#shared/process-metrics.ts';
import { openActions } from './compose/actions.ts';
import { openClusterState } from './compose/cluster-state.ts';
import { openDeferredCalls } from './compose/deferred-calls.ts';
import { openDeployments } from './compose/deployments.ts';
import { openEventWebhooks } from './compose/event-webhooks.ts';
import { WaitingReads } from './api/explain/waiting.ts';
import { openExplain } from './compose/explain.ts';
import { registerGauges } from './compose/gauges.ts';
import { infrastructureOf } from './compose/infrastructure.ts';
import { openHealth } from './compose/health.ts';
import { openEvents } from './compose/events.ts';
import { openExports } from './compose/exports.ts';
import { openIdentity, openTokens } from './compose/identity.ts';
import { openLines } from './compose/lines.ts';
import { startOrder } from './compose/lifecycle.ts';
import { openLinks } from './compose/links.ts';
import { openLiveLogs } from './compose/live-logs.ts';
import { openBuilds } from './compose/builds.ts';
import { openObjects } from './compose/objects.ts';
import { openModels } from './compose/models.ts';
import { openProviders, openProvidersFile } from './compose/providers.ts';
import { openProvisioned } from './compose/provisioned.ts';
import { openProvisioning } from './compose/provisioning.ts';
import { openPools, openPoolsFile } from './compose/pools.ts';
import { openPods } from './compose/pods.ts';
import { openCredits } from './compose/credits.ts';
import { openRecords } from './compose/records.ts';
import { openRedisMemory } from './compose/redis-memory.ts';
import { joinReplicas } from './compose/replicas.ts';
import { openRetention } from './compose/retention.ts';
import { openRuntimeSettings } from './compose/runtime-settings.ts';
import { closingRegistry, openRegistry } from './compose/registry.ts';
import { openScaling } from './compose/scaling.ts';
import { openSchedules } from './compose/schedules.ts';
import { openSeries } from './compose/series.ts';
import { beginStores } from './compose/stores.ts';
import type { Opening } from './compose/stores.ts';
import { openServeLeases } from './compose/serves.ts';
import { openCertificate, openContainerCalls, openStreamRelay, openSurfaces } from './compose/surfaces.ts';
import { openTaskMaintenance } from './compose/task-maintenance.ts';
import { openTasks } from './compose/tasks.ts';
import { openVolumeFiles } from './compose/volume-files.ts';
import { openWebhooks } from './compose/webhooks.ts';
import { wire } from './compose/wiring.ts';
import { openWorkers } from './compose/workers.ts';
import { openWorkspaceDeletion } from './compose/workspace-deletion.ts';
import type { SchedulerSettings } from './config.ts';
import { firstWorkspaceOfOwner } from './workspaces/identity/bootstrap.ts';

export interface Scheduler {
  readonly httpAddress: string;
  readonly agentAddress: string;
  /** Where published clients speak gRPC; empty: nowhere. */
  readonly grpcAddress: string;
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
  /** Reads the files of pools and providers, and the certificate, again. Bad files change nothing, and are logged. */
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
  const infrastructure = infrastructureOf(settings, log, await opening.stores);
  const opened = opening.parts;
  opened.push({ name: 'process metrics', stop: watchProcess(infrastructure.registry) });
  const poolsFile = await openPoolsFile(settings);
  const providersFile = await openProvidersFile(settings);
  const certificate = await openCertificate(settings, log);

  const events = openEvents(infrastructure);

  // Identity and permissions, targets of invocations, and knowledge of replicas, machines and containers.
  const identity = await openIdentity(infrastructure, events);
  const deployments = openDeployments(infrastructure, identity);
  const clusterState = openClusterState(infrastructure, identity, events);
  const tokenParts = openTokens(infrastructure, events, identity, clusterState.credentials);
  const { tokens } = tokenParts;
  const providerParts = openProviders(infrastructure, providersFile);
  const { providers } = providerParts;
  const settingParts = openRuntimeSettings(infrastructure, identity, events);
  const poolParts = openPools(infrastructure, clusterState, poolsFile, events, identity, settingParts, providers);

  // Tasks.
  const objectParts = await openObjects(infrastructure, identity, clusterState);
  opened.push(objectParts.closing);
  const lineParts = await openLines(infrastructure, clusterState);
  opened.push({ name: 'task queues', stop: () => lineParts.queues.close() });
  const webhooks = openWebhooks(infrastructure, identity, clusterState, objectParts, settingParts);
  const eventWebhooks = openEventWebhooks(infrastructure, identity, clusterState, webhooks, events);
  const modelParts = openModels(infrastructure, identity, webhooks, events);
  opened.push({ name: 'servers of models', stop: () => modelParts.externalServers.close() });
  const records = openRecords(infrastructure, clusterState, webhooks, events, objectParts);
  const credits = openCredits(infrastructure, clusterState, events);
  const redisMemory = openRedisMemory(infrastructure);
  const serves = openServeLeases(infrastructure, clusterState);
  const base = {
    infrastructure,
    serves,
    events,
    identity,
    clusterState,
    ...tokenParts,
    ...deployments,
    liveLogs: openLiveLogs(infrastructure, deployments, events),
    ...objectParts,
    objectParts,
    lineParts,
    records,
    credits,
  };
  const taskParts = openTasks({ ...base, redisMemory, sharing: settingParts.sharing });
  const health = openHealth(infrastructure, clusterState, taskParts);

  // The deciding loops, and the machines.
  const scaling = openScaling({ ...base, taskParts, health });
  const gauges = registerGauges({ ...infrastructure, ...clusterState, ...scaling });
  const registryParts = openRegistry(infrastructure, identity, clusterState);
  opened.push(closingRegistry(registryParts));
  const linkParts = openLinks({ ...base, taskParts, scaling, registryParts });
  const maintenance = openTaskMaintenance({ ...base, taskParts });
  const deferredParts = openDeferredCalls({ ...base, taskParts });
  const actionParts = openActions({ ...base, taskParts, maintenance, deferredParts });
  const podParts = openPods(infrastructure, identity, clusterState, taskParts, actionParts.containerActions);
  const replicas = joinReplicas({ ...base, taskParts, scaling });
  const workerParts = openWorkers({ ...infrastructure, ...clusterState, ...scaling, providers });

  const provisioned = openProvisioned(
    infrastructure,
    identity,
    clusterState,
    workerParts.workers,
    linkParts.links,
    events,
    providers,
  );
  const provisioning = openProvisioning({
    infrastructure,
    clusterState,
    events,
    directory: poolParts.poolDirectory,
    changes: provisioned,
    quotas: scaling.quotas,
    autoscaler: scaling.autoscaler,
    placer: scaling.placer,
    loops: scaling.loops,
  });

  // Requests from outside, and work by time.
  const scheduleParts = openSchedules({ ...base, taskParts });
  const seriesParts = openSeries(infrastructure, clusterState, events, deployments);
  const { explain, deploymentHealth, taskStatistics, relay } = openExplain({
    ...base,
    taskParts,
    scaling,
    linkParts,
    provisioning,
  });
  const streamRelay = openStreamRelay(infrastructure, identity, clusterState, certificate);
  const volumeFileParts = openVolumeFiles(infrastructure, identity, clusterState, taskParts);
  const buildParts = openBuilds(infrastructure, clusterState, objectParts, taskParts, scaling, registryParts);
  const deletionParts = openWorkspaceDeletion({
    ...base,
    actionParts,
    deferredParts,
    volumeFileParts,
    buildParts,
    poolParts,
    workerParts,
  });
  const surfaces = openSurfaces({
    ...base,
    ...deletionParts,
    ...modelParts,
    ...deferredParts,
    creditAccounts: credits.creditAccounts,
    ...volumeFileParts,
    ...buildParts,
    ...podParts,
    streamRelay,
    ...workerParts,
    ...poolParts,
    providerAdmin: providerParts.providerAdmin,
    taskParts,
    linkParts,
    actionParts,
    certificate,
    explains: explain,
    deploymentHealth,
    taskStatistics,
    growthOf: (poolId, isAdmin) => relay.growth(poolId, isAdmin),
    recording: (request) => relay.recording(request),
    shareRows: (workspaceId) => relay.shares(workspaceId),
    reservations: () => relay.reservations(),
    waiting: new WaitingReads((workspaceId) => relay.waiting(workspaceId), infrastructure.clock),
    noticeMs: () => settingParts.sharing.noticeMs,
    runtimeSettings: settingParts.runtimeSettings,
    webhooks,
    eventWebhooks,
  });
  const containerCalls = openContainerCalls(infrastructure, clusterState, tokens, surfaces);
  const retention = openRetention(infrastructure, clusterState, objectParts, actionParts);
  const exporters = await openExports(infrastructure, clusterState, deployments.directory);

  const wired = {
    ...base,
    ...actionParts,
    ...workerParts,
    ...deferredParts,
    ...deletionParts,
    provisioned,
    provisioning,
    poolParts,
    taskParts,
    scaling,
    linkParts,
    maintenance,
    replicas,
    containerCalls,
    streamRelay,
    ...volumeFileParts,
    ...buildParts,
    podParts,
    registryParts,
    explain,
    relay,
    settingParts,
    exporters,
    gauges,
    scheduleParts,
    seriesParts,
    webhooks,
    eventWebhooks,
  };
  wire(wired);
  const started = { ...wired, redisMemory, health, retention, surfaces };
  const lifecycle = new Lifecycle(startOrder(opened.splice(0), started), log);
  await lifecycle.start();
  for (const address of [surfaces.server.address, linkParts.links.address, surfaces.grpc.address])
    if (address !== '') webhooks.rules.closePort(splitAddress(address).port);

  const { instance, db } = infrastructure;
  const { installation, sealer } = identity;
  log.info(
    { http: surfaces.server.address, agents: linkParts.links.address, instance, database: db.kind },
    'scheduler ready',
  );
  const drainMs = settings.LONGSHORE_DRAIN_SECONDS * 1000;
  const drain = async (): Promise<void> => {
    // Streams of callers at other replicas pass over the links of this one.
    await Promise.all([surfaces.server.stop(drainMs), surfaces.grpc.stop(drainMs), streamRelay.drained(drainMs)]);
  };
  return {
    get httpAddress() {
      return surfaces.server.address;
    },
    get grpcAddress() {
      return surfaces.grpc.address;
    },
    get agentAddress() {
      return linkParts.links.address;
    },
    caFingerprint: installation.caFingerprint,
    ensureFirstWorkspace: (options = {}) =>
      firstWorkspaceOfOwner({ db, sealer, keys: installation, tokens }, options.issueToken === true),
    createLocalMachine: async () =>
      (await clusterState.joining.create({ workspaceId: null }, 'default', LOCAL_POOL)).joinToken,
    drain,
    readFilesAgain: async () => {
      await certificate?.check();
      // Providers first: the pools file may name a new one.
      await providerParts.readProvidersAgain();
      await poolParts.readAgain();
    },
    stop: async () => {
      await drain();
      await lifecycle.stop();
    },
  };
}
