// Where bytes are kept: the port that service.ts needs. `files.ts` is one backend; a bucket is another.
import type { Readable } from 'node:stream';

export interface StoredBytes {
  readonly size: number;
  /** Hex, computed as the bytes arrived. */
  readonly sha256: string;
}

export interface StoredVersion extends StoredBytes {
  /** Of these bytes, by the store's own name. */
  readonly version: string;
}

export interface KeptObject {
  readonly key: string;
  readonly writtenAtMs: number;
}

/** Uploads that go to the store itself, past the scheduler; it hears of them when it looks. */
export interface DirectUploads {
  /** An absolute address that takes one PUT after the other for so long. */
  sign(key: string, lifeSeconds: number): Promise<string>;
  /**
   * Moves what was uploaded under the key to its place, with its checksum. Two that take at once leave the same.
   * @param maxBytes - asked when something is there
   * @returns undefined: nothing was uploaded since the last time @throws AppError `body_too_large`: it is gone; `object_store_failed`
   */
  take(key: string, maxBytes: () => Promise<number>): Promise<StoredVersion | undefined>;
  /** What is at its place now. */
  measure(key: string): Promise<StoredVersion | undefined>;
  /** Which bytes are at its place now; undefined: none. */
  versionOf(key: string): Promise<string | undefined>;
  /** What was uploaded and not taken. */
  list(): AsyncIterable<KeptObject>;
  drop(key: string): Promise<void>;
}

export interface ObjectBackend {
  /** Absent: uploads come through the scheduler. */
  readonly uploads?: DirectUploads;
  /**
   * Keeps the whole stream under the key, or nothing of it; an older object of that key is replaced at the end.
   * @throws AppError `body_too_large` above `maxBytes`, `disk_full`, `disk_read_only`, `object_store_failed`
   */
  put(key: string, source: AsyncIterable<Uint8Array>, maxBytes: number): Promise<StoredBytes>;
  /** undefined: no such object. The reader keeps what it opened, also when the object is replaced or removed meanwhile. */
  open(key: string): Promise<{ readonly size: number; readonly stream: Readable } | undefined>;
  exists(key: string): Promise<boolean>;
  /** Removing what is not there is fine. */
  remove(key: string): Promise<void>;
  /** Every object, in any order; one that comes or goes meanwhile may be missing or named. */
  list(): AsyncIterable<KeptObject>;
  /** Lets go of its connections. */
  close?(): void;
}
