/**
 * Counts the space of each workspace's `local` volumes on this machine, slowly; the scheduler sums up all machines. A
 * workspace whose files came or went by transfers is counted soon after. `shared` and `nfs` volumes lie elsewhere and
 * are not counted. Must stay true: one count at a time; counting takes at most a tenth of the time; a folder that
 * cannot be counted keeps its last number.
 */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import { countHere } from '../telemetry/count-blocks.ts';

const FIRST_MS = 60_000;
const EVERY_MS = 15 * 60_000;
/** Time for further transfers after the first one that ended. */
const SETTLE_MS = 10_000;
const WALK_MS = 60_000;
/** Rest after each walk, as a multiple of its duration. */
const REST = 9;
/** Bound on reported workspaces, the largest first. */
const MOST = 1_000;
const WORKSPACE = /^[A-Za-z0-9][A-Za-z0-9_-]{0,100}$/;

export interface VolumeUseParts {
  /** Root with a folder for each workspace. */
  readonly root: string;
  /** Counts folders that this user may not read. */
  readonly countByHelper: (paths: readonly string[]) => Promise<number>;
  readonly tell: (bytes: Readonly<Record<string, number>>) => void;
  readonly log: Log;
}

export class VolumeUse {
  readonly #parts: VolumeUseParts;
  readonly #abort = new AbortController();
  #bytes = new Map<string, number>();
  #hasCounted = false;
  /** Workspaces to be counted soon. */
  #changed = new Set<string>();
  #wake = new AbortController();
  #running: Promise<void> | undefined;

  constructor(parts: VolumeUseParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#running = this.#run();
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#running;
  }

  /** Has a workspace counted soon. */
  changed(workspaceId: string): void {
    this.#changed.add(workspaceId);
    this.#wake.abort();
  }

  async #run(): Promise<void> {
    const { signal } = this.#abort;
    let allAtMs = performance.now() + FIRST_MS;
    while (!signal.aborted) {
      const isTime = await sleep(
        Math.max(0, allAtMs - performance.now()),
        AbortSignal.any([signal, this.#wake.signal]),
      );
      if (!isTime && !(await sleep(SETTLE_MS, signal))) return;
      const changed = this.#changed;
      this.#changed = new Set();
      this.#wake = new AbortController();
      const isAll = isTime || !this.#hasCounted;
      if (isAll) allAtMs = performance.now() + EVERY_MS;
      try {
        await this.round(isAll ? undefined : changed);
      } catch (error) {
        this.#parts.log.info({ err: error }, 'volumes could not be counted');
      }
    }
  }

  /**
   * Counts once, and reports.
   * @param changed - these workspaces alone, after all were counted
   */
  async round(changed?: ReadonlySet<string>): Promise<void> {
    const { root, tell } = this.#parts;
    const { signal } = this.#abort;
    const found = await readdir(root, { withFileTypes: true });
    const workspaces = found.filter((one) => one.isDirectory() && WORKSPACE.test(one.name)).map(({ name }) => name);
    const bytes = new Map<string, number>(changed === undefined ? [] : this.#bytes);
    for (const workspace of workspaces) {
      if (changed?.has(workspace) === false) continue;
      const from = performance.now();
      const counted = (await this.#count(join(root, workspace))) ?? this.#bytes.get(workspace);
      if (counted !== undefined) bytes.set(workspace, counted);
      if (!(await sleep(REST * (performance.now() - from), signal))) return;
    }
    this.#bytes = bytes;
    this.#hasCounted = true;
    tell(Object.fromEntries([...bytes].toSorted(([, a], [, b]) => b - a).slice(0, MOST)));
  }

  async #count(path: string): Promise<number | undefined> {
    try {
      return (await countHere([path], WALK_MS)) ?? (await this.#parts.countByHelper([path]));
    } catch (error) {
      this.#parts.log.info({ err: error, path }, 'volumes of a workspace could not be counted');
      return undefined;
    }
  }
}
