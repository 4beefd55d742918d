// The fixtures of these tests take nothing from others; vitest wants the empty pattern.
/* oxlint-disable no-empty-pattern */
import { createHash } from 'node:crypto';
import { lstat, mkdtemp, mkdir, readFile, readdir, readlink, realpath, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import fc from 'fast-check';
import { ZipFile } from 'yazl';
import { expect, test as base } from 'vitest';
import { createLog } from '#shared/log.ts';
import { Archives, unpackedName } from '../../agent/code/archives.ts';
import { unpack } from '../../agent/code/unpack.ts';
import { Views } from '../../agent/code/views.ts';
import { zip } from '../helpers/agent.ts';

const test = base.extend('dir', async ({}, { onCleanup }): Promise<string> => {
  const dir = await mkdtemp(join(tmpdir(), 'lsc-'));
  onCleanup(() => rm(dir, { recursive: true, force: true }));
  return dir;
});

const log = createLog({ name: 'test', level: 'silent' });
const outcome = async (dir: string, archive: Buffer): Promise<string> => {
  await writeFile(join(dir, 'a.zip'), archive);
  const target = join(dir, 'out');
  await mkdir(target);
  try {
    await unpack(join(dir, 'a.zip'), target);
    return 'unpacked';
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
};
/** Entries with a mode: symbolic links are 0o120777. */
async function zipModes(entries: readonly (readonly [string, string, number])[]): Promise<Buffer> {
  const archive = new ZipFile();
  for (const [name, text, mode] of entries) archive.addBuffer(Buffer.from(text), name, { mode });
  archive.end();
  return buffer(archive.outputStream);
}
const modeIn = async (folder: string): Promise<number> => (await stat(join(folder, 'f.txt'))).mode & 0o777;
/** Replaces a good name by an evil one of the same length, because the writer refuses evil names. */
const renamed = (archive: Buffer, from: string, to: string): Buffer =>
  Buffer.from(archive.toString('latin1').replaceAll(from, to), 'latin1');

test('files are unpacked readable and writable for all, programs stay programs', async ({ dir }) => {
  const archive = await zipModes([
    ['pkg/a.py', 'A', 0o100600],
    ['run.sh', '#!', 0o100700],
    ['link', 'pkg/a.py', 0o120777],
  ]);
  expect(await outcome(dir, archive)).toBe('unpacked');
  const mode = async (name: string): Promise<number> => (await stat(join(dir, 'out', name))).mode & 0o777;
  expect([await mode('.'), await mode('pkg'), await mode('pkg/a.py'), await mode('run.sh')]).toEqual([
    0o777, 0o777, 0o666, 0o777,
  ]);
  expect(await readlink(join(dir, 'out', 'link'))).toBe('pkg/a.py');
});

test('files for a build keep permissions, links and odd names, and no link is followed', async ({ dir }) => {
  const archive = await zipModes([
    ['closed/real', 'A', 0o100600],
    ['b_:c', 'B', 0o100444],
    ['secret', 'S', 0o100000],
    ['out', '/etc/passwd', 0o120777],
    ['up', '../../x', 0o120777],
  ]);
  // The writer refuses a backslash.
  await writeFile(join(dir, 'b.zip'), renamed(archive, 'b_:c', 'b\\:c'));
  await mkdir(join(dir, 'out'));
  await unpack(join(dir, 'b.zip'), join(dir, 'out'), 'build');
  const mode = async (name: string): Promise<number> => (await stat(join(dir, 'out', name))).mode & 0o777;
  expect([await mode('closed/real'), await mode('b\\:c')]).toEqual([0o600, 0o444]);
  // The agent has no right over files that are closed to their owner.
  expect(await mode('secret')).toBe(0o400);
  expect([await readlink(join(dir, 'out/out')), await readlink(join(dir, 'out/up'))]).toEqual([
    '/etc/passwd',
    '../../x',
  ]);
});

test('a file below a link is refused, also for a build', async ({ dir }) => {
  await writeFile(
    join(dir, 'b.zip'),
    await zipModes([
      ['d', '/tmp', 0o120777],
      ['d/x', 'text', 0o100644],
    ]),
  );
  await mkdir(join(dir, 'out'));
  await expect(unpack(join(dir, 'b.zip'), join(dir, 'out'), 'build')).rejects.toThrow(/cannot be unpacked/);
});

test.for([
  ['a path that climbs', 'aa/evil', '../evil'],
  ['an absolute path', 'aevil', '/evil'],
  ['a path that climbs with backslashes', 'aaaevil', '..\\evil'],
] as const)('%s is refused', async ([, good, evil], { dir }) => {
  const archive = renamed(await zip({ [good]: 'x' }), good, evil);
  expect(await outcome(dir, archive)).not.toBe('unpacked');
  expect(await readdir(dir)).toEqual(['a.zip', 'out']);
});

test.for([
  ['an absolute link', [['l', '/etc/passwd', 0o120777]]],
  ['a link that climbs out', [['d/l', '../../x', 0o120777]]],
  [
    'a link through a link',
    [
      ['a', 'b', 0o120777],
      ['b', '.', 0o120777],
      ['c', 'a/../../x', 0o120777],
    ],
  ],
  [
    'a link whose path leaves by another link, though its text does not',
    [
      ['p/q/b', '../..', 0o120777],
      ['p/q/c', 'b/../secret', 0o120777],
    ],
  ],
  [
    'a link whose path leaves by a link that comes after it',
    [
      ['p/q/c', 'b/../secret', 0o120777],
      ['p/q/b', '../..', 0o120777],
    ],
  ],
] as const)('%s is refused', async ([, entries], { dir }) => {
  expect(await outcome(dir, await zipModes(entries))).toMatch(/link/);
});

test('files of every size and method have their contents', async ({ dir }) => {
  const contents = { empty: '', small: 'small', large: 'large '.repeat(50_000), 'sub/last': 'last' };
  const archive = new ZipFile();
  for (const [name, text] of Object.entries(contents)) {
    archive.addBuffer(Buffer.from(text), name);
    archive.addBuffer(Buffer.from(text), `stored/${name}`, { compress: false });
  }
  archive.end();
  expect(await outcome(dir, await buffer(archive.outputStream))).toBe('unpacked');
  for (const [name, text] of Object.entries(contents)) {
    expect(await readFile(join(dir, 'out', name), 'utf8')).toBe(text);
    expect(await readFile(join(dir, 'out', 'stored', name), 'utf8')).toBe(text);
  }
});

test.for([
  ['more', -1],
  ['fewer', 1],
] as const)('a file with %s bytes than the directory says is refused', async ([, more], { dir }) => {
  const archive = await zip({ 'a.txt': 'x'.repeat(1000) });
  const entry = archive.indexOf(Buffer.from([0x50, 0x4b, 1, 2]));
  archive.writeUInt32LE(1000 + more, entry + 24);
  expect(await outcome(dir, archive)).toMatch(/cannot be unpacked/);
});

test('a file in the place of a folder is refused, and ends nothing else', async ({ dir }) => {
  const archive = await zipModes([
    ['d/x', 'text', 0o100644],
    ['d', 'text', 0o100644],
  ]);
  expect(await outcome(dir, archive)).toMatch(/cannot be unpacked: EEXIST/);
});

test('a file is never written through a link', async ({ dir }) => {
  const archive = await zipModes([
    ['d', '.', 0o120777],
    ['d/x', 'text', 0o100644],
  ]);
  expect(await outcome(dir, archive)).not.toBe('unpacked');
  expect((await lstat(join(dir, 'out', 'd'))).isSymbolicLink()).toBe(false);
});

/**
 * Names use few words, so that they often collide; `ZZ` stands for `..`, which
 * the writer refuses in a name. Targets climb, and lead through other entries.
 */
const evilEntries = fc.uniqueArray(
  fc.record({
    name: fc.oneof(
      { weight: 40, arbitrary: fc.constantFrom('a', 'd/a', 'd/b', 'd/e/a', 'd/e/b', 'd/e/c') },
      { weight: 1, arbitrary: fc.constantFrom('d/ZZ/ZZ/c', 'd', 'd/a/f') },
    ),
    kind: fc.constantFrom('link', 'link', 'link', 'link', 'link', 'file', 'folder'),
    to: fc.oneof(
      fc.array(fc.constantFrom('..', '.', 'a', 'b', 'e', 'secret'), { minLength: 1, maxLength: 4 }),
      fc.tuple(fc.constantFrom('.', '..', 'e'), fc.constantFrom('a', 'b'), fc.constant('..'), fc.constant('secret')),
      fc.constantFrom(['..'], ['..', '..'], ['.']),
    ),
  }),
  { minLength: 2, maxLength: 4, selector: ({ name }) => name },
);

/** Everything below a folder, without following a link. */
async function namesIn(folder: string): Promise<string[]> {
  const found = await readdir(folder, { withFileTypes: true });
  const below = found.filter((one) => one.isDirectory()).map((one) => namesIn(join(folder, one.name)));
  return [...found.map((one) => join(folder, one.name)), ...(await Promise.all(below)).flat()];
}

test('whatever tree an archive names, nothing is written or readable outside its folder', async ({ dir }) => {
  await fc.assert(
    fc.asyncProperty(evilEntries, async (entries) => {
      const home = await mkdtemp(join(dir, 'p-'));
      await writeFile(join(home, 'secret'), 'secret');
      const archive = new ZipFile();
      for (const { name, kind, to } of entries) {
        if (kind === 'folder') archive.addEmptyDirectory(name);
        else if (kind === 'file') archive.addBuffer(Buffer.from('file'), name, { mode: 0o100644, compress: false });
        else archive.addBuffer(Buffer.from(to.join('/')), name, { mode: 0o120777, compress: false });
      }
      archive.end();
      await outcome(home, renamed(await buffer(archive.outputStream), 'ZZ', '..'));
      expect((await readdir(home)).toSorted()).toEqual(['a.zip', 'out', 'secret']);
      expect(await readFile(join(home, 'secret'), 'utf8')).toBe('secret');
      const out = join(home, 'out');
      for (const path of await namesIn(out)) {
        const real = await realpath(path).catch(() => out);
        expect(`${real}/`.startsWith(`${out}/`), `${path} is ${real}`).toBe(true);
      }
    }),
    { numRuns: 120, seed: 15 },
  );
});

test('an archive is fetched once for many, checked, and the least recently used one goes first', async ({ dir }) => {
  const bodies = new Map<string, Buffer>();
  const fetched: string[] = [];
  const archives = new Archives(
    join(dir, 'code'),
    async function* (objectId) {
      fetched.push(objectId);
      yield bodies.get(objectId) ?? Buffer.alloc(0);
    },
    1500,
    log,
  );
  await archives.open();
  const ref = async (name: string): Promise<{ objectId: string; sha256: string; size: number }> => {
    const bytes = await zip({ 'f.txt': name.repeat(1000) });
    bodies.set(name, bytes);
    return { objectId: name, sha256: createHash('sha256').update(bytes).digest('hex'), size: bytes.length };
  };
  const [a, b, c] = [await ref('a'), await ref('b'), await ref('c')];
  const [one, two] = await Promise.all([archives.acquire(a, 'u1'), archives.acquire(a, 'u2')]);
  expect(one).toBe(two);
  expect(fetched).toEqual(['a']);
  expect(await readFile(join(one, 'f.txt'), 'utf8')).toBe('a'.repeat(1000));
  await archives.acquire(b, 'u3');
  archives.release(b.sha256, 'u3');
  const [forBuild] = await Promise.all([archives.acquire(a, 'u5', 'build'), archives.acquire(a, 'u5')]);
  expect([await modeIn(forBuild), await modeIn(one)]).toEqual([0o664, 0o666]);
  archives.release(unpackedName(a.sha256, 'build'), 'u5');
  await archives.acquire(c, 'u4');
  // `a` is older but in use: `b` went.
  expect((await readdir(join(dir, 'code'))).filter((name) => /^[0-9a-f]{64}$/.test(name)).toSorted()).toEqual(
    [a.sha256, c.sha256].toSorted(),
  );
  await expect(archives.acquire({ ...b, sha256: 'f'.repeat(64) }, 'u5')).rejects.toThrow(/sha256/);
  // The next agent finds the archives that this one left, and no unfinished ones.
  await mkdir(join(dir, 'code', `${'1'.repeat(64)}.new`));
  const next = new Archives(
    join(dir, 'code'),
    () => {
      throw new Error('not to be fetched');
    },
    1500,
    log,
  );
  await next.open();
  expect(await next.acquire(a, 'u6')).toBe(one);
  expect((await readdir(join(dir, 'code'))).some((name) => name.endsWith('.new'))).toBe(false);
});

test('where overlays are refused a view is a copy of its own', async ({ dir }) => {
  const views = new Views(join(dir, 'views'), {}, async () => undefined);
  await views.open();
  views.refuseOverlay();
  await mkdir(join(dir, 'lower'));
  await writeFile(join(dir, 'lower', 'app.py'), 'x');
  const mount = await views.make('c1', 'short1', join(dir, 'lower'));
  expect(mount).toMatchObject({ kind: 'bind', target: '/mnt/code', readOnly: false });
  await writeFile(join(mount.source, 'app.py'), 'changed');
  expect(await readFile(join(dir, 'lower', 'app.py'), 'utf8')).toBe('x');
  expect((await stat(mount.source)).mode & 0o777).toBe(0o777);
  await views.remove('short1');
  expect(await views.list()).toEqual([]);
});
