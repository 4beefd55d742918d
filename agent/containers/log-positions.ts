/**
 * How far the output of each container has reached the scheduler, so that another agent process goes on there: what was acknowledged is not told again, and what was
 * printed while no agent ran is told. Written when acknowledgements come, without waiting for the disk: a crash of the agent loses nothing of it, a power cut ends the
 * containers, too.
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
  /** There is one that the next agent can read. */
  #hasFile = false;

  constructor(path: string) {
    this.#path = path;
  }

  /** Reads what an earlier agent left. A file that cannot be read counts as none. */
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

  /** Where to go on; empty: at the beginning. Undefined: an earlier agent kept none, so nobody knows what was told. */
  resumeAt(containerId: string): string | undefined {
    return this.#positions.get(containerId) ?? (this.#hadFile ? '' : undefined);
  }

  follow(containerId: string): void {
    this.#followed.add(containerId);
    // Of it nothing has arrived yet; the next agent must know only that this one keeps notes.
    if (!this.#hasFile) this.#write();
  }

  /** Everything up to here has arrived. */
  reached(containerId: string, position: string): void {
    if (!this.#followed.has(containerId)) return;
    this.#positions.set(containerId, position);
    this.#write();
  }

  forget(containerId: string): void {
    this.#followed.delete(containerId);
    if (this.#positions.delete(containerId)) this.#write();
  }

  /** Resolves when what is known is in the file. */
  async close(): Promise<void> {
    while (this.#writing !== undefined) await this.#writing;
  }

  /** One write at a time; what changes meanwhile goes with the next. A write that fails costs lines told twice after a crash, nothing else. */
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
      // See above.
    }
  }
}
