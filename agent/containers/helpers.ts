// Short-lived containers of our own, for work that this process may not do itself, or that needs a Python.
import { randomBytes } from 'node:crypto';
import { dirname } from 'node:path';
import { PAUSE_IMAGE, ensurePauseImage } from './pause-image.ts';
import type { ContainerRuntime, CreateContainer, Mount } from './runtime.ts';
import { RUNNER_TARGET } from './spec.ts';

const HELPER_DEADLINE_MS = 60_000;
const HELPER_MEMORY_BYTES = 256 * 1024 * 1024;

export const helper = (
  image: string,
  entrypoint: readonly string[],
  mounts: readonly Mount[],
  labels: Readonly<Record<string, string>>,
): CreateContainer => ({
  name: `c-helper-${randomBytes(6).toString('hex')}`,
  image,
  entrypoint,
  workingDir: '/',
  env: [],
  labels,
  mounts,
  network: 'none',
  memoryBytes: HELPER_MEMORY_BYTES,
  cpuMillicores: 1000,
});

/** Bound on open files: no program needs more, and some close all of them one by one. */
const MAX_OPEN_FILES = 65_536;

/** Parses a limit from `ulimit -Hn` for use as a container's. */
export function openFilesOf(printed: string): number {
  const limit = Number(printed.trim());
  return Number.isInteger(limit) && limit > 0 ? Math.min(limit, MAX_OPEN_FILES) : MAX_OPEN_FILES;
}

/** @returns the engine's limit of open files for a container */
export async function openFilesByContainer(
  runtime: ContainerRuntime,
  labels: Readonly<Record<string, string>>,
): Promise<number> {
  await ensurePauseImage(runtime);
  let printed = '';
  const spec = helper(PAUSE_IMAGE, ['sh', '-c', 'ulimit -Hn'], [], labels);
  const code = await runtime.runOnce(spec, HELPER_DEADLINE_MS, (line) => (printed ||= line));
  if (code !== 0 || printed === '') throw new Error(`helper container exited with ${code}`);
  return openFilesOf(printed);
}

/** Empties a folder whose files belong to users of containers. */
export async function emptyByContainer(
  runtime: ContainerRuntime,
  path: string,
  labels: Readonly<Record<string, string>>,
  deadlineMs = HELPER_DEADLINE_MS,
): Promise<void> {
  const mount: Mount = { kind: 'bind', target: '/target', readOnly: false, source: path };
  await runWithMount(runtime, mount, 'rm -rf /target/..?* /target/.[!.]* /target/*', [], labels, deadlineMs);
}

/**
 * Runs a shell script over a mount, past the permissions of its files. Must stay true: only a program of ours, from the
 * image of pause containers (or a base image, `serveFiles`), gets that capability.
 * @param args - `$1`, `$2`, …
 */
export async function runWithMount(
  runtime: ContainerRuntime,
  mount: Mount,
  script: string,
  args: readonly string[],
  labels: Readonly<Record<string, string>>,
  deadlineMs: number,
): Promise<void> {
  await ensurePauseImage(runtime);
  const spec = helper(PAUSE_IMAGE, ['sh', '-c', script, 'sh', ...args], [mount], labels);
  const code = await runtime.runOnce({ ...spec, capabilities: ['DAC_OVERRIDE', 'FOWNER'] }, deadlineMs);
  if (code !== 0) throw new Error(`helper container exited with ${code}`);
}

/** The module of the runner's folder that serves a volume's files. */
const FILE_SERVER = 'longshore.volume_files';
/** Bound on the processes and threads of a file server: one for each transfer. */
const FILE_SERVER_PIDS = 128;

export interface FileServer {
  /** Id of a base image, whose Python is trusted. */
  readonly image: string;
  readonly runnerDir: string;
  /** Directory with the socket that the server dials. */
  readonly socketDir: string;
  /** The volume, at `/volume`. */
  readonly volume: Mount;
  readonly labels: Readonly<Record<string, string>>;
  readonly deadlineMs: number;
}

/**
 * Serves the files of one volume, past their permissions, until the program ends. Must stay true: the program is ours,
 * and its image is one of the operator's base images; a tenant's image never gets these capabilities.
 */
export async function serveFiles(runtime: ContainerRuntime, server: FileServer): Promise<void> {
  const mounts: Mount[] = [
    { kind: 'bind', target: '/run/longshore', readOnly: true, source: server.socketDir },
    { kind: 'bind', target: RUNNER_TARGET, readOnly: true, source: server.runnerDir },
    server.volume,
  ];
  const lines: string[] = [];
  const code = await runtime.runOnce(
    {
      ...helper(server.image, ['python3', '-m', FILE_SERVER], mounts, server.labels),
      env: [`PYTHONPATH=${RUNNER_TARGET}`, 'PYTHONUNBUFFERED=1', 'PYTHONDONTWRITEBYTECODE=1'],
      // A base image may name another user.
      user: '0:0',
      readOnlyRoot: true,
      pids: FILE_SERVER_PIDS,
      capabilities: ['CHOWN', 'DAC_OVERRIDE', 'FOWNER'],
    },
    server.deadlineMs,
    (line) => {
      if (lines.push(line) > 20) lines.shift();
    },
  );
  if (code !== 0) throw new Error(`the file server exited with ${code}: ${lines.join(' ').slice(0, 1000)}`);
}

