/** Installs `node_modules` when it is absent or differs from the lock file; the pinned Node comes with it. */
import { existsSync, lstatSync, readFileSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import { SetupError } from './log.mjs';
import { nodeBinary, repositoryRoot } from './paths.mjs';
import { run } from './run.mjs';

const INSTALL_TIMEOUT_MS = 600_000;

/** The reason why `npm ci` is needed, or undefined. */
export function staleModules(root = repositoryRoot) {
  const locked = packagesOf(join(root, 'package-lock.json'));
  if (locked === undefined) throw new SetupError(`package-lock.json is missing or unreadable in ${root}.`);
  // Behind a link, only the installed packages count: npm's record beside them follows another checkout's lock file.
  const installed = isLink(root)
    ? presentOf(locked, root)
    : packagesOf(join(root, 'node_modules', '.package-lock.json'));
  const why = whyStale(locked, installed);
  if (why !== undefined) return why;
  return nodeBinary() === undefined ? 'the pinned Node is missing' : undefined;
}

/**
 * Compares the packages of a lock file with those of npm's own record of what it installed.
 * @param {Record<string, { version?: string, integrity?: string, optional?: boolean }>} locked
 * @param {Record<string, { version?: string, integrity?: string }> | undefined} installed
 */
export function whyStale(locked, installed) {
  if (installed === undefined) return 'none are installed yet';
  for (const [path, wanted] of Object.entries(locked)) {
    if (path === '') continue;
    const found = installed[path];
    // Packages for other platforms are locked and rightly absent.
    if (found === undefined && wanted.optional !== true) return `${path} is missing`;
    if (found !== undefined && (found.version !== wanted.version || found.integrity !== wanted.integrity))
      return `${path} is another version`;
  }
  const unwanted = Object.keys(installed).find((path) => locked[path] === undefined);
  return unwanted === undefined ? undefined : `${unwanted} is no longer wanted`;
}

/**
 * The reason not to install. npm empties the target of `node_modules`
 * first: behind a link, those are another checkout's packages.
 */
export function whyNotToInstall(root = repositoryRoot) {
  const path = join(root, 'node_modules');
  if (!isLink(root)) return undefined;
  const target = existsSync(path) ? realpathSync(path) : 'nowhere';
  return `${path} is a link to ${target}, where npm ci would take everybody's packages away: install there what package-lock.json says, or remove the link`;
}

const isLink = (root) => lstatSync(join(root, 'node_modules'), { throwIfNoEntry: false })?.isSymbolicLink() === true;

/** The locked packages that are installed, with the versions in their own manifests. */
function presentOf(locked, root) {
  const there = Object.entries(locked).filter(([path]) => path !== '' && existsSync(join(root, path, 'package.json')));
  return Object.fromEntries(
    there.map(([path, { integrity }]) => {
      const { version } = JSON.parse(readFileSync(join(root, path, 'package.json'), 'utf8'));
      return [path, integrity === undefined ? { version } : { version, integrity }];
    }),
  );
}

function packagesOf(file) {
  try {
    return JSON.parse(readFileSync(file, 'utf8')).packages;
  } catch {
    return undefined;
  }
}

/** @param {{ step<T>(title: string, work: () => Promise<T>): Promise<T> }} log */
export async function ensureNodeModules(log) {
  const why = staleModules();
  if (why !== undefined) {
    const refusal = whyNotToInstall();
    if (refusal !== undefined) throw new SetupError(`${refusal} (${why}).`);
    const npm = process.env.npm_execpath;
    const [command, first] =
      npm !== undefined && existsSync(npm) && /npm-cli\.c?js$/.test(npm) ? [process.execPath, [npm]] : ['npm', []];
    const args = [
      'ci',
      '--ignore-scripts',
      '--no-audit',
      '--no-fund',
      '--include=dev',
      '--include=optional',
      '--loglevel=error',
    ];
    await log.step(`installing the Node packages (npm ci: ${why})`, () =>
      run(command, [...first, ...args], {
        name: 'npm-ci',
        cwd: repositoryRoot,
        timeoutMs: INSTALL_TIMEOUT_MS,
        env: cleanEnv(),
      }),
    );
  }
  if (nodeBinary() === undefined) {
    throw new SetupError(
      `Longshore runs on Node 24 and npm brought none for ${process.platform}-${process.arch}; this is Node ${process.versions.node}.\n` +
        'Run it on Linux x64, or with a Node 24 of your own.',
    );
  }
}

/** The environment without the additions of `npm start`: a nested npm takes them for the user's own settings. */
function cleanEnv() {
  return Object.fromEntries(
    Object.entries(process.env).filter(([key]) => !/^npm_(package|lifecycle|command)/.test(key)),
  );
}
