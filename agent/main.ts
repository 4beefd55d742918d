/**
 * The agent's composition root: its parts, the order in which they start and, read backwards, the order in which they
 * stop. Called by the command line (process.ts) and by tests. Must stay true: nothing happens on import; stopping
 * leaves containers running (stop is not drain) unless told otherwise; a failure to start is a sentence with its cure.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { sleep } from '#shared/backoff.ts';
import type { StartupError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { watchProcess } from '#shared/process-metrics.ts';
import { PROTOCOL_VERSION } from '#shared/protocol/link.ts';
import type { ServiceManager } from '#shared/service-manager.ts';
import { NO_SERVICE_MANAGER } from '#shared/service-manager.ts';
import { endAllContainers, leaveInstallation } from './compose/teardown.ts';
import type { GpuOptions } from './compose/gpus.ts';
import type { AtStop } from './compose/host.ts';
import { openHost } from './compose/host.ts';
import { joinInstallation } from './compose/member.ts';
import { baseImageOf, makeParts } from './compose/parts.ts';
import { wire } from './compose/wiring.ts';
import { openJournal, rebuildJournal, removeLeftovers } from './compose/recovery.ts';
import type { AgentConfig } from './config.ts';
import { serveControl } from './control.ts';
import { HeapGrowth } from './heap-growth.ts';
import type { PullSettings } from './images/images.ts';
import { startPreflight } from './preflight/watch.ts';
import { awaitRunners } from './slots/await-runners.ts';
import { startSampling } from './upstream/sampling.ts';
import { makeVolumesHome } from './volumes/open.ts';

/** Time for the runner's compiler to finish when the agent stops. */
const STOP_COMPILER_MS = 5000;

export interface AgentOptions {
  /** Labels of every container beside our own. */
  readonly containerLabels?: Readonly<Record<string, string>>;
  /** Settings of GPU watching; each defaults to production's value. */
  readonly gpus?: GpuOptions;
  /** Retry settings of pulls that differ from the defaults. */
  readonly pulls?: Partial<PullSettings>;
  /** Where the Python runner comes from; the program's own by default. */
  readonly pythonSource?: string;
  /** Receives the agent's readiness and status. */
  readonly manager?: ServiceManager;
}

export interface Agent {
  /**
   * Resolves when the machine has joined, its state is rebuilt and the agent dials the scheduler. @throws StartupError
   */
  start(): Promise<void>;
  /** @param containers - `keep` leaves them running, `stop` ends them and removes the network */
  stop(containers?: 'keep' | 'stop'): Promise<void>;
  /** Resolves with the reason when the agent has ended by itself: its machine was deleted. */
  readonly ended: Promise<StartupError>;
  /** Resolves at the first welcome. */
  readonly connected: Promise<void>;
  readonly metricsAddress: string;
}