/** Deadline of a count of one container's files, of which others wait for the next. */
export const CONTAINER_COUNT_MS = 20_000;
/** Bounds of a count of volumes: for each of them, together, and at once. */
const VOLUME_COUNT_SECONDS = 4;
const VOLUMES_COUNT_MS = 20_000;
const VOLUMES_AT_ONCE = 16;
/** Bound on the folders of one helper: their paths are its arguments. */
const VOLUMES_EACH_HELPER = 512;
const BEGUN = 'begun';

/**
 * Counts blocks of folders of the engine's volumes, for every owner, by one helper. Each folder has its own time, and
 * a slow one costs no other its count. The helper mounts the directory of all volumes: a mount for each folder would
 * cost the engine two calls, and one that is gone would cost all others their count.
 * @returns bytes by folder; those that could not be counted are absent
 * @throws Error when the helper did not begin: that is the machine's fault, and says nothing about a folder
 */
export async function countVolumesByContainer(
  runtime: ContainerRuntime,
  folders: readonly string[],
  labels: Readonly<Record<string, string>>,
): Promise<ReadonlyMap<string, number>> {
  await ensurePauseImage(runtime);
  const found = new Map<string, number>();
  for (let from = 0; from < folders.length; from += VOLUMES_EACH_HELPER) {
    const some = folders.slice(from, from + VOLUMES_EACH_HELPER);
    const roots = [...new Set(some.map((folder) => dirname(dirname(folder))))];
    const mounts = roots.map((root, at) => folderMount(`${randomBytes(6).toString('hex')}-${at}`, root, at, labels));
    const folderOf = new Map(
      some.map((folder) => {
        const root = dirname(dirname(folder));
        return [`/target/${roots.indexOf(root)}${folder.slice(root.length)}`, folder];
      }),
    );
    const count = `echo ${BEGUN}; printf '%s\\n' "$@" | busybox xargs -P ${VOLUMES_AT_ONCE} -n 1 busybox timeout -s KILL ${VOLUME_COUNT_SECONDS} busybox du -skx`;
    const spec = helper(PAUSE_IMAGE, ['sh', '-c', count, 'sh', ...folderOf.keys()], mounts, labels);
    let hasBegun = false;
    try {
      await runtime.runOnce({ ...spec, capabilities: ['DAC_OVERRIDE'] }, VOLUMES_COUNT_MS, (line) => {
        hasBegun ||= line === BEGUN;
        const [, kibibytes, target = ''] = /^(\d+)\t(\/target\/.*)$/.exec(line) ?? [];
        const folder = folderOf.get(target);
        if (folder !== undefined) found.set(folder, Number(kibibytes) * 1024);
      });
    } catch (error) {
      // Folders that were counted in time count.
      if (!hasBegun) throw error;
    } finally {
      for (const { volume } of mounts) if (volume !== undefined) await runtime.removeVolume(volume.name);
    }
  }
  return found;
}

/** Volumes carry folders: the engine's own folders cannot be bound into a container otherwise. */
const folderMount = (id: string, device: string, at: number, labels: Readonly<Record<string, string>>): Mount => ({
  kind: 'volume',
  target: `/target/${at}`,
  readOnly: true,
  source: '',
  volume: { name: `ls-count-${id}`, options: { type: 'none', device, o: 'bind' }, labels },
});

/** @returns bytes of blocks that the files below these folders take, for every owner */
export async function countByContainer(
  runtime: ContainerRuntime,
  paths: readonly string[],
  labels: Readonly<Record<string, string>>,
  deadlineMs = HELPER_DEADLINE_MS,
): Promise<number> {
  await ensurePauseImage(runtime);
  const id = randomBytes(6).toString('hex');
  const mounts = paths.map((device, at) => folderMount(`${id}-${at}`, device, at, labels));
  const spec = helper(PAUSE_IMAGE, ['sh', '-c', 'du -skx /target/*'], mounts, labels);
  const found = new Map<string, number>();
  try {
    // A file that disappears during the count makes `du` print an error and exit with 1; the totals still count.
    await runtime.runOnce({ ...spec, capabilities: ['DAC_OVERRIDE'] }, deadlineMs, (line) => {
      const [, kibibytes, target = ''] = /^(\d+)\t(\/target\/\d+)$/.exec(line) ?? [];
      if (kibibytes !== undefined) found.set(target, Number(kibibytes));
    });
  } finally {
    for (const { volume } of mounts) if (volume !== undefined) await runtime.removeVolume(volume.name);
  }
  if (found.size !== paths.length) throw new Error('the helper container did not count all folders');
  return [...found.values()].reduce((sum, one) => sum + one, 0) * 1024;
}

/** @returns bytes of blocks that each folder of this folder takes, for every owner */
export async function sizesByContainer(
  runtime: ContainerRuntime,
  path: string,
  labels: Readonly<Record<string, string>>,
): Promise<ReadonlyMap<string, number>> {
  await ensurePauseImage(runtime);
  const mount: Mount = { kind: 'bind', target: '/target', readOnly: true, source: path };
  const spec = helper(PAUSE_IMAGE, ['sh', '-c', 'du -skx /target/*'], [mount], labels);
  const found = new Map<string, number>();
  await runtime.runOnce({ ...spec, capabilities: ['DAC_OVERRIDE'] }, HELPER_DEADLINE_MS, (line) => {
    const [, kibibytes, name = ''] = /^(\d+)\t\/target\/([^/]+)$/.exec(line) ?? [];
    if (kibibytes !== undefined) found.set(name, Number(kibibytes) * 1024);
  });
  return found;
}
