// Why a body is not a JSON object, in words for its sender: where it breaks and what could stand there. Pure.
// Invariant: a text of these has at most one character of the body, because bodies may be secret.
import { isUtf8 } from 'node:buffer';
import { ObjectScan } from './json-object.ts';

/** Most bytes that are looked through for the line of a place. */
const MOST_COUNTED = 1024 * 1024;
const LINE_END = 0x0a;
const REPLACEMENT = 0xfffd;

/** @param scan - a scan of `bytes` that has found them broken */
export function brokenAt(bytes: Uint8Array, scan: ObjectScan): string {
  const { at, wanted } = scan.problem;
  if (at >= bytes.length) return `the body ends at byte ${at}, where ${wanted} has to come`;
  const first = bytes[at] as number;
  if (wanted === '{' && OTHERS.has(first)) return `the body is ${OTHERS.get(first)}, and has to be a JSON object`;
  const found = first > 0x20 && first < 0x7f ? `is ${String.fromCharCode(first)}` : `has the code ${first}`;
  return `byte ${at}${lineOf(bytes, at)} ${found}, where ${wanted} has to come`;
}

/** JSON that is no object, by its first byte. A text that only begins like it is told in the same way. */
const OTHERS: ReadonlyMap<number, string> = new Map([
  [0x5b, 'an array'],
  [0x22, 'a string'],
  ...Array.from('-0123456789', (digit): [number, string] => [digit.charCodeAt(0), 'a number']),
]);

/** Why a small body is not one. */
export function whyNotObject(bytes: Uint8Array): string {
  if (!isUtf8(bytes)) return notUtf8(bytes);
  const scan = new ObjectScan(bytes);
  scan.step(bytes.length);
  return brokenAt(bytes, scan);
}

/** Where a body stops being UTF-8. */
export function notUtf8(bytes: Uint8Array): string {
  const counted = bytes.subarray(0, MOST_COUNTED);
  let at = 0;
  for (const character of Buffer.from(counted).toString('utf8')) {
    const code = character.codePointAt(0) as number;
    // The character that takes the place of broken bytes may stand in the text itself.
    if (code === REPLACEMENT && !(counted[at] === 0xef && counted[at + 1] === 0xbf && counted[at + 2] === 0xbd)) break;
    at += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  }
  return at < counted.length - 4 || bytes.length <= MOST_COUNTED
    ? `byte ${at} begins no character of UTF-8`
    : 'the body is not UTF-8';
}

/** The line of a place, where the text has lines. */
function lineOf(bytes: Uint8Array, at: number): string {
  if (at > MOST_COUNTED) return '';
  let line = 1;
  for (let index = 0; index < at; index++) if (bytes[index] === LINE_END) line++;
  return line === 1 ? '' : ` (line ${line})`;
}
