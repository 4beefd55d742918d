/**
 * The agent's composition root: builds every part in order, passes it down, and returns `start` and `stop`. Called by the command line and by tests. Must stay true:
 * nothing happens on import; stopping leaves containers running (stop is not drain) unless told otherwise; what cannot work says so in a sentence before it starts.
 */
import { readFileSync } from 'node:fs';
import { mkdir, readdir, rm } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join as joinPath, resolve } from 'node:path';
import { sleep } from '#shared/backoff.ts';
import { StartupError, messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { createLog } from '#shared/log.ts';
import { PROTOCOL_VERSION } from '#shared/protocol/link.ts';
import type { ServiceManager } from '#shared/service-manager.ts';
import { NO_SERVICE_MANAGER, takeServiceManager } from '#shared/service-manager.ts';
import { Archives } from './code/archives.ts';
import { Views } from './code/views.ts';
import type { AgentConfig } from './config.ts';
import { excludedGpus, imageOf, isBaseImage, loadAgentConfig } from './config.ts';
import { DockerRuntime } from './containers/docker.ts';
import { Holders } from './containers/holders.ts';
import { RunnerCompiler, emptyByContainer } from './containers/helpers.ts';
import { ImageCache } from './images/cache.ts';
import type { PullSettings } from './images/images.ts';
import { Images, PULL_SETTINGS } from './images/images.ts';
import { ImageLedger } from './images/ledger.ts';
import { askPermit } from './images/permits.ts';
import { ImagePreparer } from './images/prepare.ts';
import { LogPositions } from './containers/log-positions.ts';
import { LOG_LIMITS, LogBuffer } from './containers/log-buffer.ts';
import { installRunner, pythonSource } from './containers/runner-files.ts';
import type { ContainerRuntime, EngineInfo } from './containers/runtime.ts';
import { LABELS } from './containers/runtime.ts';
import { serveControl } from './control.ts';
import { hasCode, lockStateDir, prepareStateDir } from './durable.ts';
import { Gpus } from './devices/gpus.ts';
import { KMSG } from './devices/kernel-log.ts';
import { NvidiaSmi, PROBE_DEADLINE_MS } from './devices/nvidia-smi.ts';
import { GatewaySockets } from './gateway/sockets.ts';
import { HostDrain } from './host-drain.ts';
import { checkEngine } from './preflight/check.ts';
import { Books } from './reconcile/books.ts';
import { DisconnectWatch } from './reconcile/disconnect.ts';
import { Executor } from './reconcile/execute.ts';
import { Journal } from './reconcile/journal.ts';
import { ReconcileLoop } from './reconcile/loop.ts';
import { lostEntries } from './reconcile/rebuild.ts';
import { SlotTable } from './slots/slots.ts';
import { AddressBook } from './telemetry/addresses.ts';
import { DiskWatch } from './telemetry/disk-watch.ts';
import { readBootId, readInventory, withImages } from './telemetry/inventory.ts';
import { ClockWatch } from './telemetry/clock.ts';
import { Conditions } from './telemetry/conditions.ts';
import { AgentMetrics } from './telemetry/metrics.ts';
import { MetricsPage } from './telemetry/page.ts';
import { startSampling } from './telemetry/sampling.ts';
import { HeapGrowth } from './heap-growth.ts';
import { Contact } from './upstream/contact.ts';
import { IdentityFile } from './upstream/identity.ts';
import type { JoinFacts } from './upstream/join.ts';
import { isTokenOfAnother, join } from './upstream/join.ts';
import { Link } from './upstream/link.ts';
import { NFS_PREFIX } from './volumes/nfs.ts';
import { openVolumes, removeUnusedNfs } from './volumes/open.ts';

/** Runners dial again within this time after a restart of the agent; until then nothing is said about attempts. */
const SETTLE_MS = 1500;
/** How long containers may take to leave when they are stopped with the agent. */
const STOP_CONTAINERS_MS = 45_000;
const STOP_GRACE_MS = 10_000;
/** What failed at the start is looked at again. */
const PREFLIGHT_AGAIN_MS = 60_000;

/** Lines of containers were dropped a moment ago: so long it is said. */
const LOG_PRESSURE_MS = 60_000;

export interface AgentOptions {
  /** Labels on every container beside ours. */
  readonly containerLabels?: Readonly<Record<string, string>>;
  /** How GPUs are watched; each as in production by default. */
  readonly gpus?: {
    /** Read as /dev/kmsg is. */
    readonly kernelLog?: string;
    readonly probeEveryMs?: number;
    readonly probeDeadlineMs?: number;
    readonly proofMs?: number;
  };
  /** How pulls are tried and given up, where it is not as ever. */
  readonly pulls?: Partial<PullSettings>;
  /** Where the Python runner comes from; the program's own by default. */
  readonly pythonSource?: string;
  /** Told how far it is. */
  readonly manager?: ServiceManager;
}

export interface Agent {
  /** Resolves when the machine has joined, its books are rebuilt and it dials the scheduler. @throws StartupError */
  start(): Promise<void>;
  /** @param containers - `keep` leaves them running, `stop` ends them and removes the network */
  stop(containers?: 'keep' | 'stop'): Promise<void>;
  /** Resolves when the agent has ended by itself, with why: its machine was deleted. */
  readonly ended: Promise<StartupError>;
  /** Resolves at the first welcome. */
  readonly connected: Promise<void>;
  readonly metricsAddress: string;
}

/** Builds an agent; nothing runs before `start`. */
export function createAgent(config: AgentConfig, log: Log, options: AgentOptions = {}): Agent {
  const manager = options.manager ?? NO_SERVICE_MANAGER;
  const stop: (() => Promise<void> | void)[] = [];
  const abort = new AbortController();
  let endContainers: (() => Promise<void>) | undefined;
  let metricsAddress = config.LONGSHORE_AGENT_METRICS_ADDRESS;
  let onConnected = (): void => undefined;
  const connected = new Promise<void>((done) => (onConnected = done));
  let onEnded = (_why: StartupError): void => undefined;
  const ended = new Promise<StartupError>((done) => (onEnded = done));

  const stopAll = async (): Promise<void> => {
    abort.abort();
    for (let last = stop.pop(); last !== undefined; last = stop.pop()) {
      try {
        await last();
      } catch (error) {
        log.warn({ err: error }, 'a part did not stop cleanly');
      }
    }
  };

  const start = async (): Promise<void> => {
    let isTurning = (): boolean => true;
    manager.watch(() => isTurning());
    const stateDir = await prepareStateDir(joinPath(resolve(config.LONGSHORE_DATA_DIR), 'agent'));
    stop.push(await lockStateDir(stateDir));
    const metrics = new AgentMetrics();
    const runtime = new DockerRuntime(config.DOCKER_HOST, (operation, result, seconds) =>
      metrics.dockerApi.observe({ operation, result }, seconds),
    );
    let heartbeatNow = (): void => undefined;
    const conditions = new Conditions((held) => {
      metrics.setConditions(held);
      heartbeatNow();
    });
    const engine = await reachEngine(runtime, config.DOCKER_HOST);
    const [bootId, runnerDir, inventory] = await Promise.all([
      readBootId(),
      installRunner(options.pythonSource ?? pythonSource(), joinPath(stateDir, 'runner')),
      readInventory(config, engine),
    ]);
    const page = new MetricsPage(config, metrics);
    await page.start();
    stop.push(() => page.stop());
    metricsAddress = page.address;

    const journal = new Journal(joinPath(stateDir, 'journal.json'), () => metrics.journalErrors.inc());
    const damaged = await journal.open();
    if (damaged !== undefined)
      log.error({ damaged }, 'the journal cannot be read and was set aside; it is rebuilt from the containers');
    const identity = new IdentityFile(stateDir);
    await identity.open();
    const joinFacts: JoinFacts = {
      address: config.LONGSHORE_SCHEDULER_ADDRESS,
      socketPath: config.LONGSHORE_LINK_SOCKET,
      joinToken: config.LONGSHORE_JOIN_TOKEN,
      version: ownVersion(),
    };
    if (identity.current === undefined || isTokenOfAnother(joinFacts, identity.current)) {
      // Nothing to rebuild, and nobody knows when the scheduler can be reached.
      manager.ready('joining');
      await join(identity, joinFacts, log, abort.signal);
    }
    const machineId = (): string => identity.current?.machineId ?? '';
    const machineIds = (): readonly string[] => [machineId(), ...(identity.current?.formerMachineIds ?? [])];
    const ownLabels = (): Record<string, string> => ({
      ...options.containerLabels,
      [LABELS.managed]: '1',
      [LABELS.machine]: machineId(),
    });
    const addresses = new AddressBook();
    const holders = new Holders({
      runtime,
      log,
      network: config.LONGSHORE_AGENT_NETWORK,
      size: config.LONGSHORE_AGENT_HOLDERS,
      labels: ownLabels,
      addresses: () => addresses.current,
      openAddresses: config.LONGSHORE_AGENT_OPEN_ADDRESSES?.split(',') ?? [],
      onLost: (containerId) => executor.end(containerId, 'lost', 1000),
    });
    stop.push(() => holders.close());

    const baseImage = imageOf(config, '', '');
    const positions = new LogPositions(joinPath(stateDir, 'log-positions.json'));
    await positions.open();
    stop.push(() => positions.close());
    let pressure: NodeJS.Timeout | undefined;
    /** Lines are dropped: said until none was for a while. */
    const pressed = (): void => {
      conditions.set('LogBackpressure', true);
      clearTimeout(pressure);
      pressure = setTimeout(() => conditions.set('LogBackpressure', false), LOG_PRESSURE_MS);
      pressure.unref();
    };
    const logs = new LogBuffer(
      LOG_LIMITS,
      () => performance.now(),
      (result, count) => {
        metrics.logRecords.inc({ result }, count);
        if (result === 'accepted') link.logsWaiting();
        else pressed();
      },
      (containerId, position) => positions.reached(containerId, position),
    );
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
      },
      log,
    );
    const gateway = new GatewaySockets({ open: (deadlineMs) => link.callGateway(deadlineMs), metrics, log });
    const archives = new Archives(
      joinPath(stateDir, 'code'),
      (objectId, signal) => link.fetchCode(objectId, signal),
      config.LONGSHORE_CODE_CACHE_BYTES,
      log,
    );
    const views = new Views(joinPath(stateDir, 'views'), ownLabels(), async (path) => {
      for (const name of await readdir(path))
        await emptyByContainer(runtime, baseImage, joinPath(path, name), ownLabels());
    });
    await Promise.all([
      archives.open(),
      views.open(),
      mkdir(joinPath(stateDir, 's'), { recursive: true, mode: 0o711 }),
    ]);
    const compiler = new RunnerCompiler(runtime, runnerDir, ownLabels, log);
    stop.push(() => Promise.race([compiler.idle(), sleep(5000).then(() => undefined)]));
    const ledger = new ImageLedger(joinPath(stateDir, 'images.json'));
    await ledger.open();
    const minFreeRatio = config.LONGSHORE_MIN_FREE_DISK_PERCENT / 100;
    const cache = new ImageCache({
      runtime,
      ledger,
      readDisk: () => disks.readImagesDisk(),
      minFreeRatio,
      pulling: () => images.pulling,
      wanted: () => new Set([...journal.all()].filter(({ stage }) => stage !== 'gone').map(({ image }) => image)),
      onBytes: (bytes) => metrics.imageCacheBytes.set(bytes),
      onFreed: (bytes) => metrics.imageGcFreed.inc(bytes),
      log,
    });
    const disks = new DiskWatch({
      imagesPath: engine.rootDir,
      statePath: stateDir,
      minFreeRatio,
      makeRoom: () => cache.collect(false),
      conditions,
      onFree: (filesystem, bytes) => metrics.diskFree.set({ filesystem }, bytes),
      log,
    });
    const images = new Images({
      runtime,
      permit: (reference) => askPermit((image, done) => link.askToPull(image, done), reference, log),
      release: (reference) => void link.askToPull(reference, true).catch(() => undefined),
      makeRoom: async () => (await cache.collect(true)) > 0,
      onFull: () => disks.full(),
      onUsed: (reference) => ledger.used(reference, Date.now()),
      onPulled: (reference) => ledger.pulled(reference, Date.now()),
      metrics: metrics.images,
      log,
      settings: { ...PULL_SETTINGS, ...options.pulls },
    });
    const preparer = new ImagePreparer({
      runtime,
      images,
      isOurs: (reference) => ledger.all().has(reference),
      imageOf: (image, pythonVersion) => imageOf(config, image, pythonVersion),
      answer: (imagePrepared) => link.send({ imagePrepared }),
      log,
    });
    const volumes = await openVolumes({
      config,
      runtime,
      helperImage: async () => {
        await images.ensure(baseImage, () => undefined);
        return baseImage;
      },
      labels: ownLabels,
      conditions,
      metrics,
      log,
    });
    stop.push(() => volumes.stop());
    volumes.start();
    const books = new Books(journal, config.LONGSHORE_AGENT_ORPHAN_SECONDS * 1000, (containerId) => {
      link.changed(containerId);
      loop.wake();
    });
    const gpus = new Gpus({
      smi: new NvidiaSmi(config.LONGSHORE_NVIDIA_SMI, options.gpus?.probeDeadlineMs ?? PROBE_DEADLINE_MS),
      stateDir,
      bootId,
      excluded: excludedGpus(config),
      kernelLog: KMSG,
      ...options.gpus,
      metrics,
      log,
      holders: () => books.gpuHolders(),
      running: () => books.runningWithGpu(),
      askInside: async (dockerId) => {
        const { exitCode, output } = await runtime.exec(dockerId, ['nvidia-smi', '-L'], PROBE_DEADLINE_MS);
        return exitCode === 126 || exitCode === 127 ? undefined : output;
      },
      conditions,
      onChange: () => link.devicesChanged(),
      onFault: (containerId, message) => executor.fault(containerId, message),
      onNote: (containerId, message) =>
        logs.add(containerId, { taskId: '', stream: 'stderr', line: `longshore: ${message}`, timestampMs: Date.now() }),
    });
    const executor = new Executor({
      gpus,
      onLeaseRefused: () => {
        link.devicesChanged();
        link.reportAll();
      },
      runtime,
      images,
      holders,
      archives,
      views,
      volumes,
      slots,
      gateway,
      books,
      positions,
      logs,
      metrics,
      conditions,
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
      }),
      imageOf: (image, pythonVersion) => imageOf(config, image, pythonVersion),
      send: (message) => link.send(message),
      // Its Python writes what every container runs: never one that a tenant brought.
      onImageUsed: (image) => {
        if (isBaseImage(config, image)) compiler.want(image);
      },
    });
    const loop = new ReconcileLoop({
      runtime,
      books,
      executor,
      metrics,
      conditions,
      log,
      machineIds,
      onOom: (containerId) => slots.get(containerId)?.noteOom(),
      onListed: (containers) => holders.tidy(containers),
      onHolderEnded: (dockerId) => holders.ended(dockerId),
    });
    const hostDrain = new HostDrain({
      log,
      send: (message) => link.send({ hostDrain: message }),
      live: () => books.liveCount(),
      attempts: () => slots.liveAttempts().length,
    });
    const contact = new Contact({ path: joinPath(stateDir, 'contact.json'), bootId, log });
    await contact.open();
    stop.push(() => contact.close());
    const disconnects = new DisconnectWatch({
      entries: () => journal.all(),
      bootId,
      contact,
      isEnding: (containerId) => books.ending.has(containerId),
      end: (containerId, reason, graceMs) => executor.end(containerId, reason, graceMs),
      ask: () => link.heartbeatNow(),
      log,
    });
    let settled: Promise<void> = Promise.resolve();
    const link = new Link({
      identity,
      joinFacts,
      slots,
      logs,
      metrics,
      log,
      bootId,
      inventory: async () => {
        const [found, disk] = await Promise.all([runtime.listImages().catch(() => []), disks.readImagesDisk()]);
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
      observedAll: () => books.observedAll(),
      observedOf: (containerId) => books.observedOf(containerId),
      conditions,
      diskFreeBytes: () => disks.freeBytes,
      hostDrain: () => hostDrain.message,
      clock: new ClockWatch({ metrics, conditions, log }),
      contact,
      onPrepareImage: (order) =>
        void preparer
          .take(order)
          .catch((error: unknown) => log.warn({ err: error, image: order.image }, 'image not prepared')),
      attemptsKnown: () => settled,
      onSession: () => {
        manager.status(`connected as ${machineId()}`);
        books.newSession();
        loop.wake();
      },
      onDesired: (desired) => {
        const emptyRefused =
          desired.full && desired.assignments.length === 0 && !desired.confirmEmpty && books.liveCount() > 0;
        conditions.set('EmptySnapshotRefused', emptyRefused);
        if (emptyRefused) {
          log.warn('an empty snapshot without its confirmation is not obeyed while containers run');
          link.reportAll();
          return;
        }
        // An acknowledgement without its permission may have been lost: it is given again.
        for (const { assignmentId } of desired.assignments)
          if (!books.proceeded.has(assignmentId)) books.acked.delete(assignmentId);
        books.want(desired.assignments, desired.full);
        loop.wake();
      },
      onProceed: (assignmentId, { secrets, containerToken }) => {
        books.proceeded.set(assignmentId, { secrets, containerToken });
        loop.wake();
      },
      onDisconnected: () => manager.status('not connected to the scheduler; containers go on'),
      onFirstConnected: onConnected,
      onRevoked: () => void endForGood(),
    });

    const preflight = async (): Promise<void> => {
      const bad = (await checkEngine(config, runtime)).filter(({ level }) => level === 'failed');
      for (const { check, found, remedy } of bad) log.error({ check, remedy }, `a check failed: ${found}`);
      conditions.set('Preflight', bad.length > 0);
    };
    await preflight();
    const checking = setInterval(() => {
      if (conditions.names.includes('Preflight'))
        preflight().catch((error: unknown) => log.warn({ err: error }, 'the machine could not be checked again'));
    }, PREFLIGHT_AGAIN_MS);
    stop.push(() => clearInterval(checking));
    await rebuildJournal(runtime, journal, machineIds(), log);
    await removeLeftovers(runtime, journal, views, holders, stateDir, ownLabels());
    stop.push(() => slots.close());
    stop.push(() => gateway.close());
    stop.push(() => executor.close());
    stop.push(() => loop.stop());
    // Devices before containers: whatever ends there asks whose they are.
    await gpus.open();
    metrics.buildInfo.set(
      {
        version: joinFacts.version,
        protocol: String(PROTOCOL_VERSION),
        docker_version: engine.version,
        driver_version: gpus.driver,
      },
      1,
    );
    stop.push(() => cache.stop());
    stop.push(() => disks.stop());
    await disks.start();
    cache.start();
    const reconciling = { fromMs: performance.now(), before: process.cpuUsage() };
    await loop.start();
    // Also what should have stopped while no agent ran, before anybody is asked.
    disconnects.start();
    stop.push(() => disconnects.stop());
    gpus.rebuild();
    await loop.idle();
    const { user, system } = process.cpuUsage(reconciling.before);
    log.info(
      {
        containers: books.attended.size,
        durationMs: Math.round(performance.now() - reconciling.fromMs),
        processorMs: Math.round((user + system) / 1000),
      },
      'containers reconciled',
    );
    gpus.start();
    stop.push(() => gpus.stop());
    isTurning = () => loop.isTurning;
    manager.ready('connecting to the scheduler');
    stop.push(new HeapGrowth(() => slots.taken).start());
    stop.push(startSampling({ runtime, books, volumes, metrics, log, send: (message) => link.send(message) }));
    settled = settle(slots, [...books.attended], abort.signal);
    endContainers = async () => {
      for (const entry of journal.all())
        if (entry.stage !== 'gone') executor.end(entry.containerId, 'killed', STOP_GRACE_MS);
      const until = performance.now() + STOP_CONTAINERS_MS;
      while ([...journal.all()].some((entry) => entry.stage !== 'gone') && performance.now() < until) await sleep(20);
      await removeUnusedNfs(runtime, await runtime.listVolumes(ownLabels()));
      // Also what the engine was still making for an agent that was killed.
      await loop.sweep();
      await holders.close();
      await runtime.removeNetwork(config.LONGSHORE_AGENT_NETWORK);
    };
    let ending: Promise<void> | undefined;
    const endForGood = (): Promise<void> => (ending ??= leaveInstallation(identity.current?.machineId ?? ''));
    const leaveInstallation = async (id: string): Promise<void> => {
      log.error({ machineId: id }, 'this machine was deleted from its installation: ending its containers');
      await endContainers?.().catch((error: unknown) => log.error({ err: error }, 'containers did not all stop'));
      await stopAll();
      // The identity first: whatever else cannot be removed belongs to nobody then.
      await identity.wipe();
      await rm(stateDir, { recursive: true, force: true }).catch((error: unknown) =>
        log.warn({ err: error, stateDir }, 'not all of the state could be removed'),
      );
      onEnded(
        new StartupError(
          'machine_revoked',
          `machine ${id} was deleted from its installation: its containers were ended and its identity is forgotten; to have it back, create a machine and start the agent with its join token`,
          { exitCode: 78 },
        ),
      );
    };
    stop.push(() => link.stop());
    heartbeatNow = () => link.heartbeatNow();
    link.start();
    holders.start();
    const endControl = await serveControl(stateDir, async (request, tell, signal) => {
      if (request.kind === 'undrain') hostDrain.undrain();
      else if (request.kind === 'end-containers') await endContainers?.();
      else {
        const left = await hostDrain.drain(request.seconds, tell, AbortSignal.any([signal, abort.signal]));
        if (left > 0) tell(`the time is over: ${left} containers are left`);
      }
    });
    stop.push(endControl);
    compiler.want(baseImage);
    log.info({ machineId: machineId(), stateDir, metricsAddress, containers: books.attended.size }, 'agent started');
  };

  return {
    start: async () => {
      try {
        await start();
      } catch (error) {
        await stopAll();
        throw error;
      }
    },
    stop: async (containers = 'keep') => {
      await manager.stopping();
      if (containers === 'stop')
        await endContainers?.().catch((error: unknown) => log.warn({ err: error }, 'containers did not all stop'));
      await stopAll();
      log.info({ containers }, containers === 'keep' ? 'agent stopped, its containers go on' : 'agent stopped');
    },
    connected,
    ended,
    get metricsAddress() {
      return metricsAddress;
    },
  };
}

