// Pools over the gateway: the shared ones for the administrator, a workspace's own for others.
import { Done } from '#shared/api/fields.ts';
import {
  ChangePoolRequest,
  GetPoolRequest,
  ListPoolsRequest,
  ListPoolsResponse,
  POOL_DEFAULTS,
  PoolRequest,
  PoolResponse,
  PoolSettingsRequest,
} from '#shared/api/pools.ts';
import type { ExplainedGrowth } from '#shared/api/explain.ts';
import type { Pool, PoolGrowth } from '#shared/api/pools.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { changeRefusal, readPoolSettings } from '../../fleet/pool-settings.ts';
import type { ChangePoolOutcome, CreatePoolOutcome, PoolService } from '../../fleet/pools.ts';
import type { Owner, PoolView, WorkerService } from '../../fleet/worker-service.ts';
import { actorOf } from '../../workspaces/events/audit.ts';
import type { Caller } from '../../workspaces/identity/caller.ts';
import { filterValues, limitOf } from './list-rules.ts';
import { boundText, ownerOf } from './machines.ts';
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
  return operation({
    name: 'CreatePool',
    http: 'POST /pools',
    scope: 'full',
    request: PoolSettingsRequest,
    response: PoolResponse,
    handle: async (caller, { name, settings }, { from }) => {
      const read = readPoolSettings(settings, 'settings.');
      if (read.kind === 'wrong') return refused(read.problems.join('; '));
      const problem =
        poolNameProblem('name', name) ??
        (caller.isAdmin ? undefined : changeRefusal(read.change, POOL_DEFAULTS)) ??
        (await pools
          .create(ownerOf(caller), name, read.change, actorOf(caller, from))
          .then(refusalOfCreate, boundText));
      return problem === undefined ? found(workers, ownerOf(caller), name) : refused(problem);
    },
  });
}

function refusalOfCreate(outcome: CreatePoolOutcome): string | undefined {
  switch (outcome.kind) {
    case 'made':
      return undefined;
    case 'unfit':
      return outcome.problem;
    case 'differs':
      if (outcome.file !== null) return declaredText(outcome.file);
      return 'the pool is there already with other settings: PATCH /pools/{name} changes them';
  }
}

/** Changes the given settings of a pool; the others stay as they are. */
export function changePool(pools: Pick<PoolService, 'change'>, workers: Looks): Operation {
  return operation({
    name: 'ChangePool',
    http: 'PATCH /pools/{name}',
    scope: 'full',
    request: ChangePoolRequest,
    response: PoolResponse,
    handle: async (caller, { name, workspaceId, settings }, { from }) => {
      const read = readPoolSettings(settings, 'settings.');
      if (read.kind === 'wrong') return refused(read.problems.join('; '));
      if (Object.keys(read.change).length === 0) return refused('settings must name at least one setting');
      const owner = ownerNamed(caller, workspaceId);
      if (typeof owner === 'string') return refused(owner);
      const before = caller.isAdmin ? undefined : await workers.poolNamed(owner, name);
      const problem =
        (before === undefined ? undefined : changeRefusal(read.change, before.settings)) ??
        refusalOfChange(owner, name, await pools.change(owner, name, read.change, actorOf(caller, from)));
      return problem === undefined ? found(workers, owner, name) : refused(problem);
    },
  });
}

function refusalOfChange(owner: Owner, name: string, outcome: ChangePoolOutcome): string | undefined {
  switch (outcome.kind) {
    case 'changed':
      return undefined;
    case 'unfit':
      return outcome.problem;
    case 'not_found':
      return notFound(owner, name);
    case 'declared':
      return declaredText(outcome.file);
  }
}

/** Owner of the pools that the request is about: an administrator may name a workspace. @returns a text: the refusal */
function ownerNamed(caller: Caller, workspaceId = ''): Owner | string {
  if (workspaceId === '' || (!caller.isAdmin && workspaceId === caller.workspaceId)) return ownerOf(caller);
  return caller.isAdmin
    ? { workspaceId: workspaceId as WorkspaceId }
    : "workspaceId is for an administrator: a workspace's token sees its own pools";
}

