// Rules for the volumes of a container, checked before anything is made. Pure.
import { mountPathsProblem } from '#shared/domain/mount-paths.ts';
import { MOUNT_DRIVERS, isMountDriver } from '#shared/domain/volume-drivers.ts';

/** Pattern of an id as a directory name, which is neither `.` nor `..` nor a path. */
export const VOLUME_ID = /^[A-Za-z0-9][A-Za-z0-9_-]{0,100}$/;
const MAX_VOLUMES = 64;

/** A volume in an assignment. */
export interface WantedVolume {
  readonly volumeId: string;
  readonly mountPath: string;
  /** Empty: `local`. */
  readonly driver: string;
  /** The bucket of the driver `bucket`, which has no volume's id. */
  readonly bucket?: WantedBucket | null;
}

/** A workspace's bucket, without its keys. */
export interface WantedBucket {
  readonly bucket: string;
  /** URL; empty: Amazon's. */
  readonly endpoint: string;
  readonly region: string;
  readonly readOnly: boolean;
  readonly pathStyle: boolean;
}

/** @returns why these cannot be mounted, naming the field; undefined when they can */
export function volumesProblem(workspaceId: string, volumes: readonly WantedVolume[]): string | undefined {
  if (volumes.length === 0) return undefined;
  if (volumes.length > MAX_VOLUMES) return `spec.volumes: more than ${MAX_VOLUMES}`;
  if (!VOLUME_ID.test(workspaceId)) return 'spec.workspace_id is not an id';
  if (volumes.some(({ driver, volumeId }) => driver !== 'bucket' && !VOLUME_ID.test(volumeId)))
    return 'spec.volumes: volume_id is not an id';
  if (volumes.some(({ driver }) => driver !== '' && !isMountDriver(driver)))
    return `spec.volumes: driver is not one of ${MOUNT_DRIVERS.join(', ')}`;
  if (volumes.some(({ driver, bucket }) => (driver === 'bucket') !== (bucket !== undefined && bucket !== null)))
    return 'spec.volumes: bucket belongs to the driver bucket, and to no other';
  const problem = mountPathsProblem(volumes.map((volume) => volume.mountPath));
  return problem === undefined ? undefined : `spec.volumes: mount_path ${problem}`;
}
