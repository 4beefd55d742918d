// Names of all settings, and which daemon reads which.
import type { Log } from './log.ts';

export type Daemon = 'scheduler' | 'agent' | 'mounts';

/** Names of settings by the program that reads them. A name that several programs read is in the first one's list. */
export const SETTINGS_OF: Readonly<Record<Daemon | 'clients', readonly string[]>> = {
  scheduler: [
    'LONGSHORE_DATABASE_CONNECTIONS',
    'LONGSHORE_DATABASE_READ_CONNECTIONS',
    'LONGSHORE_DATA_DIR',
    'LONGSHORE_HTTP_ADDRESS',
    'LONGSHORE_HTTP_TLS_CERT',
    'LONGSHORE_HTTP_TLS_KEY',
    'LONGSHORE_HTTP_PLAINTEXT',
    'LONGSHORE_GRPC_ADDRESS',
    'LONGSHORE_GRPC_PLAINTEXT',
    'LONGSHORE_EXTERNAL_GRPC_ADDRESS',
    'LONGSHORE_SECRET_VALUES',
    'LONGSHORE_DRAIN_SECONDS',
    'LONGSHORE_HTTP_MAX_CONNECTIONS',
    'LONGSHORE_HTTP_ORIGINS',
    'LONGSHORE_CONSOLE',
    'LONGSHORE_CONSOLE_URL',
    'LONGSHORE_AGENT_ADDRESS',
    'LONGSHORE_EXPORT_FILE',
    'LONGSHORE_EXPORT_FILE_MIB',
    'LONGSHORE_EXPORT_KINDS',
    'LONGSHORE_EXPORT_OTLP',
    'LONGSHORE_EXPORT_OTLP_HEADERS',
    'LONGSHORE_EXTERNAL_URL',
    'LONGSHORE_EXTERNAL_AGENT_ADDRESS',
    'LONGSHORE_INVOKE_DOMAIN',
    'LONGSHORE_LINK_SOCKET',
    'LONGSHORE_REDIS_SOCKET',
    'LONGSHORE_REDIS_PREFIX',
    'LONGSHORE_SECRET_KEY_FILE',
    'LONGSHORE_SECRET_KEY_FILE_PREVIOUS',
    'LONGSHORE_BOOTSTRAP_TOKEN',
    'LONGSHORE_METRICS_TOKEN',
    'LONGSHORE_RATE_LIMITS',
    'LONGSHORE_START_TIMEOUT_SECONDS',
    'LONGSHORE_START_TIMEOUT_MOST_SECONDS',
    'LONGSHORE_IMAGE_PULLS',
    'LONGSHORE_IMAGE_PULLS_MOST',
    'LONGSHORE_TRUSTED_PROXIES',
    'LONGSHORE_MAX_OBJECT_BYTES',
    'LONGSHORE_OBJECTS_BUCKET',
    'LONGSHORE_OBJECTS_ENDPOINT',
    'LONGSHORE_OBJECTS_REGION',
    'LONGSHORE_OBJECTS_PATH_STYLE',
    'LONGSHORE_OBJECTS_PREFIX',
    'LONGSHORE_OBJECTS_ACCESS_KEY_ID',
    'LONGSHORE_OBJECTS_SECRET_ACCESS_KEY',
    'LONGSHORE_OBJECT_GRACE_HOURS',
    'LONGSHORE_MAX_INVOKE_BODY_BYTES',
    'LONGSHORE_MAX_RESULT_BYTES',
    'LONGSHORE_MAX_CONTAINERS',
    'LONGSHORE_RESTART_GRACE_SECONDS',
    'LONGSHORE_MACHINE_LOST_SECONDS',
    'LONGSHORE_POOLS_FILE',
    'LONGSHORE_SHARING_ORDER',
    'LONGSHORE_RESERVE_AFTER',
    'LONGSHORE_RECLAIM_AFTER',
    'LONGSHORE_RECLAIM_NOTICE',
    'LONGSHORE_RECLAIM_MIN_RUN',
    'LONGSHORE_PROVIDERS_FILE',
    'LONGSHORE_CPU_WORK_ON_GPU_POOLS',
    'LONGSHORE_VOLUME_DRIVER',
    'LONGSHORE_REGISTRY',
    'LONGSHORE_REGISTRY_PROGRAM',
    'LONGSHORE_REGISTRY_CONFIG',
    'LONGSHORE_IMAGE_DAYS',
    'LONGSHORE_RELEASES_DIR',
    'LONGSHORE_RELEASE_CHANNEL',
    'LONGSHORE_WEBHOOK_ALLOW',
    'LONGSHORE_REDIS_MAX_BYTES',
    'LONGSHORE_TASK_DAYS',
    'LONGSHORE_INPUT_DAYS',
    'LONGSHORE_INPUT_BYTES',
    'LONGSHORE_WORKSPACE_INPUT_BYTES',
    'LONGSHORE_CONTAINER_DAYS',
    'LONGSHORE_LOG_DAYS',
    'LONGSHORE_DELIVERY_DAYS',
    'LONGSHORE_METRIC_DAYS',
    'LONGSHORE_METRIC_SAMPLE_HOURS',
    'LONGSHORE_EVENT_DAYS',
    'LONGSHORE_LOG_LEVEL',
  ],
  agent: [
    'LONGSHORE_AGENT_BUILDS',
    'LONGSHORE_AGENT_PACKAGES_MIB',
    'LONGSHORE_MICROMAMBA_URL',
    'LONGSHORE_CONDA_CHANNELS',
    'LONGSHORE_AGENT_BUILD_MEMORY_MIB',
    'LONGSHORE_AGENT_BUILD_CPU',
    'LONGSHORE_AGENT_BUILD_DISK_MIB',
    'LONGSHORE_AGENT_BUILD_MINUTES',
    'LONGSHORE_PIP_INDEX_URL',
    'LONGSHORE_PIP_EXTRA_INDEX_URL',
    'LONGSHORE_PIP_TRUSTED_HOST',
    'LONGSHORE_PIP_ARGUMENTS',
    'LONGSHORE_SCHEDULER_ADDRESS',
    'LONGSHORE_JOIN_TOKEN',
    'LONGSHORE_AGENT_METRICS_ADDRESS',
    'LONGSHORE_AGENT_METRICS_TOKEN',
    'LONGSHORE_AGENT_METRICS_TLS_CERT',
    'LONGSHORE_AGENT_METRICS_TLS_KEY',
    'LONGSHORE_BASE_IMAGE',
    'LONGSHORE_DEFAULT_PYTHON',
    'LONGSHORE_CA_BUNDLE',
    'LONGSHORE_AGENT_CPU',
    'LONGSHORE_AGENT_MEMORY',
    'LONGSHORE_AGENT_NETWORK',
    'LONGSHORE_AGENT_ORPHAN_SECONDS',
    'LONGSHORE_AGENT_HOLDERS',
    'LONGSHORE_AGENT_OPEN_ADDRESSES',
    'LONGSHORE_AGENT_CLOSED_RANGES',
    'LONGSHORE_AGENT_REGISTRIES',
    'LONGSHORE_AGENT_PULL_ADDRESS',
    'LONGSHORE_AGENT_IMAGE_MIB',
    'LONGSHORE_AGENT_REGISTRY_ADDRESS',
    'LONGSHORE_AGENT_CACHE_DIR',
    'LONGSHORE_AGENT_CACHE_MIB',
    'LONGSHORE_AGENT_CACHE_WORKSPACE_MIB',
    'LONGSHORE_AGENT_CONTAINER_DISK_MIB',
    'LONGSHORE_CODE_CACHE_BYTES',
    'LONGSHORE_MIN_FREE_DISK_PERCENT',
    'LONGSHORE_SHARED_VOLUMES_DIR',
    'LONGSHORE_NFS_VOLUMES',
    'LONGSHORE_NFS_OPTIONS',
    'LONGSHORE_SHUTDOWN_DRAIN_SECONDS',
    'LONGSHORE_EXCLUDED_GPUS',
    'LONGSHORE_AGENT_LABELS',
    'LONGSHORE_EXPECTED_GPUS',
    'LONGSHORE_NVIDIA_SMI',
  ],
  mounts: [
    'LONGSHORE_MOUNTS_DIR',
    'LONGSHORE_MOUNTS_CACHE_DIR',
    'LONGSHORE_MOUNTS_CACHE_MIB',
    'LONGSHORE_S3FS',
    'LONGSHORE_BUCKET_ALLOW',
    'LONGSHORE_S3_VOLUMES',
    'LONGSHORE_S3_ENDPOINT',
    'LONGSHORE_S3_REGION',
    'LONGSHORE_S3_PATH_STYLE',
    'LONGSHORE_S3_ACCESS_KEY_ID',
    'LONGSHORE_S3_SECRET_ACCESS_KEY',
  ],
  // The command line, and what clients read.
  clients: ['LONGSHORE_CONTEXT_FILE', 'LONGSHORE_URL', 'LONGSHORE_TOKEN', 'LONGSHORE_RUN'],
};

