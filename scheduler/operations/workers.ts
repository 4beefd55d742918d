import { Done, timestampOf } from '#shared/api/fields.ts';
import {
  ListPoolsRequest,
  ListPoolsResponse,
  DrainWorkerRequest,
  ListWorkersRequest,
  ListWorkersResponse,
  OneWorkerRequest,
  PoolRequest,
} from '#shared/api/workers.ts';
import type { Pool, Worker } from '#shared/api/workers.ts';
import type { Owner, PoolView, WorkerService, WorkerView } from '../fleet/worker-service.ts';
import { filterValues, limitOf } from './list-rules.ts';
import { ownerOf, poolNameProblem } from './machines.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

/** A week: what waits longer is better stopped by hand. */
const MAX_DRAIN_SECONDS = 7 * 24 * 3600;

export function listWorkers(workers: Pick<WorkerService, 'listWorkers'>): Operation {
  return operation({
    name: 'ListWorkers',
    http: 'GET /workers',
    scope: 'full',
    request: ListWorkersRequest,
    response: ListWorkersResponse,
    handle: (caller) => {
      const found = workers.listWorkers(ownerOf(caller)).toSorted(byPlace);
      return { ok: true, errMsg: '', workers: found.map(workerRecord) };
    },
  });
}

export const cordonWorker = (workers: Pick<WorkerService, 'cordon'>): Operation =>
  workerVerb('CordonWorker', 'cordon', (owner, id) => workers.cordon(owner, id));

export const uncordonWorker = (workers: Pick<WorkerService, 'uncordon'>): Operation =>
  workerVerb('UncordonWorker', 'uncordon', (owner, id) => workers.uncordon(owner, id));

/** Answers once stops are requested; containers that serve get their replacement first. */
export function drainWorker(workers: Pick<WorkerService, 'drain'>): Operation {
  return operation({
    name: 'DrainWorker',
    http: 'POST /workers/{workerId}/drain',
    scope: 'full',
    request: DrainWorkerRequest,
    response: Done,
    handle: async (caller, { workerId, deadlineSeconds }) => {
      if (deadlineSeconds !== null && deadlineSeconds > MAX_DRAIN_SECONDS)
        return { ok: false, errMsg: `deadlineSeconds must be from 0 to ${MAX_DRAIN_SECONDS}` };
      const deadlineMs = deadlineSeconds === null ? undefined : deadlineSeconds * 1000;
      return (await workers.drain(ownerOf(caller), workerId, deadlineMs))
        ? { ok: true, errMsg: '' }
        : { ok: false, errMsg: `worker not found: ${workerId}` };
    },
  });
}

function workerVerb(name: string, verb: string, act: (owner: Owner, workerId: string) => Promise<boolean>): Operation {
  return operation({
    name,
    http: `POST /workers/{workerId}/${verb}`,
    scope: 'full',
    request: OneWorkerRequest,
    response: Done,
    handle: async (caller, { workerId }) =>
      (await act(ownerOf(caller), workerId))
        ? { ok: true, errMsg: '' }
        : { ok: false, errMsg: `worker not found: ${workerId}` },
  });
}

/** One that is there already is made. */
export function createPool(workers: Pick<WorkerService, 'createPool'>): Operation {
  return operation({
    name: 'CreatePool',
    http: 'POST /pools',
    scope: 'full',
    request: PoolRequest,
    response: Done,
    handle: async (caller, { name }) => {
      const problem = poolNameProblem('name', name);
      if (problem !== undefined) return { ok: false, errMsg: problem };
      await workers.createPool(ownerOf(caller), name);
      return { ok: true, errMsg: '' };
    },
  });
}

export function deletePool(workers: Pick<WorkerService, 'deletePool'>): Operation {
  return operation({
    name: 'DeletePool',
    http: 'DELETE /pools/{name}',
    scope: 'full',
    request: PoolRequest,
    response: Done,
    handle: async (caller, { name }) => {
      switch (await workers.deletePool(ownerOf(caller), name)) {
        case 'deleted':
          return { ok: true, errMsg: '' };
        case 'not_found':
          return { ok: false, errMsg: 'pool not found' };
        case 'occupied':
          return { ok: false, errMsg: 'pool must have no machines: delete them first' };
      }
    },
  });
}

export function listPools(workers: Pick<WorkerService, 'listPools'>): Operation {
  return operation({
    name: 'ListPools',
    http: 'GET /pools',
    scope: 'full',
    refusal: 'This action is not permitted',
    request: ListPoolsRequest,
    response: ListPoolsResponse,
    handle: async (caller, request) => {
      const limit = request.limit === 0 ? Infinity : limitOf(request.limit);
      const names = filterValues(request.filters, ['name']);
      const pools = (await workers.listPools(ownerOf(caller)))
        .filter((pool) => names === undefined || names.includes(pool.name))
        .toSorted((a, b) => compare(a.name, b.name));
      return { ok: true, errMsg: '', pools: pools.slice(0, limit).map(poolRecord) };
    },
  });
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
const byPlace = (a: WorkerView, b: WorkerView): number =>
  compare(a.poolName, b.poolName) ||
  compare(a.status, b.status) ||
  compare(a.machineId, b.machineId) ||
  compare(a.workerId, b.workerId);

const workerRecord = (view: WorkerView): Worker => ({
  id: view.workerId,
  status: view.status,
  totalCpu: view.totalCpuMillicores,
  totalMemory: view.totalMemoryMib,
  totalGpuCount: view.totalGpuCount,
  freeCpu: view.freeCpuMillicores,
  freeMemory: view.freeMemoryMib,
  freeGpuCount: view.freeGpuCount,
  gpu: view.gpu,
  poolName: view.poolName,
  machineId: view.machineId,
  resourceVersion: 0,
  requiresPoolSelector: false,
  priority: 0,
  preemptable: false,
  buildVersion: view.buildVersion,
  activeContainers: view.containers.map((container) => ({
    containerId: container.containerId,
    stubId: '',
    status: container.status,
    scheduledAt: timestampOf(container.scheduledAtMs),
    startedAt: null,
    workspaceId: container.workspaceId,
    workerId: '',
    machineId: '',
    deploymentId: '',
  })),
  runtime: '',
  poolSelector: '',
  cordonRequested: view.cordonRequested,
  drain:
    view.drain === null
      ? null
      : {
          total: view.drain.total,
          remaining: view.drain.remaining,
          blockedBy: view.drain.blockedBy.map((one) => ({ ...one })),
          deadline: timestampOf(view.drain.deadlineAtMs),
        },
  rolloutGeneration: '',
  rolloutBuildVersion: '',
  workerImageOverride: '',
  conditions: [...view.conditions],
});

const poolRecord = (view: PoolView): Pool => ({
  name: view.name,
  active: true,
  gpu: view.gpu,
  minFreeGpu: '',
  minFreeCpu: '',
  minFreeMemory: '',
  defaultWorkerCpu: '',
  defaultWorkerMemory: '',
  defaultWorkerGpuCount: '',
  state: {
    status: view.status,
    schedulingLatency: 0,
    freeGpu: view.freeGpu,
    freeCpu: view.freeCpuMillicores,
    freeMemory: view.freeMemoryMib,
    pendingWorkers: view.pendingWorkers,
    availableWorkers: view.availableWorkers,
    pendingContainers: view.pendingContainers,
    runningContainers: view.runningContainers,
    registeredMachines: view.registeredMachines,
    pendingMachines: view.pendingMachines,
    readyMachines: view.readyMachines,
  },
});
