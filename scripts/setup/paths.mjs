/**
 * Paths of the checkout and of set-up. Node built-ins only: every file
 * in `scripts/` except the generators runs before `npm ci` has.
 */
import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The root of the checkout. */
export const repositoryRoot = resolve(dirname(fileURLToPath(import.meta.url)), '..', '..');

/**
 * Logs of what set-up runs and the records of what it started; `.ci/run` gives a directory of its own. Set-up's own
 * variables start with `LS_`: the daemons refuse a `LONGSHORE_` one that they do not know.
 */
export function stateDir(env = process.env) {
  if (env.LS_SETUP_DIR) return resolve(env.LS_SETUP_DIR);
  const data = env.LONGSHORE_DATA_DIR ?? join(env.XDG_DATA_HOME || join(homedir(), '.local', 'share'), 'longshore');
  return join(resolve(data), 'setup');
}

/** The Node 24 that the package pins, or this Node when it is new enough (on platforms without the package). */
export function nodeBinary() {
  const pinned = join(repositoryRoot, 'node_modules', `node-linux-${process.arch}`, 'bin', 'node');
  if (existsSync(pinned)) return pinned;
  return isNodeNewEnough(process.versions.node, 24) ? process.execPath : undefined;
}

/** @param {string} version such as `20.11.1` */
export function isNodeNewEnough(version, major) {
  return Number.parseInt(version, 10) >= major;
}

/** The environment in which `node` and the package's commands are the pinned ones. */
export function pinnedEnv(env = process.env) {
  return { ...env, PATH: `${join(repositoryRoot, 'node_modules', '.bin')}:${env.PATH ?? '/usr/bin:/bin'}` };
}
