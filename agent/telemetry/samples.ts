/**
 * Samples the resource use of this machine's containers from the kernel's files: the engine is asked once per
 * container, for a process id. Called by sampling.ts. Must stay true: a container that ends between two reads is left
 * out without an error. Sampling yields between containers, so that it blocks nothing. Files of ended containers are
 * closed.
 */
import { closeSync, openSync, readFileSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Log } from '#shared/log.ts';
import type { ContainerSample } from '#shared/protocol/generated/messages.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import { cgroupFiles, cgroupNumbers, networkBytes } from './cgroup.ts';

/** Containers sampled in one turn of the event loop: well below a millisecond. */
const PER_TURN = 5;
/** Rounds between two searches for a container that was not found. */
const LOOK_AGAIN = 6;

export interface SampledContainer {
  readonly containerId: string;
  readonly dockerId: string;
}

const KINDS = ['cpu', 'memory', 'memoryStat', 'processes'] as const;

/** Open files of one container. */
interface Source {
  readonly pid: number;
  readonly version: 1 | 2;
  readonly files: Readonly<Record<(typeof KINDS)[number], number>>;
  cpuMicroseconds: number | undefined;
  atMs: number;
}

export class Sampler {
  readonly #runtime: Pick<ContainerRuntime, 'pidOf'>;
  readonly #log: Log;
  readonly #sources = new Map<string, Source>();
  /** Remaining rounds until the next search for a container that was not found. */
  readonly #missing = new Map<string, number>();
  // The buffer fits every file that is read here; of longer ones the first lines suffice.
  readonly #buffer = Buffer.alloc(16 * 1024);
  readonly #root: string;

  /** @param root - root of the kernel's files, for tests */
  constructor(runtime: Pick<ContainerRuntime, 'pidOf'>, log: Log, root = '/') {
    this.#runtime = runtime;
    this.#log = log;
    this.#root = root;
  }

  close(): void {
    for (const dockerId of [...this.#sources.keys()]) this.#close(dockerId);
  }

  /** Samples all containers once. A container's first sample has no processor time yet. */
  async round(running: readonly SampledContainer[]): Promise<readonly ContainerSample[]> {
    const now = new Set(running.map((one) => one.dockerId));
    for (const dockerId of [...this.#sources.keys()]) if (!now.has(dockerId)) this.#close(dockerId);
    for (const dockerId of [...this.#missing.keys()]) if (!now.has(dockerId)) this.#missing.delete(dockerId);
    const samples: ContainerSample[] = [];
    for (const [index, { containerId, dockerId }] of running.entries()) {
      if (index % PER_TURN === PER_TURN - 1) await nextTurn();
      const source = this.#sources.get(dockerId) ?? (await this.#open(dockerId));
      if (source === undefined) continue;
      try {
        samples.push(this.#sample(containerId, source));
      } catch {
        // The container has just ended.
        this.#close(dockerId);
      }
    }
    return samples;
  }

  #sample(containerId: string, source: Source): ContainerSample {
    const { pid, files } = source;
    const numbers = cgroupNumbers(source.version, {
      cpu: this.#read(files.cpu),
      memory: this.#read(files.memory),
      memoryStat: this.#read(files.memoryStat),
      processes: this.#read(files.processes),
    });
    const network = networkBytes(this.#networkOf(pid));
    const atMs = performance.now();
    const before = source.cpuMicroseconds;
    const cpuMillicores =
      before === undefined ? 0 : Math.round((numbers.cpuMicroseconds - before) / Math.max(1, atMs - source.atMs));
    source.cpuMicroseconds = numbers.cpuMicroseconds;
    source.atMs = atMs;
    return {
      containerId,
      cpuMillicores: Math.max(0, cpuMillicores),
      cpuMicroseconds: numbers.cpuMicroseconds,
      memoryBytes: numbers.memoryBytes,
      processes: numbers.processes,
      receivedBytes: network.received,
      sentBytes: network.sent,
    };
  }

  /** Reads from the beginning: each such read makes the kernel write the file anew. */
  #read(fd: number): string {
    const length = readSync(fd, this.#buffer, 0, this.#buffer.length, 0);
    return this.#buffer.toString('latin1', 0, length);
  }

  /** Opens the file each time: an open one would keep the network of an ended container. */
  #networkOf(pid: number): string {
    const fd = openSync(this.#proc(pid, 'net/dev'), 'r');
    try {
      let text = '';
      // The kernel gives such a file in pieces of a page.
      for (;;) {
        const length = readSync(fd, this.#buffer, 0, this.#buffer.length, null);
        if (length === 0) return text;
        text += this.#buffer.toString('latin1', 0, length);
      }
    } finally {
      closeSync(fd);
    }
  }

  async #open(dockerId: string): Promise<Source | undefined> {
    const wait = this.#missing.get(dockerId) ?? 0;
    if (wait > 0) {
      this.#missing.set(dockerId, wait - 1);
      return undefined;
    }
    const opened: number[] = [];
    try {
      const pid = await this.#runtime.pidOf(dockerId);
      const cgroups = join(this.#root, 'sys/fs/cgroup');
      const paths =
        pid === undefined ? undefined : cgroupFiles(readFileSync(this.#proc(pid, 'cgroup'), 'utf8'), cgroups);
      if (pid === undefined || paths === undefined) throw new Error('no control group');
      const files = { cpu: 0, memory: 0, memoryStat: 0, processes: 0 };
      for (const kind of KINDS) {
        files[kind] = openSync(paths[kind], 'r');
        opened.push(files[kind]);
      }
      const source: Source = { pid, version: paths.version, files, cpuMicroseconds: undefined, atMs: 0 };
      this.#sources.set(dockerId, source);
      return source;
    } catch (error) {
      for (const fd of opened) closeSync(fd);
      if (!this.#missing.has(dockerId))
        this.#log.info({ err: error, dockerId: dockerId.slice(0, 12) }, 'container cannot be sampled now');
      this.#missing.set(dockerId, LOOK_AGAIN);
      return undefined;
    }
  }

  #proc(pid: number, file: string): string {
    return join(this.#root, 'proc', String(pid), file);
  }

  #close(dockerId: string): void {
    const source = this.#sources.get(dockerId);
    this.#sources.delete(dockerId);
    for (const kind of KINDS) if (source !== undefined) closeSync(source.files[kind]);
  }
}
