// Small files of a zip archive in memory, each inflated whole. Streams for each cost five times as much processor time,
// and most code consists of small files.
import { close, fchmod, open, write } from 'node:fs';
import { promisify } from 'node:util';
import { inflateRawSync } from 'node:zlib';
import type { Entry } from 'yauzl';

/** Inflating so much takes well below a millisecond, in which nothing else runs. */
const MOST_BYTES = 64 * 1024;
const LOCAL_HEADER = 0x04034b50;
const LOCAL_HEADER_BYTES = 30;
const ENCRYPTED = 0x1;
const STORED = 0;
const DEFLATED = 8;

// The functions with callbacks: handles of files cost twice as much for each call.
const openAt = promisify(open);
const writeTo = promisify(write);
const setMode = promisify(fchmod);
const closeIt = promisify(close);

/**
 * @param archive - all of its bytes
 * @returns false, and nothing was written, for an entry that is to be read as a stream
 */
export async function writeSmallFile(archive: Buffer, entry: Entry, path: string, mode: number): Promise<boolean> {
  const packed = packedBytes(archive, entry);
  if (packed === undefined) return false;
  const content = contentOf(entry, packed);
  // Exclusive: an entry never replaces another one.
  const file = await openAt(path, 'wx', 0o600);
  try {
    for (let at = 0; at < content.length;) at += (await writeTo(file, content, at)).bytesWritten;
    await setMode(file, mode);
  } finally {
    await closeIt(file);
  }
  return true;
}

function packedBytes(archive: Buffer, entry: Entry): Buffer | undefined {
  const { compressedSize, uncompressedSize, compressionMethod, generalPurposeBitFlag } = entry;
  if (compressedSize > MOST_BYTES || uncompressedSize > MOST_BYTES) return undefined;
  if (compressionMethod !== STORED && compressionMethod !== DEFLATED) return undefined;
  if ((generalPurposeBitFlag & ENCRYPTED) !== 0) return undefined;
  const header = entry.relativeOffsetOfLocalHeader;
  if (header + LOCAL_HEADER_BYTES > archive.length || archive.readUInt32LE(header) !== LOCAL_HEADER) return undefined;
  const from = header + LOCAL_HEADER_BYTES + archive.readUInt16LE(header + 26) + archive.readUInt16LE(header + 28);
  return from + compressedSize > archive.length ? undefined : archive.subarray(from, from + compressedSize);
}

/** @throws Error when it has another size than the directory says */
function contentOf({ compressionMethod, uncompressedSize }: Entry, packed: Buffer): Buffer {
  const content =
    compressionMethod === STORED
      ? packed
      : inflateRawSync(packed, {
          maxOutputLength: uncompressedSize + 1,
          chunkSize: Math.max(64, uncompressedSize + 1),
        });
  if (content.length !== uncompressedSize)
    throw new Error(`a file has ${content.length} bytes, and the directory of the archive says ${uncompressedSize}`);
  return content;
}
