/**
 * Bundles the programs of a release into few files: `lib/agent.mjs` (the whole agent in one file), `lib/mounts.mjs`
 * (the mount helper) and `lib/main.mjs` with its chunks (the command line and the scheduler). Source files find their
 * assets by `import.meta.url`, and a release keeps assets at their repository paths. So each file's address is kept as
 * if it lay at its own place.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { basename, join, relative, sep } from 'node:path';
import { build } from 'esbuild';
import { repositoryRoot } from '../setup/paths.mjs';

/** Programs and worker threads; a release names each by its file alone. */
const AGENT = 'agent/service.ts';
const MOUNTS = 'agent/mounts/service.ts';
const PROGRAMS = ['cli/main.ts', 'scheduler/stores/store/pglite-worker.ts', 'agent/telemetry/block-devices.ts'];
/** Read their own files by their own address, or are native and optional. */
const EXTERNAL = ['@electric-sql/pglite', 'cpu-features', 'pg-native'];

const BANNER = [
  'import{createRequire as __createRequire}from"node:module";',
  'import{fileURLToPath as __toPath}from"node:url";',
  'import{dirname as __dirnameOf}from"node:path";',
  'const require=__createRequire(import.meta.url),__filename=__toPath(import.meta.url),__dirname=__dirnameOf(__filename);',
].join('');

/**
 * Writes the bundles below `directory/lib`.
 * @param {string} directory - the release's root
 * @returns {Promise<string[]>} the folders of the packages that went into them, sorted
 */
export async function bundle(directory) {
  const results = await Promise.all([
    bundleProgram(directory, { agent: AGENT, mounts: MOUNTS }),
    build({
      ...optionsFor(directory),
      entryPoints: Object.fromEntries(PROGRAMS.map((file) => [basename(file, '.ts'), file])),
      splitting: true,
      chunkNames: 'chunk-[hash]',
    }),
  ]);
  return packagesOf(results.map(({ metafile }) => metafile));
}

/** The folders of the packages that went into bundles, sorted. */
export function packagesOf(metafiles) {
  const packages = metafiles.flatMap(({ inputs }) => Object.keys(inputs).map(packageOf));
  return [...new Set(packages.filter((name) => name !== undefined))].toSorted((a, b) => (a < b ? -1 : 1));
}

/**
 * Writes programs below `directory/lib`, each one file.
 * @param {string} directory - the release's root
 * @param {Readonly<Record<string, string>>} entryPoints - their sources by the name they get
 */
export async function bundleProgram(directory, entryPoints) {
  const result = await build({ ...optionsFor(directory), entryPoints });
  await Promise.all(Object.keys(entryPoints).map((name) => toAscii(join(directory, 'lib', `${name}.mjs`))));
  return result;
}

/**
 * Rewrites a source as ASCII: it then takes one byte per character in a process's
 * memory, otherwise two. The bundler leaves regular expressions unchanged.
 */
async function toAscii(file) {
  const text = await readFile(file, 'utf8');
  const escaped = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
  await writeFile(file, text.replace(/[^\0-\x7f]/g, escaped));
}

/** Options of the bundler for programs below `directory/lib`. */
export const optionsFor = (directory) => ({
  absWorkingDir: repositoryRoot,
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: 'node24',
  // Names stay, so that a stack in a log tells the place.
  minifySyntax: true,
  minifyWhitespace: true,
  legalComments: 'none',
  charset: 'ascii',
  external: EXTERNAL,
  loader: { '.node': 'empty' },
  banner: { js: BANNER },
  outdir: join(directory, 'lib'),
  outExtension: { '.js': '.mjs' },
  metafile: true,
  logLevel: 'warning',
  plugins: [ownAddresses(), sshWhenAsked()],
});

/**
 * Rewrites `import.meta.url` of `a/b.ts` to `../a/b.ts` beside `lib/`; a program named by it becomes the one in `lib/`.
 */
function ownAddresses() {
  const programs = new Set([AGENT, ...PROGRAMS].map((file) => basename(file, '.ts')));
  return {
    name: 'own addresses',
    setup({ onLoad }) {
      onLoad({ filter: /\.ts$/ }, async ({ path }) => {
        const text = await readFile(path, 'utf8');
        if (path.includes(`${sep}node_modules${sep}`) || !text.includes('import.meta.url')) return undefined;
        const own = relative(repositoryRoot, path).split(sep).join('/');
        const contents = text
          .replace(/new URL\('\.\/([\w-]+)\.ts', import\.meta\.url\)/g, (_, name) => {
            if (!programs.has(name)) throw new Error(`${own} names ./${name}.ts, which no release holds`);
            return `new URL('./${name}.mjs', __OWN_ADDRESS__)`;
          })
          .replaceAll('import.meta.url', `new URL(${JSON.stringify(`../${own}`)}, __OWN_ADDRESS__).href`)
          .replaceAll('__OWN_ADDRESS__', 'import.meta.url');
        return { contents, loader: 'ts' };
      });
    },
  };
}

/**
 * Loads the SSH client of the engine's API library only for an engine behind SSH; the library itself always loads it.
 */
function sshWhenAsked() {
  const lazy = 'exports.Client = function (...args) { return new (require("ssh2").Client)(...args); };';
  return {
    name: 'ssh when asked',
    setup({ onLoad, onResolve }) {
      onResolve({ filter: /^ssh2$/ }, ({ importer, resolveDir, namespace }) =>
        namespace === 'file' && importer.includes(`${sep}docker-modem${sep}`)
          ? { path: 'ssh2', namespace: 'when-asked', pluginData: resolveDir }
          : undefined,
      );
      onLoad({ filter: /./, namespace: 'when-asked' }, ({ pluginData }) => ({
        contents: lazy,
        resolveDir: pluginData,
      }));
    },
  };
}

/** The folder of the innermost package that a file belongs to. */
function packageOf(input) {
  const [folder] = /^.*node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(input) ?? [];
  return folder;
}
