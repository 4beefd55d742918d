// Folders that come out of a container, as tars that a hostile one makes.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { lstatSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { inputOf, unpackFolder } from '../../../cli/commands/container-unpack.ts';

let home: string;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'unpack-'));
  mkdirSync(join(home, 'outside'));
  mkdirSync(join(home, 'out'));
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

/** Entries of a tar: name, type, mode, and text or target. */
type Entry = readonly [name: string, type: string, mode: number, text: string];
const MAKE = `import io, json, sys, tarfile
with tarfile.open(fileobj=sys.stdout.buffer, mode='w|') as made:
    for name, kind, mode, text in json.loads(sys.argv[1]):
        info = tarfile.TarInfo(name)
        info.type, info.mode = kind.encode(), mode
        if kind == '0': info.size = len(text)
        else: info.linkname = text
        made.addfile(info, io.BytesIO(text.encode()) if kind == '0' else None)`;
const tarOf = (...entries: readonly Entry[]): Readable =>
  Readable.from([execFileSync('python3', ['-c', MAKE, JSON.stringify(entries)])]);
const out = (): string => join(home, 'out/d');
const FILE = '0';
const LINK = '2';
const FOLDER = '5';
const PIPE = '6';

test('a folder takes its place, and what is there beside its files stays', async () => {
  await unpackFolder(tarOf(['d', FOLDER, 0o555, ''], ['d/one', FILE, 0o600, 'one'], ['d/s', FOLDER, 0o755, '']), out());
  writeFileSync(join(out(), 's/old'), 'old');
  await unpackFolder(tarOf(['any/one', FILE, 0o644, 'new'], ['any/s/f', FILE, 0o644, 'f']), out());
  expect(readdirSync(out()).toSorted()).toEqual(['one', 's']);
  expect(readdirSync(join(out(), 's')).toSorted()).toEqual(['f', 'old']);
  expect(readFileSync(join(out(), 'one'), 'utf8')).toBe('new');
  await unpackFolder(tarOf(['d/one', FILE, 0o644, 'x'], ['.profile', FILE, 0o644, 'x']), join(home, 'new/deep'));
  expect(readdirSync(join(home, 'new')).concat(readdirSync(join(home, 'new/deep')))).toEqual(['deep', 'one']);
});

test('a link of an earlier copy is not followed by a later one', async () => {
  await unpackFolder(tarOf(['d/x', LINK, 0o777, '../../outside']), out());
  expect(lstatSync(join(out(), 'x')).isSymbolicLink()).toBe(true);
  for (const name of ['d/x/key', 'd/x/deep/key']) {
    const copy = unpackFolder(tarOf([name, FILE, 0o644, 'key']), out());
    await expect(copy).rejects.toThrow('is no folder here');
  }
  await expect(unpackFolder(tarOf(['d/key', FILE, 0o644, 'key']), join(out(), 'x'))).rejects.toThrow('is no folder');
  expect(readdirSync(join(home, 'outside'))).toEqual([]);
});

test.for([
  [
    'a link of the same copy',
    [
      ['d/x', LINK, 0o777, '../../outside'],
      ['d/x/key', FILE, 0o644, 'key'],
    ],
  ],
  ['the folder above', [['d/../../outside/key', FILE, 0o644, 'key']]],
  ['a place from the root on', [['/outside/key', FILE, 0o644, 'key']]],
] as const)('%s brings nothing outside', async ([, entries]) => {
  await unpackFolder(tarOf(...entries), out()).catch(() => undefined);
  expect(readdirSync(join(home, 'outside'))).toEqual([]);
  expect(readdirSync(home).toSorted()).toEqual(['out', 'outside']);
});

test('nothing runs with the rights of its owner, and nothing is a device or a pipe', async () => {
  await unpackFolder(tarOf(['d/run', FILE, 0o6755, 'run']), out());
  expect(statSync(join(out(), 'run')).mode & 0o6000).toBe(0);
  const piped = unpackFolder(tarOf(['e/p\u001b[2J', PIPE, 0o644, '']), out());
  await expect(piped).rejects.toThrow('"p\\u001b[2J" in the container is no file');
  expect(readdirSync(out())).toEqual(['run']);
});

test('a program that ends before its input does is given the rest for nothing', async () => {
  const child = spawn('head', ['-c', '1'], { stdio: ['pipe', 'ignore', 'inherit'] });
  const ended = once(child, 'close');
  async function* parts() {
    yield Buffer.alloc(64);
    await ended;
    for (let part = 0; part < 20; part += 1) yield Buffer.alloc(65_536);
  }
  await pipeline(parts, inputOf(child.stdin));
  expect(await ended).toEqual([0, null]);
});
