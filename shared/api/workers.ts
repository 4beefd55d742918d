import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Container } from './containers.ts';
import { Filters, Flag, Int64, ListLimit, Text, Timestamp, Uint32, nullable } from './fields.ts';

export const Worker = Type.Object({
  id: Text(),
  status: Text({ description: 'available, pending or disabled' }),
  totalCpu: Int64({ description: 'millicores' }),
  totalMemory: Int64({ description: 'MB' }),
  totalGpuCount: Uint32(),
  freeCpu: Int64(),
  freeMemory: Int64(),
  freeGpuCount: Uint32(),
  gpu: Text(),
  poolName: Text(),
  machineId: Text(),
  resourceVersion: Int64(),
  requiresPoolSelector: Flag(),
  priority: Uint32(),
  preemptable: Flag(),
  buildVersion: Text(),
  activeContainers: Type.Array(Container),
  runtime: Text(),
  poolSelector: Text(),
  cordonRequested: Flag(),
  rolloutGeneration: Text(),
  rolloutBuildVersion: Text(),
  workerImageOverride: Text(),
  drain: nullable(
    Type.Object({
      total: Uint32({ description: 'containers there when it began' }),
      remaining: Uint32(),
      blockedBy: Type.Array(
        Type.Object({
          containerId: Text(),
          why: Text({ description: 'tasks, replacement, stopping or machine_away' }),
          attempts: Uint32(),
        }),
      ),
      deadline: Timestamp(),
    }),
  ),
  conditions: Type.Array(Text(), { description: 'what is wrong with the machine, such as DiskPressure' }),
});
export type Worker = Static<typeof Worker>;

export const ListWorkersRequest = Type.Object({});
export type ListWorkersRequest = Static<typeof ListWorkersRequest>;

export const ListWorkersResponse = Type.Object({ ok: Flag(), errMsg: Text(), workers: Type.Array(Worker) });
export type ListWorkersResponse = Static<typeof ListWorkersResponse>;

export const DrainWorkerRequest = Type.Object({
  workerId: Text(),
  deadlineSeconds: nullable(Uint32({ description: 'what runs then is handed back and stopped; 1800 when not given' })),
});

export const PoolRequest = Type.Object({ name: Text() });

/** CordonWorker, UncordonWorker. */
export const OneWorkerRequest = Type.Object({ workerId: Text() });
export type OneWorkerRequest = Static<typeof OneWorkerRequest>;

export const WorkerPoolState = Type.Object({
  status: Text({ description: 'HEALTHY or DEGRADED' }),
  schedulingLatency: Int64({ description: 'ms' }),
  freeGpu: Uint32(),
  freeCpu: Int64(),
  freeMemory: Int64(),
  pendingWorkers: Int64(),
  availableWorkers: Int64(),
  pendingContainers: Int64(),
  runningContainers: Int64(),
  registeredMachines: Int64(),
  pendingMachines: Int64(),
  readyMachines: Int64(),
});

export const Pool = Type.Object({
  name: Text(),
  active: Flag(),
  gpu: Text(),
  minFreeGpu: Text(),
  minFreeCpu: Text(),
  minFreeMemory: Text(),
  defaultWorkerCpu: Text(),
  defaultWorkerMemory: Text(),
  defaultWorkerGpuCount: Text(),
  state: nullable(WorkerPoolState),
});
export type Pool = Static<typeof Pool>;

export const ListPoolsRequest = Type.Object({ filters: Filters(), limit: ListLimit() });
export type ListPoolsRequest = Static<typeof ListPoolsRequest>;

export const ListPoolsResponse = Type.Object({ ok: Flag(), errMsg: Text(), pools: Type.Array(Pool) });
export type ListPoolsResponse = Static<typeof ListPoolsResponse>;
