// Makes the volumes of this machine's settings, with the helpers they need.
import { join, resolve } from 'node:path';
import { mkdir } from 'node:fs/promises';
import type { Log } from '#shared/log.ts';
import { volumesDownCondition } from '#shared/domain/volume-drivers.ts';
import type { AgentConfig } from '../config.ts';
import { emptyByContainer, runWithMount } from '../containers/helpers.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import { EngineError } from '../containers/runtime.ts';
import type { Conditions } from '../telemetry/conditions.ts';
import type { AgentMetrics } from '../telemetry/metrics.ts';
import { DirectoryVolumes, localRoot } from './directories.ts';
import { CacheDirectories } from './cache-directories.ts';
import type { CacheDirectoriesParts } from './cache-directories.ts';
import type { VolumeDriver } from './driver.ts';
import type { HelperMounts } from './helper-mounts.ts';
import { S3Volumes } from './helper-mounts.ts';
import type { MountHelper } from './mount-helper.ts';
import { VolumesHome } from './home.ts';
import { NFS_PREFIX, NfsVolumes, nfsExport } from './nfs.ts';
import { Volumes } from './volumes.ts';

/** Deadline for emptying a large volume by a container. */
const EMPTY_MS = 10 * 60_000;

export interface MakeVolumes {
  readonly config: AgentConfig;
  /** The agent's own state. */
  readonly stateDir: string;
  readonly runtime: ContainerRuntime;
  readonly labels: () => Readonly<Record<string, string>>;
  readonly conditions: Pick<Conditions, 'set'>;
  /** Told of mounts of cache volumes, and asked before. */
  readonly caches: Pick<CacheDirectoriesParts, 'onMount' | 'refusal'>;
  readonly metrics: Pick<AgentMetrics, 'volumeOperations'>;
  readonly helper: MountHelper;
  readonly helperMounts: HelperMounts;
  readonly log: Log;
}

/** Creates the homes of volumes on this machine, but none that the operator named: its disk may not be mounted. */
export async function makeVolumesHome(config: AgentConfig): Promise<void> {
  await mkdir(localRoot(resolve(config.LONGSHORE_DATA_DIR)), { recursive: true, mode: 0o700 });
  if (hasCaches(config) && config.LONGSHORE_AGENT_CACHE_DIR === undefined)
    await mkdir(cacheRoot(config), { recursive: true, mode: 0o700 });
}

export const cacheRoot = ({ LONGSHORE_AGENT_CACHE_DIR: root, LONGSHORE_DATA_DIR: data }: AgentConfig): string =>
  resolve(root ?? join(data, 'cache'));

/** Directories of volumes on disks of this machine. */
export const volumeHomes = (config: AgentConfig): { readonly volumes: string; readonly cache?: string } => ({
  volumes: localRoot(resolve(config.LONGSHORE_DATA_DIR)),
  ...(hasCaches(config) ? { cache: cacheRoot(config) } : {}),
});

export const hasCaches = ({ LONGSHORE_AGENT_CACHE_MIB: mib }: AgentConfig): boolean => mib !== 0;

/** The volumes of this machine, and the directories of its cache volumes. */
export function makeVolumes(parts: MakeVolumes): { volumes: Volumes; cacheDirectories: CacheDirectories } {
  const { config, runtime, labels, conditions, metrics, log } = parts;
  const local = localRoot(resolve(config.LONGSHORE_DATA_DIR));
  const empty = (path: string): Promise<void> => emptyByContainer(runtime, path, labels(), EMPTY_MS);
  const drivers: VolumeDriver[] = [new DirectoryVolumes({ name: 'local', root: local, emptyByContainer: empty })];
  const root = cacheRoot(config);
  const homeOf = (name: 'cache' | 'shared', path: string | undefined): VolumesHome | undefined =>
    path === undefined ? undefined : new VolumesHome({ name, root: resolve(path), stateDir: parts.stateDir });
  const cacheDirectories = new CacheDirectories({
    root,
    home: homeOf('cache', config.LONGSHORE_AGENT_CACHE_DIR),
    directories: new DirectoryVolumes({ name: 'cache', root, emptyByContainer: empty }),
    ...parts.caches,
  });
  if (hasCaches(config)) drivers.push(cacheDirectories);
  const shared = config.LONGSHORE_SHARED_VOLUMES_DIR;
  if (shared !== undefined)
    drivers.push(
      new DirectoryVolumes({
        name: 'shared',
        root: resolve(shared),
        home: homeOf('shared', shared),
        emptyByContainer: empty,
      }),
    );
  if (config.LONGSHORE_NFS_VOLUMES !== undefined)
    drivers.push(
      new NfsVolumes({
        export: nfsExport(config.LONGSHORE_NFS_VOLUMES, config.LONGSHORE_NFS_OPTIONS),
        labels,
        runWith: (mount, script, args, deadlineMs) => runWithMount(runtime, mount, script, args, labels(), deadlineMs),
      }),
    );
  drivers.push(new S3Volumes(parts.helper));
  const volumes = new Volumes({
    drivers,
    helperMounts: parts.helperMounts,
    labels,
    metrics,
    log,
    onDown: (driver, down, why) => conditions.set(volumesDownCondition(driver), down, why),
  });
  return { volumes, cacheDirectories };
}

/** Removes the engine's records of nfs volumes that no container mounts; the files stay. */
export async function removeUnusedNfs(runtime: ContainerRuntime, names: readonly string[]): Promise<void> {
  await removeUnused(
    runtime,
    names.filter((one) => one.startsWith(NFS_PREFIX)),
  );
}

/** Removes volumes of the engine. @returns those that a container mounts, which stay */
export async function removeUnused(runtime: ContainerRuntime, names: readonly string[]): Promise<readonly string[]> {
  const used: string[] = [];
  for (const name of names) {
    try {
      await runtime.removeVolume(name);
    } catch (error) {
      if (!(error instanceof EngineError) || error.failure !== 'conflict') throw error;
      used.push(name);
    }
  }
  return used;
}
