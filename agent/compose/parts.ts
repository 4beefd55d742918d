/**
 * Makes everything that works with containers here, and connects it: only this file says who tells whom. Called by the
 * composition root, which opens, starts and stops the returned parts in its own order. Must stay true: nothing here
 * reads, writes or starts anything; a part uses a later-made one only inside functions that are called later.
 */
import { readdir } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join, resolve } from 'node:path';
import { Archives } from '../code/archives.ts';
import { Views } from '../code/views.ts';
import { closedRanges, imageOf, isBaseImage } from '../config.ts';
import { RunnerCompiler, countByContainer, emptyByContainer } from '../containers/helpers.ts';
import { GpuDrivers } from '../containers/cdi.ts';
import { EngineTrials } from '../containers/engine-trials.ts';
import { PauseContainers } from '../containers/pause-containers.ts';
import { RootLimits } from '../containers/root-limits.ts';
import { GatewaySockets } from '../gateway/sockets.ts';
import { HostDrain } from '../host-drain.ts';
import type { PullSettings } from '../images/images.ts';
import { AgentState } from '../reconcile/agent-state.ts';
import { DisconnectWatch } from '../reconcile/disconnect.ts';
import { Executor } from '../reconcile/execute.ts';
import type { Journal } from '../reconcile/journal.ts';
import { ReconcileLoop } from '../reconcile/loop.ts';
import { Orders } from '../reconcile/orders.ts';
import { SlotTable } from '../slots/slots.ts';
import { ContainerDisks, overDiskText } from '../telemetry/container-disks.ts';
import { AddressBook } from '../telemetry/addresses.ts';
import { ClockWatch } from '../telemetry/clock.ts';
import { withImages } from '../telemetry/inventory.ts';
import { Contact } from '../upstream/contact.ts';
import type { LinkParts } from '../upstream/link.ts';
import { Link } from '../upstream/link.ts';
import { localRoot } from '../volumes/directories.ts';
import { makeVolumes } from '../volumes/open.ts';
import { VolumeUse } from '../volumes/use.ts';
import type { GpuOptions } from './gpus.ts';
import { makeGpus } from './gpus.ts';
import type { Host } from './host.ts';
import { makeImages } from './images.ts';
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
  /** The link's events that the composition root handles, and the promise for which the link waits. */
  readonly link: Pick<LinkParts, 'attemptsKnown' | 'onSession' | 'onDisconnected' | 'onFirstConnected' | 'onRevoked'>;
}

const MIB = 1024 * 1024;

export type Parts = ReturnType<typeof makeParts>;

/** The image of stubs that name none. */
export const baseImageOf = ({ config }: Host): string => imageOf(config, '', '');

