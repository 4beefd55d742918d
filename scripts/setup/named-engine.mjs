/**
 * The Docker Engine that LS_TEST_ENGINE names: a folder with its programs, built or
 * unpacked. A run on it gets an engine and a network namespace of its own; this machine's
 * engine stays as it is. So the same suites run on an old engine and on a current one.
 */
import { spawn } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { join, resolve } from 'node:path';
import { engineRequest } from './engine-api.mjs';
import { SetupError, stepLog } from './log.mjs';
import { ensureNodeModules } from './node-modules.mjs';
import { nodeBinary, repositoryRoot } from './paths.mjs';

const PROGRAMS = ['dockerd', 'docker-proxy', 'containerd', 'containerd-shim-runc-v2', 'runc'];

/**
 * @returns {string | undefined} the folder, when one is named
 * @throws SetupError when a program is missing in it
 */
export function namedEngine(env = process.env) {
  if (!env.LS_TEST_ENGINE) return undefined;
  const folder = resolve(env.LS_TEST_ENGINE);
  const missing = PROGRAMS.filter((program) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return false;
    } catch {
      return true;
    }
  });
  if (missing.length > 0)
    throw new SetupError(
      `LS_TEST_ENGINE names ${folder}, which has no ${missing.join(', ')}. It must be a folder with the programs of a Docker Engine.`,
    );
  if (process.getuid?.() !== 0)
    throw new SetupError('An engine that LS_TEST_ENGINE names needs root, for a network namespace of its own.');
  return folder;
}

/**
 * Runs a command on that engine, to its end. Ctrl-C reaches the command; the engine ends after it.
 * @param {string} folder
 * @param {readonly string[]} command
 * @returns {Promise<number>} its exit code
 */
export async function runOnEngine(folder, command) {
  await ensureNodeModules(stepLog());
  const program = join(repositoryRoot, 'test', 'helpers', 'hosts', 'on-engine.ts');
  const child = spawn(nodeBinary() ?? process.execPath, [program, folder, ...command], { stdio: 'inherit' });
  const pass = (signal) => child.kill(signal);
  // A terminal sends Ctrl-C to all of them by itself.
  process.on('SIGTERM', pass);
  process.on('SIGINT', () => undefined);
  return await new Promise((done, fail) => {
    child.once('error', fail);
    child.once('close', (code) => done(code ?? 1));
  });
}

/** Describes the engine at DOCKER_HOST, in a line for the head of a run. */
export async function engineLine() {
  const ask = async (path) => JSON.parse((await engineRequest('GET', path)).text);
  const [version, info] = await Promise.all([ask('/version'), ask('/info')]);
  const parts = (version.Components ?? [])
    .filter(({ Name }) => Name === 'containerd' || Name === 'runc')
    .map(({ Name, Version }) => `${Name} ${Version}`);
  return [
    `engine: Docker ${version.Version} (API ${version.ApiVersion})`,
    ...parts,
    `storage ${info.Driver}`,
    `cgroup v${info.CgroupVersion ?? 1}, ${info.CgroupDriver}`,
  ].join(', ');
}
