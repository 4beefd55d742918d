import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Flag, Text, Timestamp, nullable } from './fields.ts';

export const Volume = Type.Object({
  id: Text(),
  name: Text(),
  createdAt: Timestamp(),
  updatedAt: Timestamp(),
  workspaceId: Text(),
  workspaceName: Text(),
});
export type Volume = Static<typeof Volume>;

export const GetOrCreateVolumeRequest = Type.Object({
  name: Text({ description: 'letters, digits, dot, dash and underscore' }),
  driver: Text({ description: 'local, cache, shared or nfs; empty: what it has, or the installation default' }),
});
export type GetOrCreateVolumeRequest = Static<typeof GetOrCreateVolumeRequest>;

export const GetOrCreateVolumeResponse = Type.Object({ ok: Flag(), volume: nullable(Volume), error: Text() });
export type GetOrCreateVolumeResponse = Static<typeof GetOrCreateVolumeResponse>;