export function makeParts({ host, member, journal, options, link: toRoot }: MakeParts) {
  const { config, log, stateDir, runtime, engine, metrics, conditions, bootId, runnerDir } = host;
  const { machineId, labels } = member;

  // The parts of containers, and their output.
  const addresses = new AddressBook();
  const pauseContainers = new PauseContainers({
    runtime,
    log,
    network: config.LONGSHORE_AGENT_NETWORK,
    size: config.LONGSHORE_AGENT_HOLDERS,
    labels,
    addresses: () => addresses.current,
    openAddresses: config.LONGSHORE_AGENT_OPEN_ADDRESSES?.split(',') ?? [],
    closedRanges: closedRanges(config),
    onFailed: (error) => void engineTrials.blamed(error),
    onLost: (containerId) => executor.end(containerId, 'lost', 1000),
  });
  const engineTrials = new EngineTrials({
    runtime,
    network: config.LONGSHORE_AGENT_NETWORK,
    labels,
    conditions,
    onTrial: (result) => metrics.engineTrials.inc({ result }),
    log,
  });
  const { logs, positions } = makeLogs(host, () => link.logsWaiting());
  const slots = new SlotTable(
    {
      onReady: (containerId, ready) => executor.ready(containerId, ready),
      onStarting: (containerId, phase) => {
        if (phase === 'hello') executor.greeted(containerId);
        log.debug({ containerId, phase }, 'runner starting');
      },
      onFailed: (containerId, message) => executor.failed(containerId, message),
      onLog: (record) => logs.add(record.containerId, { ...record, timestampMs: Date.now() }),
      onMustStop: (containerId, reason) => executor.end(containerId, reason, 1000),
      onSuspect: (containerId) => {
        const dockerId = journal.get(containerId)?.dockerId;
        if (dockerId !== undefined)
          loop.look(dockerId).catch((error: unknown) => log.info({ err: error, containerId }, 'inspection failed'));
      },
      onViolation: (containerId, rule, text) => executor.violated(containerId, rule, text),
      onRestarting: (containerId, slots) => agentState.noteRestarting(containerId, slots),
    },
    log,
  );
  const gateway = new GatewaySockets({
    open: (deadlineMs) => link.callGateway(deadlineMs),
    metrics,
    log,
    onViolation: (containerId, rule, text) => executor.violated(containerId, rule, text),
  });
  const archives = new Archives(
    join(stateDir, 'code'),
    (objectId, signal) => link.fetchCode(objectId, signal),
    config.LONGSHORE_CODE_CACHE_BYTES,
    log,
  );
  const views = new Views(join(stateDir, 'views'), labels(), async (path) => {
    for (const name of await readdir(path)) await emptyByContainer(runtime, join(path, name), labels());
  });
  const compiler = new RunnerCompiler(runtime, runnerDir, labels, log);
  const { ledger, cache, disks, images, preparer } = makeImages({
    host,
    journal,
    pulls: options.pulls,
    askToPull: (question) => link.askToPull(question),
    answer: (imagePrepared) => link.send({ imagePrepared }),
  });
  const volumes = makeVolumes({
    config,
    runtime,
    labels,
    conditions,
    metrics,
    log,
  });

  // The desired and the observed state, and the reconciliation of the two.
  const agentState = new AgentState(journal, config.LONGSHORE_AGENT_ORPHAN_SECONDS * 1000, (containerId) => {
    link.changed(containerId);
    loop.wake();
  });
  const gpuDrivers = new GpuDrivers(runtime, log);
  const gpuHelp = {
    drivers: gpuDrivers,
    labels,
    onRefused: (error: unknown) => void engineTrials.blamed(error),
  };
  const gpus = makeGpus(host, agentState, options.gpus, gpuHelp, {
    onChange: () => link.devicesChanged(),
    onFault: (containerId, message) => executor.fault(containerId, message),
    onNote: (containerId, message) =>
      logs.add(containerId, { taskId: '', stream: 'stderr', line: `longshore: ${message}`, timestampMs: Date.now() }),
  });
  const executor = new Executor({
    gpus,
    gpuDrivers,
    onLeaseRefused: () => {
      link.devicesChanged();
      link.reportAll();
    },
    runtime,
    images,
    pauseContainers,
    archives,
    views,
    volumes,
    slots,
    gateway,
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
    send: (message) => link.send(message),
    // The Python of a base image compiles the runner for every container; a tenant's image never may.
    onImageUsed: (image) => {
      if (isBaseImage(config, image)) compiler.want(image);
    },
  });
  const containerDisks = new ContainerDisks({
    runtime,
    running: () => agentState.running(),
    viewOf: (shortId) => views.upperOf(shortId),
    limitBytes: config.LONGSHORE_AGENT_CONTAINER_DISK_MIB * MIB,
    fileSystems: () => disks.fileSystems(),
    countByHelper: (paths) => countByContainer(runtime, paths, labels()),
    onOver: ({ containerId, usedBytes }) =>
      executor.overDisk(containerId, overDiskText(usedBytes, containerDisks.limitBytes)),
    onLook: (result) => metrics.diskLooks.inc({ result }),
    log,
  });
  const volumeUse = new VolumeUse({
    root: localRoot(resolve(config.LONGSHORE_DATA_DIR)),
    countByHelper: (paths) => countByContainer(runtime, paths, labels()),
    tell: (bytes) => link.send({ volumeUse: { bytes: { ...bytes } } }),
    log,
  });
  const rootLimits = new RootLimits({ runtime, labels, wanted: containerDisks.limitBytes > 0, log });
  const loop = new ReconcileLoop({
    runtime,
    agentState,
    executor,
    metrics,
    conditions,
    log,
    machineIds: member.machineIds,
    onOom: (containerId) => slots.get(containerId)?.noteOom(),
    onListed: (containers) => pauseContainers.tidy(containers),
    onPauseContainerEnded: (dockerId) => pauseContainers.ended(dockerId),
  });

  // The link to the scheduler: orders, reports, and what the agent does without a session.
  const orders = new Orders({
    agentState,
    conditions,
    log,
    wake: () => loop.wake(),
    reportAll: () => link.reportAll(),
  });
  const hostDrain = new HostDrain({
    log,
    send: (message) => link.send({ hostDrain: message }),
    live: () => agentState.liveCount(),
    attempts: () => slots.liveAttempts().length,
  });
  const contact = new Contact({ path: join(stateDir, 'contact.json'), bootId, log });
  const disconnects = new DisconnectWatch({
    entries: () => journal.all(),
    bootId,
    contact,
    isEnding: (containerId) => agentState.ending.has(containerId),
    end: (containerId, reason, graceMs) => executor.end(containerId, reason, graceMs),
    ask: () => link.heartbeatNow(),
    log,
  });
  const link = new Link({
    identity: member.identity,
    joinFacts: member.joinFacts,
    slots,
    logs,
    metrics,
    log,
    bootId,
    inventory: async () => {
      const [inventory, found, disk] = await Promise.all([
        host.inventory,
        runtime.listImages().catch(() => []),
        disks.readImagesDisk(),
      ]);
      return {
        ...withImages(inventory, found),
        volumeDrivers: [...volumes.offered],
        diskTotalBytes: disk.totalBytes,
        diskFreeBytes: disk.freeBytes,
        gpus: gpus.report(),
        gpuDriver: gpus.driver,
      };
    },
    devices: () => gpus.report(),
    observedAll: () => agentState.observedAll(),
    observedOf: (containerId) => agentState.observedOf(containerId),
    conditions,
    diskFreeBytes: () => disks.freeBytes,
    hostDrain: () => hostDrain.message,
    clock: new ClockWatch({ metrics, conditions, log }),
    contact,
    onPrepareImage: (order) =>
      void preparer
        .take(order)
        .catch((error: unknown) => log.warn({ err: error, image: order.image }, 'image not prepared')),
    onDesired: (desired) => orders.desired(desired),
    onProceed: (assignmentId, permission) => orders.proceed(assignmentId, permission),
    ...toRoot,
    onSession: () => {
      toRoot.onSession();
      orders.newSession();
    },
  });

  return {
    pauseContainers,
    engineTrials,
    containerDisks,
    volumeUse,
    rootLimits,
    logs,
    positions,
    slots,
    gateway,
    archives,
    views,
    compiler,
    ledger,
    cache,
    disks,
    volumes,
    agentState,
    gpus,
    executor,
    loop,
    hostDrain,
    contact,
    disconnects,
    link,
  };
}
