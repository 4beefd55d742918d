import { Type } from 'typebox';
import type { Static } from 'typebox';
import { VOLUME_DRIVERS } from '../../domain/volume-drivers.ts';
import { Count, Id, OneOf, Time, listOf } from './lists.ts';
import { PAGE, QueryFlag, QueryInteger, QueryText } from './query.ts';

export const FileAddressQuery = Type.Object({
  path: Type.Optional(Type.String({ description: 'the file, from the root of the volume, such as models/a.bin' })),
  method: Type.Optional(Type.String({ description: 'GET (the default) or PUT: what the address is for' })),
});

export const FileAddress = Type.Object({
  url: Type.String({ description: 'GET or PUT the bytes here, without a credential; ranges are served' }),
  expires_at: Time(),
});
export type FileAddress = Static<typeof FileAddress>;

export const PackAddressQuery = Type.Object({
  path: QueryText('the folder that paths in the pack begin at; absent: the root of the volume'),
  method: Type.Optional(Type.String({ description: 'POST (the default: read files) or PUT (write files)' })),
});

export const PackAddress = Type.Object({
  url: Type.String({ description: 'POST the paths to read, or PUT the files to write, without a credential' }),
  expires_at: Time(),
});

export const VolumeRecord = Type.Object({
  id: Id(),
  external_id: Id(),
  name: Type.String(),
  driver: OneOf(VOLUME_DRIVERS),
  machine_id: Type.String({ description: 'the home of a local volume; empty: none yet, or the driver has no homes' }),
  created_at: Time(),
  updated_at: Time(),
});
export type VolumeRecord = Static<typeof VolumeRecord>;

export const VolumeListQuery = Type.Object(PAGE);
export const VolumeList = listOf(VolumeRecord);

export const VolumeUser = Type.Object({
  id: Id(),
  name: Type.String(),
  version: Type.Integer(),
  kind: Type.String({ description: 'such as endpoint' }),
  active: Type.Boolean(),
});

export const VolumeCopy = Type.Object({ machine_id: Id(), bytes: Count('as last counted') });

export const VolumeDetails = Type.Object({
  ...VolumeRecord.properties,
  deployments: Type.Array(VolumeUser, { description: 'those that mount it, newest first, 100 at most' }),
  containers: Count('live ones that mount it'),
  copies: Type.Array(VolumeCopy, { description: 'of a cache volume: the machines that have it' }),
});

export const CreateVolume = Type.Object({
  name: Type.String({ description: 'letters, digits, dot, dash and underscore; at most 63' }),
  driver: Type.Optional(Type.String({ description: 'local, cache, shared or nfs; absent: the installation default' })),
  machine_id: Type.Optional(
    Type.String({ description: 'the home of a local volume; absent: the first machine that mounts or fills it' }),
  ),
});

export const FileListQuery = Type.Object({
  path: QueryText('the folder; absent: the root. A path that is no folder is its own entry'),
  recursive: QueryFlag('with everything below; each folder comes before its entries'),
  limit: QueryInteger('of a page: 1000 when absent or 0, 10000 at most'),
  cursor: QueryText('next of the page before'),
});

export const VolumeEntry = Type.Object({
  path: Type.String({ description: 'from the listed folder' }),
  kind: OneOf(['file', 'folder', 'link', 'other']),
  size: Count('bytes of a file; else 0'),
  modified_at: Time(),
  executable: Type.Boolean(),
  addressable: Type.Boolean({
    description: 'false: the name is no UTF-8, or the path is too long; shown as far as can be',
  }),
});
export type VolumeEntry = Static<typeof VolumeEntry>;

export const FileList = Type.Object({
  kind: OneOf(['file', 'folder', 'link', 'other']),
  ...listOf(VolumeEntry).properties,
});

export const RemoveFilesQuery = Type.Object({
  path: QueryText('the entry; absent: everything, together with recursive'),
  recursive: QueryFlag('a folder goes with everything in it'),
});

export const MoveFile = Type.Object({
  from: Type.String({ description: 'a file, a folder or a link' }),
  to: Type.String({ description: 'the new path; missing folders are made' }),
  replace: Type.Optional(Type.Boolean({ description: 'a file takes the place of a file' })),
});

export const Moved = Type.Object({ from: Type.String(), to: Type.String(), kind: Type.String() });

export const VolumeSizeQuery = Type.Object({
  path: QueryText('a folder or a file; absent: the whole volume'),
  cursor: QueryText('next of the answer before'),
});

export const VolumeSize = Type.Object({
  bytes: Count('of files'),
  disk_bytes: Count('blocks on the disk'),
  files: Count(),
  folders: Count(),
  others: Count('links, pipes and the like'),
  next: Type.String({ description: 'not empty: more is left to count; add the answer for this cursor' }),
});
export type VolumeSize = Static<typeof VolumeSize>;

export const UploadQuery = Type.Object({
  path: QueryText('the file'),
  size: QueryInteger('of the whole, in bytes'),
  key: QueryText('16 hex digits that stand for the bytes of the source'),
});

export const UploadState = Type.Object({ received: Count('bytes that have arrived') });