/** Builds an agent; nothing runs before `start`. */
export function createAgent(config: AgentConfig, log: Log, options: AgentOptions = {}): Agent {
  const manager = options.manager ?? NO_SERVICE_MANAGER;
  const stop: (() => Promise<void> | void)[] = [];
  const atStop: AtStop = (end) => void stop.push(end);
  const abort = new AbortController();
  let endContainers: (() => Promise<void>) | undefined;
  let metricsAddress = config.LONGSHORE_AGENT_METRICS_ADDRESS;
  const connected = Promise.withResolvers<void>();
  const ended = Promise.withResolvers<StartupError>();

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

    // The machine and its membership.
    const { pythonSource, containerLabels } = options;
    const host = await openHost({ config, log, pythonSource, atStop });
    const { stateDir, runtime, metrics, engine } = host;
    metricsAddress = host.metricsAddress;
    atStop(watchProcess(metrics.registry));
    const journal = await openJournal(host);
    const member = await joinInstallation(host, manager, containerLabels, abort.signal);

    // Every part is made and wired before any of them starts.
    let runnersConnected: Promise<void> = Promise.resolve();
    let leaving: Promise<void> | undefined;
    const leave = async (): Promise<void> =>
      ended.resolve(await leaveInstallation(host, member, async () => endContainers?.(), stopAll));
    const parts = makeParts({ host, member, journal, options, attemptsKnown: () => runnersConnected });
    wire(host, journal, parts, {
      onSession: () => manager.status(`connected as ${member.machineId()}`),
      onDisconnected: () => manager.status('not connected to the scheduler; containers go on'),
      onFirstConnected: connected.resolve,
      onRevoked: () => void (leaving ??= leave()),
    });
    const { pauseContainers, slots, compiler, volumes, agentState, gpus, loop, hostDrain, disconnects, link } = parts;

    // Stored state of each part.
    atStop(() => pauseContainers.close());
    atStop(() => parts.engineTrials.close());
    await parts.positions.open();
    atStop(() => parts.positions.close());
    await Promise.all([
      parts.archives.open(),
      parts.views.open(),
      mkdir(join(stateDir, 's'), { recursive: true, mode: 0o711 }),
    ]);
    atStop(() => Promise.race([compiler.idle(), sleep(STOP_COMPILER_MS).then(() => undefined)]));
    await parts.ledger.open();
    await makeVolumesHome(config);
    atStop(() => volumes.stop());
    volumes.start();
    await parts.contact.open();
    atStop(() => parts.contact.close());

    // The machine is checked and cleaned up.
    atStop(await startPreflight(host));
    await rebuildJournal(host, journal, member.machineIds());
    await removeLeftovers(host, journal, member.machineId(), parts);
    atStop(() => slots.close());
    atStop(() => parts.gateway.close());
    atStop(() => parts.executor.close());
    atStop(() => loop.stop());
    // Devices open before containers are taken up: a container that ends asks for its devices.
    await gpus.open();
    metrics.buildInfo.set(
      {
        version: member.joinFacts.version,
        protocol: String(PROTOCOL_VERSION),
        docker_version: engine.version,
        driver_version: gpus.driver,
      },
      1,
    );
    atStop(() => parts.cache.stop());
    atStop(() => parts.disks.stop());
    await parts.disks.start();
    parts.cache.start();

    // Containers are reconciled with the journal before the scheduler is asked: their present state, and ends that came
    // while no agent ran.
    const reconciling = { fromMs: performance.now(), before: process.cpuUsage() };
    await loop.start();
    disconnects.start();
    atStop(() => disconnects.stop());
    gpus.rebuild();
    await loop.idle();
    const { user, system } = process.cpuUsage(reconciling.before);
    log.info(
      {
        containers: agentState.attended.size,
        durationMs: Math.round(performance.now() - reconciling.fromMs),
        processorMs: Math.round((user + system) / 1000),
      },
      'containers reconciled',
    );
    gpus.start();
    atStop(() => gpus.stop());
    isTurning = () => loop.isTurning;

    // The scheduler, and this host's administration.
    manager.ready('connecting to the scheduler');
    atStop(new HeapGrowth(() => slots.taken).start());
    parts.volumeUse.start();
    atStop(() => parts.volumeUse.stop());
    parts.containerDisks.start();
    atStop(() => parts.containerDisks.stop());
    const { containerDisks, archives } = parts;
    atStop(
      startSampling({
        runtime,
        agentState,
        gpus,
        volumes,
        containerDisks,
        archives,
        metrics,
        log,
        send: (message) => link.send(message),
      }),
    );
    runnersConnected = awaitRunners(slots, [...agentState.attended], abort.signal);
    endContainers = () => endAllContainers(host, member, journal, parts);
    atStop(() => link.stop());
    link.start();
    pauseContainers.start();
    void parts.rootLimits.ask();
    const endControl = await serveControl(stateDir, async (request, tell, signal) => {
      if (request.kind === 'undrain') hostDrain.undrain();
      else if (request.kind === 'end-containers') await endContainers?.();
      else {
        const left = await hostDrain.drain(request.seconds, tell, AbortSignal.any([signal, abort.signal]));
        if (left > 0) tell(`the time is over: ${left} containers are left`);
      }
    });
    atStop(endControl);
    compiler.want(baseImageOf(host));
    const machineId = member.machineId();
    log.info({ machineId, stateDir, metricsAddress, containers: agentState.attended.size }, 'agent started');
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
    connected: connected.promise,
    ended: ended.promise,
    get metricsAddress() {
      return metricsAddress;
    },
  };
}
