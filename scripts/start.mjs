/**
 * `npm start`: sets up what is missing, then hands over to `longshore up` under the pinned Node, in the foreground,
 * until Ctrl-C. Further arguments go to `longshore up`.
 */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { baseImageTemplate } from './setup/base-image.mjs';
import { main, stepLog } from './setup/log.mjs';
import { nodeBinary, pinnedEnv, repositoryRoot } from './setup/paths.mjs';
import { setUp } from './setup/profiles.mjs';
import { endChildrenOnSignals } from './setup/run.mjs';

/** What a first start shows: the smallest example, deployed and answered. */
const EXAMPLE = 'examples/hello/app.py:hello';

const signalsBack = endChildrenOnSignals();
await main(async () => {
  const { baseImage } = await setUp('start', stepLog());
  signalsBack();
  const given = process.argv.slice(2);
  const example = given.some((argument) => argument.startsWith('--example')) ? [] : ['--example', EXAMPLE];
  const args = [join(repositoryRoot, 'cli', 'main.ts'), 'up', '--first-run', ...example, ...given];
  const env = {
    ...pinnedEnv(),
    LONGSHORE_BASE_IMAGE: process.env.LONGSHORE_BASE_IMAGE || baseImageTemplate(baseImage),
  };
  return handOver(nodeBinary() ?? process.execPath, args, env);
});

/** Runs a program on our terminal; resolves with the exit code that the shell would give. */
function handOver(command, args, env) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: 'inherit', cwd: repositoryRoot, env });
    // A Ctrl-C reaches the child by itself, being in the same group; this one counts the signals sent to us alone.
    for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
    process.on('SIGINT', () => {
      if (!process.stdin.isTTY) child.kill('SIGINT');
    });
    child.once('error', reject);
    child.once('close', (code, signal) => resolve(code ?? (signal === 'SIGINT' ? 130 : 143)));
  });
}
