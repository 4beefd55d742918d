/**
 * Builds a release: everything that a machine needs to run Longshore beside Docker, in one folder and one archive. Two
 * builds of the same sources give the same bytes: names sorted, owners and times fixed, no trace of the build machine.
 */
import { createHash } from 'node:crypto';
import { createReadStream, existsSync } from 'node:fs';
import { copyFile, cp, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { releasedPauseImageFile } from '../setup/pause-image.mjs';
import { SetupError, stepLog } from '../setup/log.mjs';
import { nodeBinary, repositoryRoot } from '../setup/paths.mjs';
import { bundle } from './bundle.mjs';
import { writeConsole } from './console.mjs';
import { thirdParty } from './licences.mjs';
import { writePackages } from './packages.mjs';
import { requireSigner, sign } from './sign.mjs';
import { copyTree, linkOrCopy, packTree } from './tree.mjs';

export const CHANNEL = 'stable';
/** A release is built on a machine of its architecture: its Node and image of pause containers are that machine's. */
const PLATFORM = `linux-${process.arch}`;
/** Files that programs read by their own address at run time; a release has them at the same paths. */
const ASSETS = [
  'LICENSE',
  'shared/protocol/agent.proto',
  'scheduler/stores/queues/lua',
  'scheduler/stores/store/migrations',
  'python/longshore',
  'python/beam',
  'python/beta9',
  'examples',
  'systemd',
  'docs/gpus.md',
  'docs/machines.md',
  'docs/enrolment.md',
  'docs/pools.md',
  'docs/providers.md',
  'docs/upgrades.md',
  'docs/scheduler-service.md',
];
const PGLITE = 'node_modules/@electric-sql/pglite';
/** The page of the API's description. */
const VIEWER = 'node_modules/swagger-ui-dist';
const VIEWER_FILES = [
  'package.json',
  'LICENSE',
  'NOTICE',
  'swagger-ui-bundle.js',
  'swagger-ui-bundle.js.LICENSE.txt',
  'swagger-ui.css',
  'favicon-32x32.png',
];

/**
 * Writes the release's folder anew.
 * @param {string} directory
 */
export async function writeRelease(directory) {
  await rm(directory, { recursive: true, force: true });
  await mkdir(join(directory, 'bin'), { recursive: true });
  const node = nodeBinary();
  if (node === undefined || !node.startsWith(repositoryRoot))
    throw new SetupError(
      'A release carries the pinned Node, and node_modules has none: run `npm ci` on Linux (x64 or arm64).',
    );
  const packages = await bundle(directory);
  const { packages: ofConsole } = await writeConsole(join(directory, 'dist'));
  await Promise.all([
    linkOrCopy(node, join(directory, 'bin', 'node')),
    ...ASSETS.filter((path) => existsSync(join(repositoryRoot, path))).map((path) => copyTree(path, directory)),
    copyPglite(directory),
    ...VIEWER_FILES.map((file) => copyTree(`${VIEWER}/${file}`, directory)),
    copyPauseImage(directory),
    writePackages(join(directory, 'dist')),
    writeFile(join(directory, 'package.json'), await ownPackage()),
    writeFile(join(directory, 'THIRD_PARTY.md'), await thirdParty([...packages, ...ofConsole, PGLITE, VIEWER])),
    writeFile(join(directory, 'bin', 'longshore'), LAUNCHER, { mode: 0o755 }),
  ]);
}

const LAUNCHER = `#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
exec "$here/node" "$here/../lib/main.mjs" "$@"
`;

/**
 * Packs a release's folder and describes it: the archive, its sha256 in a file of its own, and the channel that names
 * the release. With a key, signatures of the archive and of the channel lie beside them; without one, none is left.
 * @param {string} directory - as writeRelease made it
 * @param {string} into - where the files go
 * @param {{ level?: number, key?: string }} [options] `level`: of gzip; `key`: of gpg, by id or address
 * @returns {Promise<{ version: string, file: string, sha256: string, bytes: number }>}
 */
export async function packRelease(directory, into, { level = 6, key } = {}) {
  requireSigner(key);
  const { version } = JSON.parse(await readFile(join(directory, 'package.json'), 'utf8'));
  const name = `longshore-${version}-${PLATFORM}`;
  const file = `${name}.tar.gz`;
  const path = join(into, file);
  await packTree(directory, path, { name, level });
  const release = { version, file, sha256: await sha256Of(path), bytes: (await stat(path)).size };
  await writeFile(`${path}.sha256`, `${release.sha256}  ${file}\n`);
  const channel = join(into, `${CHANNEL}.json`);
  await writeFile(channel, `${JSON.stringify({ ...(await described(into)), [PLATFORM]: release }, null, 2)}\n`);
  for (const signed of [path, channel]) {
    await rm(`${signed}.asc`, { force: true });
    if (key !== undefined) await sign(signed, key);
  }
  return release;
}

/** The channel file so far: the other architecture's release stays in it. */
async function described(into) {
  try {
    return JSON.parse(await readFile(join(into, `${CHANNEL}.json`), 'utf8'));
  } catch {
    return {};
  }
}

async function sha256Of(path) {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path)) hash.update(chunk);
  return hash.digest('hex');
}

/**
 * The parts of PGlite that Node needs: modules for `import` and the
 * database itself, without extensions and other entry points.
 */
async function copyPglite(directory) {
  const from = join(repositoryRoot, PGLITE);
  const wanted =
    /^(?:package\.json|dist|dist\/fs|dist\/(?:index|chunk-[^/]*|fs\/nodefs)\.js|dist\/(?:pglite|initdb)\.(?:wasm|data))$/;
  await cp(from, join(directory, PGLITE), {
    recursive: true,
    filter: (file) => file === from || wanted.test(relative(from, file)),
  });
}

/** The image of pause containers, which agents import when their engine lacks it. */
async function copyPauseImage(directory) {
  const to = join(directory, 'agent', 'assets');
  await mkdir(to, { recursive: true });
  await copyFile(await releasedPauseImageFile({ log: stepLog() }), join(to, 'holder-image.tar'));
}

/**
 * The release's package.json: agent and scheduler read their version
 * from it; `type` and `imports` mean the same as in the repository.
 */
async function ownPackage() {
  const { name, version, license, type } = JSON.parse(await readFile(join(repositoryRoot, 'package.json'), 'utf8'));
  return `${JSON.stringify({ name, version, license, type, private: true }, null, 2)}\n`;
}
