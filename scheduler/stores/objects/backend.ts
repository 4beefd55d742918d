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
   * @param mostOf - called when an upload is there, with its size
   * @returns undefined: nothing was uploaded since the last time
   * @throws AppError `body_too_large`: the upload is deleted; `object_store_failed`
   */
  take(key: string, mostOf: (size: number) => Promise<number>): Promise<StoredVersion | undefined>;
  /** Measures the bytes that are at the key's place now. */
  measure(key: string): Promise<StoredVersion | undefined>;
  /** Version of the bytes at the key's place; undefined: none. */
  versionOf(key: string): Promise<string | undefined>;
  /** Lists uploads that were not taken. */
  list(): AsyncIterable<KeptObject>;
  drop(key: string): Promise<void>;
}

/** An upload that was cut off and may go on. */
export interface UnfinishedUpload {
  /** Bytes that arrived. */
  readonly received: number;
  /** Size of the whole, as the upload announced it. */
  readonly total: number;
  /** Whether a request is sending it now. */
  readonly isBusy: boolean;
}

/** A part of an upload: the bytes from `first` to before `end`, of `total`. */
export interface UploadedPart {
  readonly first: number;
  readonly end: number;
  readonly total: number;
}

export interface PutOptions {
  /** Size of the whole: an upload that is cut off is kept when `mayKeep` says so. Absent: nothing is kept. */
  readonly keep?: { readonly total: number; readonly mayKeep: () => Promise<boolean> };
  /** Moves the complete bytes to their place, by calling `place`. Absent: they are moved at once. */
  readonly settle?: Settle;
}

export type Settle = (stored: StoredBytes, place: () => Promise<void>) => Promise<void>;

/** Uploads in parts, through the scheduler. */
export interface ResumableUploads {
  /** undefined: nothing of an upload is there. */
  find(key: string): Promise<UnfinishedUpload | undefined>;
  /**
   * Adds a part to an unfinished upload, or begins anew at 0. A part that is cut off keeps what arrived of it.
   * @returns the stored object after the last part; else the number of bytes that arrived
   * @throws AppError `upload_offset_mismatch` (details.received), `upload_in_progress`, and as `put`
   */
  append(
    key: string,
    part: UploadedPart,
    source: AsyncIterable<Uint8Array>,
    settle: Settle,
  ): Promise<StoredBytes | { readonly received: number }>;
  /** Lists unfinished uploads that no request is sending. */
  list(): AsyncIterable<KeptObject>;
  drop(key: string): Promise<void>;
}

/** Opened bytes of an object; the reader has them also when the object is replaced meanwhile. */
export interface OpenedBytes {
  readonly size: number;
  /** Bytes of a range, both ends included. Call it once; it closes the object at its end. */
  read(first: number, last: number): Readable;
  /** Closes an object that was not read. */
  close(): Promise<void>;
}

/** Downloads through the scheduler, or past it by an address that the store signs. */
export type Downloads =
  | { readonly kind: 'here'; open(key: string): Promise<OpenedBytes | undefined> }
  | { readonly kind: 'direct'; sign(key: string, lifeSeconds: number): Promise<string> };

export interface ObjectBackend {
  /** Direct uploads; absent: uploads come through the scheduler. */
  readonly uploads?: DirectUploads;
  /** Uploads in parts; absent: only whole ones. */
  readonly resumable?: ResumableUploads;
  /** Absent: no downloads by clients. */
  readonly downloads?: Downloads;
  /**
   * Stores the whole stream under the key, or nothing of it; an older object of that key is replaced at the end.
   * @throws AppError `body_too_large` above `maxBytes`, `disk_full`, `disk_read_only`, `object_store_failed`
   */
  put(key: string, source: AsyncIterable<Uint8Array>, maxBytes: number, options?: PutOptions): Promise<StoredBytes>;
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
