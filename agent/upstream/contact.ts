/**
 * The last proven contact with the scheduler: the moment at which the newest answered message was sent. Kept on disk,
 * so that the next agent process counts on from it. Nobody waits for the write, because a power cut ends the affected
 * containers too. Time counts since boot: that clock is never set, goes on in suspend, and is the same for all
 * processes of a boot.
 */
import { rename, writeFile } from 'node:fs/promises';
import { uptime } from 'node:os';
import type { Log } from '#shared/log.ts';
import { readIfThere } from '../durable.ts';

interface ContactFile {
  readonly bootId: string;
  readonly answeredMs: number;
}

export interface ContactParts {
  readonly path: string;
  readonly bootId: string;
  readonly log: Log;
  /** Milliseconds since boot. */
  readonly nowMs?: () => number;
}

export class Contact {
  readonly #parts: ContactParts;
  readonly #nowMs: () => number;
  /** Milliseconds since boot; 0, the boot itself, without a known answer in this boot. */
  #answeredMs = 0;
  #writing: Promise<void> | undefined;
  #changed = false;

  constructor(parts: ContactParts) {
    this.#parts = parts;
    this.#nowMs = parts.nowMs ?? (() => uptime() * 1000);
  }

  /** Reads the moment of an earlier agent. An unreadable file, or one of another boot, counts as none. */
  async open(): Promise<void> {
    const text = await readIfThere(this.#parts.path);
    try {
      const { bootId, answeredMs } = JSON.parse(text ?? '') as Partial<ContactFile>;
      if (bootId === this.#parts.bootId && typeof answeredMs === 'number' && answeredMs <= this.#nowMs())
        this.#answeredMs = answeredMs;
    } catch {
      if (text !== undefined) this.#parts.log.warn({ path: this.#parts.path }, 'the last contact cannot be read');
    }
  }

  /**
   * Notes that a message with an expected answer is about to be sent. @returns a function to call when the answer has
   * come
   */
  asking(): () => void {
    const sentMs = this.#nowMs();
    return () => {
      if (sentMs <= this.#answeredMs) return;
      this.#answeredMs = sentMs;
      this.#write();
    };
  }

  /** Milliseconds since the last message that is known to have arrived was sent. */
  silentMs(): number {
    return this.#nowMs() - this.#answeredMs;
  }

  /** Resolves when the file is up to date. */
  async close(): Promise<void> {
    while (this.#writing !== undefined) await this.#writing;
  }

  #write(): void {
    this.#changed = true;
    this.#writing ??= this.#writeAll().finally(() => (this.#writing = undefined));
  }

  async #writeAll(): Promise<void> {
    const { path, bootId, log } = this.#parts;
    while (this.#changed) {
      this.#changed = false;
      const file: ContactFile = { bootId, answeredMs: this.#answeredMs };
      try {
        await writeFile(`${path}.new`, JSON.stringify(file), { mode: 0o600 });
        await rename(`${path}.new`, path);
      } catch (error) {
        // The file keeps the older moment: with it, containers stop earlier, never later.
        log.warn({ err: error, path }, 'the last contact could not be written');
      }
    }
  }
}
