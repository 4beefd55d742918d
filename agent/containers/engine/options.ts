// Translates the port's terms into plain option objects of the engine's API; containers.ts makes the calls.
import { randomBytes } from 'node:crypto';
import { cdiNameOf, uuidOfCdi } from '../cdi.ts';
import type { CreateContainer, GpuRequest, Mount } from '../runtime.ts';

/** Limit for a container that names none: our own helpers and pause containers. */
const PIDS_LIMIT = 4096;

/** Connection options for the engine; an undefined host means the usual socket. */
export function connectionOptions(
  host: string | undefined,
): { readonly socketPath: string } | { readonly protocol: 'http'; readonly host: string; readonly port: number } {
  if (host === undefined) return { socketPath: '/var/run/docker.sock' };
  if (host.startsWith('unix://')) return { socketPath: host.slice('unix://'.length) || '/var/run/docker.sock' };
  const url = new URL(host);
  return {
    protocol: 'http',
    host: url.hostname.replace(/^\[|\]$/g, ''),
    port: url.port === '' ? 2375 : Number(url.port),
  };
}

/**
 * Create options of a container, as confined as we can make it: no capability but those named, no new privileges,
 * limits on everything.
 * The type is the literal's; containers.ts checks it against the engine's.
 * @param engine - `selinux`: the engine labels containers. Their policy lets none connect to a socket of the
 * agent, for any label of the socket's file (decision 0116). `memoryNodes`: those of the host's own memory, where GPUs
 * have some, too (decision 0321)
 */
export function createOptions(
  spec: CreateContainer,
  engine: { readonly selinux: boolean; readonly memoryNodes?: string | undefined } = { selinux: false },
) {
  return {
    name: spec.name,
    Image: spec.image,
    // An empty command beside our entrypoint leaves out both of the image's own.
    Entrypoint: [...spec.entrypoint],
    Cmd: [],
    WorkingDir: spec.workingDir,
    ...(spec.user === undefined ? {} : { User: spec.user }),
    Env: [...spec.env],
    Labels: { ...spec.labels },
    // Readiness comes from the runner; the image's own health check would only cost time.
    Healthcheck: { Test: ['NONE'] },
    HostConfig: {
      NetworkMode: spec.network,
      CapDrop: ['ALL'],
      ...(spec.capabilities === undefined ? {} : { CapAdd: [...spec.capabilities] }),
      SecurityOpt: ['no-new-privileges', ...(engine.selinux ? ['label=disable'] : [])],
      Init: spec.init ?? true,
      ...(spec.readOnlyRoot === undefined ? {} : { ReadonlyRootfs: spec.readOnlyRoot }),
      PidsLimit: spec.pids ?? PIDS_LIMIT,
      Memory: spec.memoryBytes,
      MemorySwap: spec.memoryBytes,
      NanoCpus: spec.cpuMillicores * 1_000_000,
      ...(engine.memoryNodes === undefined || spec.gpus !== undefined ? {} : { CpusetMems: engine.memoryNodes }),
      ...(spec.rootBytes === undefined ? {} : { StorageOpt: { size: String(spec.rootBytes) } }),
      ...(spec.shmBytes === undefined ? {} : { ShmSize: spec.shmBytes }),
      Ulimits: [
        // A core dump is as large as the process, and may be written outside the container's disk limit.
        { Name: 'core', Soft: 0, Hard: 0 },
        ...(spec.openFiles === undefined ? [] : [{ Name: 'nofile', Soft: spec.openFiles, Hard: spec.openFiles }]),
      ],
      ...(spec.gpus === undefined
        ? {}
        : {
            DeviceRequests: [deviceRequest(spec.gpus)],
          }),
      RestartPolicy: { Name: 'no' },
      AutoRemove: false,
      LogConfig: { Type: 'json-file', Config: { 'max-size': '10m', 'max-file': '3' } },
      Mounts: spec.mounts.map(mountOptions),
    },
  };
}

const deviceRequest = ({ driver, uuids, capabilities }: GpuRequest) =>
  driver === 'cdi'
    ? { Driver: driver, DeviceIDs: uuids.map(cdiNameOf) }
    : { Driver: driver, DeviceIDs: [...uuids], Capabilities: [['gpu', ...capabilities]] };

