import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { createHash } from 'node:crypto';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { buffer } from 'node:stream/consumers';
import { crc32 } from 'node:zlib';
import { openPromise } from 'yauzl';
import { MOST_READ_WHOLE_BYTES, packFiles } from '#cli/deploy/archive.ts';
import { collectFiles } from '#cli/deploy/files.ts';

let root = '';
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'ls-app-'));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

function write(path: string, text = path): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text);
}

async function pathsOf(): Promise<string[]> {
  return (await collectFiles(root)).files.map((file) => file.path);
}

async function packed(): Promise<{ readonly sha256: string; readonly bytes: Buffer; readonly names: string[] }> {
  const archive = await packFiles(await collectFiles(root));
  try {
    const bytes = readFileSync(archive.path);
    expect(archive.size).toBe(bytes.byteLength);
    expect(archive.sha256).toBe(createHash('sha256').update(bytes).digest('hex'));
    const zip = await openPromise(archive.path);
    const names: string[] = [];
    for await (const entry of zip.eachEntry()) names.push(entry.fileName);
    return { sha256: archive.sha256, bytes, names };
  } finally {
    await archive.remove();
  }
}

/** Every content of an archive by its name, with sums checked. */
async function contentsOf(path: string): Promise<ReadonlyMap<string, Buffer>> {
  const zip = await openPromise(path, { autoClose: false });
  const contents = new Map<string, Buffer>();
  for await (const entry of zip.eachEntry()) {
    const content = await buffer(await zip.openReadStreamPromise(entry));
    expect(crc32(content)).toBe(entry.crc32);
    contents.set(entry.fileName, content);
  }
  zip.close();
  return contents;
}

describe('the files of an app', () => {
  test('are all of its directory but what never belongs to an app', async () => {
    for (const path of [
      'app.py',
      'pkg/mod.py',
      '.env',
      '.git/HEAD',
      'pkg/__pycache__/m.pyc',
      '.venv/bin/python',
      'node_modules/a/b.js',
      'venv/pyvenv.cfg',
      'venv/lib/python3.11/site-packages/a.py',
      'pkg/env-3.11/pyvenv.cfg',
      'pkg/env-3.11/bin/python',
    ])
      write(path);
    expect(await pathsOf()).toEqual(['.env', 'app.py', 'pkg/mod.py']);
  });

  test('leave out what the ignore file names, in gitignore syntax', async () => {
    write('.longshoreignore', '# data\n*.csv\n/build/\n!keep.csv\n');
    for (const path of ['app.py', 'a.csv', 'deep/b.csv', 'keep.csv', 'build/x', 'deep/build/y']) write(path);
    expect(await pathsOf()).toEqual(['.longshoreignore', 'app.py', 'deep/build/y', 'keep.csv']);
  });

  test('follow one ignore file: ours, else those of the other clients', async () => {
    write('.beta9ignore', 'a.txt\n');
    write('a.txt');
    write('b.txt');
    expect(await pathsOf()).toEqual(['.beta9ignore', 'b.txt']);
    write('.beamignore', 'b.txt\n');
    expect(await pathsOf()).toEqual(['.beamignore', '.beta9ignore', 'a.txt']);
    write('.longshoreignore', '.beam*\n.beta9*\n');
    expect(await pathsOf()).toEqual(['.longshoreignore', 'a.txt', 'b.txt']);
  });

  test('include the file behind a link, and tell of links to directories elsewhere and to nothing', async () => {
    write('real/data.txt');
    symlinkSync('real/data.txt', join(root, 'linked.txt'));
    symlinkSync('/etc', join(root, 'elsewhere'));
    symlinkSync('nowhere', join(root, 'broken'));
    const found = await collectFiles(root);
    expect(found.files.map((file) => file.path)).toEqual(['linked.txt', 'real/data.txt']);
    expect([...found.skipped].toSorted()).toEqual(['broken', 'elsewhere']);
  });

  test('include folders without a file, and links to folders of the app, past other links', async () => {
    write('real/deep/data.txt');
    mkdirSync(join(root, 'out/empty'), { recursive: true });
    symlinkSync('real', join(root, 'again'));
    symlinkSync('../again/deep', join(root, 'out/deep'));
    const { others, skipped } = await collectFiles(root);
    expect(others.map(({ path, to }) => [path, to])).toEqual([
      ['again', 'real'],
      ['out/deep', '../real/deep'],
      ['out/empty', undefined],
    ]);
    expect(skipped).toEqual([]);
    expect((await packed()).names).toEqual(['again', 'out/deep', 'out/empty/', 'real/deep/data.txt']);
  });

  test('of a directory that is too large are an error naming the ignore file', async () => {
    write('big.bin', 'x'.repeat(2000));
    write('small.txt');
    await expect(collectFiles(root, { maxBytes: 1000, maxFiles: 100 })).rejects.toThrow('.longshoreignore');
    await expect(collectFiles(root, { maxBytes: 1e6, maxFiles: 1 })).rejects.toThrow('more than 1 files');
  });
});

