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
import type { ContainerDeltas, ContainerSample } from '#shared/protocol/generated/messages.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import { addressSpaceBytes, cgroupFiles, cgroupNumbers, networkNumbers, processIds } from './cgroup.ts';
import type { CgroupNumbers, NetworkNumbers } from './cgroup.ts';

/** Containers sampled in one turn of the event loop: well below a millisecond. */
const PER_TURN = 5;
/** Rounds between two searches for a container that was not found. */
const LOOK_AGAIN = 6;
/** Rounds between two counts of a container's address space, which opens a file of each process. */
const COUNT_SPACE_EVERY = 6;
const MOST_COUNTED = 64;

export interface SampledContainer {
  readonly containerId: string;
  readonly dockerId: string;
}

const KINDS = ['cpu', 'memory', 'memoryStat', 'processes'] as const;
/** Kinds of files that a kernel may lack. */
const OPTIONAL = ['io', 'swap'] as const;

/** Open files of one container. */
interface Source {
  readonly pid: number;
  readonly version: 1 | 2;
  readonly files: Readonly<Record<(typeof KINDS)[number], number>>;
  readonly optional: Partial<Record<(typeof OPTIONAL)[number], number>>;
  /** The file of the processes' ids. */
  readonly ids: string;
  before: Before | undefined;
  spaceBytes: number;
  /** Rounds until the address space is counted. */
  spaceIn: number;
}

/** Numbers of the sample before. */
interface Before {
  readonly atMs: number;
  readonly numbers: CgroupNumbers;
  readonly network: NetworkNumbers;
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
        this.#countSpace(source, index);
        samples.push(this.#sample(containerId, source));
      } catch {
        // The container has just ended.
        this.#close(dockerId);
      }
    }
    return samples;
  }

  #sample(containerId: string, source: Source): ContainerSample {
    const { pid, files, optional, before } = source;
    const numbers = cgroupNumbers(source.version, {
      cpu: this.#read(files.cpu),
      memory: this.#read(files.memory),
      memoryStat: this.#read(files.memoryStat),
      processes: this.#read(files.processes),
      io: this.#readOptional(optional.io),
      swap: this.#readOptional(optional.swap),
    });
    const network = networkNumbers(this.#networkOf(pid));
    const now: Before = { atMs: performance.now(), numbers, network };
    source.before = now;
    const since = before === undefined ? null : deltas(before, now);
    return {
      containerId,
      cpuMillicores: since === null ? 0 : Math.round(since.cpuMicroseconds / since.intervalMs),
      cpuMicroseconds: numbers.cpuMicroseconds,
      memoryBytes: numbers.memoryBytes,
      memoryRssBytes: numbers.rssBytes,
      memoryVmsBytes: source.spaceBytes,
      memorySwapBytes: numbers.swapBytes,
      processes: numbers.processes,
      receivedBytes: network.receivedBytes,
      sentBytes: network.sentBytes,
      since,
    };
  }

  /** Counts the address space of the first processes, every few rounds; containers take turns. */
  #countSpace(source: Source, index: number): void {
    if (source.spaceIn > 0) {
      source.spaceIn -= 1;
      return;
    }
    source.spaceIn = source.before === undefined ? index % COUNT_SPACE_EVERY : COUNT_SPACE_EVERY - 1;
    const ids = processIds(textIn(source.ids), MOST_COUNTED);
    source.spaceBytes = ids.reduce((sum, id) => sum + addressSpaceBytes(textIn(this.#proc(id, 'stat'))), 0);
  }

  /** Reads from the beginning: each such read makes the kernel write the file anew. */
  #read(fd: number): string {
    const length = readSync(fd, this.#buffer, 0, this.#buffer.length, 0);
    return this.#buffer.toString('latin1', 0, length);
  }

  /** A file may refuse to be read while its controller is off. */
  #readOptional(fd: number | undefined): string {
    if (fd === undefined) return '';
    try {
      return this.#read(fd);
    } catch {
      return '';
    }
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
      const source: Source = {
        pid,
        version: paths.version,
        files,
        optional: { ...openedFirst('io', paths.io), ...openedFirst('swap', paths.swap === null ? [] : [paths.swap]) },
        ids: paths.ids,
        before: undefined,
        spaceBytes: 0,
        spaceIn: 0,
      };
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
    if (source === undefined) return;
    for (const kind of KINDS) closeSync(source.files[kind]);
    for (const kind of OPTIONAL) if (source.optional[kind] !== undefined) closeSync(source.optional[kind]);
  }
}

/** A file of the kernel; empty when a process has just ended, or its group does not tell. */
function textIn(path: string): string {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return '';
  }
}

/** Opens the first of these files that there is. */
function openedFirst<Kind extends (typeof OPTIONAL)[number]>(
  kind: Kind,
  paths: readonly string[],
): Partial<Record<Kind, number>> {
  for (const path of paths) {
    try {
      return { [kind]: openSync(path, 'r') } as Record<Kind, number>;
    } catch {
      // The kernel does not have it.
    }
  }
  return {};
}

/** Differences of two samples. A counter that went back, because an interface is gone, counts as 0. */
function deltas(before: Before, now: Before): ContainerDeltas & { cpuMicroseconds: number; intervalMs: number } {
  const between = (from: number, to: number): number => Math.max(0, to - from);
  return {
    intervalMs: Math.max(1, Math.round(now.atMs - before.atMs)),
    cpuMicroseconds: between(before.numbers.cpuMicroseconds, now.numbers.cpuMicroseconds),
    diskReadBytes: between(before.numbers.readBytes, now.numbers.readBytes),
    diskWriteBytes: between(before.numbers.writtenBytes, now.numbers.writtenBytes),
    receivedBytes: between(before.network.receivedBytes, now.network.receivedBytes),
    sentBytes: between(before.network.sentBytes, now.network.sentBytes),
    receivedPackets: between(before.network.receivedPackets, now.network.receivedPackets),
    sentPackets: between(before.network.sentPackets, now.network.sentPackets),
  };
}
