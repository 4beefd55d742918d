// Reads the runs that handlers record in a file on a volume,
// and checks that the file only ever grows, across all kills.
import { existsSync, readFileSync, statSync } from 'node:fs';
import type { Run } from './audit.ts';

export class HandlerRecords {
  readonly path: string;
  #bytes = 0;

  constructor(path: string) {
    this.path = path;
  }

  /** @returns the file's fault now; undefined: the file is there, and no shorter than before */
  lost(): string | undefined {
    const bytes = existsSync(this.path) ? statSync(this.path).size : 0;
    const before = this.#bytes;
    this.#bytes = bytes;
    return bytes < before ? `volume_lost: ${this.path} had ${before} bytes and has ${bytes}` : undefined;
  }

  /** @throws Error when there is none */
  read(): readonly Run[] {
    if (!existsSync(this.path)) throw new Error(`the handlers wrote nothing down: ${this.path} is not there`);
    const lines = readFileSync(this.path, 'utf8').trimEnd().split('\n');
    return lines
      .map((line) => JSON.parse(line) as Run & { readonly event: string })
      .filter(({ event }) => event === 'began');
  }
}
