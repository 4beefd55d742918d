// What this machine is and offers: read once, by systeminformation, for the registration.
import { readFile } from 'node:fs/promises';
import { hostname, totalmem } from 'node:os';
import type { Inventory } from '#shared/protocol/generated/messages.ts';
import type { AgentConfig } from '../config.ts';
import type { EngineInfo } from '../containers/runtime.ts';

const MAX_IMAGES = 200;

/** The part of the inventory that does not change while the agent runs. */
export async function readInventory(config: AgentConfig, engine: EngineInfo): Promise<Inventory> {
  const { default: si } = await import('systeminformation');
  const [os, memory] = await Promise.all([si.osInfo(), si.mem()]);
  const memoryBytes = Math.min(memory.total || totalmem(), engine.memoryBytes || Number.MAX_SAFE_INTEGER);
  return {
    hostname: hostname(),
    os: `${os.distro} ${os.release}`.trim(),
    arch: os.arch === 'x64' ? 'x86_64' : os.arch,
    kernel: os.kernel,
    dockerVersion: engine.version,
    cpuMillicores: Math.round((config.LONGSHORE_AGENT_CPU ?? engine.cores) * 1000),
    memoryBytes: config.LONGSHORE_AGENT_MEMORY === undefined ? memoryBytes : config.LONGSHORE_AGENT_MEMORY * 1024 ** 2,
    gpus: [],
  };
}

export const withImages = (inventory: Inventory, images: readonly string[]): Inventory => ({
  ...inventory,
  images: images.slice(0, MAX_IMAGES),
});

/** Changes with every boot of the host. */
export async function readBootId(): Promise<string> {
  return (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
}

/** The same for this machine whatever is installed on it, as far as it can be. */
export async function readMachineFingerprint(): Promise<string> {
  const id = await readFile('/etc/machine-id', 'utf8').catch(() => '');
  return id.trim() === '' ? hostname() : id.trim();
}
