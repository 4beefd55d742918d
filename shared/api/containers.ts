import { Type } from 'typebox';
import type { Static } from 'typebox';
import { beyondDocument, Flag, Float, Int64, Text, Timestamp, Uint32, nullable } from './fields.ts';

/**
 * Use of all GPUs of a container, sampled every 30 s: mean utilization, and sums of the other
 * values. A value is null when the driver does not report it for each GPU, as with MIG slices.
 */
export const ContainerGpuUsage = Type.Object({
  devices: Uint32(),
  utilizationPct: nullable(Float()),
  memoryUsedBytes: nullable(Int64()),
  memoryTotalBytes: nullable(Int64()),
  powerWatts: nullable(Float()),
});

/** Use of this moment, as its machine last said; null while that is not known. `gpu` is null without a GPU. */
export const ContainerUsage = Type.Object({
  cpuMillicores: Uint32(),
  memoryBytes: Int64(),
  processes: Uint32(),
  receivedBytes: Int64(),
  sentBytes: Int64(),
  diskBytes: Int64(),
  diskLimitBytes: Int64(),
  gpu: nullable(ContainerGpuUsage),
  sampledAt: Timestamp(),
});

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

const ListedContainer = Type.Object({
  ...Container.properties,
  usage: nullable(ContainerUsage),
  stubName: beyondDocument(Text({ description: 'as its program or its deployment named it' })),
});

export const ListContainersRequest = Type.Object({});
export type ListContainersRequest = Static<typeof ListContainersRequest>;

export const ListContainersResponse = Type.Object({
  containers: Type.Array(ListedContainer),
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
