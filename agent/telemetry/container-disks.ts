/**
 * What containers of this machine have written: to their root and to their view of the code, together. Looks when disk-limits.ts says so, and tells who is over the limit, the
 * largest first. Must stay true: nobody is told of on an estimate: what counts is blocks, where this user may not read them those that a helper counts, whom permissions do not stop; a container that cannot be
 * counted is logged, and holds up no other.
 */
import { sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import { countHere } from './count-blocks.ts';
import type { FileSystem, Watch } from './disk-limits.ts';
import { newWatch, overLimit, tick } from './disk-limits.ts';

export const TICK_MS = 2_000;
export interface WatchedContainer {
  readonly containerId: string;
  readonly dockerId: string;
  readonly shortId: string;
}

export interface DiskUse {
  readonly containerId: string;
  readonly usedBytes: number;
}

export interface ContainerDisksParts {
  readonly runtime: Pick<ContainerRuntime, 'rootPath' | 'writtenBytes'>;
  readonly running: () => readonly WatchedContainer[];
  /** The folder of what a container wrote in its view. */
  readonly viewOf: (shortId: string) => string;
  /** 0: none. */
  readonly limitBytes: number;
  /** Those that containers write to. */
  readonly fileSystems: () => Promise<readonly FileSystem[]>;
  /** Blocks below these folders, whoever may read them. */
  readonly countByHelper: (paths: readonly string[]) => Promise<number>;
  /** Largest first. */
  readonly onOver: (use: DiskUse) => void;
  readonly onLook: (result: 'ok' | 'failed') => void;
  readonly log: Log;
  readonly tickMs?: number;
}

export class ContainerDisks {
  readonly #parts: ContainerDisksParts;
  readonly #abort = new AbortController();
  readonly #used = new Map<string, number>();
  /** Folders of roots, by the engine's id; empty: it says none. */
  readonly #roots = new Map<string, string>();
  /** Containers by when they were looked at last. */
  readonly #lookedAt = new Map<string, number>();
  #watch: Watch = newWatch(performance.now());
  #running: Promise<void> | undefined;

  constructor(parts: ContainerDisksParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#running = this.#run();
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#running;
  }

  get limitBytes(): number {
    return this.#parts.limitBytes;
  }

  /** As last counted; 0: not yet. */
  usedBy(containerId: string): number {
    return this.#used.get(containerId) ?? 0;
  }

  async #run(): Promise<void> {
    const { log, tickMs = TICK_MS } = this.#parts;
    while (await sleep(tickMs, this.#abort.signal)) {
      try {
        await this.round();
      } catch (error) {
        log.warn({ err: error }, 'what containers wrote could not be counted');
      }
    }
  }

  /** One tick. */
  async round(): Promise<void> {
    const { running, limitBytes, fileSystems, onOver } = this.#parts;
    const containers = running();
    forgetOthers(this.#roots, new Set(containers.map((one) => one.dockerId)));
    for (const map of [this.#used, this.#lookedAt])
      forgetOthers(map, new Set(containers.map((one) => one.containerId)));
    const nowMs = performance.now();
    const { watch, look } = tick(
      this.#watch,
      await fileSystems(),
      { limitBytes, containers: containers.length },
      nowMs,
    );
    this.#watch = watch;
    if (look === 'none') return;
    const oldestFirst = containers.toSorted((a, b) => this.#lastLook(a) - this.#lastLook(b));
    const counted: (WatchedContainer & DiskUse)[] = [];
    for (const one of look === 'all' ? oldestFirst : oldestFirst.slice(0, 1)) {
      if (this.#abort.signal.aborted) return;
      const usedBytes = await this.#look(one, nowMs);
      if (usedBytes !== undefined) counted.push({ ...one, usedBytes });
    }
    for (const { containerId, usedBytes } of overLimit(counted, limitBytes)) onOver({ containerId, usedBytes });
  }

  readonly #lastLook = ({ containerId }: WatchedContainer): number =>
    this.#lookedAt.get(containerId) ?? Number.NEGATIVE_INFINITY;

  async #look(one: WatchedContainer, nowMs: number): Promise<number | undefined> {
    const { onLook, log } = this.#parts;
    this.#lookedAt.set(one.containerId, nowMs);
    try {
      const usedBytes = await this.#count(one);
      if (usedBytes === undefined) return undefined;
      this.#used.set(one.containerId, usedBytes);
      onLook('ok');
      return usedBytes;
    } catch (error) {
      onLook('failed');
      log.warn({ err: error, containerId: one.containerId }, 'what a container wrote could not be counted');
      return undefined;
    }
  }

  /** @returns undefined: it has ended */
  async #count({ dockerId, shortId }: WatchedContainer): Promise<number | undefined> {
    const { runtime, viewOf, limitBytes, countByHelper } = this.#parts;
    const root = this.#roots.get(dockerId) ?? (await runtime.rootPath(dockerId));
    if (root === undefined) return undefined;
    this.#roots.set(dockerId, root);
    const paths = root === '' ? [viewOf(shortId)] : [viewOf(shortId), root];
    const blocks = root === '' ? undefined : await countHere(paths);
    if (blocks !== undefined) return blocks;
    // This user may not read all of it, or the engine says no folder: lengths by the engine are an estimate.
    const [inRoot, inView] = [await runtime.writtenBytes(dockerId), await countHere([viewOf(shortId)])];
    if (inRoot === undefined) return undefined;
    if (inView !== undefined && (limitBytes === 0 || inRoot + inView <= limitBytes)) return inRoot + inView;
    return (root === '' ? inRoot : 0) + (await countByHelper(paths));
  }
}

function forgetOthers(map: Map<string, unknown>, live: ReadonlySet<string>): void {
  for (const key of map.keys()) if (!live.has(key)) map.delete(key);
}

const MIB = 1024 * 1024;

/** Why a container ended, for its author. */
export const overDiskText = (usedBytes: number, limitBytes: number): string =>
  `it wrote ${Math.ceil(usedBytes / MIB)} MiB to its disk (its root and its code together), and may write ${Math.floor(limitBytes / MIB)} MiB (LONGSHORE_AGENT_CONTAINER_DISK_MIB of its machine); large files belong in a volume`;
