/** The record of mounts on the disk, by which the next helper takes them up. Must stay true: it holds no key. */
import { join } from 'node:path';
import type { Log } from '#shared/log.ts';
import { readIfThere, writeDurably } from '../durable.ts';
import type { GuardPlace } from './guard.ts';

/** A mount as it is kept on the disk. */
export interface KeptMount {
  readonly id: string;
  readonly kind: 'bucket' | 'volumes';
  readonly workspaceId: string;
  /** Keyed hash of the bucket, its keys and options. */
  readonly key: string;
  readonly name: string;
  readonly pid: number;
  readonly ticks: string;
  readonly path: string;
  readonly cacheDir: string;
  readonly holders: readonly string[];
  readonly lost?: string;
}

interface StateFile {
  readonly version: 1;
  readonly guard: GuardPlace;
  readonly hashKey: string;
  readonly mounts: readonly KeptMount[];
}

export class MountRecord {
  readonly #path: string;
  readonly #log: Log;
  #writing: Promise<void> = Promise.resolve();

  constructor(directory: string, log: Log) {
    this.#path = join(directory, 'state.json');
    this.#log = log;
  }

  /** The state of the helper before; undefined: none that can be read. */
  async read(): Promise<StateFile | undefined> {
    const text = await readIfThere(this.#path);
    if (text === undefined) return undefined;
    try {
      const file = JSON.parse(text) as StateFile;
      return file.version === 1 ? file : undefined;
    } catch {
      this.#log.warn({ path: this.#path }, 'the record of mounts cannot be read; they end');
      return undefined;
    }
  }

  /** Writes the record; one write at a time, the state as it then is. */
  write(state: () => Omit<StateFile, 'version'>): Promise<void> {
    this.#writing = this.#writing
      .catch(() => undefined)
      .then(() => writeDurably(this.#path, JSON.stringify({ version: 1, ...state() })));
    return this.#writing;
  }
}
