// Changes that a development server sends, and its words about them.
import { closeSync, mkdirSync, openSync, renameSync, rmSync, utimesSync, writeFileSync, writeSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { reloadText, sentText } from '../../../cli/commands/serve.ts';
import { OwnOutput } from '../../../cli/serve/own-output.ts';
import { DefinitionChanges, ReloadsInARow, SentFiles, changedFields } from '../../../cli/serve/said-once.ts';
import { changesBetween, readSettledTree, readTree, treeOf } from '../../../cli/serve/tree.ts';
import type { Tree } from '../../../cli/serve/tree.ts';
import { foldersIn, watchFolders } from '../../../cli/serve/watch.ts';
import { tempDirectory } from '../../helpers/programs.ts';

const NONE: Tree = treeOf([]);

/** A folder with files, and a function that tells the changes since it was called last. */
async function folder(files: Readonly<Record<string, string>>, own = new OwnOutput([])) {
  const directory = tempDirectory('serve');
  const root = directory.path;
  const write = (path: string, text: string): void => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  };
  for (const [path, text] of Object.entries(files)) write(path, text);
  let there = await readTree(root, own, NONE);
  const changes = async () => {
    const here = await readTree(root, own, there);
    const { written, removed } = changesBetween(there, here);
    there = here;
    return { written: written.map(({ path }) => path), removed };
  };
  return { root, write, changes, [Symbol.dispose]: () => directory.remove() };
}

describe('changes of a folder', () => {
  const files = { 'app.py': 'one', 'lib/a.py': 'a', 'lib/deep/b.py': 'b', '.longshoreignore': 'data/\n*.log\n' };

  test('a file that is written travels; one that is only touched, or has the same text, does not', async () => {
    using it = await folder(files);
    expect(await it.changes()).toEqual({ written: [], removed: [] });
    it.write('app.py', 'two');
    utimesSync(join(it.root, 'lib/a.py'), new Date(), new Date(0));
    it.write('lib/deep/b.py', 'b');
    expect(await it.changes()).toEqual({ written: ['app.py'], removed: [] });
  });

  test('what the ignore file names does not travel, and goes when it is named later', async () => {
    using it = await folder(files);
    it.write('data/big.bin', 'x');
    it.write('lib/out.log', 'x');
    it.write('__pycache__/app.pyc', 'x');
    expect(await it.changes()).toEqual({ written: [], removed: [] });
    it.write('.longshoreignore', 'lib/deep\n');
    expect(await it.changes()).toEqual({
      written: ['.longshoreignore', 'data/big.bin', 'lib/out.log'],
      removed: ['lib/deep'],
    });
  });

  test('renames, and folders that go, are told with the fewest paths', async () => {
    using it = await folder(files);
    renameSync(join(it.root, 'app.py'), join(it.root, 'main.py'));
    rmSync(join(it.root, 'lib/deep'), { recursive: true });
    expect(await it.changes()).toEqual({ written: ['main.py'], removed: ['app.py', 'lib/deep'] });
    rmSync(join(it.root, 'lib'), { recursive: true });
    it.write('lib', 'a file now');
    expect(await it.changes()).toEqual({ written: ['lib'], removed: ['lib'] });
    rmSync(join(it.root, 'lib'));
    it.write('lib/again.py', 'a folder again');
    expect(await it.changes()).toEqual({ written: ['lib/again.py'], removed: ['lib'] });
  });
});

test('a file that is emptied and then filled travels once, with its text', async () => {
  using it = await folder({ 'word.py': 'WORD = 1' });
  const own = new OwnOutput([]);
  const before = await readTree(it.root, own, NONE);
  it.write('word.py', '');
  const trees = { here: before, there: before };
  const reading = readSettledTree(it.root, own, trees, new AbortController().signal, 1_000);
  setTimeout(() => it.write('word.py', 'WORD = 2'), 50);
  expect((await reading).get('word.py')).toMatchObject({ size: 8 });
});

test('several notes of one save are one hint, also in a folder that is new', async () => {
  using it = await folder({ 'app.py': 'one', 'lib/a.py': 'a' });
  let hints = 0;
  const { promise, resolve } = Promise.withResolvers<void>();
  const hint = (): void => {
    hints += 1;
    resolve();
  };
  const watching = watchFolders(it.root, () => false, hint);
  watching.follow(foldersIn(['app.py', 'lib/a.py']));
  for (const text of ['two', 'three', 'four']) it.write('lib/a.py', text);
  await promise;
  watching.close();
  expect(hints).toBe(1);
  // A look that ends behind the close watches nothing: the command could not end.
  const before = process.getActiveResourcesInfo().length;
  watching.follow(['', 'lib']);
  expect(process.getActiveResourcesInfo().length).toBe(before);
});

