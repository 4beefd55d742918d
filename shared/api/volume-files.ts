import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Done, Flag, Int64, Text, Timestamp, Uint32, nullable } from './fields.ts';

export const NoFields = Type.Object({});

export const ListedVolume = Type.Object({
  id: Text(),
  name: Text(),
  createdAt: Timestamp(),
  updatedAt: Timestamp(),
  workspaceId: Text(),
  workspaceName: Text(),
});
export const ListVolumesResponse = Type.Object({ ok: Flag(), errMsg: Text(), volumes: Type.Array(ListedVolume) });
export type ListVolumesResponse = Static<typeof ListVolumesResponse>;

export const DeleteVolumeRequest = Type.Object({ name: Text() });

/** A path that begins with the name of a volume. */
export const PathRequest = Type.Object({ path: Text() });

export const PathInfo = Type.Object({ path: Text(), size: Int64(), modTime: Timestamp(), isDir: Flag() });
export type PathInfo = Static<typeof PathInfo>;

export const ListPathResponse = Type.Object({ ok: Flag(), errMsg: Text(), pathInfos: Type.Array(PathInfo) });
export type ListPathResponse = Static<typeof ListPathResponse>;

export const StatPathResponse = Type.Object({ ok: Flag(), errMsg: Text(), pathInfo: nullable(PathInfo) });
export type StatPathResponse = Static<typeof StatPathResponse>;

export const DeletePathResponse = Type.Object({ ok: Flag(), errMsg: Text(), deleted: Type.Array(Text()) });
export type DeletePathResponse = Static<typeof DeletePathResponse>;

export const MovePathRequest = Type.Object({ originalPath: Text(), newPath: Text() });
export const MovePathResponse = Type.Object({ ok: Flag(), errMsg: Text(), newPath: Text() });
export type MovePathResponse = Static<typeof MovePathResponse>;

export const GetFileServiceInfoResponse = Type.Object({
  ok: Flag(),
  errMsg: Text(),
  enabled: Flag(),
  commandVersion: Uint32(),
});

/** Methods of an address: GET, PUT, HEAD, and PUT of a part. */
export const ADDRESS_METHODS = { get: 0, put: 1, head: 2, part: 3 } as const;

export const CreatePresignedUrlRequest = Type.Object({
  volumeName: Text(),
  volumePath: Text(),
  expires: Uint32({ description: 'seconds; 0: a day' }),
  method: Uint32(),
  params: nullable(Type.Object({ uploadId: Text(), partNumber: Uint32() })),
});
export const CreatePresignedUrlResponse = Type.Object({ ok: Flag(), errMsg: Text(), url: Text() });
export type CreatePresignedUrlResponse = Static<typeof CreatePresignedUrlResponse>;

export const CreateMultipartUploadRequest = Type.Object({
  volumeName: Text(),
  volumePath: Text(),
  chunkSize: Int64({ minimum: 0 }),
  fileSize: Int64({ minimum: 0 }),
});
export const FileUploadPart = Type.Object({
  number: Uint32(),
  start: Int64(),
  end: Int64({ description: 'the byte behind the last' }),
  url: Text(),
});
export const CreateMultipartUploadResponse = Type.Object({
  ok: Flag(),
  errMsg: Text(),
  uploadId: Text(),
  fileUploadParts: Type.Array(FileUploadPart),
});
export type CreateMultipartUploadResponse = Static<typeof CreateMultipartUploadResponse>;

/** An upload that was begun, for its completion or its end. */
export const MultipartUploadRequest = Type.Object({ uploadId: Text(), volumeName: Text(), volumePath: Text() });
export const MultipartUploadResponse = Done;
