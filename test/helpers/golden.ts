/**
 * Kept outputs: what a command prints is compared with a file. `LS_UPDATE_GOLDEN=1` writes the files anew instead
 * (`npm run golden`).
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect } from 'vitest';
import { ROOT } from './repository.ts';

const isUpdate = process.env['LS_UPDATE_GOLDEN'] === '1';

/** The kept text, or the text that is kept from now on. */
export function kept(path: string, text: string): string {
  if (isUpdate) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  }
  return readFileSync(path, 'utf8');
}

/** A table must be as kept, but for the width of its columns. */
export function expectTable(path: string, text: string): void {
  expect(text, 'else: npm run golden').toBe(kept(path, text));
}

/** A document must have all that is kept; new fields are no difference. */
export function expectDocument(path: string, document: unknown): void {
  const expected: unknown = JSON.parse(kept(path, `${JSON.stringify(document, null, 2)}\n`));
  if (Array.isArray(document) && Array.isArray(expected))
    expect(document, 'else: npm run golden').toHaveLength(expected.length);
  expect({ document }, 'else: npm run golden').toMatchObject({ document: expected });
}

/** A file of an output of a command that lists nothing, without its ending. */
export const verbFile = (words: string): string => join(ROOT, 'test/fixtures/cli/verbs', words.replaceAll(' ', '-'));

/** Both outputs of a command, as a kept text has them. */
export const written = ({ stdout, stderr }: { readonly stdout: string; readonly stderr: string }): string =>
  stderr === '' ? stdout : `${stdout}--- stderr\n${stderr}`;

/** A command must have written what is kept. */
export const expectOutput = (
  words: string,
  ended: { readonly stdout: string; readonly stderr: string },
  own: Replaced = [],
): void => expectTable(`${verbFile(words)}.txt`, steadyTable(written(ended), own));

type Replaced = readonly (readonly [text: RegExp | string, by: string])[];

const VARIES: Replaced = [
  [/\beyJ[\w.-]{20,}/g, '<token>'],
  [/\beyJ…[\w-]{4}/g, '<token>'],
  [/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, '<id>'],
  [/(?<=<id>-)[0-9a-f]{8}\b/g, '<short>'],
  [/\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?/g, '<time>'],
  // The digest of a decorator's parameters, which changes with every default.
  [/(?<="recipe":")[0-9a-f]{16}/g, '<digest>'],
  [/\b127\.0\.0\.1:\d+/g, '<address>'],
  [/\b\d+(?:\.\d+)?(?:s|m|h)\b(?: ago)?/g, '<span>'],
];

/** A text without ids, times, tokens and addresses, which differ from run to run, and without the values of `own`. */
const steady = (text: string, own: Replaced): string =>
  [...own, ...VARIES].reduce((left, [value, by]) => left.replaceAll(value, by), text);

/** A table in that way. Widths of columns follow from the values, so every gap is two spaces wide. */
export const steadyTable = (text: string, own: Replaced = []): string => steady(text, own).replaceAll(/ {2,}/g, '  ');

/** A document in that way. */
export function steadyDocument(value: unknown, own: Replaced = []): unknown {
  if (typeof value === 'string') return steady(value, own);
  if (Array.isArray(value)) return value.map((item) => steadyDocument(item, own));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, steadyDocument(field, own)]));
}
