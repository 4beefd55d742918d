// Pools over the gateway: the shared ones for the administrator, a workspace's own for others.
import { Done } from '#shared/api/fields.ts';
import {
  ListPoolsRequest,
  ListPoolsResponse,
  PoolRequest,
  PoolResponse,
  PoolSettingsRequest,
} from '#shared/api/pools.ts';
import type { Pool, PoolSettingsChange } from '#shared/api/pools.ts';
import { readPoolSettings } from '../../fleet/pool-settings.ts';
import type { PoolService } from '../../fleet/pools.ts';
import type { Owner, PoolView, WorkerService } from '../../fleet/worker-service.ts';
import { actorOf } from '../../workspaces/events/audit.ts';
import type { Actor } from '../../workspaces/events/audit.ts';
import { filterValues, limitOf } from './list-rules.ts';
import { TOO_MANY_POOLS, ownerOf } from './machines.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';
import { poolNameProblem } from '../../domain/pools.ts';

type Lists = Pick<WorkerService, 'listPools'>;
type Looks = Pick<WorkerService, 'poolNamed'>;

/**
 * Text of an unknown pool. A workspace sees its own pools only, so the text does not claim that no such pool exists.
 */
const notFound = ({ workspaceId }: Owner, name: string): string =>
  workspaceId === null
    ? 'pool not found'
    : `this workspace has no pool of its own named ${name.slice(0, 60)}; the shared ones are the administrator's to list`;
const refused = (errMsg: string): PoolResponse => ({ ok: false, errMsg, pool: null });
const declaredText = (file: string): string =>
  `the pool is declared in ${file}: change it there, and restart a scheduler that has this file, or send its process SIGHUP`;

/** Creates a pool. An existing pool counts as made, unless the request has other settings. */
export function createPool(pools: Pick<PoolService, 'create'>, workers: Looks): Operation {
  return settingsVerb('CreatePool', 'POST /pools', workers, async (owner, name, settings, by) => {
    const problem = poolNameProblem('name', name);
    if (problem !== undefined) return problem;
    const outcome = await pools.create(owner, name, settings, by);
    switch (outcome.kind) {
      case 'made':
        return undefined;
      case 'too_many':
        return TOO_MANY_POOLS;
      case 'differs':
        if (outcome.file !== null) return declaredText(outcome.file);
        return 'the pool is there already with other settings: PATCH /pools/{name} changes them';
    }
  });
}

/** Changes the given settings of a pool; the others stay as they are. */
export function changePool(pools: Pick<PoolService, 'change'>, workers: Looks): Operation {
  return settingsVerb('ChangePool', 'PATCH /pools/{name}', workers, async (owner, name, settings, by) => {
    if (Object.keys(settings).length === 0) return 'settings must name at least one setting';
    const outcome = await pools.change(owner, name, settings, by);
    switch (outcome.kind) {
      case 'changed':
        return undefined;
      case 'not_found':
        return notFound(owner, name);
      case 'declared':
        return declaredText(outcome.file);
    }
  });
}

/** Makes an operation that changes a pool's settings. @param act - @returns the refusal's text */
function settingsVerb(
  name: string,
  http: string,
  workers: Looks,
  act: (owner: Owner, name: string, settings: PoolSettingsChange, by: Actor) => Promise<string | undefined>,
): Operation {
  return operation({
    name,
    http,
    scope: 'full',
    request: PoolSettingsRequest,
    response: PoolResponse,
    handle: async (caller, request, { from }) => {
      const read = readPoolSettings(request.settings, 'settings.');
      if (read.kind === 'wrong') return refused(read.problems.join('; '));
      const problem = await act(ownerOf(caller), request.name, read.change, actorOf(caller, from));
      return problem === undefined ? found(workers, ownerOf(caller), request.name) : refused(problem);
    },
  });
}

export function getPool(workers: Looks): Operation {
  return operation({
    name: 'GetPool',
    http: 'GET /pools/{name}',
    scope: 'full',
    grants: { scopes: ['read'] },
    request: PoolRequest,
    response: PoolResponse,
    handle: (caller, { name }) => found(workers, ownerOf(caller), name),
  });
}

async function found(workers: Looks, owner: Owner, name: string): Promise<PoolResponse> {
  const pool = await workers.poolNamed(owner, name);
  return pool === undefined ? refused(notFound(owner, name)) : { ok: true, errMsg: '', pool: poolRecord(pool) };
}

export function deletePool(pools: Pick<PoolService, 'delete'>): Operation {
  return operation({
    name: 'DeletePool',
    http: 'DELETE /pools/{name}',
    scope: 'full',
    request: PoolRequest,
    response: Done,
    handle: async (caller, { name }, { from }) => {
      const owner = ownerOf(caller);
      const outcome = await pools.delete(owner, name, actorOf(caller, from));
      switch (outcome.kind) {
        case 'deleted':
          return { ok: true, errMsg: '' };
        case 'not_found':
          return { ok: false, errMsg: notFound(owner, name) };
        case 'occupied':
          return { ok: false, errMsg: 'pool must have no machines: delete them first' };
        case 'declared':
          return { ok: false, errMsg: declaredText(outcome.file) };
      }
    },
  });
}

export function listPools(workers: Lists): Operation {
  return operation({
    name: 'ListPools',
    http: 'GET /pools',
    scope: 'full',
    grants: { scopes: ['read'] },
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
  settings: view.settings,
  effectiveCpuWorkOnGpuMachines: view.effectiveCpuWorkOnGpuMachines,
  declaredIn: view.declaredIn ?? '',
});
