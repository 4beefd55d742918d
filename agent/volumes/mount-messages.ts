/**
 * Messages between the agent and the mount helper, over the helper's unix socket: JSON bodies of POST requests, one
 * path for each. The helper mounts, the agent names what it wants. A holder is a container, or a transfer, that uses a
 * mount; a mount lives as long as one of its holders does.
 */
import { Type } from 'typebox';
import type { Static } from 'typebox';

/** An id as a directory name, which is neither `.` nor `..` nor a path. */
const Id = Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9_-]{0,100}$' });

/** A bucket of a workspace, with its credentials. Empty keys: the bucket is public. */
export const BucketWanted = Type.Object({
  holder: Id,
  workspaceId: Id,
  bucket: Type.String({ maxLength: 255 }),
  /** URL; empty: Amazon's. */
  endpoint: Type.String({ maxLength: 1024 }),
  region: Type.String({ maxLength: 64 }),
  pathStyle: Type.Boolean(),
  readOnly: Type.Boolean(),
  accessKey: Type.String({ maxLength: 4096 }),
  secretKey: Type.String({ maxLength: 4096 }),
});
export type BucketWanted = Static<typeof BucketWanted>;

/** An `s3` volume, in the operator's bucket. */
export const VolumeWanted = Type.Object({ holder: Id, workspaceId: Id, volumeId: Id });
export type VolumeWanted = Static<typeof VolumeWanted>;

export const VolumeRemoved = Type.Object({ workspaceId: Id, volumeId: Id });
export type VolumeRemoved = Static<typeof VolumeRemoved>;

/** Everybody who holds a mount now. Mounts that nobody holds are unmounted after a while. */
export const Holders = Type.Object({ holders: Type.Array(Id, { maxItems: 100_000 }) });
export type Holders = Static<typeof Holders>;

export interface MountPath {
  readonly path: string;
}

/** State of the helper: what it offers, and the holders whose mount is broken. */
export interface MountState {
  /** Whether it has a bucket for `s3` volumes. */
  readonly volumes: boolean;
  readonly mounts: number;
  readonly lost: readonly { readonly holder: string; readonly why: string }[];
}

/** An error's body. `silent`: the store did not answer in time. */
export interface MountFailure {
  readonly message: string;
  readonly silent: boolean;
}

/** Name of the helper's socket in its directory. */
export const MOUNT_SOCKET = 'mounts.sock';
