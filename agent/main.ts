/**
 * The agent's composition root, in three steps: the parts are built (compose/parts.ts), wired (compose/wiring.ts), and
 * started in order (compose/lifecycle.ts). Called by the command line (process.ts) and by tests. Must stay true:
 * nothing happens on import; stopping leaves containers running (stop is not drain) unless told otherwise; a failure
 * to start is a sentence with its cure.
 */
import type { StartupError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { watchProcess } from '#shared/process-metrics.ts';
import type { ServiceManager } from '#shared/service-manager.ts';
import { NO_SERVICE_MANAGER } from '#shared/service-manager.ts';
import { endAllContainers, leaveInstallation } from './compose/teardown.ts';
import type { GpuOptions } from './compose/gpus.ts';
import type { AtStop } from './compose/host.ts';
import { openHost } from './compose/host.ts';
import { startOrder } from './compose/lifecycle.ts';
import { joinInstallation } from './compose/member.ts';
import { makeParts } from './compose/parts.ts';
import { openJournal } from './compose/recovery.ts';
import { wire } from './compose/wiring.ts';
import type { AgentConfig } from './config.ts';
import { controlOf } from './control.ts';
import type { PullSettings } from './images/images.ts';

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
  let isTurning = (): boolean => true;
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
    manager.watch(() => isTurning());

    // The machine and its membership.
    const { pythonSource, containerLabels } = options;
    const host = await openHost({ config, log, pythonSource, atStop });
    metricsAddress = host.metricsAddress;
    atStop(watchProcess(host.metrics.registry));
    const journal = await openJournal(host);
    const member = await joinInstallation(host, manager, containerLabels, abort.signal);

    const parts = makeParts({ host, member, journal, options });
    let leaving: Promise<void> | undefined;
    const leave = async (): Promise<void> =>
      ended.resolve(await leaveInstallation(host, member, async () => endContainers?.(), stopAll));
    wire(host, journal, parts, {
      onSession: () => manager.status(`connected as ${member.machineId()}`),
      onDisconnected: () => manager.status('not connected to the scheduler; containers go on'),
      onFirstConnected: connected.resolve,
      onRevoked: () => void (leaving ??= leave()),
    });
    const onReconciled = (): void => {
      isTurning = () => parts.loop.isTurning;
      endContainers = () => endAllContainers(host, member, journal, parts);
    };
    const serve = controlOf(parts.hostDrain, async () => endContainers?.(), abort.signal);
    for (const part of startOrder({ host, member, journal, parts, manager, onReconciled, serve })) {
      await part.start?.(abort.signal);
      atStop(() => part.stop?.());
    }
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
