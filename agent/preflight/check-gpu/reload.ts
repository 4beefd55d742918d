/**
 * Tries whether containers keep their GPUs when systemd reloads its units. Where Docker uses the systemd cgroup driver,
 * a reload takes away devices that came by NVIDIA's hook. The trial never runs while another container with a GPU runs
 * here.
 */
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '#shared/errors.ts';
import type { ContainerRuntime } from '../../containers/runtime.ts';
import type { DeviceContainer } from './container.ts';
import { WAY, deviceLost } from './container.ts';
import type { Line } from './report.ts';
import { line } from './report.ts';

const CHECK = 'daemon-reload';
const RELOAD_MS = 60_000;

/** A container with a GPU that the check did not start. */
export interface ForeignContainer {
  readonly dockerId: string;
  readonly name: string;
  /** `all`: the container may use any GPU. */
  readonly uuids: readonly string[] | 'all';
}

/**
 * Processes that have a device of NVIDIA's mounted, as its hook mounts them: containers of every engine of this host,
 * not only Docker's.
 * @param root - root of the files, for tests
 */
export async function mountedGpus(root = '/'): Promise<number[]> {
  const pids = (await readdir(join(root, 'proc')).catch((): string[] => [])).filter((name) => /^\d+$/.test(name));
  const found = await Promise.all(
    pids.map(async (pid) => {
      const mounts = await readFile(join(root, 'proc', pid, 'mountinfo'), 'utf8').catch(() => '');
      return / \/dev\/nvidia(?:ctl|\d+) /.test(mounts) ? [Number(pid)] : [];
    }),
  );
  return found.flat();
}

/** @param mounted - result of `mountedGpus` before the check started containers of its own */
export function reloadRefusal(foreign: readonly ForeignContainer[], mounted: readonly number[]): Line | undefined {
  const who = [
    ...foreign.map(({ name }) => `container ${name}`),
    ...(foreign.length === 0 && mounted.length > 0 ? [`process ${mounted[0]} in a container`] : []),
  ];
  if (who.length === 0) return undefined;
  const more = who.length > 3 ? ` and ${who.length - 3} more` : '';
  return line(
    'failed',
    CHECK,
    `refused: ${who.slice(0, 3).join(', ')}${more} uses GPUs here, and may lose them by a reload`,
    'drain the machine (longshore worker drain ID --wait), end other GPU work, and repeat',
  );
}

export const reloadNotAsked = (): Line =>
  line('skipped', CHECK, 'not tried; --reload tries it, on a host without GPU work');

/** @param own - containers of the check, each with a device; the first uses the agent's way */
export async function tryReload(runtime: ContainerRuntime, own: readonly DeviceContainer[]): Promise<Line[]> {
  if (own.length === 0) return [line('skipped', CHECK, 'no container has a GPU to lose')];
  try {
    await reload();
  } catch (error) {
    return [line('failed', CHECK, messageOf(error), 'run this as root, on a host that systemd runs')];
  }
  const lines = await Promise.all(
    own.map(async (container, place) => {
      const lost = await deviceLost(runtime, container);
      const way = WAY[container.driver];
      if (lost === '') return line('ok', CHECK, `a container with a GPU by ${way} keeps it`);
      return line(
        place === 0 ? 'failed' : 'warning',
        CHECK,
        `a container with a GPU by ${way} loses it: ${lost}`,
        container.driver === 'cdi'
          ? 'upgrade runc and the driver; until then use the cgroupfs driver ("exec-opts": ["native.cgroupdriver=cgroupfs"] in daemon.json)'
          : 'have Docker pass GPUs by CDI (docs/gpus.md), or use the cgroupfs driver',
      );
    }),
  );
  return lines;
}

async function reload(): Promise<void> {
  const { execa } = await import('execa');
  const { NOTIFY_SOCKET: _hidden, ...env } = process.env;
  const { exitCode, shortMessage, stderr } = await execa('systemctl', ['daemon-reload'], {
    extendEnv: false,
    env,
    stdin: 'ignore',
    reject: false,
    timeout: RELOAD_MS,
    killSignal: 'SIGKILL',
    maxBuffer: 64 * 1024,
  });
  if (exitCode !== 0)
    throw new Error(`systemctl daemon-reload: ${stderr.trim().slice(0, 300) || shortMessage || 'it failed'}`);
}
