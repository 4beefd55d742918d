import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { FileTarget } from '#scheduler/fleet/exports/file-target.ts';
import type { ExportRecord } from '#scheduler/fleet/exports/exporter.ts';
import { tempDirectory } from '../../helpers/programs.ts';

const directories: { remove(): void }[] = [];
afterEach(() => {
  for (const directory of directories.splice(0)) directory.remove();
});
function aPath(): string {
  const directory = tempDirectory('export');
  directories.push(directory);
  return join(directory.path, 'deep', 'export.jsonl');
}
const aRecord = (n: number): ExportRecord => ({ kind: 'logs', atMs: 0, storedAtMs: 0, record: { n } });
const numbersIn = (path: string): number[] =>
  readFileSync(path, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => (JSON.parse(line) as { n: number }).n);

test('records are lines of JSON; full files are renamed, and the oldest goes', async () => {
  const path = aPath();
  // A line has 21 bytes: two of them fill a file.
  const target = new FileTarget({ path, maxBytes: 45, files: 3 });
  for (let n = 0; n < 10; n += 1) await target.send([aRecord(n)]);
  await target.close();
  expect(readFileSync(path, 'utf8')).toBe('{"kind":"logs","n":8}\n{"kind":"logs","n":9}\n');
  expect([numbersIn(`${path}.1`), numbersIn(`${path}.2`), existsSync(`${path}.3`)]).toEqual([[6, 7], [4, 5], false]);
});

test('a file that ended in mid-line goes on in a line of its own', async () => {
  const path = aPath();
  const first = new FileTarget({ path, maxBytes: 1e6, files: 3 });
  await first.send([aRecord(1)]);
  await first.close();
  appendFileSync(path, '{"kind":"lo');
  const second = new FileTarget({ path, maxBytes: 1e6, files: 3 });
  await second.send([aRecord(2)]);
  await second.close();
  expect(readFileSync(path, 'utf8').split('\n')).toEqual([
    '{"kind":"logs","n":1}',
    '{"kind":"lo',
    '{"kind":"logs","n":2}',
    '',
  ]);
});

test('a path that cannot be written is an error, and works as soon as it can', async () => {
  const path = aPath();
  const target = new FileTarget({ path: join(path, '..'), maxBytes: 1e6, files: 1 });
  await target.send([aRecord(1)]);
  await target.close();
  const blocked = new FileTarget({ path: join(path, '..', 'below'), maxBytes: 1e6, files: 1 });
  await expect(blocked.send([aRecord(2)])).rejects.toThrow();
});
