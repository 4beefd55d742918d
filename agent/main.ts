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
import { Archives } from './code/archives.ts';
import { Views } from './code/views.ts';
import type { AgentConfig } from './config.ts';
import { imageOf, loadAgentConfig } from './config.ts';
import { DockerRuntime } from './containers/docker.ts';
import { RunnerCompiler, emptyByContainer } from './containers/helpers.ts';
import { Images } from './containers/images.ts';
import { LOG_LIMITS, LogBuffer } from './containers/log-buffer.ts';
import { installRunner, pythonSource } from './containers/runner-files.ts';
import type { ContainerRuntime, EngineInfo } from './containers/runtime.ts';
import { LABELS } from './containers/runtime.ts';
import { hasCode, lockStateDir, prepareStateDir } from './durable.ts';
import { Books } from './reconcile/books.ts';
import { Executor } from './reconcile/execute.ts';
import { Journal } from './reconcile/journal.ts';
import { ReconcileLoop } from './reconcile/loop.ts';
import { SlotTable } from './slots/slots.ts';
import { readBootId, readDisk, readInventory, withImages } from './telemetry/inventory.ts';
import { AgentMetrics } from './telemetry/metrics.ts';
import { MetricsPage } from './telemetry/page.ts';
import { IdentityFile } from './upstream/identity.ts';
import type { JoinFacts } from './upstream/join.ts';
import { join } from './upstream/join.ts';
import { Link } from './upstream/link.ts';
import { VolumeDirectories } from './volumes/directories.ts';

/** Runners dial again within this time after a restart of the agent; until then nothing is said about attempts. */
const SETTLE_MS = 1500;
/** How long containers may take to leave when they are stopped with the agent. */
const STOP_CONTAINERS_MS = 45_000;
const STOP_GRACE_MS = 10_000;

export interface AgentOptions {
  /** Labels on every container beside ours. */
  readonly containerLabels?: Readonly<Record<string, string>>;
  /** Where the Python runner comes from; the program's own by default. */
  readonly pythonSource?: string;
}

export interface Agent {
  /** Resolves when the machine has joined, its books are rebuilt and it dials the scheduler. @throws StartupError */
  start(): Promise<void>;
  /** @param containers - `keep` leaves them running, `stop` ends them and removes the network */
  stop(containers?: 'keep' | 'stop'): Promise<void>;
  /** Resolves at the first welcome. */
  readonly connected: Promise<void>;
  readonly metricsAddress: string;
}

