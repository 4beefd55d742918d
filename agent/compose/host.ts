/**
 * The agent's first steps on its machine: take the state directory, reach the engine, read the machine's facts. Also
 * opens what reports on them: the metrics page and the conditions. Called by the composition root. Must stay true: one
 * agent owns a state directory at a time, and takes it first; a failure is a sentence with its cure.
 */
import { join } from 'node:path';
import { StartupError, messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { Inventory } from '#shared/protocol/generated/messages.ts';
import type { AgentConfig } from '../config.ts';
import { closedRanges, openedRegistries, stateDirOf } from '../config.ts';
import { dockerRuntime } from '../containers/engine/docker.ts';
import { installRunner, pythonSource } from '../containers/runner-files.ts';
import type { ContainerRuntime, EngineInfo } from '../containers/runtime.ts';
import { imagesRoot } from '../images/images-root.ts';
import { PullProxy } from '../images/guard/pull-proxy.ts';
import { withGuardedPulls } from '../images/guard/guarded-pulls.ts';
import { trustFor } from '../images/guard/trust.ts';
import { RegistryGuard } from '../images/registry-guard.ts';
import { hasCode, lockStateDir, prepareStateDir } from '../durable.ts';
import { bridgeRanges, machineAddresses } from '../telemetry/addresses.ts';
import { Conditions } from '../telemetry/conditions.ts';
import { readBootId, readInventory } from '../telemetry/inventory.ts';
import { AgentMetrics } from '../telemetry/metrics.ts';
import { MetricsPage } from '../telemetry/page.ts';
import { dialThrough } from '../upstream/tunnel.ts';

/** Exit code by which scripts of the host know that the agent waits for an engine; systemd starts it again. */
const NO_ENGINE = 69;

/** Registers how to end what has begun; these functions run in reverse order. */
export type AtStop = (end: () => Promise<void> | void) => void;

export interface Host {
  readonly config: AgentConfig;
  readonly log: Log;
  readonly stateDir: string;
  readonly metrics: AgentMetrics;
  readonly conditions: Conditions;
  readonly runtime: ContainerRuntime;
  readonly engine: EngineInfo;
  /** The directory whose disk images fill. */
  readonly imagesRoot: string;
  readonly bootId: string;
  /** The Python runner that containers mount. */
  readonly runnerDir: string;
  /** Facts of the machine, read during the start, within seconds; only the link waits for them. */
  readonly inventory: Promise<Inventory>;
  /** The address on which the metrics page listens. */
  readonly metricsAddress: string;
}

export interface OpenHost {
  readonly config: AgentConfig;
  readonly log: Log;
  /** Where the Python runner comes from; the program's own by default. */
  readonly pythonSource: string | undefined;
  readonly atStop: AtStop;
}

/** @throws StartupError for the state directory, the engine (`no_docker`, `docker_forbidden`) or the page's address */
export async function openHost(parts: OpenHost): Promise<Host> {
  const { config, log, atStop } = parts;
  const stateDir = await prepareStateDir(stateDirOf(config));
  atStop(await lockStateDir(stateDir));
  const metrics = new AgentMetrics();
  const docker = dockerRuntime(config.DOCKER_HOST, (operation, result, seconds) =>
    metrics.dockerApi.observe({ operation, result }, seconds),
  );
  const guard = new RegistryGuard({
    opened: openedRegistries(config),
    closedRanges: closedRanges(config),
    ownAddresses: () => machineAddresses().own,
    bridgeRanges: async () => [
      ...((await docker.lookAtNetwork(config.LONGSHORE_AGENT_NETWORK))?.subnets ?? []),
      ...bridgeRanges(),
    ],
  });
  const pullProxy = new PullProxy();
  const runtime = withGuardedPulls(docker, {
    guard,
    proxy: () => (pullProxy.isOpen ? pullProxy : undefined),
    settings: docker.registrySettings,
    proxies: config,
    tunnel: dialThrough,
    trustFor,
  });
  const conditions = new Conditions();
  metrics.setConditions(conditions.names);
  conditions.onChange((held) => metrics.setConditions(held));
  const engine = await reachEngine(runtime, config.DOCKER_HOST);
  await openPullProxy(pullProxy, config, engine, log);
  atStop(() => pullProxy.stop());
  const imagesPath = await imagesRoot(engine);
  const inventory = readInventory(config, engine, { state: stateDir, images: imagesPath });
  const [bootId, runnerDir] = await Promise.all([
    readBootId(),
    installRunner(parts.pythonSource ?? pythonSource(), join(stateDir, 'runner')),
  ]);
  const page = new MetricsPage(config, metrics);
  await page.start();
  atStop(() => page.stop());
  const metricsAddress = page.address;
  return {
    config,
    log,
    stateDir,
    metrics,
    conditions,
    runtime,
    engine,
    imagesRoot: imagesPath,
    bootId,
    runnerDir,
    inventory,
    metricsAddress,
  };
}

/** Opens the proxy from which the engine pulls, where the engine reaches this loopback. */
async function openPullProxy(
  proxy: PullProxy,
  { LONGSHORE_AGENT_PULL_ADDRESS: address, DOCKER_HOST: engineAt = '' }: AgentConfig,
  { rootless }: EngineInfo,
  log: Log,
): Promise<void> {
  const isElsewhere =
    rootless || (engineAt.startsWith('tcp:') && !/^tcp:\/\/(?:127\.|localhost\b|\[::1\])/.test(engineAt));
  if (address === 'off' || isElsewhere) {
    log.warn('the engine asks registries itself: their redirects and token servers are not checked');
    return;
  }
  try {
    await proxy.start(address);
  } catch (error) {
    throw new StartupError(
      'bad_config',
      `LONGSHORE_AGENT_PULL_ADDRESS: ${address} cannot be opened (${messageOf(error)}); name another port, 127.0.0.1:0 for any, or off (docs/settings.md)`,
      { cause: error },
    );
  }
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
      { cause: error, exitCode: NO_ENGINE },
    );
  }
}
