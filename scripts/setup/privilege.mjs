/** The rights of this user: root, `sudo` without a password, or neither. */
import { existsSync } from 'node:fs';
import { run } from './run.mjs';

let known;

/** @returns {Promise<'root' | 'sudo' | 'none'>} */
export async function privilege() {
  if (process.getuid?.() === 0) return 'root';
  known ??= run('sudo', ['-n', 'true'], { allowFailure: true, timeoutMs: 10_000 }).then(
    ({ code }) => (code === 0 ? 'sudo' : 'none'),
    () => 'none',
  );
  return known;
}

/** The command line that runs as root from here; call it only when `privilege()` is not `none`. */
export async function asRoot(command, args, env = {}) {
  const settings = Object.entries(env).map(([key, value]) => `${key}=${value}`);
  if ((await privilege()) === 'root') return ['env', [...settings, command, ...args]];
  return ['sudo', ['-n', 'env', ...settings, command, ...args]];
}

/** Whether systemd is process 1, and so manages the services. */
export const hasSystemd = () => existsSync('/run/systemd/system');