/** Builds an agent; nothing runs before `start`. */
export function createAgent(config: AgentConfig, log: Log, options: AgentOptions = {}): Agent {
  const stop: (() => Promise<void> | void)[] = [];
  const abort = new AbortController();
  let endContainers: (() => Promise<void>) | undefined;
  let metricsAddress = config.LONGSHORE_AGENT_METRICS_ADDRESS;
  let onConnected = (): void => undefined;
  const connected = new Promise<void>((done) => (onConnected = done));

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
    const stateDir = await prepareStateDir(joinPath(resolve(config.LONGSHORE_DATA_DIR), 'agent'));
    stop.push(await lockStateDir(stateDir));
    const metrics = new AgentMetrics();
    const runtime = new DockerRuntime(config.DOCKER_HOST, (operation, result, seconds) =>
      metrics.dockerApi.observe({ operation, result }, seconds),
    );
    const engine = await reachEngine(runtime, config.DOCKER_HOST);
    const [bootId, runnerDir, inventory] = await Promise.all([
      readBootId(),
      installRunner(options.pythonSource ?? pythonSource(), joinPath(stateDir, 'runner')),
      readInventory(config, engine),
    ]);
    const page = new MetricsPage(config.LONGSHORE_AGENT_METRICS_ADDRESS, metrics);
    await page.start();
    stop.push(() => page.stop());
    metricsAddress = page.address;

    const journal = new Journal(joinPath(stateDir, 'journal.json'), () => metrics.journalErrors.inc());
    await journal.open();
    const identity = new IdentityFile(stateDir);
    await identity.open();
    const joinFacts: JoinFacts = {
      address: config.LONGSHORE_SCHEDULER_ADDRESS,
      socketPath: config.LONGSHORE_LINK_SOCKET,
      joinToken: config.LONGSHORE_JOIN_TOKEN,
      version: ownVersion(),
    };
    metrics.buildInfo.set(
      {
        version: joinFacts.version,
        protocol: String(PROTOCOL_VERSION),
        docker_version: engine.version,
        driver_version: '',
      },
      1,
    );
    if (identity.current === undefined) await join(identity, joinFacts, log, abort.signal);
    const machineId = (): string => identity.current?.machineId ?? '';
    const ownLabels = (): Record<string, string> => ({
      ...options.containerLabels,
      [LABELS.managed]: '1',
      [LABELS.machine]: machineId(),
    });
    await runtime.ensureNetwork(config.LONGSHORE_AGENT_NETWORK);

    const baseImage = imageOf(config, '', '');
    const logs = new LogBuffer(
      LOG_LIMITS,
      () => performance.now(),
      (result, count) => {
        metrics.logRecords.inc({ result }, count);
        if (result === 'accepted') link.logsWaiting();
      },
    );
    const slots = new SlotTable(
      {
        onReady: (containerId, ready) => executor.ready(containerId, ready),
        onStarting: (containerId, phase) => log.debug({ containerId, phase }, 'runner starting'),
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
    const volumes = new VolumeDirectories(joinPath(resolve(config.LONGSHORE_DATA_DIR), 'volumes'));
    await Promise.all([
      archives.open(),
      views.open(),
      volumes.open(),
      mkdir(joinPath(stateDir, 's'), { recursive: true, mode: 0o711 }),
    ]);
    const compiler = new RunnerCompiler(runtime, runnerDir, ownLabels, log);
    stop.push(() => Promise.race([compiler.idle(), sleep(5000).then(() => undefined)]));
    const images = new Images(runtime, log, {
      onPull: (result, seconds) => {
        metrics.imagePulls.inc({ result });
        if (result === 'ok') metrics.imagePullDuration.observe(seconds);
      },
    });
    const books = new Books(journal, (containerId) => {
      link.changed(containerId);
      loop.wake();
    });
    const executor = new Executor({
      runtime,
      images,
      archives,
      views,
      volumes,
      slots,
      books,
      logs,
      metrics,
      log,
      stateDir,
      bootId,
      startsAtOnce: Math.max(2, engine.cores * 2),
      host: () => ({
        cores: engine.cores,
        network: config.LONGSHORE_AGENT_NETWORK,
        hostname: hostname(),
        machineId: machineId(),
        runnerDir,
        caBundle: config.LONGSHORE_CA_BUNDLE,
        extraLabels: options.containerLabels ?? {},
      }),
      imageOf: (image, pythonVersion) => imageOf(config, image, pythonVersion),
      send: (message) => link.send(message),
      onImageUsed: (image) => compiler.want(image),
    });
    const loop = new ReconcileLoop({
      runtime,
      books,
      executor,
      metrics,
      log,
      machineIds: () => [machineId(), ...(identity.current?.formerMachineIds ?? [])],
      onOom: (containerId) => slots.get(containerId)?.noteOom(),
    });
    let settled: Promise<void> = Promise.resolve();
    let emptyRefused = false;
    const link = new Link({
      identity,
      joinFacts,
      slots,
      logs,
      metrics,
      log,
      bootId,
      inventory: async () => {
        const [found, disk] = await Promise.all([runtime.listImages().catch(() => []), readDisk(stateDir)]);
        return { ...withImages(inventory, found), diskTotalBytes: disk.totalBytes, diskFreeBytes: disk.freeBytes };
      },
      observedAll: () => books.observedAll(),
      observedOf: (containerId) => books.observedOf(containerId),
      conditions: () => [
        ...(loop.dockerDown ? ['DockerDown'] : []),
        ...(executor.stuck ? ['StuckContainer'] : []),
        ...(emptyRefused ? ['EmptySnapshotRefused'] : []),
      ],
      diskFreeBytes: async () => (await readDisk(stateDir)).freeBytes,
      attemptsKnown: () => settled,
      onSession: () => {
        books.newSession();
        loop.wake();
      },
      onDesired: (desired) => {
        emptyRefused =
          desired.full && desired.assignments.length === 0 && !desired.confirmEmpty && books.liveCount() > 0;
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
      onProceed: (assignmentId) => {
        books.proceeded.add(assignmentId);
        loop.wake();
      },
      onFirstConnected: onConnected,
    });

    await removeLeftovers(runtime, journal, views, stateDir, ownLabels());
    stop.push(() => slots.close());
    stop.push(() => executor.close());
    stop.push(() => loop.stop());
    await loop.start();
    await loop.idle();
    settled = settle(slots, [...books.attended], abort.signal);
    endContainers = async () => {
      for (const entry of journal.all())
        if (entry.stage !== 'gone') executor.end(entry.containerId, 'killed', STOP_GRACE_MS);
      const until = performance.now() + STOP_CONTAINERS_MS;
      while ([...journal.all()].some((entry) => entry.stage !== 'gone') && performance.now() < until) await sleep(20);
      await runtime.removeNetwork(config.LONGSHORE_AGENT_NETWORK);
    };
    stop.push(() => link.stop());
    link.start();
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
      if (containers === 'stop')
        await endContainers?.().catch((error: unknown) => log.warn({ err: error }, 'containers did not all stop'));
      await stopAll();
      log.info({ containers }, containers === 'keep' ? 'agent stopped, its containers go on' : 'agent stopped');
    },
    connected,
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

/** What a crash left of containers that the journal does not have. */
async function removeLeftovers(
  runtime: ContainerRuntime,
  journal: Journal,
  views: Views,
  stateDir: string,
  labels: Readonly<Record<string, string>>,
): Promise<void> {
  const own = { [LABELS.managed]: '1', [LABELS.machine]: labels[LABELS.machine] ?? '' };
  const containers = await runtime.list(own);
  for (const one of containers) if (one.labels[LABELS.container] === undefined) await runtime.remove(one.dockerId);
  // A running container without its journal may be adopted: then everything below stays.
  const strange = containers.some((one) => {
    const containerId = one.labels[LABELS.container];
    return containerId !== undefined && journal.get(containerId) === undefined;
  });
  if (strange) return;
  const live = [...journal.all()].filter((entry) => entry.stage !== 'gone');
  const kept = new Set(live.map((entry) => entry.shortId));
  const volumes = new Set(live.map((entry) => views.volumeName(entry.containerId)));
  for (const name of await runtime.listVolumes(own)) if (!volumes.has(name)) await runtime.removeVolume(name);
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
  const config = loadAgentConfig(env);
  const log = createLog({ name: 'agent', level: config.LONGSHORE_LOG_LEVEL });
  const agent = createAgent(config, log);
  let end: (containers: 'keep' | 'stop') => void = () => undefined;
  const ended = new Promise<'keep' | 'stop'>((done) => (end = done));
  const onSignal = (): void => end('keep');
  const onMessage = (message: unknown): void => {
    if (typeof message !== 'object' || message === null || !('kind' in message) || message.kind !== 'stop') return;
    end('containers' in message && message.containers === 'stop' ? 'stop' : 'keep');
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  process.on('message', onMessage);
  try {
    void agent.connected.then(() => process.send?.({ kind: 'ready', metricsAddress: agent.metricsAddress }));
    const started = agent.start();
    const first = await Promise.race([started.then(() => undefined), ended]);
    if (first !== undefined) started.catch(() => undefined);
    await agent.stop(first ?? (await ended));
  } finally {
    process.removeListener('SIGTERM', onSignal);
    process.removeListener('SIGINT', onSignal);
    process.removeListener('message', onMessage);
  }
}
