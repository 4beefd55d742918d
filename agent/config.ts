import { splitAddress } from '#shared/address.ts';
import { readFileSync } from 'node:fs';
import { homedir, hostname } from 'node:os';
import { join, resolve } from 'node:path';
import type { Static } from 'typebox';
import { Type } from 'typebox';
import { loadConfig } from '#shared/config.ts';
import { madeBaseImage } from '#shared/domain/built-images.ts';
import { LABELS_PATTERN } from '#shared/domain/labels.ts';
import { registryOf } from '#shared/domain/image-reference.ts';
import { SETTING_NAMES } from '#shared/settings.ts';
import { StartupError, messageOf } from '#shared/errors.ts';
import { rangeProblem } from './containers/network-filter.ts';
import { PROXY_SETTINGS, routeTo } from './proxy.ts';

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
    Type.String({
      secret: true,
      description:
        'the join token of CreateMachine, an enrolment token, or none; else the service credential `join-token`, else /etc/longshore-agent/join-token',
    }),
  ),
  LONGSHORE_AGENT_METRICS_ADDRESS: Type.String({
    default: '127.0.0.1:9464',
    pattern: '^(\\[[0-9A-Fa-f:.]+\\]|[^:/]+):[0-9]{1,5}$',
    description:
      'host:port of the Prometheus page; port 0 picks one. An address that others reach asks for a token or a certificate',
  }),
  LONGSHORE_AGENT_METRICS_TOKEN: Type.Optional(
    Type.String({ secret: true, minLength: 16, description: 'bearer without which the Prometheus page is not shown' }),
  ),
  LONGSHORE_AGENT_METRICS_TLS_CERT: Type.Optional(
    Type.String({ description: 'PEM file, the certificate chain of the Prometheus page: HTTPS' }),
  ),
  LONGSHORE_AGENT_METRICS_TLS_KEY: Type.Optional(Type.String({ description: 'PEM file, the key of that certificate' })),
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
  LONGSHORE_NVIDIA_SMI: Type.String({
    default: 'nvidia-smi',
    description: 'the GPU tool, by name on the PATH or by its full path; without it the machine offers no GPU',
  }),
  LONGSHORE_EXCLUDED_GPUS: Type.String({
    default: '',
    pattern: '^$|^[^,\\s]+(\\s*,\\s*[^,\\s]+)*$',
    description:
      'GPUs that are not offered, by UUID (GPU-…, MIG-…) or PCI bus id (0000:3b:00.0), with commas between them',
  }),
  LONGSHORE_AGENT_LABELS: Type.String({
    default: '',
    pattern: LABELS_PATTERN,
    description:
      'labels of this machine, with commas between them, such as zone=a,disk=nvme: apps may require or prefer them; `longshore machine label` wins',
  }),
  LONGSHORE_EXPECTED_GPUS: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: 64,
      description:
        'GPUs that this machine should have, each divided one once: with fewer it says GpuDegraded; else as its pool says (`--expected-gpus`), else nothing is expected',
    }),
  ),
  LONGSHORE_AGENT_ORPHAN_SECONDS: Type.Integer({
    default: 300,
    minimum: 1,
    maximum: 86_400,
    description: 'how long a container of this machine that nobody wants and no journal knows is left alone',
  }),
  LONGSHORE_AGENT_NETWORK: Type.String({
    default: 'longshore',
    pattern: '^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$',
    description: "name of the containers' bridge network",
  }),
  LONGSHORE_AGENT_HOLDERS: Type.Integer({
    default: 8,
    minimum: 0,
    maximum: 64,
    description:
      'network namespaces made ahead, each by a small waiting container of about 4 MiB: containers that join one start in half the time; 0: none',
  }),
  LONGSHORE_AGENT_OPEN_ADDRESSES: Type.Optional(
    Type.String({
      pattern: '^[0-9A-Fa-f:.]+(/[0-9]{1,3})?(,[0-9A-Fa-f:.]+(/[0-9]{1,3})?)*$',
      description:
        "addresses or ranges of this machine's own, separated by commas, that containers may reach; without it they reach none of its services",
    }),
  ),
  LONGSHORE_AGENT_CLOSED_RANGES: Type.String({
    default: '',
    description:
      "address ranges that no container may reach, such as 10.0.0.0/8,fd00::/8, whatever a stub's allow_list says. Port 53 of this machine's name servers stays reachable in them",
  }),
  LONGSHORE_AGENT_REGISTRIES: Type.String({
    default: '',
    description:
      'registries that images of workspaces may come from although their addresses are closed: this machine, its containers, metadata services, LONGSHORE_AGENT_CLOSED_RANGES. As names of images have them (127.0.0.1:5000), which the engine then asks itself, or as ranges (10.1.2.0/24), where the agent asks; with commas between them',
  }),
  LONGSHORE_AGENT_CONTAINER_DISK_MIB: Type.Integer({
    default: 20_480,
    minimum: 0,
    maximum: 1 << 30,
    description:
      'MiB that one container may write to its root and to its view of the code together, with volumes that its image brings. A container that writes more ends with `disk_limit`; 0: no limit',
  }),
  LONGSHORE_AGENT_BUILDS: Type.Integer({
    default: 2,
    minimum: 0,
    maximum: 64,
    description: 'builds of images that run here at once; 0: images are built on other machines',
  }),
  LONGSHORE_AGENT_BUILD_MEMORY_MIB: Type.Integer({
    default: 4096,
    minimum: 64,
    maximum: 1 << 30,
    description: 'MiB of memory of a step of a build, beside what placement gives out',
  }),
  LONGSHORE_AGENT_BUILD_CPU: Type.Number({
    default: 2,
    minimum: 0.1,
    maximum: 4096,
    description: 'cores that a step of a build may use',
  }),
  LONGSHORE_AGENT_BUILD_DISK_MIB: Type.Integer({
    default: 40_960,
    minimum: 64,
    maximum: 1 << 30,
    description: 'MiB that the steps of one build may write together',
  }),
  LONGSHORE_AGENT_BUILD_MINUTES: Type.Number({
    default: 60,
    minimum: 0.01,
    maximum: 1440,
    description: 'time that one build may take',
  }),
  LONGSHORE_AGENT_REGISTRY_ADDRESS: Type.String({
    default: '127.0.0.1:0',
    pattern: '^(127\\.[0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3}:[0-9]{1,5}|off)$',
    description:
      "address on loopback where this machine's engine pulls and pushes built images, over the link to the scheduler; port 0 picks one. off: built images run only where they were built",
  }),
  LONGSHORE_AGENT_PULL_ADDRESS: Type.String({
    default: '127.0.0.1:0',
    pattern: '^(127\\.[0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3}:[0-9]{1,5}|off)$',
    description:
      "address on loopback from which this machine's engine pulls images of registries that LONGSHORE_AGENT_REGISTRIES does not name: the agent asks those registries and refuses closed addresses; port 0 picks one. off: the engine asks them, as it does when it runs without root or on another machine",
  }),
  LONGSHORE_AGENT_IMAGE_MIB: Type.Integer({
    default: 0,
    minimum: 0,
    maximum: 1 << 30,
    description:
      'MiB that an image of a registry may have, as the registry sends it and unpacked; 0: as much as the disk of images holds beside LONGSHORE_MIN_FREE_DISK_PERCENT',
  }),
  LONGSHORE_AGENT_PACKAGES_MIB: Type.Integer({
    default: 10_240,
    minimum: 0,
    maximum: 1 << 30,
    description:
      'MiB of downloaded packages that are kept for the next builds, half of it for one workspace; 0: none are kept',
  }),
  LONGSHORE_PIP_INDEX_URL: Type.Optional(
    Type.String({ description: 'package index of pip in builds; whoever builds can read it, with its password' }),
  ),
  LONGSHORE_PIP_EXTRA_INDEX_URL: Type.Optional(
    Type.String({ description: 'further package indexes of pip in builds, apart by spaces' }),
  ),
  LONGSHORE_PIP_TRUSTED_HOST: Type.Optional(
    Type.String({ description: 'hosts whose certificates pip does not check in builds, apart by spaces' }),
  ),
  LONGSHORE_PIP_ARGUMENTS: Type.Optional(
    Type.String({
      pattern: '^[^\\n\\r]*$',
      description: 'further arguments of `pip install` for packages of images, such as --prefer-binary',
    }),
  ),
  LONGSHORE_MICROMAMBA_URL: Type.Optional(
    Type.String({
      pattern: '^https?://\\S+$',
      description:
        "address of micromamba's program for images that use it; $machine in it becomes 64 or aarch64. By default a fixed release on github.com",
    }),
  ),
  LONGSHORE_CONDA_CHANNELS: Type.Optional(
    Type.String({
      description:
        'channels of micromamba in builds, apart by spaces, instead of conda-forge; whoever builds can read them',
    }),
  ),
  LONGSHORE_CODE_CACHE_BYTES: Type.Integer({
    default: 10 * 1024 ** 3,
    minimum: 0,
    description: 'unpacked code archives kept beyond those in use',
  }),
  LONGSHORE_AGENT_CACHE_DIR: Type.Optional(
    Type.String({
      pattern: '^/.',
      description:
        'where `cache` volumes are, best on a scratch disk of this machine; absent: `cache` below the data directory. It must be there: a folder of the scratch disk, so that nothing is written beside that disk when it is not mounted',
    }),
  ),
  LONGSHORE_AGENT_CACHE_MIB: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: 1 << 30,
      description:
        'MiB that the `cache` volumes of this machine may take together; absent: half of the disk that they are on; 0: no such volumes here. Unused ones leave first (docs/volumes.md)',
    }),
  ),
  LONGSHORE_AGENT_CACHE_WORKSPACE_MIB: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: 1 << 30,
      description:
        'MiB that the `cache` volumes of one workspace may take on this machine; absent: as many as all together',
    }),
  ),
  LONGSHORE_SHARED_VOLUMES_DIR: Type.Optional(
    Type.String({
      pattern: '^/.',
      description:
        'a path that is mounted on every machine of the pool, where `shared` volumes are directories. Best is a folder inside the mount, so that it is missing when the mount is',
    }),
  ),
  LONGSHORE_NFS_VOLUMES: Type.Optional(
    Type.String({
      pattern: '^(\\[[0-9A-Fa-f:.]+\\]|[A-Za-z0-9_.-]+):/[^,]*$',
      description: 'host:/export of an NFS server, where `nfs` volumes are directories; the engine mounts it',
    }),
  ),
  LONGSHORE_NFS_OPTIONS: Type.String({
    default: 'nfsvers=4,hard',
    description: 'mount options of LONGSHORE_NFS_VOLUMES, as in fstab; nosuid and nodev are always added',
  }),
  LONGSHORE_MOUNTS_DIR: Type.String({
    default: '/run/longshore-mounts',
    pattern: '^/.',
    description:
      'directory of the mount helper, which mounts `s3` volumes and buckets; no helper there: it offers neither',
  }),
  LONGSHORE_MIN_FREE_DISK_PERCENT: Type.Number({
    default: 15,
    minimum: 0,
    maximum: 50,
    description:
      'below so much free where images are kept, unused images leave, until 10 more than this are free. The machine takes nothing new while that is not enough (DiskPressure). `longshore up` gives 5',
  }),
  LONGSHORE_SHUTDOWN_DRAIN_SECONDS: Type.Integer({
    default: 300,
    minimum: 0,
    maximum: 1800,
    description: 'time that running work gets to end when the host goes down',
  }),
  LONGSHORE_LOG_LEVEL: Type.String({
    default: 'info',
    pattern: '^(trace|debug|info|warn|error|fatal|silent)$',
    description: 'trace, debug, info, warn, error, fatal or silent',
  }),
  HTTPS_PROXY: Type.Optional(
    Type.String({
      secret: true,
      description:
        'http://[user:password@]host:port of the proxy by which the scheduler is dialled (CONNECT); also as https_proxy, which wins. The proxy is never used for loopback nor for the engine',
    }),
  ),
  HTTP_PROXY: Type.Optional(
    Type.String({ secret: true, description: 'the same, where HTTPS_PROXY is not set; also as http_proxy' }),
  ),
  NO_PROXY: Type.String({
    default: '',
    description:
      'destinations dialled without a proxy, separated by commas: names with all below them, addresses, ranges such as 10.0.0.0/8 or fd00::/8, each with a :port if need be, or *; also as no_proxy',
  }),
  DOCKER_HOST: Type.Optional(
    Type.String({ pattern: '^(unix|tcp)://', description: 'the Docker Engine, unix:///path or tcp://host:port' }),
  ),
});
type Env = Readonly<Record<string, string | undefined>>;
export type AgentConfig = Readonly<Static<typeof AgentSettings>>;

