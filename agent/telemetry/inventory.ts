// The machine's facts for its registration, read once.
import { readFile } from 'node:fs/promises';
import { arch, hostname, release, totalmem } from 'node:os';
import { readLabels } from '#shared/domain/labels.ts';
import type { Inventory, NumaNode } from '#shared/protocol/generated/messages.ts';
import type { AgentConfig } from '../config.ts';
import type { EngineInfo } from '../containers/runtime.ts';
import { readHostFacts, readOsName } from './host-facts.ts';

const MAX_IMAGES = 200;

/** The part of the inventory that does not change while the agent runs. @param holds - as in `readHostFacts` */
export async function readInventory(
  config: AgentConfig,
  engine: EngineInfo,
  holds: Readonly<Record<string, string>>,
): Promise<Inventory> {
  const [os, host] = await Promise.all([readOsName(), readHostFacts({ holds })]);
  const total = Math.min(totalmem(), engine.memoryBytes || Number.MAX_SAFE_INTEGER);
  const memoryBytes = hostMemory(total, host.numaNodes ?? []);
  return {
    hostname: hostname(),
    os,
    arch: arch() === 'x64' ? 'x86_64' : arch(),
    kernel: release(),
    host,
    dockerVersion: engine.version,
    cpuMillicores: Math.round((config.LONGSHORE_AGENT_CPU ?? engine.cores) * 1000),
    memoryBytes: config.LONGSHORE_AGENT_MEMORY === undefined ? memoryBytes : config.LONGSHORE_AGENT_MEMORY * 1024 ** 2,
    labels: readLabels(config.LONGSHORE_AGENT_LABELS),
    gpus: [],
  };
}

/**
 * Memory of the host without that of GPUs, which GH200 and GB200 bring online as NUMA nodes without processors. Pure.
 * @param totalBytes - memory of all nodes, as the kernel counts it
 */
export function hostMemory(totalBytes: number, nodes: readonly NumaNode[]): number {
  const sum = (some: readonly NumaNode[]): number => some.reduce((all, node) => all + Number(node.memoryBytes ?? 0), 0);
  const withCpus = nodes.filter(({ cpus = '' }) => cpus !== '');
  return withCpus.length === 0 || sum(withCpus) === sum(nodes) ? totalBytes : Math.min(totalBytes, sum(withCpus));
}

export const withImages = (inventory: Inventory, images: readonly string[]): Inventory => ({
  ...inventory,
  images: images.slice(0, MAX_IMAGES),
});

/** The boot id, which changes with every boot of the host. */
export async function readBootId(): Promise<string> {
  return (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
}

/** A fingerprint of the machine that survives reinstallation as far as possible. */
export async function readMachineFingerprint(): Promise<string> {
  const id = await readFile('/etc/machine-id', 'utf8').catch(() => '');
  return id.trim() === '' ? hostname() : id.trim();
}
