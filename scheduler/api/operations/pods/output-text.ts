// Output of programs as text, and the command by which `exec` runs a text. Pure.

/** The shell that runs a command's text. */
export const EXEC_MODE: readonly string[] = ['sh', '-c'];

/** Longest character in bytes, less one. */
const MOST_PARTS = 3;

/**
 * Text of output that may begin or end within a character. Such parts are left out, so that a later reading begins
 * with the same text. Bytes that are no UTF-8 become U+FFFD.
 * @param options.isCutBefore - bytes before these were dropped
 * @param options.isOver - nothing follows
 */
export function outputText(
  bytes: Buffer,
  { isCutBefore, isOver }: { readonly isCutBefore: boolean; readonly isOver: boolean },
): string {
  let start = 0;
  if (isCutBefore) while (start < MOST_PARTS && isPart(bytes[start])) start += 1;
  return bytes.subarray(start, isOver ? bytes.length : endOfWhole(bytes)).toString('utf8');
}

const isPart = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80;

/** The end of the last whole character. */
function endOfWhole(bytes: Buffer): number {
  for (let back = 1; back <= Math.min(MOST_PARTS, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back] ?? 0;
    if (isPart(byte)) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? bytes.length - back : bytes.length;
  }
  return bytes.length;
}
