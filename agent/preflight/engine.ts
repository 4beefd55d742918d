// Checks whether this machine's container engine has the abilities that containers here need, judged by its own report.
// Pure but for the query.
import { messageOf } from '#shared/errors.ts';
import type { EngineInfo } from '../containers/runtime.ts';
import type { Finding } from './finding.ts';
import { failed, ok, warning } from './finding.ts';

/** The oldest version with the API that is used here (1.41). */
const OLDEST = { major: 20, minor: 10 } as const;

export function engineFindings(info: EngineInfo): Finding[] {
  const [major = 0, minor = 0] = info.version.split('.').map(Number);
  const isOld = major < OLDEST.major || (major === OLDEST.major && minor < OLDEST.minor);
  const { memory, swap, cpu, pids } = info.limits;
  const missing = [...(memory ? [] : ['memory']), ...(cpu ? [] : ['cpu']), ...(pids ? [] : ['pids'])];
  return [
    isOld
      ? failed('engine', `Docker ${info.version}`, `install Docker ${OLDEST.major}.${OLDEST.minor} or newer`)
      : ok('engine', `Docker ${info.version}, ${info.storageDriver}, ${info.cores} cores`),
    missing.length > 0
      ? failed(
          'cgroup',
          `${info.cgroup}: no limits of ${missing.join(', ')}`,
          'boot a kernel with these cgroup controllers (on Debian and Ubuntu: cgroup_enable=memory on its command line), else one container can take the whole machine',
        )
      : swap
        ? ok('cgroup', info.cgroup)
        : warning(
            'cgroup',
            `${info.cgroup}: no limit of swap`,
            'boot with swapaccount=1, else a container past its memory swaps instead of ending',
          ),
    info.rootless || info.userNamespaces
      ? failed(
          'user namespaces',
          info.rootless ? 'the engine runs without root' : 'the engine maps users (userns-remap)',
          'run Docker as root and without userns-remap: sockets, code and volumes are shared with containers by their owners',
        )
      : ok('user namespaces', 'not mapped'),
    ...(info.selinux
      ? [
          {
            ...ok('SELinux', 'on; containers run without its confinement (docs/machines.md)'),
            remedy: 'give tenants whom SELinux must keep apart machines of their own: a pool of their workspace',
          },
        ]
      : []),
    info.liveRestore
      ? ok('live restore', 'on')
      : warning(
          'live restore',
          'off: a restart or an upgrade of the engine ends every container',
          'set "live-restore": true in /etc/docker/daemon.json, then: sudo systemctl reload docker',
        ),
  ];
}

/**
 * Why the engine cannot be asked.
 * @param host - DOCKER_HOST, when it is set
 */
export function engineFailure(error: unknown, host: string | undefined): Finding {
  const where = host ?? '/var/run/docker.sock';
  const codes = [error, error instanceof Error ? error.cause : undefined].map((one) =>
    one instanceof Error && 'code' in one ? String(one.code) : '',
  );
  if (codes.some((code) => code === 'EACCES' || code === 'EPERM'))
    return failed(
      'engine',
      `no permission to use ${where}`,
      'add this user to the group docker (sudo usermod -aG docker $USER, then log in again), or run as root',
    );
  return failed(
    'engine',
    `no Docker Engine answers at ${where} (${messageOf(error)})`,
    'install and start Docker (systemctl enable --now docker), or set DOCKER_HOST',
  );
}
