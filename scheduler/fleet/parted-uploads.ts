// Uploads whose parts come side by side. The id of an upload says how it is cut, so no scheduler keeps a record of it:
// the file server knows which uploads there are (python/longshore/volume_files/parts.py). Pure.
import { randomBytes } from 'node:crypto';

/** Most parts of an upload; the file server has the same bound. */
export const MOST_PARTS = 10_000;
/** Most bytes of an upload. */
const MOST_BYTES = 10_000_000_000_000;

export interface PartedUpload {
  /** 16 hex digits. */
  readonly key: string;
  /** Bytes of the whole. */
  readonly total: number;
  /** Bytes of each part but the last. */
  readonly partBytes: number;
}

export interface Part {
  readonly upload: PartedUpload;
  /** From 1 on. */
  readonly number: number;
}

/** @returns a new upload, or why there is none of that form */
export function newUpload(total: number, partBytes: number): PartedUpload | string {
  if (total > MOST_BYTES) return `file_size must be at most ${MOST_BYTES}`;
  if (partBytes < 1 && total > 0) return 'chunk_size must be at least 1';
  const upload = { key: randomBytes(8).toString('hex'), total, partBytes: Math.max(1, Math.min(partBytes, total)) };
  const count = countOf(upload);
  return count > MOST_PARTS ? `chunk_size makes ${count} parts of the file: at most ${MOST_PARTS} are taken` : upload;
}

/** Number of an upload's parts. */
export const countOf = ({ total, partBytes }: PartedUpload): number => Math.ceil(total / partBytes);

/** The bytes of a part: the first one, and the one behind the last. */
export const rangeOf = ({ total, partBytes }: PartedUpload, number: number) => ({
  start: (number - 1) * partBytes,
  end: Math.min(total, number * partBytes),
});

export const uploadIdOf = ({ key, total, partBytes }: PartedUpload): string => `${key}.${total}.${partBytes}`;

const ID = /^([0-9a-f]{16})\.(\d{1,14})\.([1-9]\d{0,13})$/;

/** Reads the id of an upload; undefined: it is none. */
export function readUploadId(id: string): PartedUpload | undefined {
  const [, key, total, partBytes] = ID.exec(id) ?? [];
  if (key === undefined) return undefined;
  const upload = { key, total: Number(total), partBytes: Number(partBytes) };
  return countOf(upload) <= MOST_PARTS ? upload : undefined;
}

/** Reads the number of a part of that upload; undefined: it has none of that number. */
export function readPart(upload: PartedUpload | undefined, text: string): Part | undefined {
  if (upload === undefined || !/^[1-9]\d{0,4}$/.test(text)) return undefined;
  const number = Number(text);
  return number <= countOf(upload) ? { upload, number } : undefined;
}
