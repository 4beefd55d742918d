import { readIfThere, writeDurably } from '../durable.ts';

interface Entry {
  readonly pulledAtMs: number;
  usedAtMs: number;
}

/**
 * Which images this agent pulled, and when each was last wanted: on disk, because only these may be evicted. An image that was here before, or that somebody loaded,
 * built or pulled by hand, is never in it.
 */
export class ImageLedger {
  readonly #path: string;
  readonly #entries = new Map<string, Entry>();
  #dirty = false;

  constructor(path: string) {
    this.#path = path;
  }

  /** A file that cannot be read is begun anew: then nothing is evicted, which is the safe side. */
  async open(): Promise<void> {
    const text = await readIfThere(this.#path);
    if (text === undefined) return;
    try {
      for (const [reference, entry] of Object.entries(JSON.parse(text) as Record<string, unknown>))
        if (isEntry(entry)) this.#entries.set(reference, { ...entry });
    } catch {
      this.#dirty = true;
    }
  }

  all(): ReadonlyMap<string, Readonly<Entry>> {
    return this.#entries;
  }

  async pulled(reference: string, nowMs: number): Promise<void> {
    this.#entries.set(reference, { pulledAtMs: nowMs, usedAtMs: nowMs });
    this.#dirty = true;
    await this.save();
  }

  used(reference: string, nowMs: number): void {
    const entry = this.#entries.get(reference);
    if (entry === undefined) return;
    entry.usedAtMs = nowMs;
    this.#dirty = true;
  }

  forget(reference: string): void {
    this.#dirty = this.#entries.delete(reference) || this.#dirty;
  }

  /** Times of use may be lost in a crash; what was pulled is not. */
  async save(): Promise<void> {
    if (!this.#dirty) return;
    this.#dirty = false;
    await writeDurably(this.#path, JSON.stringify(Object.fromEntries(this.#entries)));
  }
}

function isEntry(value: unknown): value is Entry {
  if (typeof value !== 'object' || value === null) return false;
  return typeof Reflect.get(value, 'pulledAtMs') === 'number' && typeof Reflect.get(value, 'usedAtMs') === 'number';
}