/**
 * Reads the agent's settings.
 * @throws StartupError `bad_config`, exit code 78, naming every wrong setting
 */
export function loadAgentConfig(env: Env): AgentConfig {
  try {
    const config = loadConfig(AgentSettings, withProxies(withJoinToken(env)), { known: SETTING_NAMES });
    checkJoinToken(config.LONGSHORE_JOIN_TOKEN);
    checkMetricsPage(config);
    checkClosedRanges(config);
    checkRegistries(config);
    if (config.LONGSHORE_SCHEDULER_ADDRESS !== undefined) routeTo(config.LONGSHORE_SCHEDULER_ADDRESS, config);
    return config;
  } catch (error) {
    throw new StartupError('bad_config', messageOf(error), { cause: error, exitCode: 78 });
  }
}

/** Path of a service's join token where systemd does not pass it, as in a container. */
export const JOIN_TOKEN_PATH = '/etc/longshore-agent/join-token';

/**
 * A join token that is not set comes from the service manager's credential, else from the service's file. The command
 * line is no source: every user of the machine sees it.
 */
function withJoinToken(env: Env): Env {
  if (env['LONGSHORE_JOIN_TOKEN'] || env['LONGSHORE_JOIN_TOKEN_FILE']) return env;
  const directory = env['CREDENTIALS_DIRECTORY'];
  const paths = [...(directory ? [join(directory, 'join-token')] : []), JOIN_TOKEN_PATH];
  const token = paths.map(readIfPossible).find((text) => text !== undefined && text !== '' && text !== 'none');
  return token === undefined ? env : { ...env, LONGSHORE_JOIN_TOKEN: token };
}

