// Buckets that a stub mounts: its request's fields, and their place in the stub's configuration. Pure. Source:
// interface, gateway 3.7 (`config` of a volume); decision 0162.
import type { StubVolume } from '#shared/api/stubs.ts';
import { bucketProblem } from '#shared/domain/buckets.ts';
import type { StubBucket, StubConfig, StubVolumeMount } from '../../domain/stub-config.ts';

const FIELDS = { bucket: 'bucketName', endpoint: 'endpointUrl', region: 'region' } as const;

/** Whether the mount is of a bucket. A client may send an empty configuration with the id of a volume. */
export const isBucket = ({ id, config }: StubVolume): boolean =>
  config !== null && (id === '' || config.bucketName !== '');

/** Reads the configuration of a bucket; a text is a refusal that begins with the field. */
export function readBucket({ config }: StubVolume): StubBucket | string {
  if (config === null) return 'config is missing';
  const { bucketName, endpointUrl, region, readOnly, forcePathStyle, accessKey, secretKey } = config;
  const problem = bucketProblem({ bucket: bucketName, endpoint: endpointUrl, region });
  if (problem !== undefined) return `config.${FIELDS[problem.field]} ${problem.says}`;
  if ((accessKey === '') !== (secretKey === ''))
    return 'config.accessKey and config.secretKey name two secrets, or none for a public bucket';
  return {
    bucket: bucketName,
    endpoint: endpointUrl,
    region,
    readOnly,
    pathStyle: forcePathStyle,
    accessKey,
    secretKey,
  };
}

/** Secrets with the keys of its buckets. */
export const bucketSecrets = ({ volumes }: Pick<StubConfig, 'volumes'>): readonly string[] =>
  volumes.flatMap(({ bucket }) =>
    bucket === undefined || bucket.accessKey === '' ? [] : [bucket.accessKey, bucket.secretKey],
  );

/** Access that a mount gives: to a volume, or to a bucket with its keys. */
export const accessOf = ({ volumeId, bucket }: Pick<StubVolumeMount, 'volumeId' | 'bucket'>): string =>
  bucket === undefined
    ? volumeId
    : JSON.stringify([
        bucket.bucket,
        bucket.endpoint,
        bucket.region,
        bucket.accessKey,
        bucket.secretKey,
        bucket.readOnly,
      ]);
