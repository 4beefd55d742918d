/**
 * Makes everything that works with containers here. `wiring.ts` then says who tells whom, and `lifecycle.ts` in which
 * order the parts start and stop. Must stay true: nothing here reads, writes or starts anything; a part asks only of
 * parts made before it.
 */
import { readdir } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join, resolve } from 'node:path';
import { Archives } from '../code/archives.ts';
import { Views } from '../code/views.ts';
import { readReleases } from '../bases/apt.ts';
import { BaseImages } from '../bases/base-images.ts';
import { ImageBuilds } from '../builds/image-builds.ts';
import { ImagePushes } from '../builds/pushes.ts';
import { RegistryPort } from '../builds/registry-port.ts';
import { BuildMetrics } from '../builds/metrics.ts';
import { Packages } from '../builds/packages.ts';
import { StepsApart } from '../builds/steps-apart.ts';
import { closedRanges, imageOf, isBaseImage, makesBaseImages, pipVariables } from '../config.ts';
import {
  CONTAINER_COUNT_MS,
  countByContainer,
  countVolumesByContainer,
  emptyByContainer,
  sizesByContainer,
} from '../containers/helpers.ts';
import { GpuDrivers } from '../containers/cdi.ts';
import { EngineTrials } from '../containers/engine-trials.ts';
import { PythonBase } from '../containers/python-base.ts';
import { PauseContainers } from '../containers/pause-containers.ts';
import { RootLimits } from '../containers/root-limits.ts';
import { RunnerCompiler } from '../containers/runner-compiler.ts';
import { mostPids } from '../containers/spec.ts';
import { GatewaySockets } from '../gateway/sockets.ts';
import { HostDrain } from '../host-drain.ts';
import type { PullSettings } from '../images/images.ts';
import { checkHost } from '../preflight/check.ts';
import { rulesByContainer } from '../preflight/firewall-rules.ts';
import { HostWarnings } from '../preflight/warnings.ts';
import { AgentState } from '../reconcile/agent-state.ts';
import { ContainerChanges } from '../reconcile/changes.ts';
import { DisconnectWatch } from '../reconcile/disconnect.ts';
import { Executor } from '../reconcile/execute.ts';
import type { Journal } from '../reconcile/journal.ts';
import { ReconcileLoop } from '../reconcile/loop.ts';
import { Orders } from '../reconcile/orders.ts';
import { AdoptedRunners } from '../slots/adopted-runners.ts';
import { RunnerSlots } from '../slots/slots.ts';
import { ContainerDisks } from '../telemetry/container-disks.ts';
import { machineAddresses } from '../telemetry/addresses.ts';
import { ClockWatch } from '../telemetry/clock.ts';
import { readDisk } from '../telemetry/disks.ts';
import { withImages } from '../telemetry/inventory.ts';
import { Contact } from '../upstream/contact.ts';
import { Link } from '../upstream/link.ts';
import { volumesDownCondition } from '#shared/domain/volume-drivers.ts';
import { localRoot } from '../volumes/directories.ts';
import { Caches } from '../volumes/caches.ts';
import { cacheRoot, hasCaches, makeVolumes } from '../volumes/open.ts';
import { HelperMounts } from '../volumes/helper-mounts.ts';
import { MountHelper } from '../volumes/mount-helper.ts';
import { MOUNT_SOCKET } from '../volumes/mount-messages.ts';
import { VolumeUse } from '../volumes/use.ts';
import { Supervisors } from '../supervisors/supervisors.ts';
import { VolumeFiles } from '../transfers/volume-files.ts';
import type { GpuOptions } from './gpus.ts';
import { makeGpus } from './gpus.ts';
import type { Host } from './host.ts';
import { makeDisks, makeImages } from './images.ts';
import { makeLogs } from './logs.ts';
import type { Member } from './member.ts';

export interface MakeParts {
  readonly host: Host;
  readonly member: Member;
  readonly journal: Journal;
  readonly options: {
    readonly containerLabels?: Readonly<Record<string, string>>;
    readonly gpus?: GpuOptions;
    readonly pulls?: Partial<PullSettings>;
  };
}

const MIB = 1024 * 1024;

export type Parts = ReturnType<typeof makeParts>;

/** The image of stubs that name none. */
export const baseImageOf = ({ config }: Host): string => imageOf(config, '', '');

