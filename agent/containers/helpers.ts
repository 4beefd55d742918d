// One-shot containers of our own: what this process may not do itself, or what needs a Python.
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { randomBytes } from 'node:crypto';
import { sha256Hex } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import { hasCode, readIfThere } from '../durable.ts';
import { HOLDER_IMAGE, ensureHolderImage } from './holder-image.ts';
import type { ContainerRuntime, CreateContainer, Mount } from './runtime.ts';
import { RUNNER_TARGET } from './spec.ts';

const HELPER_DEADLINE_MS = 60_000;
const HELPER_MEMORY_BYTES = 256 * 1024 * 1024;

const helper = (
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

/** More than this no program needs, and some close them all one by one. */
const MAX_OPEN_FILES = 65_536;

/** A limit as `ulimit -Hn` prints it, for use as a container's. */
export function openFilesOf(printed: string): number {
  const limit = Number(printed.trim());
  return Number.isInteger(limit) && limit > 0 ? Math.min(limit, MAX_OPEN_FILES) : MAX_OPEN_FILES;
}

/** @returns how many files the engine lets a container have open */
export async function openFilesByContainer(
  runtime: ContainerRuntime,
  labels: Readonly<Record<string, string>>,
): Promise<number> {
  await ensureHolderImage(runtime);
  let printed = '';
  const spec = helper(HOLDER_IMAGE, ['sh', '-c', 'ulimit -Hn'], [], labels);
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
 * Runs a shell script over a mount, whoever owns what is in it. Must stay true: who passes every file's permissions is a program of ours, from the holders' image.
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
  await ensureHolderImage(runtime);
  const spec = helper(HOLDER_IMAGE, ['sh', '-c', script, 'sh', ...args], [mount], labels);
  const code = await runtime.runOnce({ ...spec, capabilities: ['DAC_OVERRIDE', 'FOWNER'] }, deadlineMs);
  if (code !== 0) throw new Error(`helper container exited with ${code}`);
}

/** @returns how many bytes of blocks the files below these folders take, whoever owns them */
export async function countByContainer(
  runtime: ContainerRuntime,
  paths: readonly string[],
  labels: Readonly<Record<string, string>>,
): Promise<number> {
  await ensureHolderImage(runtime);
  const id = randomBytes(6).toString('hex');
  // By volumes: the engine binds none of its own folders into a container otherwise.
  const mounts = paths.map((device, at): Mount => {
    const volume = { name: `ls-count-${id}-${at}`, type: 'none', device, o: 'bind', labels };
    return { kind: 'volume', target: `/target/${at}`, readOnly: true, source: '', volume };
  });
  const spec = helper(HOLDER_IMAGE, ['sh', '-c', 'du -skx /target/*'], mounts, labels);
  const found = new Map<string, number>();
  try {
    // What goes while it counts makes it say so, and end with 1.
    await runtime.runOnce({ ...spec, capabilities: ['DAC_OVERRIDE'] }, HELPER_DEADLINE_MS, (line) => {
      const [, kibibytes, target = ''] = /^(\d+)\t(\/target\/\d+)$/.exec(line) ?? [];
      if (kibibytes !== undefined) found.set(target, Number(kibibytes));
    });
  } finally {
    for (const { volume } of mounts) if (volume !== undefined) await runtime.removeVolume(volume.name);
  }
  if (found.size !== paths.length) throw new Error('the helper container did not count all folders');
  return [...found.values()].reduce((sum, one) => sum + one, 0) * 1024;
}

/**
 * Compiles the runner once per base image, beside its sources, so that every later container with that Python starts without compiling (containers see the folder
 * read-only). Python keeps each version's files apart. Must stay true: no image of a tenant is asked to, since it could write anything there, for everybody.
 */
export class RunnerCompiler {
  readonly #runtime: ContainerRuntime;
  readonly #runnerDir: string;
  readonly #labels: () => Readonly<Record<string, string>>;
  readonly #log: Log;
  readonly #done = new Set<string>();
  #queue: Promise<void> = Promise.resolve();

  constructor(runtime: ContainerRuntime, runnerDir: string, labels: () => Readonly<Record<string, string>>, log: Log) {
    this.#runtime = runtime;
    this.#runnerDir = runnerDir;
    this.#labels = labels;
    this.#log = log;
  }

  /** In the background, one image at a time. */
  want(image: string): void {
    if (this.#done.has(image) || this.#done.size > 1000) return;
    this.#done.add(image);
    this.#queue = this.#queue.then(() => this.#compile(image));
  }

  idle(): Promise<void> {
    return this.#queue;
  }

  async #compile(image: string): Promise<void> {
    const marks = `${this.#runnerDir}.compiled`;
    const mark = join(marks, sha256Hex(image).slice(0, 16));
    try {
      if ((await readIfThere(mark)) !== undefined || (await this.#runtime.image(image)) === undefined) return;
      const from = performance.now();
      const mount: Mount = { kind: 'bind', target: RUNNER_TARGET, readOnly: false, source: this.#runnerDir };
      const spec = helper(image, ['python3', '-m', 'compileall', '-q', RUNNER_TARGET], [mount], this.#labels());
      const user = `${process.getuid?.() ?? 0}:${process.getgid?.() ?? 0}`;
      const code = await this.#runtime.runOnce({ ...spec, user }, HELPER_DEADLINE_MS);
      await mkdir(marks, { recursive: true });
      await writeFile(mark, image);
      this.#log.info({ image, exitCode: code, durationMs: Math.round(performance.now() - from) }, 'runner compiled');
    } catch (error) {
      // Only speed is lost.
      if (!hasCode(error, 'ENOENT')) this.#log.info({ err: error, image }, 'runner could not be compiled');
    }
  }
}
