import type { ConditionName } from './conditions.ts';

/** How a volume's files are kept: on one machine, below a path that every machine of the pool mounts, or on an NFS server that the engine mounts. */
export const VOLUME_DRIVERS = ['local', 'shared', 'nfs'] as const;
export type VolumeDriverName = (typeof VOLUME_DRIVERS)[number];

export const isVolumeDriver = (text: string): text is VolumeDriverName =>
  (VOLUME_DRIVERS as readonly string[]).includes(text);

const DOWN = {
  local: 'LocalVolumesDown',
  shared: 'SharedVolumesDown',
  nfs: 'NfsVolumesDown',
} as const satisfies Record<VolumeDriverName, ConditionName>;

/** The condition of a machine on which that driver's files do not answer: containers that mount such a volume are placed elsewhere. */
export const volumesDownCondition = (driver: VolumeDriverName): ConditionName => DOWN[driver];
