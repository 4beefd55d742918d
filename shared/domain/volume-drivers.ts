import type { ConditionName } from './conditions.ts';

/**
 * Storage of a volume's files: on one machine; on each machine a copy of its own, which may leave (`cache`); below a
 * path that every machine of the pool mounts; on an NFS server that the engine mounts; or in a bucket of the operator
 * (`s3`) that the mount helper mounts.
 */
export const VOLUME_DRIVERS = ['local', 'cache', 'shared', 'nfs', 's3'] as const;
export type VolumeDriverName = (typeof VOLUME_DRIVERS)[number];

export const isVolumeDriver = (text: string): text is VolumeDriverName =>
  (VOLUME_DRIVERS as readonly string[]).includes(text);

/** Drivers of mounts: those of volumes, and that of a workspace's own bucket, which is no volume of ours. */
export const MOUNT_DRIVERS = [...VOLUME_DRIVERS, 'bucket'] as const;
export type MountDriverName = (typeof MOUNT_DRIVERS)[number];

export const isMountDriver = (text: string): text is MountDriverName =>
  (MOUNT_DRIVERS as readonly string[]).includes(text);

/** A single path segment, since it becomes a directory's name. */
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;
export const isVolumeName = (text: string): boolean => NAME.test(text);

const DOWN = {
  local: 'LocalVolumesDown',
  cache: 'CacheVolumesDown',
  shared: 'SharedVolumesDown',
  nfs: 'NfsVolumesDown',
  s3: 'S3VolumesDown',
  bucket: 'BucketMountsDown',
} as const satisfies Record<MountDriverName, ConditionName>;

/** The condition of a machine where this driver's files do not answer: containers with such a volume go elsewhere. */
export const volumesDownCondition = (driver: MountDriverName): ConditionName => DOWN[driver];