/** UUIDs in the device request of a container. */
export const gpusOfRequest = (request: {
  readonly Driver?: string | undefined;
  readonly DeviceIDs?: string[] | null | undefined;
}): string[] =>
  request.Driver === 'cdi'
    ? (request.DeviceIDs ?? []).flatMap((name) => uuidOfCdi(name) ?? [])
    : request.Driver === 'nvidia'
      ? (request.DeviceIDs ?? [])
      : [];

/** Whether the runtime knows all of a container's devices, so that nothing takes them away. */
export const isByCdi = (requests: readonly { readonly Driver?: string | undefined }[]): boolean =>
  requests.length > 0 && requests.every(({ Driver }) => Driver === 'cdi');

/**
 * GPUs that a container may use, for every owner and every way of asking. `all`: any device, or devices without a UUID
 * there; empty: none.
 */
export function gpusInUse(facts: {
  readonly Config: { readonly Env?: readonly string[] | null };
  readonly HostConfig: {
    readonly Runtime?: string | undefined;
    readonly Devices?: readonly { readonly PathOnHost?: string }[] | null | undefined;
    readonly DeviceRequests?:
      | readonly {
          readonly Driver?: string | undefined;
          readonly Count?: number | undefined;
          readonly DeviceIDs?: string[] | null | undefined;
          readonly Capabilities?: readonly (readonly string[])[] | null | undefined;
        }[]
      | null
      | undefined;
  };
}): readonly string[] | 'all' {
  const { Runtime, Devices, DeviceRequests } = facts.HostConfig;
  if ((Devices ?? []).some(({ PathOnHost = '' }) => PathOnHost.startsWith('/dev/nvidia'))) return 'all';
  const requests = (DeviceRequests ?? []).filter(
    ({ Driver = '', DeviceIDs, Capabilities }) =>
      Driver.startsWith('nvidia') ||
      (DeviceIDs ?? []).some((name) => name.startsWith('nvidia.com/')) ||
      (Capabilities ?? []).flat().includes('gpu'),
  );
  const names = requests.flatMap(({ DeviceIDs }) => DeviceIDs ?? []).map((name) => uuidOfCdi(name) ?? name);
  if (Runtime === 'nvidia') {
    const asked = (facts.Config.Env ?? []).findLast((one) => one.startsWith('NVIDIA_VISIBLE_DEVICES='));
    const devices = asked?.slice('NVIDIA_VISIBLE_DEVICES='.length) ?? '';
    if (!['', 'void', 'none'].includes(devices)) names.push(...devices.split(','));
  }
  if (requests.some(({ DeviceIDs }) => (DeviceIDs ?? []).length === 0)) return 'all';
  return names.every((name) => /^(?:GPU|MIG)-/.test(name)) ? names : 'all';
}

/** A container that is created and never started: an engine whose storage cannot limit a root refuses to create it. */
export const rootLimitTrial = (image: string, labels: Readonly<Record<string, string>>): CreateContainer => ({
  name: `c-trial-${randomBytes(6).toString('hex')}`,
  image,
  entrypoint: ['sh'],
  workingDir: '/',
  env: [],
  labels,
  mounts: [],
  network: 'none',
  memoryBytes: 32 * 1024 * 1024,
  cpuMillicores: 1000,
  rootBytes: 64 * 1024 * 1024,
});

/** A mount in the engine's terms. */
export function mountOptions(mount: Mount) {
  if (mount.kind === 'bind' || mount.volume === undefined)
    return {
      Type: 'bind' as const,
      Source: mount.source,
      Target: mount.target,
      ReadOnly: mount.readOnly,
      BindOptions: { Propagation: 'rprivate' as const },
    };
  return {
    Type: 'volume' as const,
    Source: mount.volume.name,
    Target: mount.target,
    ReadOnly: mount.readOnly,
    VolumeOptions: {
      NoCopy: true,
      Labels: { ...mount.volume.labels },
      DriverConfig: { Name: 'local', Options: { ...mount.volume.options } },
    },
  };
}
