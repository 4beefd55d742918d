// Reads the list at the end of a zip: names, sizes and checksums of its files, without unpacking any.
import { CliError } from '../errors.ts';

/** Checksum and size of each file, by name. */
export type ZipListing = ReadonlyMap<string, string>;

const END_SIGNATURE = 0x06054b50;
const ENTRY_SIGNATURE = 0x02014b50;
const END_BYTES = 22;
const ENTRY_BYTES = 46;
/** The longest comment behind the end record. */
const MOST_COMMENT = 0xffff;

/** @throws CliError when the bytes are no zip */
export function zipListing(zip: Buffer): ZipListing {
  const end = endOf(zip);
  const count = zip.readUInt16LE(end + 10);
  const listing = new Map<string, string>();
  let at = zip.readUInt32LE(end + 16);
  for (let index = 0; index < count; index += 1) {
    if (at + ENTRY_BYTES > zip.length || zip.readUInt32LE(at) !== ENTRY_SIGNATURE) throw noZip();
    const nameEnd = at + ENTRY_BYTES + zip.readUInt16LE(at + 28);
    const name = zip.toString('utf8', at + ENTRY_BYTES, nameEnd);
    if (!name.endsWith('/')) listing.set(name, `${zip.readUInt32LE(at + 16)} ${zip.readUInt32LE(at + 24)}`);
    at = nameEnd + zip.readUInt16LE(at + 30) + zip.readUInt16LE(at + 32);
  }
  return listing;
}

function endOf(zip: Buffer): number {
  for (let at = zip.length - END_BYTES; at >= Math.max(0, zip.length - END_BYTES - MOST_COMMENT); at -= 1)
    if (zip.readUInt32LE(at) === END_SIGNATURE) return at;
  throw noZip();
}

const noZip = (): CliError => new CliError('the code of a version is no zip, so its files cannot be compared');

/** Names that changed between two listings, in their order. */
export interface FilesChanged {
  readonly added: readonly string[];
  readonly removed: readonly string[];
  readonly changed: readonly string[];
}

export function filesChanged(before: ZipListing, after: ZipListing): FilesChanged {
  const names = (all: Iterable<string>): readonly string[] => [...all].toSorted();
  return {
    added: names(after.keys()).filter((name) => !before.has(name)),
    removed: names(before.keys()).filter((name) => !after.has(name)),
    changed: names(after.keys()).filter((name) => before.has(name) && before.get(name) !== after.get(name)),
  };
}
