// The files into which this command itself writes: `longshore serve app.py > serve.log` in the app's folder. If such a
// file were sent, each of its lines would be a change, which makes another line.
import { fstatSync, statSync } from 'node:fs';
import type { Stats } from 'node:fs';

type Place = Pick<Stats, 'dev' | 'ino'>;

const keyOf = ({ dev, ino }: Place): string => `${dev}:${ino}`;

export class OwnOutput {
  readonly #files: ReadonlySet<string>;

  /** @param descriptors - output of this process */
  constructor(descriptors: readonly number[] = [1, 2]) {
    this.#files = new Set(descriptors.flatMap(fileAt));
  }

  has(file: Place): boolean {
    return this.#files.has(keyOf(file));
  }

  hasPath(path: string): boolean {
    if (this.#files.size === 0) return false;
    const found = statSync(path, { throwIfNoEntry: false });
    return found !== undefined && this.has(found);
  }
}

function fileAt(descriptor: number): readonly string[] {
  try {
    const found = fstatSync(descriptor);
    return found.isFile() ? [keyOf(found)] : [];
  } catch {
    return []; // closed
  }
}
