import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Flag, Int64, Text, nullable } from './fields.ts';

export const ObjectMetadata = Type.Object({ name: Text(), size: Int64() });
export type ObjectMetadata = Static<typeof ObjectMetadata>;

export const HeadObjectRequest = Type.Object({ hash: Text() });
export type HeadObjectRequest = Static<typeof HeadObjectRequest>;

export const HeadObjectResponse = Type.Object({
  ok: Flag(),
  exists: Flag(),
  objectId: Text(),
  objectMetadata: nullable(ObjectMetadata),
  errorMsg: Text(),
  useWorkspaceStorage: Flag(),
});
export type HeadObjectResponse = Static<typeof HeadObjectResponse>;

export const CreateObjectRequest = Type.Object({
  objectMetadata: nullable(ObjectMetadata),
  hash: Text({ description: "The client's key for these bytes, unique in the workspace." }),
  size: Int64(),
  overwrite: Flag(),
});
export type CreateObjectRequest = Static<typeof CreateObjectRequest>;

export const CreateObjectResponse = Type.Object({
  ok: Flag(),
  objectId: Text(),
  presignedUrl: Text({ description: 'PUT the bytes here, without a credential; empty when they are already there.' }),
  errorMsg: Text(),
});
export type CreateObjectResponse = Static<typeof CreateObjectResponse>;

export const CreateObjectDeltaRequest = Type.Object({
  hash: Text({ description: 'of the object that will be made' }),
  baseObjectId: Text({ description: 'the object that it is made of' }),
  deltaSize: Int64({ minimum: 0, description: 'bytes of the archive with the changed files' }),
});
export const CreateObjectDeltaResponse = Type.Object({
  ok: Flag(),
  objectId: Text(),
  presignedUrl: Text(),
  baseMissing: Flag(),
  errorMsg: Text(),
});
export type CreateObjectDeltaResponse = Static<typeof CreateObjectDeltaResponse>;

export const CommitObjectDeltaRequest = Type.Object({
  objectId: Text({ description: 'as CreateObjectDelta gave it' }),
  baseObjectId: Text(),
  removedPaths: Type.Array(Text()),
});
export const CommitObjectDeltaResponse = Type.Object({ ok: Flag(), objectId: Text(), size: Int64(), errorMsg: Text() });
export type CommitObjectDeltaResponse = Static<typeof CommitObjectDeltaResponse>;
