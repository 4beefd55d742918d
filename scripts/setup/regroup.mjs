/**
 * Adds a user with sudo to the group that may use the Docker socket. This same program then
 * continues in a child with the group, because a new membership counts for new logins only.
 */
import { spawn } from 'node:child_process';
import { constants, userInfo } from 'node:os';
import { permissionText } from './engine.mjs';
import { SetupError } from './log.mjs';
import { asRoot, privilege } from './privilege.mjs';
import { findProgram, run } from './run.mjs';

const MARK = 'LS_REGROUPED';

/**
 * Repeats this program with the group; exits with its code, never returns.
 * @param {{ say(line: string): void, step<T>(title: string, work: () => Promise<T>): Promise<T> }} log
 * @throws SetupError when there is no sudo, or it did not help
 */
export async function repeatInDockerGroup(log) {
  const sg = findProgram('sg');
  if ((await privilege()) !== 'sudo' || sg === undefined || process.env[MARK] !== undefined)
    throw new SetupError(permissionText());
  const { username } = userInfo();
  const [command, args] = await asRoot('usermod', ['-aG', 'docker', username]);
  await log.step(
    `letting ${username} use Docker (usermod -aG docker ${username}; counts everywhere after the next login)`,
    () => run(command, args),
  );
  const line = [process.execPath, ...process.argv.slice(1)]
    .map((word) => `'${word.replaceAll("'", `'\\''`)}'`)
    .join(' ');
  const child = spawn(sg, ['docker', '-c', `exec ${line}`], { stdio: 'inherit', env: { ...process.env, [MARK]: '1' } });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
    process.removeAllListeners(signal);
    process.on(signal, () => {
      if (signal !== 'SIGINT' || !process.stdin.isTTY) child.kill(signal);
    });
  }
  const code = await new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (status, signal) => resolve(status ?? 128 + (constants.signals[signal] ?? 15)));
  });
  process.exit(code);
}