/** Proxy settings: programs read these variables in both cases. */
function withProxies(env: Env): Env {
  const inLowerCase = PROXY_SETTINGS.map((name) => [name, env[name.toLowerCase()]] as const);
  return { ...env, ...Object.fromEntries(inLowerCase.filter(([, value]) => value !== undefined && value !== '')) };
}

function readIfPossible(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    // The file is absent, or belongs to another user: there is no token here.
    return undefined;
  }
}

function checkJoinToken(token: string | undefined): void {
  // `none` is the default of systemd's credential for "no token": an absent file would fail the unit's start.
  if (token === undefined || token === 'none' || parseJoinToken(token) !== undefined) return;
  throw new StartupError(
    'bad_config',
    'LONGSHORE_JOIN_TOKEN: must look like lsj1.<64 hex characters>.<secret>, or lse1.…; take the token that `longshore machine create` prints (in the API `agentUpstreamToken`), or an enrolment token, as it is',
  );
}

/** A metrics page that other hosts reach requires a token, or at least an encrypted way. */
function checkMetricsPage(config: AgentConfig): void {
  const { host } = splitAddress(config.LONGSHORE_AGENT_METRICS_ADDRESS);
  const tls = config.LONGSHORE_AGENT_METRICS_TLS_CERT !== undefined;
  if (tls !== (config.LONGSHORE_AGENT_METRICS_TLS_KEY !== undefined))
    throw new StartupError(
      'bad_config',
      'LONGSHORE_AGENT_METRICS_TLS_CERT and LONGSHORE_AGENT_METRICS_TLS_KEY: give both, or none',
    );
  if (tls || config.LONGSHORE_AGENT_METRICS_TOKEN !== undefined || /^(127\.|::1$|localhost$)/.test(host)) return;
  throw new StartupError(
    'bad_config',
    `LONGSHORE_AGENT_METRICS_ADDRESS: ${config.LONGSHORE_AGENT_METRICS_ADDRESS} is reached from elsewhere; set LONGSHORE_AGENT_METRICS_TOKEN or LONGSHORE_AGENT_METRICS_TLS_CERT, or leave the page on 127.0.0.1 (the scheduler serves it at /metrics/machines/<id>)`,
  );
}

