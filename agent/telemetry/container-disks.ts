/**
 * Counts the bytes that this machine's containers have written, to their root, their view of the code and volumes that
 * their image brings together.
 * Looks when disk-limits.ts says so, and reports containers over the limit as soon as it is known. Must stay true: no
 * report rests on an estimate. Only counted blocks prove an excess; a helper counts blocks that this user may not read.
 * A container that cannot be counted is logged, and delays no other.
 */
import { sleep } from '#shared/backoff.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import { COUNTED_AT_ONCE, countEachHere, countHere } from './count-blocks.ts';
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
  readonly runtime: Pick<ContainerRuntime, 'rootPath' | 'imageVolumes' | 'writtenBytes'>;
  readonly running: () => readonly WatchedContainer[];
  /** The folder of a container's writes to its view. */
  readonly viewOf: (shortId: string) => string;
  /** Limit per container; 0: none. */
  readonly limitBytes: number;
  /** File systems that containers write to. */
  readonly fileSystems: () => Promise<readonly FileSystem[]>;
  /** Counts blocks below these folders, past their permissions. */
  readonly countByHelper: (paths: readonly string[]) => Promise<number>;
  readonly onLook: (result: 'ok' | 'failed') => void;
  readonly log: Log;
  readonly tickMs?: number;
}

interface ToCount {
  readonly one: WatchedContainer;
  readonly paths: readonly string[];
  /** Folders of volumes that its image brings. */
  readonly volumes: readonly string[];
  /** Bytes of its root and its view; undefined: not counted. */
  readonly blocks?: number | undefined;
}

export class ContainerDisks {
  readonly #parts: ContainerDisksParts;
  readonly #over = new Listeners<[DiskUse]>();
  readonly #abort = new AbortController();
  readonly #used = new Map<string, number>();
  /** Folders of roots, by the engine's id; empty: the engine names none. */
  readonly #roots = new Map<string, string>();
  readonly #volumes = new Map<string, readonly string[]>();
  /** Time of the last look at each container. */
  readonly #lookedAt = new Map<string, number>();
  #watch: Watch = newWatch(performance.now());
  #running: Promise<void> | undefined;

  constructor(parts: ContainerDisksParts) {
    this.#parts = parts;
  }

