import { isRecord } from '#shared/json.ts';
import { readIfThere, writeDurably } from '../durable.ts';

/** Bound on remembered workspaces per image: those that were allowed last. */
const MOST_ALLOWED = 256;

interface Entry {
  readonly pulledAtMs: number;
  usedAtMs: number;
  /** Pulled with credentials. */
  readonly private: boolean;
  /** The engine's id of the pulled image. */
  readonly imageId: string;
  /** When a registry last confirmed the image to each workspace. */
  allowed: Record<string, number>;
}

/** Facts of a pull. */
export interface Pulled {
  readonly private: boolean;
  readonly imageId: string;
  readonly workspaceId: string;
}

/**
 * The images that this agent pulled, and the last use of each: on disk, because only these may be evicted. Images that
 * were here before, or that somebody loaded, built or pulled by hand, are never in it.
 */
export class ImageLedger {
  readonly #path: string;
  readonly #entries = new Map<string, Entry>();
  #dirty = false;
  #saving: Promise<void> = Promise.resolve();

  constructor(path: string) {
    this.#path = path;
  }

  /** Reads the ledger. An unreadable file starts empty: nothing is evicted then, which is the safe side. */
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

  async pulled(reference: string, nowMs: number, how: Pulled): Promise<void> {
    const allowed = how.private ? { ...this.#entries.get(reference)?.allowed, [how.workspaceId]: nowMs } : {};
    this.#entries.set(reference, {
      pulledAtMs: nowMs,
      usedAtMs: nowMs,
      private: how.private,
      imageId: how.imageId,
      allowed,
    });
    this.#dirty = true;
    await this.save();
  }

  /** Whether this agent pulled something by that name, or the image with that id by another name. */
  hasPulled(reference: string, imageId: string): boolean {
    return this.#entries.has(reference) || [...this.#entries.values()].some((entry) => entry.imageId === imageId);
  }

  /**
   * The workspaces that may have, by this very name, an image that was pulled with credentials by this name or another
   * one, each with the time; undefined: the image is public.
   */
  allowedPrivately(reference: string, imageId: string): Readonly<Record<string, number>> | undefined {
    for (const [name, entry] of this.#entries)
      if (entry.private && (name === reference || entry.imageId === imageId))
        return this.#entries.get(reference)?.allowed ?? {};
    return undefined;
  }

  /** The registry confirmed `reference` to that workspace. */
  async allowed(reference: string, workspaceId: string, nowMs: number): Promise<void> {
    const entry = this.#entries.get(reference);
    if (entry === undefined) return;
    const { [workspaceId]: _before, ...others } = entry.allowed;
    entry.allowed = Object.fromEntries([...Object.entries(others), [workspaceId, nowMs]].slice(-MOST_ALLOWED));
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

  /** Writes changes. A crash may lose times of use, never a pull. */
  async save(): Promise<void> {
    if (!this.#dirty) return;
    this.#dirty = false;
    const text = JSON.stringify(Object.fromEntries(this.#entries));
    // Writes follow one another: all use the same temporary file.
    this.#saving = this.#saving.catch(() => undefined).then(() => writeDurably(this.#path, text));
    await this.#saving;
  }
}

function isEntry(value: unknown): value is Entry {
  if (!isRecord(value)) return false;
  const { pulledAtMs, usedAtMs, imageId, allowed } = value;
  const isTimed = typeof pulledAtMs === 'number' && typeof usedAtMs === 'number';
  return isTimed && typeof value['private'] === 'boolean' && typeof imageId === 'string' && isRecord(allowed);
}
