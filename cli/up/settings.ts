// Settings that `up` reads from flags and the environment, and the environments of its children.
import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, isAbsolute, join, resolve } from 'node:path';
import { MOUNT_SOCKET } from '#agent/volumes/mount-messages.ts';
import { socketPathWithin } from '#shared/socket-path.ts';
import type { UpFlags } from '../flags.ts';

type Env = Readonly<Record<string, string | undefined>>;

export interface UpSettings {
  readonly dataDir: string;
  readonly httpAddress: string;
  readonly agentAddress: string;
  /** The person's own Redis; none is started then. */
  readonly redisUrl: string | undefined;
  /** Whether `up` starts the registry that holds built images. */
  readonly registry: boolean;
}

/** Reads the settings; flags win over the environment. */
export function upSettings(flags: Pick<UpFlags, 'dataDir' | 'port' | 'agentPort' | 'registry'>, env: Env): UpSettings {
  const share = env['XDG_DATA_HOME'] || join(env['HOME'] || homedir(), '.local', 'share');
  return {
    dataDir: resolve(flags.dataDir ?? (env['LONGSHORE_DATA_DIR'] || join(share, 'longshore'))),
    httpAddress:
      flags.port === undefined ? env['LONGSHORE_HTTP_ADDRESS'] || '127.0.0.1:1994' : `127.0.0.1:${flags.port}`,
    agentAddress:
      flags.agentPort === undefined
        ? env['LONGSHORE_AGENT_ADDRESS'] || '127.0.0.1:1995'
        : `127.0.0.1:${flags.agentPort}`,
    redisUrl: env['REDIS_URL'] || undefined,
    registry: flags.registry === true,
  };
}

/** Names for the command line and set-up, which a daemon would report as unknown. */
const NOT_FOR_DAEMONS: ReadonlySet<string> = new Set([
  'LONGSHORE_CONTEXT_FILE',
  'LONGSHORE_URL',
  'LONGSHORE_TOKEN',
  'LONGSHORE_SETUP_DIR',
  'LONGSHORE_JOIN_TOKEN',
  'LONGSHORE_JOIN_TOKEN_FILE',
]);

/** Every variable of this environment that a daemon may need. */
export function daemonEnv(env: Env): Record<string, string | undefined> {
  return Object.fromEntries(Object.entries(env).filter(([name]) => !NOT_FOR_DAEMONS.has(name)));
}

/**
 * glibc keeps memory that the compiler of the embedded database's code freed, unless it has a
 * bound. 4 MiB cost nothing and save 60 MiB, and twice that after a first start (measured).
 */
const MALLOC_TRIM = String(4 * 1024 * 1024);

/** The daemon environment for a scheduler, with that bound unless the person sets one. */
export function schedulerEnv(env: Env): Record<string, string | undefined> {
  return { MALLOC_TRIM_THRESHOLD_: MALLOC_TRIM, ...daemonEnv(env) };
}

/**
 * Networks of this machine, which callbacks and webhooks may reach where nobody else can use the installation. Ports of
 * Longshore itself stay closed.
 */
export function ownNetworks(
  { httpAddress, agentAddress }: Pick<UpSettings, 'httpAddress' | 'agentAddress'>,
  env: Env,
): Record<string, string> {
  const isAlone = [httpAddress, agentAddress].every((address) => LOOPBACK.test(address));
  return isAlone && !env['LONGSHORE_WEBHOOK_ALLOW'] ? { LONGSHORE_WEBHOOK_ALLOW: '127.0.0.0/8,::1' } : {};
}

const LOOPBACK = /^(?:127\.|localhost:|\[::1\]:)/;

/** The socket between scheduler and agent of one data directory; none when the path is too long for a socket. */
export function linkSocket(dataDir: string): { readonly LONGSHORE_LINK_SOCKET?: string } {
  const path = socketPathWithin(join(dataDir, 'link'), 'agent.sock');
  return path === undefined ? {} : { LONGSHORE_LINK_SOCKET: path };
}

/**
 * Directories of a mount helper of this data directory; none when this user cannot mount, s3fs or FUSE is missing, or
 * the path is too long for a socket.
 */
export function mountsEnv(dataDir: string, env: Env): Readonly<Record<string, string>> | undefined {
  const directory = join(dataDir, 'mounts');
  const folders = (env['PATH'] ?? '').split(delimiter).filter((folder) => folder !== '');
  const program = env['LONGSHORE_S3FS'] || 's3fs';
  const hasProgram = isAbsolute(program)
    ? existsSync(program)
    : folders.some((folder) => existsSync(join(folder, program)));
  if (process.getuid?.() !== 0 || !hasProgram || !existsSync('/dev/fuse')) return undefined;
  if (socketPathWithin(directory, MOUNT_SOCKET) === undefined) return undefined;
  return {
    LONGSHORE_MOUNTS_DIR: env['LONGSHORE_MOUNTS_DIR'] || directory,
    LONGSHORE_MOUNTS_CACHE_DIR: env['LONGSHORE_MOUNTS_CACHE_DIR'] || join(dataDir, 'mounts-cache'),
  };
}

/** The URL for clients on this machine: an address that listens everywhere is reached on loopback. */
export function clientUrl(httpAddress: string, env: Env): string {
  const isSealed = Boolean(env['LONGSHORE_HTTP_TLS_CERT']);
  // A certificate is for a name, and the installation's URL holds that name.
  if (isSealed && env['LONGSHORE_EXTERNAL_URL']) return env['LONGSHORE_EXTERNAL_URL'].replace(/\/+$/, '');
  return `${isSealed ? 'https' : 'http'}://${httpAddress.replace(/^(0\.0\.0\.0|\[::\]|\*)?:/, '127.0.0.1:')}`;
}
