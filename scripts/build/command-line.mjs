/**
 * Builds the command line as an npm package: plain JavaScript for Node 20 and newer, without dependencies, so that
 * `npx URL` and `npm install URL` ask no registry. The package has no daemons: commands that run them are replaced by
 * functions that say where these commands are.
 */
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, join, relative, sep } from 'node:path';
import { build } from 'esbuild';
import { repositoryRoot } from '../setup/paths.mjs';
import { optionsFor, packagesOf } from './bundle.mjs';
import { thirdParty } from './licences.mjs';
import { copyTree, packTree } from './tree.mjs';

export const TARBALL = 'longshore.tgz';
const ENTRY = 'cli/packaged.ts';
/** Modules of commands that run on the machines of an installation. */
const MACHINE_COMMANDS = /\/cli\/commands\/(?:up|scheduler|mounts|agent|registry-serve|simulate|trace)\.ts$/;
/** Files that commands read by their own address. */
const ASSETS = ['LICENSE', 'python/longshore', 'python/beam', 'python/beta9', 'examples'];
const EXPORTED = /^export (?:async )?function (\w+)/gm;

/**
 * Writes the package's tarball.
 * @param {string} directory - a folder for the unpacked package, written anew
 * @param {string} into - the folder that gets `longshore.tgz`
 */
export async function writeCommandLine(directory, into) {
  await rm(directory, { recursive: true, force: true });
  await mkdir(join(directory, 'lib'), { recursive: true });
  const options = optionsFor(directory);
  const { metafile } = await build({
    ...options,
    target: 'node20',
    entryPoints: { main: ENTRY },
    splitting: true,
    chunkNames: 'chunk-[hash]',
    external: [],
    plugins: [withoutDaemons(), ...options.plugins],
  });
  await Promise.all([
    writeFile(join(directory, 'lib', 'start.mjs'), START, { mode: 0o755 }),
    writeFile(join(directory, 'package.json'), await describedPackage()),
    writeFile(join(directory, 'THIRD_PARTY.md'), await thirdParty(packagesOf([metafile]))),
    ...ASSETS.map((path) => copyTree(path, directory)),
  ]);
  await packTree(directory, join(into, TARBALL), { name: 'package', level: 9, step: 'command-line' });
}

/** The first file for any Node: later ones have syntax that an old Node refuses with a riddle. */
const START = `#!/usr/bin/env node
if (Number.parseInt(process.versions.node, 10) >= 20) {
  await import('./main.mjs');
} else {
  process.stderr.write('longshore: Node 20 or newer is needed (this is ' + process.versions.node + ')\\n');
  process.exitCode = 1;
}
`;

async function describedPackage() {
  const { name, version, description, license } = JSON.parse(
    await readFile(join(repositoryRoot, 'package.json'), 'utf8'),
  );
  const described = { name, version, description, license, type: 'module', bin: { longshore: 'lib/start.mjs' } };
  return `${JSON.stringify({ ...described, engines: { node: '>=20' } }, null, 2)}\n`;
}

/** Replaces the modules of machine commands, and refuses any other way to the daemons. */
function withoutDaemons() {
  return {
    name: 'without daemons',
    setup({ onLoad, onResolve }) {
      onResolve({ filter: /^#(?:scheduler|agent)\// }, ({ path, importer }) => ({
        errors: [{ text: `${relative(repositoryRoot, importer)} imports ${path}, which the package does not hold` }],
      }));
      onLoad({ filter: /\.ts$/ }, async ({ path }) => {
        if (!MACHINE_COMMANDS.test(path.split(sep).join('/'))) return undefined;
        const names = [...(await readFile(path, 'utf8')).matchAll(EXPORTED)].map(([, name]) => name);
        const command = basename(path, '.ts');
        const lines = names.map((name) => `export const ${name} = () => onMachines('${command}');`);
        const contents = [`import { onMachines } from '../machine-commands.ts';`, ...lines].join('\n');
        return { contents, loader: 'ts', resolveDir: join(repositoryRoot, 'cli', 'commands') };
      });
    },
  };
}
