/**
 * Builds the web console into `dist/console`: files whose names carry a hash of their bytes, each with a copy for every
 * compression that browsers take, and a list of them by which the scheduler writes the page. Prints the sizes, and ends
 * when the first script is larger than it may be.
 */
import { mkdir, mkdtemp, readFile, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import { repositoryRoot } from '../setup/paths.mjs';

/** The folder's name, which `scheduler/api/ops/console-files.ts` reads. */
const FOLDER = 'console';
const SOURCES = ['console', 'shared/api', 'scripts/build/console.mjs'];
/** Bytes that a build may have, by gzip: of the first script, of style sheets, of the terminal, of other scripts. */
const MOST = { script: 60 * 1024, style: 12 * 1024, terminal: 110 * 1024, chunk: 30 * 1024 };
const TYPES = { js: 'text/javascript; charset=utf-8', css: 'text/css; charset=utf-8' };

/**
 * Writes the console into `into/console`, in place of that of an earlier build.
 * @param {string} into
 * @returns {Promise<{ line: string, packages: string[] }>} the sizes, for people, and the packages' folders
 */
export async function writeConsole(into) {
  // The library is there after the first set-up alone.
  const [{ build }, { packagesOf }] = await Promise.all([import('esbuild'), import('./bundle.mjs')]);
  const folder = join(into, FOLDER);
  await mkdir(into, { recursive: true });
  // On the same disk, so that the build appears there in one step.
  const work = await mkdtemp(join(into, '.console-'));
  try {
    const options = {
      absWorkingDir: repositoryRoot,
      bundle: true,
      minify: true,
      target: ['chrome120', 'firefox121', 'safari17.5'],
      jsx: 'automatic',
      jsxImportSource: 'preact',
      legalComments: 'none',
      charset: 'utf8',
      outdir: work,
      entryNames: '[name]-[hash]',
      chunkNames: 'chunk-[hash]',
      assetNames: '[name]-[hash]',
      metafile: true,
      logLevel: 'warning',
    };
    const entryPoints = { main: 'console/main.tsx', style: 'console/style/main.css' };
    const { metafile } = await build({ ...options, entryPoints, splitting: true, format: 'esm' });
    // A document of its own, with the library of the terminal: nothing of it is in the first script.
    const ofTerminal = ['console/terminal/main.tsx', 'console/terminal/terminal.css'].map((path) => ({
      in: path,
      out: 'terminal',
    }));
    const second = await build({ ...options, entryPoints: ofTerminal, format: 'esm' });
    // In one file: a worker that imported nothing needs no rule for scripts.
    await build({ ...options, entryPoints: { worker: 'console/live/worker.ts' }, format: 'iife' });
    const names = (await readdir(work)).toSorted();
    const sizes = Object.fromEntries(await Promise.all(names.map((name) => compress(work, name))));
    const named = (start, ending) => names.find((name) => name.startsWith(`${start}-`) && name.endsWith(ending));
    const entry = named('main', '.js');
    const style = named('style', '.css');
    const worker = named('worker', '.js');
    const terminal = { entry: named('terminal', '.js'), style: named('terminal', '.css') };
    const mostOf = (name) => {
      if (name.endsWith('.css')) return MOST.style;
      return name === entry ? MOST.script : name === terminal.entry ? MOST.terminal : MOST.chunk;
    };
    const large = names.filter((name) => sizes[name] > mostOf(name));
    if (large.length > 0)
      throw new Error(
        `the console is too large: ${large.map((name) => `${name} may have ${mostOf(name)} bytes`).join(', ')}; ${lineOf(sizes)}`,
      );
    const files = Object.fromEntries(names.map((name) => [name, TYPES[name.split('.').at(-1)]]));
    await writeFile(join(work, 'files.json'), JSON.stringify({ entry, style, worker, terminal, files }));
    await rm(folder, { recursive: true, force: true });
    await rename(work, folder);
    return { line: lineOf(sizes), packages: packagesOf([metafile, second.metafile]) };
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** The sizes of the scripts that the page begins with, and of all others together. */
function lineOf(sizes) {
  const kilobytes = (some) => `${(some.reduce((sum, [, bytes]) => sum + bytes, 0) / 1024).toFixed(1)} KB`;
  const all = Object.entries(sizes);
  const chunks = all.filter(([name]) => basename(name).startsWith('chunk-'));
  const named = all.filter((one) => !chunks.includes(one));
  return [
    ...named.map((one) => `${basename(one[0])} ${kilobytes([one])}`),
    `${chunks.length} more ${kilobytes(chunks)}`,
  ].join(', ');
}

/** Writes the compressed copies of a file. @returns its name and its size by gzip */
async function compress(folder, name) {
  const path = join(folder, name);
  const bytes = await readFile(path);
  const small = await promisify(gzip)(bytes, { level: 9 });
  const smaller = await promisify(brotliCompress)(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } });
  await Promise.all([writeFile(`${path}.gz`, small), writeFile(`${path}.br`, smaller)]);
  return [name, small.length];
}

/** Whether the console in `into/console` is newer than all of its sources. */
export async function consoleIsCurrent(into) {
  const built = await stat(join(into, FOLDER, 'files.json')).catch(() => undefined);
  if (built === undefined) return false;
  const sources = await Promise.all(SOURCES.map((source) => filesBelow(join(repositoryRoot, source))));
  const paths = [join(repositoryRoot, 'package-lock.json'), ...sources.flat()];
  const times = await Promise.all(paths.map(async (path) => (await stat(path)).mtimeMs));
  return times.every((ms) => ms < built.mtimeMs);
}

async function filesBelow(path) {
  if (!(await stat(path)).isDirectory()) return [path];
  const entries = await readdir(path, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
}