const MAX_CLOSED_RANGES = 256;

const listOf = (text: string): readonly string[] =>
  text
    .split(',')
    .map((one) => one.trim())
    .filter((one) => one !== '');

/** Ranges that the operator closes for every container. */
export const closedRanges = ({ LONGSHORE_AGENT_CLOSED_RANGES: text }: AgentConfig): readonly string[] => listOf(text);

/** Registries and ranges that the operator opens to images of workspaces; the one of the base image is among them. */
export const openedRegistries = (config: AgentConfig): readonly string[] => [
  ...listOf(config.LONGSHORE_AGENT_REGISTRIES),
  registryOf(config.LONGSHORE_BASE_IMAGE),
];

function checkRegistries({ LONGSHORE_AGENT_REGISTRIES: text }: AgentConfig): void {
  const list = listOf(text);
  const wrong = list.find((one) =>
    one.includes('/') ? rangeProblem(one) !== undefined : !/^(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?$/.test(one),
  );
  if (wrong !== undefined || list.length > MAX_CLOSED_RANGES)
    throw new StartupError(
      'bad_config',
      `LONGSHORE_AGENT_REGISTRIES: ${wrong === undefined ? `more than ${MAX_CLOSED_RANGES} entries` : `${JSON.stringify(wrong.slice(0, 60))} is neither a registry such as 127.0.0.1:5000 nor a range such as 10.1.2.0/24`}`,
    );
}

/** A range that cannot be parsed is refused: ignoring it would leave open what the operator meant to close. */
function checkClosedRanges(config: AgentConfig): void {
  const ranges = closedRanges(config);
  const problem =
    ranges.length > MAX_CLOSED_RANGES
      ? `more than ${MAX_CLOSED_RANGES} ranges`
      : ranges.map(rangeProblem).find((text) => text !== undefined);
  if (problem !== undefined) throw new StartupError('bad_config', `LONGSHORE_AGENT_CLOSED_RANGES: ${problem}`);
}

export interface JoinToken {
  /** Whether many hosts may join by it. */
  readonly isEnrolment: boolean;
  /** sha256 of the CA certificate's DER, lower-case hex. */
  readonly fingerprint: string;
  readonly secret: string;
}

/** `lsj1.<fingerprint>.<secret>`, or `lse1.` in front, or undefined when it is not one (the word `none` included). */
export function parseJoinToken(text: string): JoinToken | undefined {
  const [, kind, fingerprint, secret] =
    /^(lsj1|lse1)\.([0-9a-fA-F]{64})\.([A-Za-z0-9_-]{16,256})$/.exec(text.trim()) ?? [];
  if (fingerprint === undefined || secret === undefined) return undefined;
  return { isEnrolment: kind === 'lse1', fingerprint: fingerprint.toLowerCase(), secret };
}

/** The image reference of a spec: its own image, else the base image of its Python version. */
export function imageOf(config: AgentConfig, image: string, pythonVersion: string): string {
  if (image !== '') return image;
  const asked = pythonVersion.replace(/^python/, '');
  const version = asked === '' || asked === '3' ? config.LONGSHORE_DEFAULT_PYTHON : asked;
  return config.LONGSHORE_BASE_IMAGE.replaceAll('{version}', version);
}

/** Whether base images are those that the machine makes itself, from packages of Debian. */
export const makesBaseImages = ({ LONGSHORE_BASE_IMAGE: base }: Pick<AgentConfig, 'LONGSHORE_BASE_IMAGE'>): boolean =>
  base === madeBaseImage('{version}');

/**
 * Whether an image is one of the operator's base images, for stubs that name none. Programs of a base image are
 * trusted; those of a stub's own image are not.
 */
export function isBaseImage(config: Pick<AgentConfig, 'LONGSHORE_BASE_IMAGE'>, image: string): boolean {
  const [before = '', ...after] = config.LONGSHORE_BASE_IMAGE.split('{version}');
  const version = /^\d+\.\d+/.exec(image.slice(before.length))?.[0];
  return image === (version === undefined ? config.LONGSHORE_BASE_IMAGE : [before, ...after].join(version));
}

/** Variables of builds, by the names that package managers and the steps of packages read. */
export const pipVariables = (config: AgentConfig): Readonly<Record<string, string>> =>
  Object.fromEntries(
    [
      ['PIP_INDEX_URL', config.LONGSHORE_PIP_INDEX_URL],
      ['PIP_EXTRA_INDEX_URL', config.LONGSHORE_PIP_EXTRA_INDEX_URL],
      ['PIP_TRUSTED_HOST', config.LONGSHORE_PIP_TRUSTED_HOST],
      ['LONGSHORE_PIP_ARGUMENTS', config.LONGSHORE_PIP_ARGUMENTS],
      ['LONGSHORE_MICROMAMBA_URL', config.LONGSHORE_MICROMAMBA_URL],
      ['LONGSHORE_CONDA_CHANNELS', config.LONGSHORE_CONDA_CHANNELS],
    ].filter((pair): pair is [string, string] => pair[1] !== undefined),
  );

/** Directory that the agent alone writes. */
export const stateDirOf = (config: Pick<AgentConfig, 'LONGSHORE_DATA_DIR'>): string =>
  join(resolve(config.LONGSHORE_DATA_DIR), 'agent');

/** UUIDs of devices that the operator excludes. */
export const excludedGpus = (config: AgentConfig): readonly string[] =>
  config.LONGSHORE_EXCLUDED_GPUS.split(',')
    .map((one) => one.trim())
    .filter((one) => one !== '');

export const ownHostname = (): string => hostname();
