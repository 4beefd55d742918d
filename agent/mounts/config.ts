// Settings of the mount helper, read once by `loadMountsConfig`.
import type { Static } from 'typebox';
import { Type } from 'typebox';
import { loadConfig } from '#shared/config.ts';
import { AddressRules } from '#shared/address-rules.ts';
import { SETTING_NAMES } from '#shared/settings.ts';
import { StartupError, messageOf } from '#shared/errors.ts';
import { storeProblem } from './store.ts';
import type { Store } from './store.ts';

export const MountsSettings = Type.Object({
  LONGSHORE_MOUNTS_DIR: Type.String({
    default: '/run/longshore-mounts',
    pattern: '^/.',
    description:
      "directory of the mount helper: its socket, its state and the places of its mounts; also the agent's setting",
  }),
  LONGSHORE_MOUNTS_CACHE_DIR: Type.String({
    default: '/var/cache/longshore-mounts',
    pattern: '^/.',
    description: 'directory for open files of buckets, on a disk',
  }),
  LONGSHORE_MOUNTS_CACHE_MIB: Type.Integer({
    default: 20_480,
    minimum: 64,
    maximum: 1 << 30,
    description: 'MiB that the open files of one mount may take on the disk; a mount that takes more ends',
  }),
  LONGSHORE_S3FS: Type.String({
    default: 's3fs',
    description: 'the program that mounts buckets, by name on the PATH or by its full path',
  }),
  LONGSHORE_BUCKET_ALLOW: Type.String({
    default: '',
    description:
      'networks that a CloudBucket may be in although they are not public, such as 10.1.2.0/24, with commas between them',
  }),
  LONGSHORE_S3_VOLUMES: Type.Optional(
    Type.String({
      pattern: '^[^/]+(/[^/]+)*$',
      description: 'bucket, or bucket/prefix, where `s3` volumes are kept; the mount helper mounts it',
    }),
  ),
  LONGSHORE_S3_ENDPOINT: Type.String({ default: '', description: "URL of that bucket's server; empty: Amazon's" }),
  LONGSHORE_S3_REGION: Type.String({ default: 'us-east-1', description: "that bucket's region" }),
  LONGSHORE_S3_PATH_STYLE: Type.Boolean({
    default: false,
    description: "the bucket's name is in the path of requests, as most servers but Amazon's want it",
  }),
  LONGSHORE_S3_ACCESS_KEY_ID: Type.String({ default: '', secret: true, description: 'access key of that bucket' }),
  LONGSHORE_S3_SECRET_ACCESS_KEY: Type.String({ default: '', secret: true, description: 'its secret key' }),
  LONGSHORE_SCHEDULER_ADDRESS: Type.Optional(
    Type.String({ description: 'host:port of the scheduler, whose host no CloudBucket may be on' }),
  ),
  LONGSHORE_AGENT_CLOSED_RANGES: Type.String({
    default: '',
    description: 'address ranges that no container may reach, and no CloudBucket may be in',
  }),
  LONGSHORE_CA_BUNDLE: Type.Optional(
    Type.String({ description: 'PEM file with the authorities that certificates of buckets are checked against' }),
  ),
  LONGSHORE_LOG_LEVEL: Type.String({
    default: 'info',
    pattern: '^(trace|debug|info|warn|error|fatal|silent)$',
    description: 'trace, debug, info, warn, error, fatal or silent',
  }),
});
export type MountsConfig = Readonly<Static<typeof MountsSettings>>;

/** @throws StartupError `bad_config`, exit code 78, naming every wrong setting */
export function loadMountsConfig(env: Readonly<Record<string, string | undefined>>): MountsConfig {
  try {
    const config = loadConfig(MountsSettings, env, { known: SETTING_NAMES });
    for (const name of ['LONGSHORE_BUCKET_ALLOW', 'LONGSHORE_AGENT_CLOSED_RANGES'] as const) rulesOf(config, name);
    const store = volumesStore(config);
    const problem = store === undefined ? undefined : storeProblem(store);
    if (problem !== undefined) throw new Error(`LONGSHORE_S3_VOLUMES: ${problem}`);
    return config;
  } catch (error) {
    throw new StartupError('bad_config', messageOf(error), { cause: error, exitCode: 78 });
  }
}

/** @throws Error naming the setting and its first item that is no network */
export function rulesOf(
  config: MountsConfig,
  name: 'LONGSHORE_BUCKET_ALLOW' | 'LONGSHORE_AGENT_CLOSED_RANGES',
): AddressRules {
  const rules = AddressRules.read(config[name]);
  if ('wrong' in rules) throw new Error(`${name}: ${JSON.stringify(rules.wrong)} is no network such as 10.1.2.0/24`);
  return rules;
}

/** The operator's bucket; undefined: there are no `s3` volumes. */
export function volumesStore(config: MountsConfig): Store | undefined {
  if (config.LONGSHORE_S3_VOLUMES === undefined) return undefined;
  const [bucket = '', ...prefix] = config.LONGSHORE_S3_VOLUMES.split('/');
  return {
    bucket,
    prefix: prefix.join('/'),
    endpoint: config.LONGSHORE_S3_ENDPOINT,
    region: config.LONGSHORE_S3_REGION,
    pathStyle: config.LONGSHORE_S3_PATH_STYLE,
    readOnly: false,
    accessKey: config.LONGSHORE_S3_ACCESS_KEY_ID,
    secretKey: config.LONGSHORE_S3_SECRET_ACCESS_KEY,
  };
}
