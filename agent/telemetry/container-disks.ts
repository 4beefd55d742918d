/**
 * Counts the bytes that this machine's containers have written, to their root, their view of the code and volumes that
 * their image brings together.
 * Looks when disk-limits.ts says so, and reports containers over the limit as soon as it is known. Must stay true:
 * counted blocks prove an excess, and a count that fails lifts no limit (`chargeOf`). What a helper or the engine
 * counts comes apart: blocks that are known are told at once, and no container waits for the count of another.
 */
import { sleep, withDeadline } from '#shared/backoff.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import { Limiter } from '../containers/limiter.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import { Apart } from './apart.ts';
import { COUNTED_AT_ONCE, countEachHere, countHere } from './count-blocks.ts';
import type { Charge, FileSystem, Part, Watch } from './disk-limits.ts';
import { chargeOf, newWatch, overLimit, tick } from './disk-limits.ts';

export const TICK_MS = 2_000;
/** Bound on a walk that others wait for. A container whose walk takes longer is counted apart from then on. */
const WALK_MS = 5_000;
/** Time and width of counts of roots by the engine and by helpers. */
const APART_MS = 30_000;
const APART_AT_ONCE = 4;

export interface WatchedContainer {
  readonly containerId: string;
  readonly dockerId: string;
  readonly shortId: string;
}

export interface DiskUse extends Charge {
  readonly containerId: string;
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
  /** Counts blocks of each of these folders of the engine's volumes, past their permissions, as far as it can. */
  readonly countVolumes: (folders: readonly string[]) => Promise<ReadonlyMap<string, number>>;
  readonly onLook: (result: 'ok' | 'failed') => void;
  readonly log: Log;
  readonly tickMs?: number;
}

interface Counts {
  /** The container's root and its view of the code. */
  readonly root: Part;
  /** Volumes that its image brings. */
  readonly volumes: Part;
}

interface ToCount {
  readonly one: WatchedContainer;
  readonly folders: readonly string[];
}

export class ContainerDisks {
  readonly #parts: ContainerDisksParts;
  readonly #over = new Listeners<[DiskUse]>();
  readonly #abort = new AbortController();
  readonly #counts = new Map<string, Counts>();
  /** Folders of roots, by the engine's id; empty: the engine names none. */
  readonly #roots = new Map<string, string>();
  readonly #volumes = new Map<string, readonly string[]>();
  /** Time of the last look at each container. */
  readonly #lookedAt = new Map<string, number>();
  /** Containers whose root a walk here could not count. */
  readonly #slow = new Map<string, true>();
  readonly #rootsApart = new Apart<ToCount>((some) => this.#countRoots(some));
  readonly #volumesApart = new Apart<ToCount>((some) => this.#countVolumes(some));
  #watch: Watch = newWatch(performance.now());
  #takenBytes = 0;
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
    const apart = [this.#rootsApart, this.#volumesApart];
    for (const one of apart) one.forgetWaiting();
    await Promise.all(apart.map((one) => one.settled()));
  }

  get limitBytes(): number {
    return this.#parts.limitBytes;
  }

  /** Bytes by the last count; 0: not counted yet. */
  usedBy(containerId: string): number {
    const counts = this.#counts.get(containerId);
    return counts === undefined ? 0 : counts.root.bytes + counts.volumes.bytes;
  }

  async #run(): Promise<void> {
    const { log, tickMs = TICK_MS } = this.#parts;
    while (await sleep(tickMs, this.#abort.signal)) {
      try {
        await this.look();
      } catch (error) {
        log.warn({ err: error }, 'what containers wrote could not be counted');
      }
    }
  }

