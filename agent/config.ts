import { homedir, hostname } from 'node:os';
import { join } from 'node:path';
import type { Static } from 'typebox';
import { Type } from 'typebox';
import { loadConfig } from '#shared/config.ts';
import { SETTING_NAMES } from '#shared/settings.ts';
import { StartupError, messageOf } from '#shared/errors.ts';

/** The agent's settings, read once by `loadAgentConfig`. */
export const AgentSettings = Type.Object({
  LONGSHORE_DATA_DIR: Type.String({
    default: join(homedir(), '.local/share/longshore'),
    description:
      'everything Longshore keeps; the agent writes below <dir>/agent, and volumes are directories below <dir>/volumes',
  }),
  LONGSHORE_SCHEDULER_ADDRESS: Type.Optional(
    Type.String({
      pattern: '^(\\[[0-9A-Fa-f:.]+\\]|[^:/]+):[0-9]{1,5}$',
      description: 'host:port where the scheduler listens for agents (port 1995)',
    }),
  ),
  LONGSHORE_LINK_SOCKET: Type.Optional(
    Type.String({
      description:
        'unix socket of the scheduler on this machine, in a directory of this user alone: dialled instead of the address once joined; `longshore up` sets it',
    }),
  ),
  LONGSHORE_JOIN_TOKEN: Type.Optional(
    Type.String({ secret: true, description: 'the join token of CreateMachine, or none' }),
  ),
  LONGSHORE_AGENT_METRICS_ADDRESS: Type.String({
    default: '127.0.0.1:9464',
    pattern: '^(\\[[0-9A-Fa-f:.]+\\]|[^:/]+):[0-9]{1,5}$',
    description: 'host:port of the Prometheus page; port 0 picks one',
  }),
  LONGSHORE_BASE_IMAGE: Type.String({
    default: 'python:{version}-slim',
    description: 'image of stubs that name none; {version} is the Python version, such as 3.11',
  }),
  LONGSHORE_DEFAULT_PYTHON: Type.String({
    default: '3.11',
    pattern: '^3\\.[0-9]{1,2}$',
    description: 'the Python version of stubs that ask for none',
  }),
  LONGSHORE_CA_BUNDLE: Type.Optional(
    Type.String({ description: 'PEM file given to containers, where a proxy re-signs HTTPS' }),
  ),
  LONGSHORE_AGENT_CPU: Type.Optional(
    Type.Number({ minimum: 0.1, maximum: 4096, description: 'cores offered, instead of all of them' }),
  ),
  LONGSHORE_AGENT_MEMORY: Type.Optional(
    Type.Integer({ minimum: 64, maximum: 1 << 30, description: 'MiB of memory offered, instead of all of it' }),
  ),
  LONGSHORE_AGENT_NETWORK: Type.String({
    default: 'longshore',
    pattern: '^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$',
    description: "name of the containers' bridge network",
  }),
  LONGSHORE_CODE_CACHE_BYTES: Type.Integer({
    default: 10 * 1024 ** 3,
    minimum: 0,
    description: 'unpacked code archives kept beyond those in use',
  }),
  LONGSHORE_LOG_LEVEL: Type.String({
    default: 'info',
    pattern: '^(trace|debug|info|warn|error|fatal|silent)$',
    description: 'trace, debug, info, warn, error, fatal or silent',
  }),
  DOCKER_HOST: Type.Optional(
    Type.String({ pattern: '^(unix|tcp)://', description: 'the Docker Engine, unix:///path or tcp://host:port' }),
  ),
});
export type AgentConfig = Readonly<Static<typeof AgentSettings>>;

/**
 * Reads the agent's settings.
 * @throws StartupError `bad_config`, exit code 78, naming every wrong setting
 */
export function loadAgentConfig(env: Readonly<Record<string, string | undefined>>): AgentConfig {
  try {
    const config = loadConfig(AgentSettings, env, { known: SETTING_NAMES });
    checkJoinToken(config.LONGSHORE_JOIN_TOKEN);
    return config;
  } catch (error) {
    throw new StartupError('bad_config', messageOf(error), { cause: error, exitCode: 78 });
  }
}

function checkJoinToken(token: string | undefined): void {
  // systemd's credential default for "no token": an absent file would fail the unit's start.
  if (token === undefined || token === 'none' || parseJoinToken(token) !== undefined) return;
  throw new StartupError(
    'bad_config',
    'LONGSHORE_JOIN_TOKEN: must look like lsj1.<64 hex characters>.<secret>; take agentUpstreamToken of CreateMachine as it is',
  );
}

export interface JoinToken {
  /** sha256 of the CA certificate's DER, lower-case hex. */
  readonly fingerprint: string;
  readonly secret: string;
}

/** `lsj1.<fingerprint>.<secret>`, or undefined when it is not one (the word `none` included). */
export function parseJoinToken(text: string): JoinToken | undefined {
  const match = /^lsj1\.([0-9a-fA-F]{64})\.([A-Za-z0-9_-]{16,256})$/.exec(text.trim());
  if (match?.[1] === undefined || match[2] === undefined) return undefined;
  return { fingerprint: match[1].toLowerCase(), secret: match[2] };
}

/** Splits `host:port`; the pattern of the settings has been checked before. */
export function splitAddress(address: string): { readonly host: string; readonly port: number } {
  const colon = address.lastIndexOf(':');
  return { host: address.slice(0, colon).replace(/^\[|\]$/g, ''), port: Number(address.slice(colon + 1)) };
}

/** What a spec asks for, as an image reference: its own, else the base image of its Python version. */
export function imageOf(config: AgentConfig, image: string, pythonVersion: string): string {
  if (image !== '') return image;
  const asked = pythonVersion.replace(/^python/, '');
  const version = asked === '' || asked === '3' ? config.LONGSHORE_DEFAULT_PYTHON : asked;
  return config.LONGSHORE_BASE_IMAGE.replaceAll('{version}', version);
}

export const ownHostname = (): string => hostname();
