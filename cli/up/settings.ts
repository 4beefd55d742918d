// What `up` itself reads from flags and the environment, and the environments it gives its children.
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { socketPathWithin } from '#shared/socket-path.ts';
import type { UpFlags } from '../flags.ts';

type Env = Readonly<Record<string, string | undefined>>;

export interface UpSettings {
  readonly dataDir: string;
  readonly httpAddress: string;
  readonly agentAddress: string;
  /** A Redis of the person's own; none is started then. */
  readonly redisUrl: string | undefined;
}

/** Flags win over the environment. */
export function upSettings(flags: Pick<UpFlags, 'dataDir' | 'port' | 'agentPort'>, env: Env): UpSettings {
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
  };
}

/** Belong to the command line and to set-up; a daemon would call them unknown. */
const NOT_FOR_DAEMONS: ReadonlySet<string> = new Set([
  'LONGSHORE_CONTEXT_FILE',
  'LONGSHORE_URL',
  'LONGSHORE_TOKEN',
  'LONGSHORE_SETUP_DIR',
  'LONGSHORE_JOIN_TOKEN',
  'LONGSHORE_JOIN_TOKEN_FILE',
]);

/** Everything of our own environment that a daemon may want. */
export function daemonEnv(env: Env): Record<string, string | undefined> {
  return Object.fromEntries(Object.entries(env).filter(([name]) => !NOT_FOR_DAEMONS.has(name)));
}

/** glibc keeps what the compiler of the embedded database's code freed unless it is told a bound: 4 MiB cost nothing and save 60 MiB, after a first start twice that (measured). */
const MALLOC_TRIM = String(4 * 1024 * 1024);

/** The same for a scheduler, whose memory is bounded where the person has not said how. */
export function schedulerEnv(env: Env): Record<string, string | undefined> {
  return { MALLOC_TRIM_THRESHOLD_: MALLOC_TRIM, ...daemonEnv(env) };
}

/** Where scheduler and agent of one data directory meet; nowhere when the path is too long for a socket. */
export function linkSocket(dataDir: string): { readonly LONGSHORE_LINK_SOCKET?: string } {
  const path = socketPathWithin(join(dataDir, 'link'), 'agent.sock');
  return path === undefined ? {} : { LONGSHORE_LINK_SOCKET: path };
}

/** What a client on this machine dials: an address that listens everywhere is reached on loopback. */
export function clientUrl(httpAddress: string, env: Env): string {
  const isSealed = Boolean(env['LONGSHORE_HTTP_TLS_CERT']);
  // A certificate is for a name, and that of the installation is in its URL.
  if (isSealed && env['LONGSHORE_EXTERNAL_URL']) return env['LONGSHORE_EXTERNAL_URL'].replace(/\/+$/, '');
  return `${isSealed ? 'https' : 'http'}://${httpAddress.replace(/^(0\.0\.0\.0|\[::\]|\*)?:/, '127.0.0.1:')}`;
}
