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
