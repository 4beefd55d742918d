import type { ConditionName } from './conditions.ts';

/**
 * Storage of a volume's files: on one machine; on each machine a copy of its own, which may leave (`cache`); below a
 * path that every machine of the pool mounts; or on an NFS server that the engine mounts.
 */
export const VOLUME_DRIVERS = ['local', 'cache', 'shared', 'nfs'] as const;
export type VolumeDriverName = (typeof VOLUME_DRIVERS)[number];

export const isVolumeDriver = (text: string): text is VolumeDriverName =>
  (VOLUME_DRIVERS as readonly string[]).includes(text);

/** A single path segment, since it becomes a directory's name. */
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;
export const isVolumeName = (text: string): boolean => NAME.test(text);

const DOWN = {
  local: 'LocalVolumesDown',
  cache: 'CacheVolumesDown',
  shared: 'SharedVolumesDown',
  nfs: 'NfsVolumesDown',
} as const satisfies Record<VolumeDriverName, ConditionName>;

/** The condition of a machine where this driver's files do not answer: containers with such a volume go elsewhere. */
export const volumesDownCondition = (driver: VolumeDriverName): ConditionName => DOWN[driver];
