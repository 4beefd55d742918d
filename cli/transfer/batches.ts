// Which files of a copy go in one request. Pure.
import { RECORD_BYTES } from './pack.ts';

const MOST_FILES = 500;
const MOST_BYTES = 32 * 1024 * 1024;

/** Large files alone and first, so that no lane ends with one; the others together. */
export function batchesOf<File extends { readonly size: number }>(files: readonly File[]): (readonly File[])[] {
  const batches: File[][] = files.filter(({ size }) => size > RECORD_BYTES).map((file) => [file]);
  let batch: File[] = [];
  let bytes = 0;
  for (const file of files) {
    if (file.size > RECORD_BYTES) continue;
    if (batch.length >= MOST_FILES || bytes + file.size > MOST_BYTES) {
      batches.push(batch);
      batch = [];
      bytes = 0;
    }
    batch.push(file);
    bytes += file.size;
  }
  if (batch.length > 0) batches.push(batch);
  return batches;
}
