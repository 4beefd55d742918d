import type { ContainerRuntime, EngineInfo } from '../runtime.ts';
import type { EngineClient } from './client.ts';
import { readMemoryNodes } from './memory-nodes.ts';

/** How the engine reaches registries. */
export interface RegistrySettings {
  /** Registries by name, and ranges of addresses, that it asks without TLS, or without a check of certificates. */
  readonly insecure: readonly string[];
  /** As in its environment; users and passwords are masked. Empty: none. */
  readonly proxies: { readonly HTTP_PROXY: string; readonly HTTPS_PROXY: string; readonly NO_PROXY: string };
}

export interface EngineFacts extends Pick<ContainerRuntime, 'ping' | 'info'> {
  readonly registrySettings: () => Promise<RegistrySettings>;
  /** Whether the engine labels containers for SELinux, by its last answer; asked once. */
  readonly hasSelinux: () => Promise<boolean>;
  /** Memory nodes for containers without a GPU, as in `readMemoryNodes`; read once. */
  readonly memoryNodes: () => Promise<string | undefined>;
}

export function engineFacts(engine: EngineClient): EngineFacts {
  let known: boolean | undefined;
  let nodes: Promise<string | undefined> | undefined;
  const info = async (): Promise<EngineInfo> => {
    const facts = await readInfo(engine);
    known = facts.selinux;
    return facts;
  };
  return {
    ping: async () => void (await engine.call('ping', () => engine.docker.ping(), 5000)),
    info,
    registrySettings: () => readRegistrySettings(engine),
    hasSelinux: async () => known ?? (await info()).selinux,
    memoryNodes: () => (nodes ??= readMemoryNodes()),
  };
}

async function readInfo(engine: EngineClient): Promise<EngineInfo> {
  const info = (await engine.call('info', () => engine.docker.info())) as {
    ServerVersion: string;
    NCPU: number;
    MemTotal: number;
    DockerRootDir: string;
    Driver: string;
    DriverStatus?: readonly (readonly string[])[] | null;
    Containerd?: { readonly Address?: string } | null;
    CgroupVersion?: string;
    CgroupDriver?: string;
    MemoryLimit?: boolean;
    SwapLimit?: boolean;
    CpuCfsQuota?: boolean;
    PidsLimit?: boolean;
    SecurityOptions?: readonly string[] | null;
    LiveRestoreEnabled?: boolean;
    Runtimes?: Readonly<Record<string, unknown>> | null;
    CDISpecDirs?: readonly string[] | null;
    DiscoveredDevices?: readonly { readonly Source?: string; readonly ID?: string }[] | null;
  };
  const secured = (name: string): boolean =>
    (info.SecurityOptions ?? []).some((option) => option.split(',')[0] === `name=${name}`);
  return {
    version: info.ServerVersion,
    cores: info.NCPU,
    memoryBytes: info.MemTotal,
    rootDir: info.DockerRootDir,
    storageDriver: info.Driver,
    containerd: {
      hasImages: (info.DriverStatus ?? []).some(
        ([name, value]) => name === 'driver-type' && value === 'io.containerd.snapshotter.v1',
      ),
      address: info.Containerd?.Address ?? '',
    },
    cgroup: `v${info.CgroupVersion ?? '1'} ${info.CgroupDriver ?? ''}`.trim(),
    limits: {
      memory: info.MemoryLimit === true,
      swap: info.SwapLimit === true,
      cpu: info.CpuCfsQuota === true,
      pids: info.PidsLimit === true,
    },
    userNamespaces: secured('userns'),
    rootless: secured('rootless'),
    selinux: secured('selinux'),
    liveRestore: info.LiveRestoreEnabled === true,
    nvidia: Object.hasOwn(info.Runtimes ?? {}, 'nvidia'),
    cdi: {
      dirs: info.CDISpecDirs ?? [],
      devices: info.DiscoveredDevices?.flatMap(({ Source, ID }) => (Source === 'cdi' ? (ID ?? []) : [])),
    },
  };
}

async function readRegistrySettings(engine: EngineClient): Promise<RegistrySettings> {
  const info = (await engine.call('info', () => engine.docker.info())) as {
    readonly HttpProxy?: string;
    readonly HttpsProxy?: string;
    readonly NoProxy?: string;
    readonly RegistryConfig?: {
      readonly InsecureRegistryCIDRs?: readonly string[] | null;
      readonly IndexConfigs?: Readonly<Record<string, { readonly Secure?: boolean }>> | null;
    } | null;
  };
  const { InsecureRegistryCIDRs, IndexConfigs } = info.RegistryConfig ?? {};
  const names = Object.entries(IndexConfigs ?? {}).flatMap(([name, { Secure }]) => (Secure === false ? [name] : []));
  return {
    insecure: [...names, ...(InsecureRegistryCIDRs ?? [])],
    proxies: {
      HTTP_PROXY: info.HttpProxy ?? '',
      HTTPS_PROXY: info.HttpsProxy ?? '',
      NO_PROXY: info.NoProxy ?? '',
    },
  };
}
