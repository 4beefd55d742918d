// Records into a file, a JSON object in each line. A file that is full is renamed; `.1` is the newest of the old ones.
import { mkdir, open, rename, rm, stat } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { ExportRecord, ExportTarget } from './exporter.ts';

export interface FileSettings {
  readonly path: string;
  /** Size from which a new file is begun. */
  readonly maxBytes: number;
  /** Files that are kept, the one that is written included. */
  readonly files: number;
}

export class FileTarget implements ExportTarget {
  readonly name = 'file';
  readonly #settings: FileSettings;
  #file: FileHandle | undefined;
  #bytes = 0;

  constructor(settings: FileSettings) {
    this.#settings = settings;
  }

  /** Appends the records. A write that fails half-way leaves a part of a line, which the next write ends. */
  async send(records: readonly ExportRecord[]): Promise<void> {
    const text = Buffer.from(records.map(({ kind, record }) => `${JSON.stringify({ kind, ...record })}\n`).join(''));
    try {
      if (this.#file !== undefined && this.#bytes + text.length > this.#settings.maxBytes && this.#bytes > 0)
        await this.#rotate();
      this.#file ??= await this.#open();
      await this.#file.appendFile(text);
      this.#bytes += text.length;
    } catch (error) {
      await this.close().catch(() => undefined);
      throw error;
    }
  }

  async close(): Promise<void> {
    const file = this.#file;
    this.#file = undefined;
    await file?.close();
  }

  async #open(): Promise<FileHandle> {
    const { path } = this.#settings;
    await mkdir(dirname(path), { recursive: true });
    const file = await open(path, 'a+', 0o640);
    this.#bytes = (await file.stat()).size;
    if (this.#bytes > 0) {
      const last = Buffer.alloc(1);
      await file.read(last, 0, 1, this.#bytes - 1);
      if (last.toString() !== '\n') await file.appendFile('\n');
    }
    return file;
  }

  async #rotate(): Promise<void> {
    const { path, files } = this.#settings;
    await this.close();
    await rm(`${path}.${files - 1}`, { force: true });
    for (let at = files - 1; at >= 1; at -= 1) {
      const from = at === 1 ? path : `${path}.${at - 1}`;
      if (await exists(from)) await rename(from, `${path}.${at}`);
    }
    if (files === 1) await rm(path, { force: true });
    this.#bytes = 0;
  }
}

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  );
