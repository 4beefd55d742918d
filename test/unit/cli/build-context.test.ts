// The folder of a Dockerfile: which files travel, and what of them.
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { readDockerignore } from '#cli/deploy/dockerignore.ts';
import { contextFiles } from '#cli/deploy/files.ts';

let root = '';
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'ls-context-'));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

function write(path: string, text = path): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text);
}

async function pathsOf(dockerfile?: string): Promise<string[]> {
  return (await contextFiles(root, dockerfile)).files.map(({ path }) => path);
}

test('without an ignore file everything travels, also what no app needs', async () => {
  for (const path of ['a.py', '.git/HEAD', 'node_modules/a.js', '.longshoreignore']) write(path);
  expect(await pathsOf()).toEqual(['.git/HEAD', '.longshoreignore', 'a.py', 'node_modules/a.js']);
});

test('an ignore file beside the Dockerfile, with its name, comes before that of the folder', async () => {
  write('.dockerignore', 'a\n');
  write('web.Dockerfile.dockerignore', 'b\n*ignore\n');
  for (const path of ['a', 'b']) write(path);
  expect(await pathsOf(join(root, 'web.Dockerfile'))).toEqual(['a']);
  expect(await pathsOf(join(root, 'other.Dockerfile'))).toEqual(['.dockerignore', 'b', 'web.Dockerfile.dockerignore']);
});

test('folders, links, permissions and times are as they are', async () => {
  write('real', 'x');
  chmodSync(join(root, 'real'), 0o600);
  utimesSync(join(root, 'real'), 1_000_000, 1_000_000);
  mkdirSync(join(root, 'empty'), { mode: 0o700 });
  symlinkSync('/etc/hostname', join(root, 'absolute'));
  symlinkSync('nowhere', join(root, 'dangling'));
  symlinkSync('empty', join(root, 'folder'));
  const { files, others, skipped } = await contextFiles(root);
  expect(files).toMatchObject([{ path: 'real', mode: 0o600, mtimeMs: 1_000_000_000 }]);
  expect(others.map(({ path, to, mode }) => [path, to ?? mode])).toEqual([
    ['absolute', '/etc/hostname'],
    ['dangling', 'nowhere'],
    ['empty', 0o700],
    ['folder', 'empty'],
  ]);
  expect(skipped).toEqual([]);
});

test.for(['[a', '\\', 'a\n!', '[b-a]'])(
  'an ignore file that Docker refuses, %j, is an error with the line',
  async (text) => {
    write('.dockerignore', text);
    await expect(contextFiles(root)).rejects.toThrow(/\.dockerignore: line \d/);
  },
);

test('a folder that is left out is not read where no later line can keep a part of it', () => {
  const read = readDockerignore('data\n!keep/**\n!data-2/x\n');
  if (read.kind === 'problem') throw new Error(read.problem);
  const { rules } = read;
  expect(rules.look('data', []).mayKeepBelow).toBe(false);
  const wild = readDockerignore('data\n!**/x\n');
  if (wild.kind === 'problem') throw new Error(wild.problem);
  expect(wild.rules.look('data', []).mayKeepBelow).toBe(true);
});