/**
 * The names of every program's settings. Both daemons may share an environment, so each accepts the others' names and
 * refuses unknown ones: a misspelt setting must not be ignored silently. A test compares this list with the schemas.
 */
export const SETTING_NAMES: readonly string[] = Object.values(SETTINGS_OF).flat();

/** Files from which the units of the daemons read their settings. */
const FILE_OF: Readonly<Record<Daemon, string>> = {
  scheduler: '/etc/longshore/scheduler.env',
  agent: '/etc/longshore-agent/agent.env',
  mounts: '/etc/longshore-agent/mounts.env',
};

export interface StraySetting {
  readonly setting: string;
  /** Daemon that reads it. */
  readonly of: Daemon;
  /** File in which it has an effect. */
  readonly file: string;
}

/**
 * Settings that are set for a daemon and that only others read.
 * @param own - names that the daemon reads
 * @param others - daemons that do not share its file
 */
export function straySettings(
  env: Readonly<Record<string, string | undefined>>,
  own: readonly string[],
  others: readonly Daemon[],
): readonly StraySetting[] {
  const isSet = (name: string): boolean => Boolean(env[name]) || Boolean(env[`${name}_FILE`]);
  return others.flatMap((of) =>
    SETTINGS_OF[of]
      .filter((setting) => isSet(setting) && !own.includes(setting))
      .map((setting) => ({ setting, of, file: FILE_OF[of] })),
  );
}

/** Tells of each at the start of a daemon: such a setting seems to be set, and has no effect. */
export function warnOfStrays(log: Pick<Log, 'warn'>, strays: readonly StraySetting[]): void {
  for (const stray of strays) log.warn(stray, 'a setting of another daemon has no effect here: move it to its file');
}

/** A name with a larger distance is another name, not a misspelt one. */
const NEAR = 2;

/** The setting that a misspelt name probably means; undefined when none is near. */
export function nearSetting(name: string, names: Iterable<string>): string | undefined {
  const [nearest] = [...names]
    .map((known) => ({ known, distance: editDistance(name, known) }))
    .filter(({ distance }) => distance <= NEAR)
    .toSorted((a, b) => a.distance - b.distance);
  return nearest?.known;
}

/** The number of letters to insert, delete or change to turn one text into the other (Levenshtein), row by row. */
function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, at) => at);
  for (let i = 0; i < from.length; i += 1) {
    const next = [i + 1];
    for (let j = 0; j < to.length; j += 1) {
      const [above = 0, left = 0, before = 0] = [row[j + 1], next[j], row[j]];
      next.push(Math.min(above + 1, left + 1, before + (from[i] === to[j] ? 0 : 1)));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}
