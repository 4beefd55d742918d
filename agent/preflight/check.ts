/**
 * `longshore agent check`: checks everything that this machine needs to take work, without starting anything. At its
 * start the agent checks the part that no other condition watches (the engine's abilities); a failure there is the
 * condition Preflight.
 */
import { StartupError, messageOf } from '#shared/errors.ts';
import type { AgentConfig } from '../config.ts';
import { readReleases } from '../bases/apt.ts';
import { imageOf, loadAgentConfig, makesBaseImages, stateDirOf } from '../config.ts';
import { dockerRuntime } from '../containers/engine/docker.ts';
import type { ContainerRuntime, EngineInfo } from '../containers/runtime.ts';
import { NvidiaSmi, PROBE_DEADLINE_MS } from '../devices/nvidia-smi.ts';
import { readPciGpus } from '../devices/pci.ts';
import { imagesRoot } from '../images/images-root.ts';
import { readHostFacts } from '../telemetry/host-facts.ts';
import { IdentityFile } from '../upstream/identity.ts';
import type { Identity } from '../upstream/identity.ts';
import { engineFailure, engineFindings } from './engine.ts';
import type { Finding } from './finding.ts';
import type { Rules } from './firewall.ts';
import { UNKNOWN_RULES, firewallFindings, readFirewall } from './firewall.ts';
import { failed, ok, warning } from './finding.ts';
import { MISSING_GPU_STEP, missingGpus } from './missing-gpus.ts';
import { conditionFindings, kernelLogFinding, readFabric, toolkitFindings } from './gpus.ts';
import { mountsFinding } from './mounts.ts';
import { diskFindings, gpuFinding, imageFinding, madeImageFinding, portFinding, stateFinding } from './host.ts';
import { inventoryFindings } from './inventory.ts';
import { schedulerFindings } from './scheduler.ts';
import { checkSettings } from './service-settings.ts';

const ASK_REGISTRY_MS = 8000;

/** All checks, in the order in which faults should be repaired. Works without an agent, and disturbs none. */
export async function checkMachine(env: Readonly<Record<string, string | undefined>>): Promise<Finding[]> {
  let config: AgentConfig;
  let file: string;
  try {
    const settings = await checkSettings(env);
    file = settings.file;
    config = loadAgentConfig(settings.env);
  } catch (error) {
    const isHidden = error instanceof StartupError && error.code === 'settings_not_readable';
    const remedy = isHidden ? 'sudo longshore agent check' : 'docs/settings.md has all of them';
    return [failed('settings', messageOf(error), remedy)];
  }
  const stateDir = stateDirOf(config);
  const runtime = dockerRuntime(config.DOCKER_HOST);
  const [{ info, findings }, state, identity] = await Promise.all([
    askEngine(runtime, config.DOCKER_HOST),
    stateFinding(stateDir, false),
    identityIn(stateDir),
  ]);
  const [inventory, firewall, disks, port, gpu, image, buckets, scheduler] = await Promise.all([
    lookAtHost(stateDir, info),
    info === undefined ? [] : lookAtFirewall(config, runtime),
    diskFindings(config, stateDir, info),
    portFinding(config.LONGSHORE_AGENT_METRICS_ADDRESS, state.inUse),
    lookAtGpus(config, info),
    info === undefined ? [] : baseImage(config, runtime),
    mountsFinding(config),
    schedulerFindings(config, identity),
  ]);
  const { inUse: _told, ...stateOnly } = state;
  return [
    ok('settings', `as they should be${file === '' ? '' : `, with those of ${file}`}`),
    ...inventory,
    ...findings,
    stateOnly,
    ...disks,
    port,
    ...firewall,
    ...gpu,
    ...image,
    buckets,
    ...scheduler,
  ];
}

/** The checks of an agent's start, repeated while one of them fails. */
export async function checkEngine(config: AgentConfig, runtime: ContainerRuntime): Promise<Finding[]> {
  return [...(await askEngine(runtime, config.DOCKER_HOST)).findings];
}

