// Callers by the sha256 of their token, so that authentication costs microseconds.
// The cache holds no token, and is bounded. An entry is only as reliable as the
// invalidation messages, so entries are short-lived while those cannot arrive.
import type { Caller } from './caller.ts';

/** A caller; null for a token known to be invalid; undefined: not in the cache. */
export type Known = Caller | null | undefined;

interface Entry {
  readonly caller: Caller;
  readonly atMs: number;
}

const MAX_ENTRIES = 10_000;
/** Longest life of an entry: a safety net below the messages. */
const MAX_AGE_MS = 60_000;
const MAX_AGE_WITHOUT_MESSAGES_MS = 1_000;
const NEGATIVE_AGE_MS = 5_000;

export class TokenCache {
  readonly #known = new Map<string, Entry>();
  readonly #worthless = new Map<string, number>();
  readonly #maxEntries: number;
  /** Grows with every invalidation: an answer to a question from before one may be stale, and is not kept. */
  #generation = 0;

  constructor(maxEntries: number = MAX_ENTRIES) {
    this.#maxEntries = maxEntries;
  }

  get generation(): number {
    return this.#generation;
  }

  get size(): number {
    return this.#known.size;
  }

  get(hash: string, nowMs: number, messagesArrive: boolean): Known {
    const entry = this.#known.get(hash);
    if (entry !== undefined) {
      const maxAgeMs = messagesArrive ? MAX_AGE_MS : MAX_AGE_WITHOUT_MESSAGES_MS;
      this.#known.delete(hash);
      if (nowMs - entry.atMs >= maxAgeMs) return undefined;
      // The entry is put back at the end: the first one is always the least recently used.
      this.#known.set(hash, entry);
      return entry.caller;
    }
    const sinceMs = this.#worthless.get(hash);
    if (sinceMs === undefined) return undefined;
    if (nowMs - sinceMs < NEGATIVE_AGE_MS) return null;
    this.#worthless.delete(hash);
    return undefined;
  }

  /** Stores an answer. @param generation - read before the database was asked */
  put(hash: string, caller: Caller | null, nowMs: number, generation: number): void {
    if (generation !== this.#generation) return;
    if (caller === null) {
      this.#worthless.set(hash, nowMs);
      dropOldest(this.#worthless, this.#maxEntries);
    } else {
      this.#known.set(hash, { caller, atMs: nowMs });
      dropOldest(this.#known, this.#maxEntries);
    }
  }

  invalidate(hash: string): void {
    this.#generation++;
    this.#known.delete(hash);
    this.#worthless.delete(hash);
  }

  clear(): void {
    this.#generation++;
    this.#known.clear();
    this.#worthless.clear();
  }
}

function dropOldest(map: Map<string, unknown>, max: number): void {
  if (map.size <= max) return;
  for (const oldest of map.keys()) {
    map.delete(oldest);
    return;
  }
}
