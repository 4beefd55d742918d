import { actorOf } from '../../workspaces/events/audit.ts';
import { Done, timestampOf } from '#shared/api/fields.ts';
import { GPU_MODELS, modelMatches } from '#shared/domain/gpus.ts';
import {
  CreateMachineRequest,
  CreateMachineResponse,
  DeleteMachineRequest,
  LabelMachineRequest,
  LabelMachineResponse,
  ListMachinesRequest,
  ListMachinesResponse,
} from '#shared/api/machines.ts';
import type { Machine } from '#shared/api/machines.ts';
import { labelKeyProblem, labelProblem, MOST_LABELS } from '#shared/domain/labels.ts';
import { AppError } from '#shared/errors.ts';

import type { CreatedMachine, MachineService, MachineView } from '../../fleet/machine-service.ts';
import type { WorkerService } from '../../fleet/worker-service.ts';
import type { Caller } from '../../workspaces/identity/caller.ts';
import { operation } from './operation.ts';
import type { Operation, Origin } from './operation.ts';
import { poolNameProblem } from '../../domain/pools.ts';
import { DEFAULT_LIMITS } from '../../workspaces/deployments/stub-limits.ts';

/** The address that agents dial, as CreateMachine announces it. */
export interface AgentUpstream {
  /** URL `grpcs://host:1995`, as configured or as the port listens. */
  readonly url: (origin: Origin) => string;
  /** Address by which other machines reach this host; undefined: unknown. */
  readonly hostAddress: () => string | undefined;
  /** Release channel of the installer. */
  readonly branch: string;
}

const BOUNDS: ReadonlySet<string> = new Set(['too_many_unjoined', 'too_many_pools']);

/**
 * Owner of the pools that the caller works on: the shared ones for the administrator, the workspace's own for others.
 */
export const ownerOf = (caller: Caller) => ({ workspaceId: caller.isAdmin ? null : caller.workspaceId });

/** Text of a refusal because of a bound; every other error is thrown on. */
export function boundText(error: unknown): string {
  if (error instanceof AppError && BOUNDS.has(error.code)) return error.message;
  throw error;
}

/** Creates a machine; the first machine of a pool creates the pool. */
export function createMachine(machines: Pick<MachineService, 'create'>, upstream: AgentUpstream): Operation {
  return operation({
    name: 'CreateMachine',
    http: 'POST /machines',
    scope: 'full',
    request: CreateMachineRequest,
    response: CreateMachineResponse,
    handle: async (caller, request, origin) => {
      const poolName = request.poolName === '' ? 'default' : request.poolName;
      const made =
        poolNameProblem('poolName', poolName) ??
        (await machines.create(ownerOf(caller), poolName, {}, actorOf(caller, origin.from)).catch(boundText));
      if (typeof made === 'string') {
        return {
          ok: false,
          errMsg: made,
          machine: null,
          agentUpstreamUrl: '',
          agentUpstreamBranch: '',
          agentUpstreamToken: '',
        };
      }
      return {
        ok: true,
        errMsg: '',
        machine: newMachine(made),
        agentUpstreamUrl: upstreamUrl(upstream.url(origin), origin, upstream.hostAddress()),
        agentUpstreamBranch: upstream.branch,
        agentUpstreamToken: made.joinToken,
      };
    },
  });
}

export function listMachines(
  machines: Pick<MachineService, 'list'>,
  workers: Pick<WorkerService, 'poolNamed'>,
): Operation {
  return operation({
    name: 'ListMachines',
    http: 'GET /machines',
    scope: 'full',
    grants: { scopes: ['read'] },
    request: ListMachinesRequest,
    response: ListMachinesResponse,
    handle: async (caller, request) => {
      const all = await machines.list(ownerOf(caller));
      const named = request.poolName;
      // A pool exists also after its last machine went.
      const known =
        named === '' ||
        all.some((machine) => machine.poolName === named) ||
        (await workers.poolNamed(ownerOf(caller), named)) !== undefined;
      const empty = { gpus: {}, supportedGpus: {}, maxCpuMillicores: 0, maxMemoryMb: 0 };
      if (!known) return { ok: false, errMsg: 'pool not found', machines: [], ...empty };
      const wanted = all
        .filter((machine) => request.poolName === '' || machine.poolName === request.poolName)
        .filter((machine) => request.machineId === '' || machine.machineId === request.machineId)
        .toSorted((a, b) => compare(a.poolName, b.poolName) || compare(a.machineId, b.machineId));
      const offered = all.filter((machine) => machine.status === 'available').flatMap((machine) => machine.gpuModels);
      const gpus = Object.fromEntries(
        GPU_MODELS.map((name) => [name, offered.some((model) => modelMatches(model, [name]))]),
      );
      return {
        ok: true,
        errMsg: '',
        machines: (request.limit === 0 ? wanted : wanted.slice(0, request.limit)).map((view) => ({
          ...listedMachine(view),
          // Host facts take kilobytes for each machine, so long lists leave them out.
          host: request.machineId === '' ? null : hostShown(view),
        })),
        gpus,
        supportedGpus: gpus,
        maxCpuMillicores: DEFAULT_LIMITS.maxCpuMillicores,
        maxMemoryMb: DEFAULT_LIMITS.maxMemoryMib,
      };
    },
  });
}

const MOST_CHANGES = 2 * MOST_LABELS;