/** @throws StartupError `no_docker`, `docker_forbidden` */
async function reachEngine(runtime: ContainerRuntime, host: string | undefined): Promise<EngineInfo> {
  const where = host ?? '/var/run/docker.sock';
  try {
    await runtime.ping();
    return await runtime.info();
  } catch (error) {
    if (hasCode(error, 'EACCES', 'EPERM') || hasCode(error instanceof Error ? error.cause : undefined, 'EACCES'))
      throw new StartupError(
        'docker_forbidden',
        `no permission to use Docker at ${where}; add this user to the group docker (sudo usermod -aG docker $USER, then log in again), or run as root`,
        { cause: error },
      );
    throw new StartupError(
      'no_docker',
      `no Docker Engine answers at ${where} (${messageOf(error)}); install and start Docker, or set DOCKER_HOST`,
      { cause: error },
    );
  }
}

/** What the journal has lost of containers that the engine still has. */
async function rebuildJournal(
  runtime: ContainerRuntime,
  journal: Journal,
  machineIds: readonly string[],
  log: Log,
): Promise<void> {
  for (const machineId of machineIds) {
    const containers = await runtime.list({ [LABELS.managed]: '1', [LABELS.machine]: machineId });
    for (const entry of lostEntries(containers, (containerId) => journal.get(containerId))) {
      await journal.put(entry);
      log.warn({ containerId: entry.containerId, stage: entry.stage }, 'a container that the journal had lost');
    }
  }
}

