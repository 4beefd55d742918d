import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Flag, Text, Timestamp } from './fields.ts';

export const Container = Type.Object({
  containerId: Text(),
  stubId: Text(),
  status: Text(),
  scheduledAt: Timestamp(),
  startedAt: Timestamp(),
  workspaceId: Text(),
  workerId: Text(),
  machineId: Text(),
  deploymentId: Text(),
});
export type Container = Static<typeof Container>;

export const ListContainersRequest = Type.Object({});
export type ListContainersRequest = Static<typeof ListContainersRequest>;

export const ListContainersResponse = Type.Object({
  containers: Type.Array(Container),
  ok: Flag(),
  errorMsg: Text(),
});
export type ListContainersResponse = Static<typeof ListContainersResponse>;

export const StopContainerRequest = Type.Object({ containerId: Text() });
export type StopContainerRequest = Static<typeof StopContainerRequest>;

export const StopContainerResponse = Type.Object({ ok: Flag(), errorMsg: Text() });
export type StopContainerResponse = Static<typeof StopContainerResponse>;

export const CheckpointContainerRequest = Type.Object({ containerId: Text() });
export type CheckpointContainerRequest = Static<typeof CheckpointContainerRequest>;

export const CheckpointContainerResponse = Type.Object({ ok: Flag(), checkpointId: Text(), errorMsg: Text() });
export type CheckpointContainerResponse = Static<typeof CheckpointContainerResponse>;