  /** Told of a container over its limit; of those counted together the largest first. */
  onOver(listener: (use: DiskUse) => void): void {
    this.#over.add(listener);
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

  /** Bytes by the last count; 0: not counted yet. */
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

  /** Runs one tick. */
  async round(): Promise<void> {
    const { running, limitBytes, fileSystems } = this.#parts;
    const containers = running();
    for (const map of [this.#roots, this.#volumes]) forgetOthers(map, new Set(containers.map((one) => one.dockerId)));
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
    if (look === 0) return;
    const left: ToCount[] = [];
    const oldestFirst = containers.toSorted((a, b) => this.#lastLook(a) - this.#lastLook(b));
    for (let from = 0; from < look; from += COUNTED_AT_ONCE) {
      if (this.#abort.signal.aborted) return;
      left.push(...(await this.#check(oldestFirst.slice(from, Math.min(look, from + COUNTED_AT_ONCE)), nowMs)));
    }
    // The remaining containers come last: helpers and the engine's own count may be slow.
    for (const { one, paths, volumes, blocks } of left) {
      if (this.#abort.signal.aborted) return;
      const usedBytes = await this.#tried(one, async () => {
        const written = blocks ?? (await this.#estimated(one, paths));
        return written === undefined ? undefined : written + (await this.#inVolumes(volumes));
      });
      this.#counted([{ containerId: one.containerId, usedBytes }]);
    }
  }

  readonly #lastLook = ({ containerId }: WatchedContainer): number =>
    this.#lookedAt.get(containerId) ?? Number.NEGATIVE_INFINITY;

  /** @returns containers that could not be counted here */
  async #check(some: readonly WatchedContainer[], nowMs: number): Promise<readonly ToCount[]> {
    const { viewOf } = this.#parts;
    const living: ToCount[] = [];
    for (const one of some) {
      this.#lookedAt.set(one.containerId, nowMs);
      const root = await this.#tried(one, () => this.#rootOf(one));
      const volumes = await this.#tried(one, () => this.#volumesOf(one));
      if (root !== undefined && volumes !== undefined)
        living.push({ one, paths: root === '' ? [viewOf(one.shortId)] : [viewOf(one.shortId), root], volumes });
    }
    // Containers whose root the engine names are counted here; the others need the engine's own count.
    const whole = living.filter(({ paths }) => paths.length > 1);
    const bytes = await countEachHere(whole.map(({ paths }) => paths));
    const blocks = new Map(whole.map(({ one }, at) => [one.containerId, bytes[at]]));
    const counted = living.map((each) => ({ ...each, blocks: blocks.get(each.one.containerId) }));
    const isDone = ({ blocks: some, volumes }: ToCount): boolean => some !== undefined && volumes.length === 0;
    this.#counted(
      counted.filter(isDone).map(({ one: { containerId }, blocks: usedBytes }) => ({ containerId, usedBytes })),
    );
    return counted.filter((each) => !isDone(each));
  }

  #counted(some: readonly { readonly containerId: string; readonly usedBytes: number | undefined }[]): void {
    const { limitBytes, onLook } = this.#parts;
    const counted = some.flatMap(({ containerId, usedBytes }) =>
      usedBytes === undefined ? [] : [{ containerId, usedBytes }],
    );
    for (const { containerId, usedBytes } of counted) {
      this.#used.set(containerId, usedBytes);
      onLook('ok');
    }
    for (const use of overLimit(counted, limitBytes)) this.#over.tell(use);
  }

  /** Runs a look; a failure is logged, and delays no other container. */
  async #tried<T>({ containerId }: WatchedContainer, look: () => Promise<T | undefined>): Promise<T | undefined> {
    const { onLook, log } = this.#parts;
    try {
      return await look();
    } catch (error) {
      onLook('failed');
      log.warn({ err: error, containerId }, 'what a container wrote could not be counted');
      return undefined;
    }
  }

  /** @returns undefined when the container has ended; empty when the engine names no folder */
  async #rootOf({ dockerId }: WatchedContainer): Promise<string | undefined> {
    const root = this.#roots.get(dockerId) ?? (await this.#parts.runtime.rootPath(dockerId));
    if (root !== undefined) this.#roots.set(dockerId, root);
    return root;
  }

  /** @returns undefined when the container has ended */
  async #volumesOf({ dockerId }: WatchedContainer): Promise<readonly string[] | undefined> {
    const volumes = this.#volumes.get(dockerId) ?? (await this.#parts.runtime.imageVolumes(dockerId));
    if (volumes !== undefined) this.#volumes.set(dockerId, volumes);
    return volumes;
  }

  async #inVolumes(volumes: readonly string[]): Promise<number> {
    return volumes.length === 0 ? 0 : this.#parts.countByHelper(volumes);
  }

  /**
   * Bytes where this user may not read everything, or the engine names no root. The engine's lengths are an estimate,
   * so above the limit a helper counts blocks.
   * @returns undefined when the container has ended
   */
  async #estimated({ dockerId, shortId }: WatchedContainer, paths: readonly string[]): Promise<number | undefined> {
    const { runtime, viewOf, limitBytes, countByHelper } = this.#parts;
    const [inRoot, inView] = [await runtime.writtenBytes(dockerId), await countHere([viewOf(shortId)])];
    if (inRoot === undefined) return undefined;
    if (inView !== undefined && (limitBytes === 0 || inRoot + inView <= limitBytes)) return inRoot + inView;
    return (paths.length === 1 ? inRoot : 0) + (await countByHelper(paths));
  }
}

function forgetOthers(map: Map<string, unknown>, live: ReadonlySet<string>): void {
  for (const key of map.keys()) if (!live.has(key)) map.delete(key);
}

const MIB = 1024 * 1024;

/** The reason of a container's end, for its author. */
export const overDiskText = (usedBytes: number, limitBytes: number): string =>
  `it wrote ${Math.ceil(usedBytes / MIB)} MiB to its disk (its root, its code and volumes of its image together), and may write ${Math.floor(limitBytes / MIB)} MiB (LONGSHORE_AGENT_CONTAINER_DISK_MIB of its machine); large files belong in a volume`;
