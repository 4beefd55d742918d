import { actorOf } from '../../workspaces/events/audit.ts';
import type { Actor } from '../../workspaces/events/audit.ts';
import { Done, timestampOf } from '#shared/api/fields.ts';
import { DrainWorkerRequest, ListWorkersRequest, ListWorkersResponse, OneWorkerRequest } from '#shared/api/workers.ts';
import type { Worker } from '#shared/api/workers.ts';
import type { Owner, WorkerService, WorkerView } from '../../fleet/worker-service.ts';
import { ownerOf } from './machines.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

/** Longest drain, a week: work that needs longer is better stopped by hand. */
const MAX_DRAIN_SECONDS = 7 * 24 * 3600;

export function listWorkers(workers: Pick<WorkerService, 'listWorkers'>): Operation {
  return operation({
    name: 'ListWorkers',
    http: 'GET /workers',
    scope: 'full',
    grants: { scopes: ['read'] },
    request: ListWorkersRequest,
    response: ListWorkersResponse,
    handle: (caller) => {
      const found = workers.listWorkers(ownerOf(caller)).toSorted(byPlace);
      return { ok: true, errMsg: '', workers: found.map(workerRecord) };
    },
  });
}

export const cordonWorker = (workers: Pick<WorkerService, 'cordon'>): Operation =>
  workerVerb('CordonWorker', 'cordon', (owner, id, by) => workers.cordon(owner, id, by));

export const uncordonWorker = (workers: Pick<WorkerService, 'uncordon'>): Operation =>
  workerVerb('UncordonWorker', 'uncordon', (owner, id, by) => workers.uncordon(owner, id, by));

/** Drains a worker. Returns once stops are requested; containers that serve get their replacement first. */
export function drainWorker(workers: Pick<WorkerService, 'drain'>): Operation {
  return operation({
    name: 'DrainWorker',
    http: 'POST /workers/{workerId}/drain',
    scope: 'full',
    request: DrainWorkerRequest,
    response: Done,
    handle: async (caller, { workerId, deadlineSeconds }, { from }) => {
      if (deadlineSeconds !== null && deadlineSeconds > MAX_DRAIN_SECONDS)
        return { ok: false, errMsg: `deadlineSeconds must be from 0 to ${MAX_DRAIN_SECONDS}` };
      const deadlineMs = deadlineSeconds === null ? undefined : deadlineSeconds * 1000;
      return (await workers.drain(ownerOf(caller), workerId, deadlineMs, actorOf(caller, from)))
        ? { ok: true, errMsg: '' }
        : { ok: false, errMsg: `worker not found: ${workerId}` };
    },
  });
}

function workerVerb(
  name: string,
  verb: string,
  act: (owner: Owner, workerId: string, by: Actor) => Promise<boolean>,
): Operation {
  return operation({
    name,
    http: `POST /workers/{workerId}/${verb}`,
    scope: 'full',
    request: OneWorkerRequest,
    response: Done,
    handle: async (caller, { workerId }, { from }) =>
      (await act(ownerOf(caller), workerId, actorOf(caller, from)))
        ? { ok: true, errMsg: '' }
        : { ok: false, errMsg: `worker not found: ${workerId}` },
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
  requiresPoolSelector: view.requiresPoolSelector,
  priority: view.priority,
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
