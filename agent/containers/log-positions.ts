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
  #hadFile = false;
  /** A file exists that the next agent can read. */
  #hasFile = false;

  constructor(path: string) {
    this.#path = path;
  }

  /** Reads the positions of an earlier agent. An unreadable file counts as none. */
  async open(): Promise<void> {
    const text = await readIfThere(this.#path);
    if (text === undefined) return;
    this.#hadFile = true;
    try {
      for (const [containerId, position] of Object.entries(JSON.parse(text) as Record<string, unknown>))
        if (typeof position === 'string') this.#positions.set(containerId, position);
      this.#hasFile = true;
    } catch {
      this.#hadFile = false;
    }
  }

  /**
   * The position at which to continue; empty: the beginning. Undefined: the earlier agent kept no positions, so nobody
   * knows which lines were sent.
   */
  resumeAt(containerId: string): string | undefined {
    return this.#positions.get(containerId) ?? (this.#hadFile ? '' : undefined);
  }

  follow(containerId: string): void {
    this.#followed.add(containerId);
    // No output has arrived yet; the file must exist so that the next agent knows that positions are kept.
    if (!this.#hasFile) this.#write();
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
      this.#hasFile = true;
    } catch {
      // A failed write is tolerated, see above.
    }
  }
}
