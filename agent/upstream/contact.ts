/**
 * When the scheduler was last known to hear this machine: the moment at which the newest message that it answered was sent. Kept on disk, so that another agent process
 * counts on from there; written without waiting for the disk, because a power cut ends the containers that it is about, too. Counted by the time since boot, which no
 * clock is set to, which goes on in suspend, and which all processes of a boot share.
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
  /** Since boot. Never answered in this boot, as far as is known: the boot itself. */
  #answeredMs = 0;
  #writing: Promise<void> | undefined;
  #changed = false;

  constructor(parts: ContactParts) {
    this.#parts = parts;
    this.#nowMs = parts.nowMs ?? (() => uptime() * 1000);
  }

  /** Reads what an earlier agent left. What cannot be read, or is of another boot, counts as none. */
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

  /** Something that the scheduler answers is about to be sent. @returns to be called when the answer has come */
  asking(): () => void {
    const sentMs = this.#nowMs();
    return () => {
      if (sentMs <= this.#answeredMs) return;
      this.#answeredMs = sentMs;
      this.#write();
    };
  }

  /** For how long nothing that was sent is known to have arrived. */
  silentMs(): number {
    return this.#nowMs() - this.#answeredMs;
  }

  /** Resolves when what is known is in the file. */
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
        // The older moment stays there: counted from it, containers stop earlier, never later.
        log.warn({ err: error, path }, 'the last contact could not be written');
      }
    }
  }
}
