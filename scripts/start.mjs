/**
 * `npm start`: sets up missing parts, then hands over to `longshore up` under the pinned
 * Node, in the foreground, until Ctrl-C. Further arguments go to `longshore up`.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { consoleIsCurrent, writeConsole } from './build/console.mjs';
import { packagesAreCurrent, writePackages } from './build/packages.mjs';
import { baseImageTemplate, DEFAULT_PYTHON } from './setup/base-image.mjs';
import { main, stepLog } from './setup/log.mjs';
import { nodeBinary, pinnedEnv, repositoryRoot } from './setup/paths.mjs';
import { setUp } from './setup/profiles.mjs';
import { endChildrenOnSignals } from './setup/run.mjs';

/** The example of a first start: the smallest one, deployed and called. */
const EXAMPLE = 'examples/hello/app.py:handler';

const signalsBack = endChildrenOnSignals();
await main(async () => {
  const given = process.argv.slice(2);
  if (given.includes('--help') || given.includes('-h')) return help();
  const log = stepLog();
  const { baseImage } = await setUp('start', log);
  await buildPackages(log);
  await buildConsole(log);
  signalsBack();
  const example = given.some((argument) => argument.startsWith('--example')) ? [] : ['--example', EXAMPLE];
  const args = [join(repositoryRoot, 'cli', 'main.ts'), 'up', '--first-run', ...example, ...given];
  const env = { ...pinnedEnv() };
  env.LONGSHORE_BASE_IMAGE ||= baseImageTemplate(baseImage);
  // Apps that name no version get this system's own Python when only that could be had.
  const version = /:(3\.\d+)/.exec(baseImage)?.[1];
  if (version !== undefined && version !== DEFAULT_PYTHON) env.LONGSHORE_DEFAULT_PYTHON ||= version;
  return handOver(nodeBinary() ?? process.execPath, args, env);
});

/** Builds what the scheduler gives out below `/install/`. An installation runs without it. */
async function buildPackages(log) {
  const dist = join(repositoryRoot, 'dist');
  try {
    if (await packagesAreCurrent(dist)) return;
    await log.step('building the packages of the command line and the Python module', () => writePackages(dist));
  } catch (error) {
    log.say(`- no packages below /install/: ${error.message}`);
  }
}

/** Builds the web console. An installation runs without it. */
async function buildConsole(log) {
  const dist = join(repositoryRoot, 'dist');
  try {
    if (await consoleIsCurrent(dist)) return;
    const { line } = await log.step('building the web console', () => writeConsole(dist));
    log.say(`  ${line}`);
  } catch (error) {
    log.say(`- no web console below /console/: ${error.message}`);
  }
}

/** Help comes before set-up, because the flags of `longshore up` need the packages that set-up installs. */
function help() {
  console.log(
    [
      'Usage: npm start -- [flags of `longshore up`]',
      '',
      'Installs what is missing, starts Redis, a scheduler and an agent on this machine, deploys an example and calls it,',
      'and stays in the foreground until Ctrl-C.',
      '',
    ].join('\n'),
  );
  const node = nodeBinary();
  if (node === undefined || !existsSync(join(repositoryRoot, 'node_modules', 'commander'))) {
    console.log('Nothing is installed yet: `npm start` does that first; then this shows the flags.');
    return 0;
  }
  return handOver(node, [join(repositoryRoot, 'cli', 'main.ts'), 'up', '--help'], pinnedEnv());
}

/** Runs a program on this terminal; resolves with the exit code that the shell would give. */
function handOver(command, args, env) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: 'inherit', cwd: repositoryRoot, env });
    // A terminal sends Ctrl-C to the child by itself too; `longshore up` takes the two for one.
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
    child.once('error', reject);
    child.once('close', (code, signal) => resolve(code ?? 128 + (constants.signals[signal] ?? 15)));
  });
}