  /** Runs one tick, and waits for what it has counted apart. */
  async round(): Promise<void> {
    await this.look();
    await Promise.all([this.#rootsApart.settled(), this.#volumesApart.settled()]);
  }

  /** Runs one tick. */
  async look(): Promise<void> {
    const { running, limitBytes, fileSystems } = this.#parts;
    const containers = running();
    for (const map of [this.#roots, this.#volumes]) forgetOthers(map, new Set(containers.map((one) => one.dockerId)));
    for (const map of [this.#counts, this.#lookedAt, this.#slow])
      forgetOthers(map, new Set(containers.map((one) => one.containerId)));
    const nowMs = performance.now();
    const systems = await fileSystems();
    const asked = { limitBytes, containers: containers.length };
    const { watch, look, takenBytes } = tick(this.#watch, systems, asked, nowMs);
    this.#watch = watch;
    // A new container has written at most what was taken since the tick before.
    for (const { containerId } of containers)
      if (!this.#counts.has(containerId)) {
        const none: Part = { bytes: 0, failed: 0, takenAtBytes: this.#takenBytes };
        this.#counts.set(containerId, { root: none, volumes: none });
      }
    this.#takenBytes += takenBytes;
    if (look === 0) return;
    const oldestFirst = containers.toSorted((a, b) => this.#lastLook(a) - this.#lastLook(b));
    for (let from = 0; from < look; from += COUNTED_AT_ONCE) {
      if (this.#abort.signal.aborted) return;
      await this.#check(oldestFirst.slice(from, Math.min(look, from + COUNTED_AT_ONCE)), nowMs);
    }
    this.#rootsApart.begin();
    this.#volumesApart.begin();
  }

  readonly #lastLook = ({ containerId }: WatchedContainer): number =>
    this.#lookedAt.get(containerId) ?? Number.NEGATIVE_INFINITY;

  /** Counts what can be counted here, and leaves the rest to be counted apart. */
  async #check(some: readonly WatchedContainer[], nowMs: number): Promise<void> {
    const { viewOf } = this.#parts;
    const here: ToCount[] = [];
    for (const one of some) {
      this.#lookedAt.set(one.containerId, nowMs);
      const root = await this.#tried(one, 'root', () => this.#rootOf(one));
      const volumes = await this.#tried(one, 'volumes', () => this.#volumesOf(one));
      if (volumes !== undefined && volumes.length > 0)
        this.#volumesApart.add(one.containerId, { one, folders: volumes });
      if (root === undefined) continue;
      const folders = [viewOf(one.shortId), ...(root === '' ? [] : [root])];
      // Without a folder the engine's own count is needed; a slow walk would delay others.
      if (root === '' || this.#slow.has(one.containerId)) this.#rootsApart.add(one.containerId, { one, folders });
      else here.push({ one, folders });
    }
    const takenAtBytes = this.#takenBytes;
    const bytes = await countEachHere(
      here.map(({ folders }) => folders),
      { walkMs: WALK_MS },
    );
    for (const [at, { one, folders }] of here.entries()) {
      const counted = bytes[at];
      if (counted !== undefined) this.#counted(one, 'root', counted, takenAtBytes);
      else {
        this.#slow.set(one.containerId, true);
        this.#rootsApart.add(one.containerId, { one, folders });
      }
    }
    this.#tell(some, undefined);
  }

  async #countRoots(some: readonly ToCount[]): Promise<void> {
    const limiter = new Limiter(APART_AT_ONCE);
    const count = async ({ one, folders }: ToCount): Promise<void> => {
      if (this.#abort.signal.aborted) return;
      const takenAtBytes = this.#takenBytes;
      const late = (): Error => new Error(`no count of its root within ${APART_MS / 1000} s`);
      const bytes = await this.#tried(one, 'root', () => withDeadline(this.#estimated(one, folders), APART_MS, late));
      if (bytes !== undefined) this.#counted(one, 'root', bytes, takenAtBytes);
      this.#tell([one], 'root');
    };
    await Promise.all(some.map((each) => limiter.run(() => count(each))));
  }

  /** Counts the volumes of all these containers at once. */
  async #countVolumes(some: readonly ToCount[]): Promise<void> {
    const takenAtBytes = this.#takenBytes;
    let bytes: ReadonlyMap<string, number>;
    try {
      bytes = await this.#parts.countVolumes(some.flatMap(({ folders }) => folders));
    } catch (error) {
      // An engine that starts no helper is no container's fault. The watch of the whole disk goes on meanwhile.
      this.#parts.onLook('failed');
      this.#parts.log.warn({ err: error }, 'volumes of images could not be counted');
      return;
    }
    const why = new Error('a volume of its image took too long to count, or could not be read');
    for (const { one, folders } of some) {
      const each = folders.map((folder) => bytes.get(folder));
      const isWhole = each.every((found) => found !== undefined);
      const sum = each.reduce<number>((all, found) => all + (found ?? 0), 0);
      if (isWhole) this.#counted(one, 'volumes', sum, takenAtBytes);
      else this.#failed(one, 'volumes', why);
    }
    this.#tell(
      some.map(({ one }) => one),
      'volumes',
    );
  }

  #counted(one: WatchedContainer, part: keyof Counts, bytes: number, takenAtBytes: number): void {
    this.#parts.onLook('ok');
    const before = this.#counts.get(one.containerId);
    // The container has ended meanwhile.
    if (before === undefined) return;
    this.#counts.set(one.containerId, { ...before, [part]: { bytes, failed: 0, takenAtBytes } });
  }

  #failed({ containerId }: WatchedContainer, part: keyof Counts, error: unknown): void {
    const { onLook, log } = this.#parts;
    onLook('failed');
    const before = this.#counts.get(containerId);
    if (before === undefined) return;
    log.warn({ err: error, containerId }, 'what a container wrote could not be counted');
    this.#counts.set(containerId, { ...before, [part]: { ...before[part], failed: before[part].failed + 1 } });
  }

  /** @param tried - the part whose count has ended: one that is still under way may yet succeed, and costs nothing */
  #tell(some: readonly WatchedContainer[], tried: keyof Counts | undefined): void {
    const uses = some.flatMap(({ containerId }): DiskUse[] => {
      const counts = this.#counts.get(containerId);
      if (counts === undefined) return [];
      const failing = tried === undefined ? undefined : counts[tried];
      return [{ containerId, ...chargeOf(this.usedBy(containerId), failing, this.#takenBytes) }];
    });
    for (const use of overLimit(uses, this.#parts.limitBytes)) this.#over.tell(use);
  }

  /** Runs a look; a failure is a failed count, and delays no other container. */
  async #tried<T>(
    one: WatchedContainer,
    part: keyof Counts,
    look: () => Promise<T | undefined>,
  ): Promise<T | undefined> {
    try {
      return await look();
    } catch (error) {
      this.#failed(one, part, error);
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
export const overDiskText = ({ usedBytes, isCounted }: Charge, limitBytes: number): string =>
  `${isCounted ? '' : 'it has too many files to be counted in time, so what anybody wrote since its last count is charged: '}it wrote ${isCounted ? '' : 'up to '}${Math.ceil(usedBytes / MIB)} MiB to its disk (its root, its code and volumes of its image together), and may write ${Math.floor(limitBytes / MIB)} MiB (LONGSHORE_AGENT_CONTAINER_DISK_MIB of its machine); large files belong in a volume`;