/** Growth of a pool, as the leader explains it to a reader; null: the leader does not answer. */
type GrowthOf = (poolId: number, isAdmin: boolean) => Promise<ExplainedGrowth | null>;
/** Answers of changes leave it out: the leader has yet to decide. */
const noGrowth = (): ReturnType<GrowthOf> => Promise.resolve(null);

export function getPool(workers: Looks, growthOf: GrowthOf): Operation {
  return operation({
    name: 'GetPool',
    http: 'GET /pools/{name}',
    scope: 'full',
    grants: { scopes: ['read'] },
    request: GetPoolRequest,
    response: PoolResponse,
    handle: async (caller, { name, workspaceId }) => {
      const owner = ownerNamed(caller, workspaceId);
      return typeof owner === 'string'
        ? refused(owner)
        : found(workers, owner, name, (id) => growthOf(id, caller.isAdmin));
    },
  });
}

async function found(
  workers: Looks,
  owner: Owner,
  name: string,
  growthOf: (poolId: number) => ReturnType<GrowthOf> = noGrowth,
): Promise<PoolResponse> {
  const pool = await workers.poolNamed(owner, name);
  if (pool === undefined) return refused(notFound(owner, name));
  const growth = pool.settings.provider === null ? null : await growthOf(pool.id);
  return { ok: true, errMsg: '', pool: poolRecord(pool, growth) };
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
      return { ok: true, errMsg: '', pools: pools.slice(0, limit).map((pool) => poolRecord(pool, null)) };
    },
  });
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

const MIB_OF_GIB = 1024;
/** Amounts as texts, like `1`, `2000m` and `1Gi`; empty: the pool has no provider, or it is not set. */
const coresText = (cores: number | null): string => (cores === null ? '' : `${Math.round(cores * 1000)}m`);
const memoryText = (mib: number | null): string =>
  mib === null ? '' : mib > 0 && mib % MIB_OF_GIB === 0 ? `${mib / MIB_OF_GIB}Gi` : `${mib}Mi`;

/** Fields of the interface about machines that the pool's provider makes. */
function providerFields({ settings }: PoolView) {
  const isGrowing = settings.provider !== null;
  const said = (text: string): string => (isGrowing ? text : '');
  return {
    minFreeGpu: said(String(settings.minFreeGpu)),
    minFreeCpu: said(coresText(settings.minFreeCpuCores)),
    minFreeMemory: said(memoryText(settings.minFreeMemoryMib)),
    defaultWorkerCpu: said(coresText(settings.machineCpuCores)),
    defaultWorkerMemory: said(memoryText(settings.machineMemoryMib)),
    defaultWorkerGpuCount: said(String(settings.machineGpuCount)),
  };
}

const growthRecord = (growth: ExplainedGrowth | null): PoolGrowth | null =>
  growth === null
    ? null
    : {
        verdict: growth.verdict,
        text: growth.text,
        step: growth.step,
        until: growth.until,
        machines: growth.machines ?? 0,
        pending: growth.pending ?? 0,
        price: growth.price,
        hourlyCost: growth.hourly_cost ?? 0,
        stuckCount: growth.stuck_count,
        stuck: growth.stuck.map((one) => ({
          machineId: one.machine_id,
          instanceId: one.instance_id,
          verb: one.verb,
          failures: one.failures,
          text: one.text,
          step: one.step,
        })),
      };

const poolRecord = (view: PoolView, growth: ExplainedGrowth | null): Pool => ({
  name: view.name,
  active: true,
  gpu: view.gpu === '' && view.settings.provider !== null ? (view.settings.machineGpuModel ?? '') : view.gpu,
  ...providerFields(view),
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
    reasons: [...view.reasons],
  },
  settings: view.settings,
  effectiveCpuWorkOnGpuMachines: view.effectiveCpuWorkOnGpuMachines,
  declaredIn: view.declaredIn ?? '',
  growth: growthRecord(growth),
});