/** What a crash left of containers that the journal does not have. */
async function removeLeftovers(
  runtime: ContainerRuntime,
  journal: Journal,
  views: Views,
  holders: Holders,
  stateDir: string,
  labels: Readonly<Record<string, string>>,
): Promise<void> {
  const own = { [LABELS.managed]: '1', [LABELS.machine]: labels[LABELS.machine] ?? '' };
  const containers = await runtime.list(own);
  for (const one of containers)
    if (one.labels[LABELS.container] === undefined && one.labels[LABELS.holder] === undefined)
      await runtime.remove(one.dockerId);
  await holders.open(containers);
  // A running container without its journal may be adopted: then everything below stays.
  const strange = containers.some((one) => {
    const containerId = one.labels[LABELS.container];
    return containerId !== undefined && journal.get(containerId) === undefined;
  });
  if (strange) return;
  const live = [...journal.all()].filter((entry) => entry.stage !== 'gone');
  const kept = new Set(live.map((entry) => entry.shortId));
  const volumes = new Set(live.map((entry) => views.volumeName(entry.containerId)));
  const found = await runtime.listVolumes(own);
  await removeUnusedNfs(runtime, found);
  for (const name of found) if (!volumes.has(name) && !name.startsWith(NFS_PREFIX)) await runtime.removeVolume(name);
  for (const name of await views.list()) if (!kept.has(name)) await views.remove(name);
  for (const name of await readdir(joinPath(stateDir, 's')))
    if (!kept.has(name)) await rm(joinPath(stateDir, 's', name), { recursive: true, force: true });
}