test('fields that a new session would have are named', () => {
  const before = { name: 'hello', cpu: 100, image: { python_packages: [] }, requiredInputs: ['a'] };
  expect(changedFields(before, { ...before, requiredInputs: ['b'] })).toEqual([]);
  expect(changedFields(before, { ...before, cpu: 200, gpu: 'T4' })).toEqual(['cpu', 'gpu']);
  const extra = (fields: object): Readonly<Record<string, unknown>> => ({
    ...before,
    extra: JSON.stringify({ recipe: Math.random(), ...fields }),
  });
  expect(changedFields(extra({}), extra({}))).toEqual([]);
  expect(changedFields(extra({ workerMode: 'fork' }), extra({ workerMode: 'spawn' }))).toEqual(['workerMode']);
});

test('a reload says how it went', () => {
  const reloaded = { files: 1, removed: 0, tookMs: 70, state: 'loaded', error: '' };
  expect(reloadText(reloaded)).toBe('reloaded in 70 ms (1 file sent)');
  expect(reloadText({ ...reloaded, files: 2, removed: 1, state: 'failed', error: 'SyntaxError: x' })).toBe(
    '2 files sent, 1 removed; the app could not be loaded: SyntaxError: x',
  );
  expect(reloadText({ ...reloaded, state: 'loading' })).toBe('1 file sent; the app still loads: calls wait for it');
});

test('a change of a field is told once, and again when it changes again', () => {
  const before = { name: 'hello', cpu: 100, memory: 128 };
  const definition = new DefinitionChanges(before);
  expect(definition.news(before)).toEqual([]);
  expect(definition.news({ ...before, cpu: 200 })).toEqual(['cpu']);
  expect(definition.news({ ...before, cpu: 200 })).toEqual([]);
  expect(definition.news({ ...before, cpu: 300 })).toEqual(['cpu']);
  expect(definition.news({ ...before, cpu: 300, memory: 256 })).toEqual(['cpu', 'memory']);
  expect(definition.news(before)).toEqual([]);
  expect(definition.news({ ...before, cpu: 300 })).toEqual(['cpu']);
});

test('three reloads in a row without an edit of code are one warning that names the file', () => {
  const row = new ReloadsInARow();
  expect(row.note(['out.txt'], 'out.txt')).toBeUndefined();
  expect(row.note(['out.txt', 'a.txt'], 'out.txt')).toBeUndefined();
  expect(row.isLong).toBe(false);
  expect(row.note(['a.txt', 'out.txt'], 'out.txt')).toMatch(
    /^warning: out\.txt .* 3 times in a row.*\.longshoreignore/,
  );
  expect(row.isLong).toBe(true);
  expect(row.note(['out.txt'], 'out.txt')).toBeUndefined();
  expect(row.note(['out.txt', 'lib/app.py'], 'lib/app.py')).toBeUndefined();
  expect(row.isLong).toBe(false);
  const again = [1, 2, 3].map(() => row.note(['b.txt'], ''));
  expect(again.map((text) => text?.includes('b.txt'))).toEqual([undefined, undefined, true]);
});

test('a file that goes on changing is told once between two reloads', () => {
  const sent = new SentFiles();
  expect(sent.news(['out.log', 'a.txt'])).toEqual(['out.log', 'a.txt']);
  expect(sent.news(['out.log'])).toEqual([]);
  expect(sent.news(['out.log', 'b.txt'])).toEqual(['b.txt']);
  sent.reloaded();
  expect(sent.news(['out.log'])).toEqual(['out.log']);
});

test('files that travel without a reload are named, and of many the first', () => {
  expect(sentText({ files: 1, removed: 0, paths: ['notes.txt'] })).toBe(
    '1 file sent without a reload: notes.txt (no code that the program has loaded)',
  );
  expect(sentText({ files: 4, removed: 1, paths: ['a', 'b', 'c', 'd', 'e'] })).toContain(
    '4 files sent, 1 removed without a reload: a, b, c, …',
  );
});

test("a file into which this command's own output goes is no part of the app, and its lines are no hints", async () => {
  using it = await folder({ 'app.py': 'one' });
  const descriptor = openSync(join(it.root, 'serve.log'), 'a');
  const own = new OwnOutput([descriptor]);
  expect([...(await readTree(it.root, own, NONE)).keys()]).toEqual(['app.py']);
  let hints = 0;
  const { promise, resolve } = Promise.withResolvers<void>();
  const watching = watchFolders(it.root, own.hasPath.bind(own), () => {
    hints += 1;
    resolve();
  });
  watching.follow([]);
  writeSync(descriptor, 'a line\n');
  // Later lines of it do not put off the hint of a file of the app.
  it.write('app.py', 'two');
  const lines = setInterval(() => writeSync(descriptor, 'a line\n'), 5);
  await promise;
  clearInterval(lines);
  watching.close();
  closeSync(descriptor);
  expect(hints).toBe(1);
});
