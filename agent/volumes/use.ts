/**
 * Counts the space of each workspace's `local` volumes on this machine, slowly; the scheduler sums up all machines.
 * `shared` and `nfs` volumes lie elsewhere and are not counted. Must stay true: one count at a time; counting takes at
 * most a tenth of the time; a folder that cannot be counted keeps its last number.
 */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import { countHere } from '../telemetry/count-blocks.ts';

const FIRST_MS = 60_000;
const EVERY_MS = 15 * 60_000;
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

  async #run(): Promise<void> {
    for (let waitMs = FIRST_MS; await sleep(waitMs, this.#abort.signal); waitMs = EVERY_MS) {
      try {
        await this.round();
      } catch (error) {
        this.#parts.log.info({ err: error }, 'volumes could not be counted');
      }
    }
  }

  /** Counts all workspaces once, and reports. */
  async round(): Promise<void> {
    const { root, tell } = this.#parts;
    const { signal } = this.#abort;
    const found = await readdir(root, { withFileTypes: true });
    const workspaces = found.filter((one) => one.isDirectory() && WORKSPACE.test(one.name)).map(({ name }) => name);
    const bytes = new Map<string, number>();
    for (const workspace of workspaces) {
      const from = performance.now();
      const counted = (await this.#count(join(root, workspace))) ?? this.#bytes.get(workspace);
      if (counted !== undefined) bytes.set(workspace, counted);
      if (!(await sleep(REST * (performance.now() - from), signal))) return;
    }
    this.#bytes = bytes;
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