/**
 * Checks of a running agent's host, whose warnings no condition carries.
 * @param readRules - reads the host's packet rules, which the service itself may not
 */
export async function checkHost(
  config: AgentConfig,
  runtime: ContainerRuntime,
  readRules: () => Promise<Rules>,
): Promise<Finding[]> {
  const { info, findings } = await askEngine(runtime, config.DOCKER_HOST);
  const ofEngine = info === undefined ? [] : [lookAtFirewall(config, runtime, readRules), baseImage(config, runtime)];
  const [disks, gpus, ...others] = await Promise.all([
    diskFindings(config, stateDirOf(config), info),
    lookAtGpus(config, info),
    ...ofEngine,
  ]);
  return [...findings, ...disks, ...others.flat(), ...gpus];
}

async function askEngine(
  runtime: ContainerRuntime,
  host: string | undefined,
): Promise<{ readonly info: EngineInfo | undefined; readonly findings: readonly Finding[] }> {
  try {
    const info = await runtime.info();
    return { info, findings: engineFindings(info) };
  } catch (error) {
    return { info: undefined, findings: [engineFailure(error, host)] };
  }
}

async function lookAtHost(stateDir: string, info: EngineInfo | undefined): Promise<Finding[]> {
  const images = info === undefined ? {} : { images: await imagesRoot(info) };
  return inventoryFindings(await readHostFacts({ holds: { state: stateDir, ...images } }));
}

async function lookAtFirewall(
  config: AgentConfig,
  runtime: ContainerRuntime,
  readRules?: () => Promise<Rules>,
): Promise<Finding[]> {
  const name = config.LONGSHORE_AGENT_NETWORK;
  try {
    // An engine that starts no helper has a condition of its own.
    const read = readRules && (() => readRules().catch(() => UNKNOWN_RULES));
    return firewallFindings(await readFirewall(await runtime.lookAtNetwork(name), read));
  } catch (error) {
    return [
      failed(
        'container network',
        messageOf(error),
        'containers of different workspaces must not share a bridge on which they reach each other',
      ),
    ];
  }
}

async function lookAtGpus(config: AgentConfig, info: EngineInfo | undefined): Promise<Finding[]> {
  const smi = new NvidiaSmi(config.LONGSHORE_NVIDIA_SMI, PROBE_DEADLINE_MS);
  const pci = await readPciGpus();
  const listing = await smi.list(pci.map(({ busId }) => ({ uuid: '', busId })));
  const missing = await missingGpus(config, listing, pci);
  const gpu = [
    await gpuFinding(listing, info),
    ...missing.map((fault) => warning('gpu missing', fault, MISSING_GPU_STEP)),
  ];
  if (listing.kind !== 'listed' || listing.rows.length === 0) return gpu;
  return [
    ...gpu,
    ...conditionFindings(await smi.conditions(listing.rows), await readFabric()),
    ...(await toolkitFindings()),
    await kernelLogFinding(),
  ];
}

async function baseImage(config: AgentConfig, runtime: ContainerRuntime): Promise<Finding[]> {
  const image = imageOf(config, '', '');
  const images = await runtime.listImages().catch((): string[] => []);
  const present = images.includes(image);
  if (!present && makesBaseImages(config)) return [madeImageFinding(image, [...(await readReleases()).keys()])];
  const noAnswer = present ? '' : await registrySays(runtime, image);
  return [imageFinding(image, present, noAnswer)];
}

/** @returns why the registry does not give the image; empty: it would */
async function registrySays(runtime: ContainerRuntime, image: string): Promise<string> {
  try {
    await runtime.registryDigest(image, undefined, ASK_REGISTRY_MS);
    return '';
  } catch (error) {
    return messageOf(error);
  }
}

async function identityIn(stateDir: string): Promise<Identity | undefined> {
  // A file that this user cannot read counts as none: the `state` finding reports it.
  return await new IdentityFile(stateDir).open().catch(() => undefined);
}