export function labelMachine(workers: Pick<WorkerService, 'label'>): Operation {
  return operation({
    name: 'LabelMachine',
    http: 'POST /machines/{machineId}/labels',
    scope: 'full',
    request: LabelMachineRequest,
    response: LabelMachineResponse,
    handle: async (caller, { machineId, set = {}, remove }, { from }) => {
      const refused = (errMsg: string) => ({ ok: false, errMsg, labels: {} });
      const given = Object.entries(set);
      if (given.length + remove.length > MOST_CHANGES) return refused(`set and remove may name ${MOST_CHANGES} labels`);
      if (given.length + remove.length === 0) return refused('set or remove must name a label');
      for (const [key, value] of given) {
        const problem = labelProblem(key, value);
        if (problem !== undefined) return refused(`set: ${problem}`);
        if (remove.includes(key)) return refused(`set and remove both name the label ${key}`);
      }
      const [wrong] = remove.flatMap((key) => labelKeyProblem(key) ?? []);
      if (wrong !== undefined) return refused(`remove: ${wrong}`);
      const change = { set, remove };
      const labels = await workers.label(ownerOf(caller), machineId, change, actorOf(caller, from));
      if (labels === 'not_found') return refused('machine not found');
      if (labels === 'too_many') return refused(`set: a machine has at most ${MOST_LABELS} labels`);
      return { ok: true, errMsg: '', labels: { ...labels } };
    },
  });
}

export function deleteMachine(workers: Pick<WorkerService, 'deleteMachine'>): Operation {
  return operation({
    name: 'DeleteMachine',
    http: 'DELETE /machines/{machineId}',
    scope: 'full',
    request: DeleteMachineRequest,
    response: Done,
    handle: async (caller, request, { from }) => {
      if (request.force && !caller.isAdmin)
        return { ok: false, errMsg: 'force is for the administrator: drain it first' };
      const { machineId, poolName, force } = request;
      switch (await workers.deleteMachine(ownerOf(caller), machineId, poolName, force, actorOf(caller, from))) {
        case 'forced':
        case 'deleted':
          return { ok: true, errMsg: '' };
        case 'not_found':
          return { ok: false, errMsg: 'machine not found' };
        case 'not_drained':
          return { ok: false, errMsg: 'machine must be drained before deletion: drain it first' };
      }
    },
  });
}

/**
 * The URL that an agent dials. The wildcard address cannot be dialled, so the name by which the caller reached us
 * replaces it. For a caller on this host, the host's own address does.
 */
export function upstreamUrl(url: string, origin: Pick<Origin, 'baseUrl'>, hostAddress?: string): string {
  const [, scheme, port] = /^(grpcs?):\/\/(?:0\.0\.0\.0|\[::\]|):([0-9]+)$/.exec(url) ?? [];
  if (port === undefined) return url;
  const { hostname } = new URL(origin.baseUrl);
  const host = LOOPBACK.test(hostname) ? (hostAddress ?? hostname) : hostname;
  return `${scheme}://${host}:${port}`;
}

const LOOPBACK = /^(127\.|\[::1\]$|localhost$|.*\.localhost$)/;

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

const EMPTY_MACHINE: Machine = {
  id: '',
  cpu: 0,
  memory: 0,
  offered: { cpu: 0, memory: 0 },
  gpu: '',
  gpuCount: 0,
  status: 'pending',
  poolName: '',
  providerName: 'agent',
  registrationToken: '',
  tailscaleUrl: '',
  tailscaleAuth: '',
  lastKeepalive: '',
  created: '',
  agentVersion: '',
  machineMetrics: null,
  userData: '',
  ssh: null,
  labels: {},
  conditions: [],
  conditionWords: {},
  host: null,
};

const newMachine = (made: CreatedMachine): Machine => ({
  ...EMPTY_MACHINE,
  id: made.machineId,
  poolName: made.poolName,
  registrationToken: made.joinToken,
  created: timestampOf(made.createdAtMs) ?? '',
});

const hostShown = ({ host }: MachineView): Machine['host'] =>
  host === null
    ? null
    : {
        ...host,
        nics: [...host.nics],
        disks: [...host.disks],
        numaNodes: [...host.numaNodes],
        fileSystems: [...host.fileSystems],
        warnings: [...host.warnings],
      };

const listedMachine = (view: MachineView): Machine => ({
  ...EMPTY_MACHINE,
  id: view.machineId,
  cpu: view.cpuMillicores,
  memory: view.memoryMib,
  offered: { cpu: view.offeredCpuMillicores, memory: view.offeredMemoryMib },
  gpu: view.gpuModels.join(','),
  gpuCount: view.gpuCount,
  status: view.status,
  poolName: view.poolName,
  lastKeepalive: timestampOf(view.lastSeenAtMs) ?? '',
  created: timestampOf(view.createdAtMs) ?? '',
  agentVersion: view.agentVersion,
  labels: { ...view.labels },
  conditions: [...view.conditions],
  conditionWords: { ...view.conditionWords },
  machineMetrics: {
    totalCpuAvailable: view.freeCpuMillicores,
    totalMemoryAvailable: view.freeMemoryMib,
    cpuUtilizationPct: 0,
    memoryUtilizationPct: 0,
    workerCount: view.status === 'pending' ? 0 : 1,
    containerCount: view.containerCount,
    freeGpuCount: view.freeGpuCount,
    cacheUsagePct: 0,
    cacheCapacity: 0,
    cacheMemoryUsage: 0,
    cacheCpuUsage: 0,
    memoryUsedMb: Math.max(0, view.memoryMib - view.freeMemoryMib),
    memoryTotalMb: view.memoryMib,
    diskUsedMb: 0,
    diskTotalMb: 0,
    diskUsagePct: 0,
    pathMetrics: [],
  },
});