export function makeParts({ host, member, journal, options }: MakeParts) {
  const { config, log, stateDir, runtime, engine, metrics, conditions, bootId, runnerDir } = host;
  const { machineId, labels } = member;

  // The state of containers and of the machine, and the link that reports it.
  const { logs, positions } = makeLogs(host);
  const slots = new RunnerSlots(
    { open: (line) => link.openBytes(line), onCount: (by) => metrics.streamsActive.inc(by) },
    log,
  );
  const adoptedRunners = new AdoptedRunners(slots);
  const agentState = new AgentState(journal, config.LONGSHORE_AGENT_ORPHAN_SECONDS * 1000);
  const engineTrials = new EngineTrials({
    runtime,
    network: config.LONGSHORE_AGENT_NETWORK,
    labels,
    conditions,
    onTrial: (result) => metrics.engineTrials.inc({ result }),
    log,
  });
  const gpuDrivers = new GpuDrivers(runtime, log);
  const gpus = makeGpus(host, agentState, options.gpus, {
    drivers: gpuDrivers,
    labels,
    onRefused: (error) => void engineTrials.blamed(error),
  });
  const disks = makeDisks(host);
  const helper = new MountHelper(join(config.LONGSHORE_MOUNTS_DIR, MOUNT_SOCKET));
  const helperMounts = new HelperMounts({
    helper,
    containers: () => [...journal.all()].filter(({ stage }) => stage !== 'gone').map(({ containerId }) => containerId),
    onDown: (driver, down) => conditions.set(volumesDownCondition(driver), down),
    onCount: (mounts) => metrics.bucketMounts.set(mounts),
    log,
  });
  const { volumes, cacheDirectories } = makeVolumes({
    helper,
    helperMounts,
    config,
    stateDir,
    runtime,
    labels,
    conditions,
    caches: { onMount: (volume) => caches.mounted(volume), refusal: (volume) => caches.refusal(volume) },
    metrics,
    log,
  });
  const hostDrain = new HostDrain({
    log,
    live: () => agentState.liveCount(),
    attempts: () => slots.liveAttempts().length,
  });
  const hostWarnings = new HostWarnings({
    check: () => checkHost(config, runtime, () => rulesByContainer(runtime, labels())),
    onCount: (check, warns) => metrics.hostWarning.set({ check }, warns ? 1 : 0),
    tell: (warnings) => link.send({ hostWarnings: { warnings: [...warnings] } }),
    log,
  });
  const bases = new BaseImages({
    runtime,
    workDir: join(stateDir, 'bases'),
    labels,
    tell: (pythons) => link.send({ basePythons: pythons }),
    releases: readReleases,
    isUsed: makesBaseImages(config),
    log,
  });
  const contact = new Contact({ path: join(stateDir, 'contact.json'), bootId, log });
  const link = new Link({
    identity: member.identity,
    joinFacts: member.joinFacts,
    slots,
    logs,
    metrics,
    log,
    bootId,
    inventory: async () => {
      const [inventory, found, pythons, disk, builtImages] = await Promise.all([
        host.inventory,
        runtime.listImages().catch(() => []),
        bases.pythons(),
        disks.readImagesDisk(),
        // Without a word of the engine the scheduler must not take them for gone.
        imageBuilds.present().catch(() => undefined),
      ]);
      return {
        ...withImages(inventory, found),
        basePythons: pythons.versions,
        basePythonsHere: pythons.here,
        basePythonsKnown: pythons.known,
        host: { ...inventory.host, warnings: [...hostWarnings.current] },
        volumeDrivers: [...volumes.offered],
        builds: config.LONGSHORE_AGENT_BUILDS > 0 && builtImages !== undefined,
        builtImages: [...(builtImages ?? [])],
        registry: registryPort.host !== undefined,
        diskTotalBytes: disk.totalBytes,
        diskFreeBytes: disk.freeBytes,
        gpus: gpus.report(),
        gpuDriver: gpus.driver,
      };
    },
    devices: () => ({ gpus: gpus.report(), gpuDriver: gpus.driver }),
    observedAll: () => agentState.observedAll(),
    observedOf: (containerId) => agentState.observedOf(containerId),
    conditions,
    diskFreeBytes: () => disks.freeBytes,
    hostDrain: () => hostDrain.message,
    clock: new ClockWatch({ metrics, conditions, log }),
    contact,
    attemptsKnown: () => adoptedRunners.connected,
  });

  // Needs of containers: network, code, images, disks.
  const pauseContainers = new PauseContainers({
    runtime,
    log,
    network: config.LONGSHORE_AGENT_NETWORK,
    size: config.LONGSHORE_AGENT_HOLDERS,
    labels,
    addresses: machineAddresses,
    openAddresses: config.LONGSHORE_AGENT_OPEN_ADDRESSES?.split(',') ?? [],
    closedRanges: closedRanges(config),
  });
  const gateway = new GatewaySockets({ open: (deadlineMs) => link.callGateway(deadlineMs), metrics, log });
  const archives = new Archives(
    join(stateDir, 'code'),
    (objectId, signal) => link.fetchCode(objectId, signal),
    config.LONGSHORE_CODE_CACHE_BYTES,
    log,
  );
  const views = new Views(join(stateDir, 'views'), labels(), async (path) => {
    for (const name of await readdir(path)) await emptyByContainer(runtime, join(path, name), labels());
  });
  const compiler = new RunnerCompiler({ runtime, runnerDir, labels, log });
  const registryPort = new RegistryPort({
    address: config.LONGSHORE_AGENT_REGISTRY_ADDRESS,
    open: (line) => link.openBytes(line),
    log,
  });
  const { ledger, cache, images, built, preparer } = makeImages({
    host,
    journal,
    pulls: options.pulls,
    disks,
    askToPull: (question) => link.askToPull(question),
    registryHost: () => registryPort.host,
    bases,
    answer: (imagePrepared) => link.send({ imagePrepared }),
  });
  const containerDisks = new ContainerDisks({
    runtime,
    running: () => agentState.running(),
    viewOf: (shortId) => views.upperOf(shortId),
    limitBytes: config.LONGSHORE_AGENT_CONTAINER_DISK_MIB * MIB,
    fileSystems: () => disks.fileSystems(),
    countByHelper: (paths) => countByContainer(runtime, paths, labels(), CONTAINER_COUNT_MS),
    countVolumes: (folders) => countVolumesByContainer(runtime, folders, labels()),
    onLook: (result) => metrics.diskLooks.inc({ result }),
    log,
  });
  const volumeUse = new VolumeUse({
    root: localRoot(resolve(config.LONGSHORE_DATA_DIR)),
    countByHelper: (paths) => countByContainer(runtime, paths, labels()),
    tell: (bytes) => link.send({ volumeUse: { bytes: { ...bytes } } }),
    log,
  });
  const bytesOf = (mib: number | undefined): number | undefined => (mib === undefined ? undefined : mib * MIB);
  const caches = new Caches({
    root: cacheRoot(config),
    enabled: hasCaches(config),
    directories: cacheDirectories,
    runtime,
    countByHelper: (paths) => countByContainer(runtime, paths, labels()),
    readDisk: () => readDisk(cacheRoot(config)),
    machineBytes: bytesOf(config.LONGSHORE_AGENT_CACHE_MIB),
    workspaceBytes: bytesOf(config.LONGSHORE_AGENT_CACHE_WORKSPACE_MIB),
    minFreeRatio: config.LONGSHORE_MIN_FREE_DISK_PERCENT / 100,
    tell: (found) => link.send({ cacheUse: { volumes: [...found] } }),
    metrics,
    log,
  });
  const baseImage = async (): Promise<{ readonly reference: string; readonly id: string }> => {
    const reference = baseImageOf(host);
    return { reference, id: (await images.ensure(reference, () => undefined)).id };
  };
  const pythonBase = new PythonBase({
    runtime,
    image: baseImage,
    runnerDir,
    labels,
    onReady: (image) => compiler.want(image),
    log,
  });
  const supervisors = new Supervisors({
    runtime,
    running: (containerId) => agentState.running().find((one) => one.containerId === containerId),
    socketsDir: join(stateDir, 's'),
    open: (line) => link.openBytes(line),
    log,
  });
  const volumeFiles = new VolumeFiles({
    runtime,
    volumes,
    image: async () => (await baseImage()).id,
    runnerDir,
    socketsDir: join(stateDir, 's'),
    open: (line) => link.openBytes(line),
    labels,
    log,
  });
  const imagePushes = new ImagePushes({
    runtime,
    host: () => registryPort.host,
    machineId,
    onPushed: (image, how) => ledger.pulled(image, Date.now(), how),
    onEnded: metrics.images.pushEnded,
    log,
  });
  const packagesDir = join(stateDir, 'packages');
  const imageBuilds = new ImageBuilds({
    runtime,
    pushes: imagePushes,
    isPulled: (image) => ledger.all().has(image),
    images,
    archives,
    pauseContainers,
    stepsApart: new StepsApart({ runtime, gpuDrivers, machineId, log }),
    packages: new Packages({
      directory: packagesDir,
      mostBytes: config.LONGSHORE_AGENT_PACKAGES_MIB * MIB,
      sizes: () => sizesByContainer(runtime, packagesDir, labels()),
      empty: (path) => emptyByContainer(runtime, path, labels()),
      log,
    }),
    gpus,
    metrics: new BuildMetrics(metrics.registry),
    open: (line) => link.openBytes(line),
    baseImageOf: (pythonVersion) => imageOf(config, '', pythonVersion),
    machineId,
    countVolumes: (folders) => countVolumesByContainer(runtime, folders, labels()),
    isDiskFull: () => conditions.names.includes('DiskPressure'),
    limits: {
      atOnce: config.LONGSHORE_AGENT_BUILDS,
      memoryBytes: config.LONGSHORE_AGENT_BUILD_MEMORY_MIB * MIB,
      cpuMillicores: Math.min(config.LONGSHORE_AGENT_BUILD_CPU, engine.cores) * 1000,
      pids: mostPids(Math.ceil(Math.min(config.LONGSHORE_AGENT_BUILD_CPU, engine.cores)), 0),
      diskBytes: config.LONGSHORE_AGENT_BUILD_DISK_MIB * MIB,
      timeMs: config.LONGSHORE_AGENT_BUILD_MINUTES * 60_000,
    },
    variables: pipVariables(config),
    caBundle: config.LONGSHORE_CA_BUNDLE,
    log,
  });
  const rootLimits = new RootLimits({ runtime, labels, wanted: containerDisks.limitBytes > 0, log });

  // The reconciliation of the desired and the observed state.
  const executor = new Executor({
    gpus,
    gpuDrivers,
    runtime,
    images,
    pauseContainers,
    archives,
    views,
    volumes,
    slots,
    gateway,
    supervisors,
    pythonBase,
    agentState,
    positions,
    logs,
    metrics,
    conditions,
    engineTrials,
    log,
    stateDir,
    bootId,
    startsAtOnce: Math.max(2, engine.cores * 2),
    host: () => ({
      cores: engine.cores,
      hostname: hostname(),
      machineId: machineId(),
      runnerDir,
      caBundle: config.LONGSHORE_CA_BUNDLE,
      extraLabels: options.containerLabels ?? {},
      rootBytes: rootLimits.has ? containerDisks.limitBytes : undefined,
    }),
    imageOf: (image, pythonVersion) => imageOf(config, image, pythonVersion),
    isBaseImage: (image) => isBaseImage(config, image),
    send: (message) => link.send(message),
  });
  const loop = new ReconcileLoop({
    runtime,
    agentState,
    executor,
    metrics,
    conditions,
    log,
    machineIds: member.machineIds,
  });
  const orders = new Orders({
    agentState,
    conditions,
    log,
    wake: () => loop.wake(),
    reportAll: () => link.reportAll(),
  });
  const changes = new ContainerChanges({
    runtime,
    pauseContainers,
    agentState,
    conditions,
    machineId,
    gpus,
    answer: (containerChanged) => link.send({ containerChanged }),
    log,
  });
  const disconnects = new DisconnectWatch({
    entries: () => journal.all(),
    bootId,
    contact,
    isEnding: (containerId) => agentState.ending.has(containerId),
    end: (containerId, reason, graceMs) => executor.end(containerId, reason, graceMs),
    ask: () => link.heartbeatNow(),
    log,
  });

  return {
    hostWarnings,
    bases,
    pauseContainers,
    engineTrials,
    containerDisks,
    volumeUse,
    caches,
    volumeFiles,
    supervisors,
    imageBuilds,
    registryPort,
    built,
    rootLimits,
    logs,
    positions,
    slots,
    adoptedRunners,
    gateway,
    archives,
    views,
    compiler,
    ledger,
    cache,
    disks,
    preparer,
    volumes,
    helperMounts,
    agentState,
    gpus,
    executor,
    loop,
    orders,
    changes,
    hostDrain,
    contact,
    disconnects,
    link,
  };
}
