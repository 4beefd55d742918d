// The store of bytes: the interface that service.ts needs. `files.ts` is one backend; a bucket is another.
import type { Readable } from 'node:stream';

export interface StoredBytes {
  readonly size: number;
  /** Checksum in hex, computed as the bytes arrived. */
  readonly sha256: string;
}

export interface StoredVersion extends StoredBytes {
  /** Version of these bytes, in the store's own naming. */
  readonly version: string;
}

export interface KeptObject {
  readonly key: string;
  readonly writtenAtMs: number;
}

/** Uploads that go to the store itself, past the scheduler, which finds them when it looks. */
export interface DirectUploads {
  /** Signs an absolute address that accepts one PUT after another for that time. */
  sign(key: string, lifeSeconds: number): Promise<string>;
  /**
   * Moves the bytes uploaded under the key to their place, with
   * their checksum. Two calls at once leave the same result.
   * @param maxBytes - called when an upload is there
   * @returns undefined: nothing was uploaded since the last time
   * @throws AppError `body_too_large`: the upload is deleted; `object_store_failed`
   */
  take(key: string, maxBytes: () => Promise<number>): Promise<StoredVersion | undefined>;
  /** Measures the bytes that are at the key's place now. */
  measure(key: string): Promise<StoredVersion | undefined>;
  /** Version of the bytes at the key's place; undefined: none. */
  versionOf(key: string): Promise<string | undefined>;
  /** Lists uploads that were not taken. */
  list(): AsyncIterable<KeptObject>;
  drop(key: string): Promise<void>;
}

export interface ObjectBackend {
  /** Direct uploads; absent: uploads come through the scheduler. */
  readonly uploads?: DirectUploads;
  /**
   * Stores the whole stream under the key, or nothing of it; an older object of that key is replaced at the end.
   * @throws AppError `body_too_large` above `maxBytes`, `disk_full`, `disk_read_only`, `object_store_failed`
   */
  put(key: string, source: AsyncIterable<Uint8Array>, maxBytes: number): Promise<StoredBytes>;
  /**
   * Opens the object; undefined: it does not exist. The reader keeps the
   * opened bytes, also when the object is replaced or removed meanwhile.
   */
  open(key: string): Promise<{ readonly size: number; readonly stream: Readable } | undefined>;
  exists(key: string): Promise<boolean>;
  /** Removes an object; an absent one is no error. */
  remove(key: string): Promise<void>;
  /** Lists every object, in any order; one that comes or goes meanwhile may be missing or listed. */
  list(): AsyncIterable<KeptObject>;
  /** Closes its connections. */
  close?(): void;
}
