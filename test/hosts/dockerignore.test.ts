// A build context against `docker build` on the same engine: the same files, permissions, times and links.
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readlinkSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { expect } from 'vitest';
import { unpack } from '../../agent/code/unpack.ts';
import { tarOf } from '#agent/containers/tar.ts';
import { packFiles } from '#cli/deploy/archive.ts';
import { contextFiles } from '#cli/deploy/files.ts';
import { tempDirectory, test } from '../helpers/services.ts';

const FILES = [
  'data',
  'src/data/b',
  'src/data/c.txt',
  'src/main.py',
  'src/deep/er/x.log',
  'dir/file1',
  'dir/file2',
  'dir/sub/file3',
  'a.md',
  'README.md',
  'docs/README.md',
  'docs/README-secret.md',
  '.env',
  '.git/HEAD',
  'node_modules/m/index.js',
  '__pycache__/m.pyc',
  'we ird',
  '#hash',
  'x[1].txt',
  'x1.txt',
  'a+b.c',
  'a-b.c',
];

const RULES = [
  'data',
  'dir\n!dir/file2',
  'dir/*\n!dir/sub',
  '/data\n/src/',
  '*.md\n!README.md',
  '**/*.md\n!docs/README*.md\ndocs/README-secret.md',
  '*/data',
  '*/*/er',
  '**/er',
  'src/**/x.log',
  '**',
  '*\n!src',
  '*\n!src/data/b',
  '**/data\n!src/data',
  '# comment\n #hash\n\\#hash\n  we ird  ',
  './dir/../data\n./src/./data',
  'x[0-9].txt',
  'x\\[1\\].txt',
  'x[^2].txt',
  'a+b.c',
  'a?b.c',
  '!data\ndata',
  'dir/**\n!dir/file2',
  'src\n!src/data\nsrc/data/b',
  '\uFEFFdata\r\n*.md\r\n',
  '.env*\n**/.git\n__pycache__',
  '../data\n/',
];

interface Found {
  readonly kind: string;
  readonly mode?: number;
  readonly seconds?: number;
}

/** Everything below a folder of a tar file. Docker makes some folders anew, so times count of one alone. */
function foundIn(tar: Buffer, directory: string, below: string): Map<string, Found> {
  const to = mkdtempSync(join(directory, 'tar-'));
  execFileSync('tar', ['-x', '-C', to], { input: tar });
  const root = join(to, below);
  const paths = existsSync(root) ? readdirSync(root, { recursive: true, encoding: 'utf8' }) : [];
  return new Map(
    paths.toSorted().map((path) => {
      const facts = lstatSync(join(root, path));
      if (facts.isSymbolicLink()) return [path, { kind: `link to ${readlinkSync(join(root, path))}` }];
      const kind = facts.isDirectory() ? 'folder' : 'file';
      const isTimed = facts.isFile() || path === 'empty';
      const seconds = isTimed ? { seconds: Math.floor(facts.mtimeMs / 1000) } : {};
      return [path, { kind, mode: facts.mode & 0o777, ...seconds }];
    }),
  );
}

test('contexts have the files that docker build sends, as it sends them', { timeout: 240_000 }, async ({ docker }) => {
  const directory = tempDirectory('context');
  const env = { ...process.env, DOCKER_BUILDKIT: '0' };
  const labels = Object.entries(docker.labels).flatMap(([name, value]) => ['--label', `${name}=${value}`]);
  const call = (args: readonly string[]): Buffer =>
    execFileSync('docker', args, { env, stdio: ['ignore', 'pipe', 'ignore'], maxBuffer: 64 * 1024 ** 2 });
  const byDocker = (root: string): Map<string, Found> => {
    const id = call(['build', '-q', ...labels, root])
      .toString()
      .trim();
    const container = call(['create', ...labels, id, 'x'])
      .toString()
      .trim();
    try {
      return foundIn(call(['export', container]), directory.path, 'c');
    } finally {
      call(['rm', container]);
      call(['rmi', id]);
    }
  };
  const byUs = async (root: string): Promise<Map<string, Found>> => {
    const archive = await packFiles(await contextFiles(root));
    const target = mkdtempSync(join(directory.path, 'unpacked-'));
    await unpack(archive.path, target, 'build');
    await archive.remove();
    return foundIn(await buffer(tarOf([], target)), directory.path, '');
  };
  try {
    for (const rules of RULES) {
      const root = mkdtempSync(join(directory.path, 'app-'));
      for (const path of FILES) {
        mkdirSync(dirname(join(root, path)), { recursive: true });
        writeFileSync(join(root, path), path);
      }
      chmodSync(join(root, 'src/main.py'), 0o600);
      chmodSync(join(root, 'dir/file2'), 0o755);
      mkdirSync(join(root, 'empty'));
      mkdirSync(join(root, 'dir/closed'), { mode: 0o700 });
      mkdirSync(join(root, 'dir/read-only'), { mode: 0o555 });
      writeFileSync(join(root, 'dir/read-only/secret'), 'x', { mode: 0o000 });
      symlinkSync('../data', join(root, 'src/link'));
      symlinkSync('/etc/hostname', join(root, 'absolute'));
      symlinkSync('dir', join(root, 'folder-link'));
      utimesSync(join(root, 'data'), 1_234_567_890, 1_234_567_890);
      utimesSync(join(root, 'empty'), 1_234_567_891, 1_234_567_891);
      writeFileSync(join(root, '.dockerignore'), rules);
      // An empty folder in the image is what a copy of nothing leaves.
      writeFileSync(join(root, 'Dockerfile'), 'FROM scratch\nCOPY . /c/\nENV A=b\n');
      const [theirs, ours] = [byDocker(root), await byUs(root)];
      // Docker sends these two in any case; nobody copies them here.
      for (const name of ['Dockerfile', '.dockerignore']) for (const found of [theirs, ours]) found.delete(name);
      expect(Object.fromEntries(ours), rules).toEqual(Object.fromEntries(theirs));
    }
  } finally {
    directory.remove();
  }
});