async function settle(slots: SlotTable, containerIds: readonly string[], signal: AbortSignal): Promise<void> {
  const until = performance.now() + SETTLE_MS;
  while (!slots.settled(containerIds) && performance.now() < until && (await sleep(20, signal)));
}

function ownVersion(): string {
  const text = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}

/**
 * The agent as a program: reads the settings, runs until SIGTERM or SIGINT (containers go on) and returns. A parent process hears `{kind: 'ready', metricsAddress}`
 * over IPC at the first connection, and may send `{kind: 'stop', containers: 'keep' | 'stop'}`.
 * @throws StartupError when it cannot start: its exit code is 78 for wrong settings
 */
export async function runAgent(env: Readonly<Record<string, string | undefined>>): Promise<void> {
  const manager = takeServiceManager(process.env, () => log);
  const config = loadAgentConfig(env);
  const log = createLog({ name: 'agent', level: config.LONGSHORE_LOG_LEVEL });
  const agent = createAgent(config, log, { manager });
  let toEnd: (containers: 'keep' | 'stop') => void = () => undefined;
  const ended = new Promise<'keep' | 'stop'>((done) => (toEnd = done));
  const onSignal = (): void => toEnd('keep');
  const onMessage = (message: unknown): void => {
    if (typeof message !== 'object' || message === null || !('kind' in message) || message.kind !== 'stop') return;
    toEnd('containers' in message && message.containers === 'stop' ? 'stop' : 'keep');
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  process.on('message', onMessage);
  try {
    void agent.connected.then(() => process.send?.({ kind: 'ready', metricsAddress: agent.metricsAddress }));
    const started = agent.start();
    const first = await Promise.race([started.then(() => undefined), ended]);
    if (first !== undefined) started.catch(() => undefined);
    const end = first ?? (await Promise.race([ended, agent.ended]));
    if (typeof end !== 'string') throw end;
    await agent.stop(end);
  } finally {
    process.removeListener('SIGTERM', onSignal);
    process.removeListener('SIGINT', onSignal);
    process.removeListener('message', onMessage);
  }
}
