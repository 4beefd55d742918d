// Where bytes are kept: the port that service.ts needs. `files.ts` is one backend; a bucket is another.
import type { Readable } from 'node:stream';

export interface StoredBytes {
  readonly size: number;
  /** Hex, computed as the bytes arrived. */
  readonly sha256: string;
}

export interface KeptObject {
  readonly key: string;
  readonly writtenAtMs: number;
}

export interface ObjectBackend {
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
}
