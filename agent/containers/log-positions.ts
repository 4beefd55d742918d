/**
 * How far the output of each container has reached the scheduler, so that a later agent process continues there.
 * Acknowledged lines are not sent again; lines printed while no agent ran are. Acknowledgements cause a write that
 * nobody waits for: a crash of the agent loses nothing of it, and a power cut ends the containers too.
 */
import { rename, writeFile } from 'node:fs/promises';
import { readIfThere } from '../durable.ts';

export class LogPositions {
  readonly #path: string;
  readonly #positions = new Map<string, string>();
  readonly #followed = new Set<string>();
  #writing: Promise<void> | undefined;
  #changed = false;
  #isUnreadable = false;

  constructor(path: string) {
    this.#path = path;
  }

  /** Reads the positions of an earlier agent process. */
  async open(): Promise<void> {
    const text = await readIfThere(this.#path);
    if (text === undefined) return;
    try {
      for (const [containerId, position] of Object.entries(JSON.parse(text) as Record<string, unknown>))
        if (typeof position === 'string') this.#positions.set(containerId, position);
    } catch {
      this.#isUnreadable = true;
    }
  }

  /**
   * The position at which to continue; empty: the beginning, because nothing was acknowledged. Undefined: the file was
   * not readable, so nobody knows which lines were sent.
   */
  resumeAt(containerId: string): string | undefined {
    return this.#positions.get(containerId) ?? (this.#isUnreadable ? undefined : '');
  }

  follow(containerId: string): void {
    this.#followed.add(containerId);
  }

  /** Output up to this position has arrived. */
  reached(containerId: string, position: string): void {
    if (!this.#followed.has(containerId)) return;
    this.#positions.set(containerId, position);
    this.#write();
  }

  forget(containerId: string): void {
    this.#followed.delete(containerId);
    if (this.#positions.delete(containerId)) this.#write();
  }

  /** Resolves when the file is up to date. */
  async close(): Promise<void> {
    while (this.#writing !== undefined) await this.#writing;
  }

  /**
   * Writes one at a time; changes during a write go into the next. A failed write only costs lines sent twice after a
   * crash.
   */
  #write(): void {
    this.#changed = true;
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = undefined;
      if (this.#changed) this.#write();
    });
  }

  async #writeAll(): Promise<void> {
    this.#changed = false;
    try {
      await writeFile(`${this.#path}.new`, JSON.stringify(Object.fromEntries(this.#positions)), { mode: 0o600 });
      await rename(`${this.#path}.new`, this.#path);
    } catch {
      // A failed write is tolerated, see above.
    }
  }
}