describe('the archive of an app', () => {
  test('has the same bytes whenever, wherever and in whatever order its files were written', async () => {
    write('b.py');
    write('a/c.py');
    const first = await packed();
    expect(first.names).toEqual(['a/c.py', 'b.py']);
    const elsewhere = root;
    root = mkdtempSync(join(tmpdir(), 'ls-app-'));
    rmSync(elsewhere, { recursive: true });
    write('a/c.py');
    write('b.py');
    utimesSync(join(root, 'b.py'), 1, 1);
    chmodSync(join(root, 'b.py'), 0o600);
    expect((await packed()).sha256).toBe(first.sha256);
  });

  test('differs when a file becomes executable, and when its text changes', async () => {
    write('run.sh');
    const plain = await packed();
    chmodSync(join(root, 'run.sh'), 0o755);
    const executable = await packed();
    expect(executable.sha256).not.toBe(plain.sha256);
    write('run.sh', 'other');
    expect((await packed()).sha256).not.toBe(executable.sha256);
  });

  test('has empty, small, large and very large files with their contents and sums', async () => {
    const noise = (bytes: number): Buffer =>
      Buffer.from(
        Array.from({ length: bytes / 4 }, (_, at) => String.fromCharCode(97 + ((at * at) % 23)).repeat(4)).join(''),
      );
    const contents = new Map([
      ['a-empty', Buffer.alloc(0)],
      ['b-small', Buffer.from('small')],
      ['c-large', noise(200_000)],
      ['d-very-large', noise(MOST_READ_WHOLE_BYTES + 4)],
      ['e-ünï.txt', Buffer.from('after it')],
    ]);
    for (const [path, content] of contents) writeFileSync(join(root, path), content);
    const hashed = new Map<string, string>();
    const archive = await packFiles(await collectFiles(root), {
      onContent: ({ path }, sha256) => hashed.set(path, sha256),
    });
    expect(await contentsOf(archive.path)).toEqual(contents);
    await archive.remove();
    const sha256 = (content: Buffer): string => createHash('sha256').update(content).digest('hex');
    const whole = [...contents].filter(([, { length }]) => length <= MOST_READ_WHOLE_BYTES);
    expect(hashed).toEqual(new Map(whole.map(([path, content]) => [path, sha256(content)])));
  });

  test('is not made any further once nobody wants it', async () => {
    write('app.py');
    const found = await collectFiles(root);
    await expect(packFiles(found, { signal: AbortSignal.abort() })).rejects.toThrow('cannot pack the app');
  });

  test('is not made when a file vanishes meanwhile, and leaves nothing behind', async () => {
    write('app.py');
    const found = await collectFiles(root);
    rmSync(join(root, 'app.py'));
    await expect(packFiles(found)).rejects.toThrow('cannot pack the app');
  });
});

test('a home directory does not travel unless its ignore file says what stays', async () => {
  write('app.py');
  const whole = { maxBytes: 1000, maxFiles: 10 };
  const asHome = { home: root };
  await expect(collectFiles(root, whole, asHome)).rejects.toThrow('home directory, with keys and tokens in it');
  write('.longshoreignore', '*\n!app.py\n');
  expect((await collectFiles(root, whole, asHome)).files.map((file) => file.path)).toEqual(['app.py']);
});
