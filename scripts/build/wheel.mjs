/**
 * Builds the Python module as wheels, without any Python: `longshore`, and `longshore_shims` with the names of the
 * published packages. The shims are apart, because `pip` writes a wheel's files over those of an installed `beta9`.
 */
import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { readFile, readdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { ZipFile } from 'yazl';
import { repositoryRoot } from '../setup/paths.mjs';
import { isLeftOut } from './tree.mjs';

const WHEELS = [
  { name: 'longshore', folders: ['longshore'], summary: 'App definitions and calls of a Longshore installation' },
  {
    name: 'longshore_shims',
    folders: ['beam', 'beta9'],
    summary: 'Runs app files that import beam or beta9 on a Longshore installation',
    requires: 'longshore',
  },
];
const PYTHON = '>=3.8';

/**
 * Writes the wheels into a folder.
 * @param {string} into
 * @param {string} version
 * @returns {Promise<string[]>} their file names
 */
export async function writeWheels(into, version) {
  return Promise.all(WHEELS.map((wheel) => writeWheel(wheel, into, version)));
}

async function writeWheel({ name, folders, summary, requires }, into, version) {
  const info = `${name}-${version}.dist-info`;
  const metadata = [
    'Metadata-Version: 2.1',
    `Name: ${name.replace('_', '-')}`,
    `Version: ${version}`,
    `Summary: ${summary}`,
    'License: Apache-2.0',
    `Requires-Python: ${PYTHON}`,
    ...(requires === undefined ? [] : [`Requires-Dist: ${requires}==${version}`]),
    '',
  ];
  const files = [
    ...(await Promise.all(folders.map(sourcesOf))).flat(),
    [`${info}/LICENSE`, await readFile(join(repositoryRoot, 'LICENSE'))],
    [`${info}/METADATA`, Buffer.from(metadata.join('\n'))],
    [
      `${info}/WHEEL`,
      Buffer.from('Wheel-Version: 1.0\nGenerator: longshore\nRoot-Is-Purelib: true\nTag: py3-none-any\n'),
    ],
    [`${info}/top_level.txt`, Buffer.from(folders.map((folder) => `${folder}\n`).join(''))],
  ];
  const record = files.map(([path, bytes]) => {
    const hash = createHash('sha256').update(bytes).digest('base64url');
    return `${path},sha256=${hash},${bytes.byteLength}\n`;
  });
  const all = [...files, [`${info}/RECORD`, Buffer.from(`${record.join('')}${info}/RECORD,,\n`)]];
  const file = `${name}-${version}-py3-none-any.whl`;
  await writeZip(all, join(into, file));
  return file;
}

/** The files of a folder of `python/`, in the order of their names. */
async function sourcesOf(folder) {
  const root = join(repositoryRoot, 'python');
  const entries = await readdir(join(root, folder), { recursive: true, withFileTypes: true });
  const paths = entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1))
    .filter((path) => !path.split('/').some((part) => isLeftOut(part)) && !isLeftOut(`python/${path}`))
    .toSorted();
  return Promise.all(paths.map(async (path) => [path, await readFile(join(root, path))]));
}

/** Writes a zip archive in one step, with fixed times and rights. */
async function writeZip(files, path) {
  const zip = new ZipFile();
  // The archive stores the local fields of a date, without a zone.
  const mtime = new Date(1980, 0, 1);
  for (const [name, bytes] of files) zip.addBuffer(bytes, name, { mtime, forceDosTimestamp: true, mode: 0o100644 });
  zip.end();
  await pipeline(zip.outputStream, createWriteStream(`${path}.new`));
  await rename(`${path}.new`, path);
}
