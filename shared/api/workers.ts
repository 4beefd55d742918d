import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Container } from './containers.ts';
import { Flag, Int64, Text, Timestamp, Uint32, nullable } from './fields.ts';

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
          why: Text({ description: 'tasks, replacement, made_by_hand, stopping or machine_away' }),
          attempts: Uint32(),
          detail: Text({ description: 'state of the replacement that it waits for; empty: it waits for none' }),
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

/** The request of CordonWorker and UncordonWorker. */
export const OneWorkerRequest = Type.Object({ workerId: Text() });
export type OneWorkerRequest = Static<typeof OneWorkerRequest>;
