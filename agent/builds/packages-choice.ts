// Folders of downloaded packages that are emptied. Pure.

export interface PackagesFolder {
  readonly name: string;
  readonly bytes: number;
  readonly usedAtMs: number;
  /** A build has it: it is emptied when no build has it. */
  readonly inUse: boolean;
}

/** Names of folders: those beyond half of the bound, then the least recently used ones until the rest is within it. */
export function chooseFolders(folders: readonly PackagesFolder[], mostBytes: number): readonly string[] {
  const free = folders.filter(({ inUse, bytes }) => !inUse && bytes > 0);
  const large = free.filter(({ bytes }) => bytes > mostBytes / 2);
  const chosen = large.map(({ name }) => name);
  let left = folders.reduce((sum, { bytes }) => sum + bytes, 0) - large.reduce((sum, { bytes }) => sum + bytes, 0);
  const byAge = free.filter((one) => !large.includes(one)).toSorted((a, b) => a.usedAtMs - b.usedAtMs);
  for (const { name, bytes } of byAge) {
    if (left <= mostBytes) break;
    chosen.push(name);
    left -= bytes;
  }
  return chosen;
}
