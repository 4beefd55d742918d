// The GPUs of a caller's machines: the shared ones of the administrator, and a workspace's own.
import { timestampOf } from '#shared/api/fields.ts';
import { GpuList, GpuMapList, GpuMapQuery, GpuQuery } from '#shared/api/rest/gpus.ts';
import type { GpuMachine, GpuRecord } from '#shared/api/rest/gpus.ts';
import { AppError } from '#shared/errors.ts';
import { GPU_STANDINGS } from '../../../fleet/gpu-map.ts';
import type { GpuHolder, GpuMap, GpuStanding, MappedGpu } from '../../../fleet/gpu-map.ts';
import type { Directory } from '../../../workspaces/deployments/directory.ts';
import { ownerOf } from '../../operations/machines.ts';
import { READERS_OF_ALL, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

export interface GpuRouteParts {
  readonly gpuMap: Pick<GpuMap, 'list' | 'byMachine'>;
  readonly directory: Pick<Directory, 'stubs' | 'deploymentNames'>;
}

const PAGE = 50;
const PAGE_OF_MACHINES = 100;
const MAX_PAGE = 1_000;
const STATES: readonly string[] = [...GPU_STANDINGS, 'idle'];

export function gpuRoutes({ gpuMap, directory }: GpuRouteParts): readonly RestRoute[] {
  return [
    restRoute({
      http: 'GET /gpu',
      tag: 'installation',
      summary: 'GPUs of the machines: who holds them, their use, and what brings back those that are out',
      scope: 'full',
      grants: READERS_OF_ALL,
      query: GpuQuery,
      answer: GpuList,
      errors: ['invalid_cursor'],
      handle: async ({ caller, query: { pool, machine, state, limit, cursor } }) => {
        if (state !== undefined && !STATES.includes(state))
          throw new AppError('invalid_query', `query parameter state must be one of ${STATES.join(', ')}`);
        const all = await gpuMap.list(ownerOf(caller), { poolName: pool, machineId: machine });
        const wanted = state === undefined ? all : all.filter((one) => isIn(one, state));
        const { page, next } = pageOf(wanted, Math.min(limit || PAGE, MAX_PAGE), cursor, (one) => one, 'gpu');
        const named = await nameHolders(page, directory);
        return { data: page.map((one) => gpuRecord(one, named)), next, counts: countsOf(all) };
      },
    }),
    restRoute({
      http: 'GET /gpu-map',
      tag: 'installation',
      summary: 'GPUs in short, by machine: a letter and the holder of each',
      scope: 'full',
      grants: READERS_OF_ALL,
      query: GpuMapQuery,
      answer: GpuMapList,
      errors: ['invalid_cursor'],
      handle: async ({ caller, query: { pool, limit, cursor } }) => {
        const owner = ownerOf(caller);
        const all = await gpuMap.byMachine(owner, {});
        const wanted = pool === undefined ? all : all.filter(([first]) => first?.poolName === pool);
        const size = Math.min(limit || PAGE_OF_MACHINES, MAX_PAGE);
        const { page, next } = pageOf(wanted, size, cursor, (gpus) => gpus[0], 'machine');
        const named = await nameHolders(page.flat(), directory);
        return {
          data: page.map((gpus) => machineOf(gpus, named)),
          next,
          counts: countsOf(wanted.flat()),
          pools: [...new Set(all.flatMap(([first]) => first?.poolName ?? []))],
        };
      },
    }),
  ];
}

const isIn = ({ standing, idleSinceMs }: MappedGpu, state: string): boolean =>
  state === 'idle' ? idleSinceMs !== null : standing === state;

const MARKS: Readonly<Record<GpuStanding, string>> = { leased: 'L', free: 'F', blocked: 'B', out: 'X' };

const machineOf = (gpus: readonly MappedGpu[], nameOf: (holder: GpuHolder) => string): GpuMachine => ({
  id: gpus[0]?.machineId ?? '',
  hostname: gpus[0]?.hostname ?? '',
  pool_name: gpus[0]?.poolName ?? '',
  model: [...new Set(gpus.map(({ gpu }) => gpu.model))].join(', '),
  marks: gpus.map(({ standing, idleSinceMs }) => (idleSinceMs === null ? MARKS[standing] : 'I')).join(''),
  holders: gpus.map(({ holder }) => (holder === null ? '' : nameOf(holder))),
});

/** Gives the name of a holder. */
async function nameHolders(
  page: readonly MappedGpu[],
  directory: GpuRouteParts['directory'],
): Promise<(holder: GpuHolder) => string> {
  const [names, stubs] = await Promise.all([
    directory.deploymentNames(page.flatMap(({ holder }) => holder?.deploymentId ?? [])),
    directory.stubs(page.flatMap(({ holder }) => (holder?.deploymentId === null ? (holder.stubId ?? []) : []))),
  ]);
  return ({ deploymentId, stubId }) =>
    (deploymentId === null ? undefined : names.get(deploymentId)) ??
    (stubId === null ? undefined : stubs.get(stubId)?.name) ??
    '';
}

type PageKind = 'gpu' | 'machine';

/** Cuts a list to a page. @param firstOf - a GPU of an entry @throws AppError `invalid_cursor` */
function pageOf<T>(
  all: readonly T[],
  limit: number,
  cursor: string | undefined,
  firstOf: (entry: T) => MappedGpu | undefined,
  kind: PageKind,
): { readonly page: readonly T[]; readonly next: string } {
  const keyAt = (entry: T): string => keyOf(firstOf(entry), kind);
  const from = placeOf(cursor, all, keyAt, firstOf, kind);
  const page = all.slice(from, from + limit);
  const last = page.at(-1);
  const hasMore = last !== undefined && from + limit < all.length;
  return { page, next: hasMore ? Buffer.from(`${kind}:${keyAt(last)}`).toString('base64url') : '' };
}

const keyOf = (one: MappedGpu | undefined, kind: PageKind): string =>
  `${one?.poolName ?? ''}/${one?.machineId ?? ''}/${kind === 'gpu' ? (one?.gpu.uuid ?? '') : ''}`;

/** Where the page begins: behind the entry that the cursor names, or behind its machine where that entry went. */
function placeOf<T>(
  cursor: string | undefined,
  all: readonly T[],
  keyAt: (entry: T) => string,
  firstOf: (entry: T) => MappedGpu | undefined,
  kind: PageKind,
): number {
  if (cursor === undefined) return 0;
  const said = Buffer.from(cursor, 'base64url').toString('utf8');
  const [, of, key, pool, machine] = /^(gpu|machine):(([^/]*)\/([^/]*)\/.*)$/s.exec(said) ?? [];
  if (of !== kind || key === undefined || pool === undefined || machine === undefined)
    throw new AppError('invalid_cursor', 'query parameter cursor is not one of ours');
  const at = all.findIndex((one) => keyAt(one) === key);
  if (at >= 0) return at + 1;
  const isBehind = (one: MappedGpu | undefined): boolean =>
    one !== undefined && (one.poolName > pool || (one.poolName === pool && one.machineId > machine));
  const behind = all.findIndex((entry) => isBehind(firstOf(entry)));
  return behind < 0 ? all.length : behind;
}

function countsOf(all: readonly MappedGpu[]): GpuList['counts'] {
  const counts = { total: all.length, leased: 0, free: 0, blocked: 0, out: 0, idle: 0 };
  for (const { standing, idleSinceMs } of all) {
    counts[standing] += 1;
    if (idleSinceMs !== null) counts.idle += 1;
  }
  return counts;
}

const gpuRecord = ({ gpu, holder, use, ...one }: MappedGpu, nameOf: (holder: GpuHolder) => string): GpuRecord => ({
  machine_id: one.machineId,
  hostname: one.hostname,
  pool_name: one.poolName,
  uuid: gpu.uuid,
  index: gpu.index,
  model: gpu.model,
  memory_bytes: Number(gpu.memoryBytes) || 0,
  parent_uuid: gpu.parentUuid,
  standing: one.standing,
  state: one.state,
  why: one.why,
  steps: [...one.steps],
  holder:
    holder === null
      ? null
      : {
          container_id: holder.containerId,
          workspace_id: holder.workspaceId,
          deployment_id: holder.deploymentId,
          name: nameOf(holder),
          since: timestampOf(holder.sinceMs),
        },
  utilization_pct: use?.utilizationPct ?? null,
  memory_used_bytes: use?.memoryUsedBytes ?? null,
  power_watts: use?.powerWatts ?? null,
  temperature_celsius: use?.temperatureCelsius ?? null,
  sampled_at: timestampOf(use?.sampledAtMs ?? null),
  idle_since: timestampOf(one.idleSinceMs),
});
