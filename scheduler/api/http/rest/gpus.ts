// The GPUs of a caller's machines: the shared ones of the administrator, and a workspace's own.
import { timestampOf } from '#shared/api/fields.ts';
import { GpuList, GpuQuery } from '#shared/api/rest/gpus.ts';
import type { GpuRecord } from '#shared/api/rest/gpus.ts';
import { AppError } from '#shared/errors.ts';
import type { GpuHolder, GpuMap, MappedGpu } from '../../../fleet/gpu-map.ts';
import type { Directory } from '../../../workspaces/deployments/directory.ts';
import { ownerOf } from '../../operations/machines.ts';
import { READERS_OF_ALL, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

export interface GpuRouteParts {
  readonly gpuMap: Pick<GpuMap, 'list'>;
  readonly directory: Pick<Directory, 'stubs' | 'deploymentNames'>;
}

const MAX_PAGE = 1_000;

export function listGpus(parts: GpuRouteParts): RestRoute {
  return restRoute({
    http: 'GET /gpu',
    tag: 'installation',
    summary: 'GPUs of the machines: who holds them, their use, and what brings back those that are out',
    scope: 'full',
    grants: READERS_OF_ALL,
    query: GpuQuery,
    answer: GpuList,
    errors: ['invalid_cursor'],
    handle: async ({ caller, query }) => {
      const all = await parts.gpuMap.list(ownerOf(caller), { poolName: query.pool, machineId: query.machine });
      const limit = Math.min(query.limit || MAX_PAGE, MAX_PAGE);
      const from = placeOf(query.cursor, all);
      const page = all.slice(from, from + limit);
      const named = await nameHolders(page, parts.directory);
      const last = page.at(-1);
      return {
        data: page.map((one) => gpuRecord(one, named)),
        next: last !== undefined && from + limit < all.length ? cursorAt(last) : '',
        counts: countsOf(all),
      };
    },
  });
}

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

const keyOf = ({ poolName, machineId, gpu }: MappedGpu): string => `${poolName}/${machineId}/${gpu.uuid}`;
const cursorAt = (last: MappedGpu): string => Buffer.from(`gpu:${keyOf(last)}`).toString('base64url');

/** Where the page begins: behind the GPU that the cursor names, or behind its machine where that GPU went. */
function placeOf(cursor: string | undefined, all: readonly MappedGpu[]): number {
  if (cursor === undefined) return 0;
  const said = Buffer.from(cursor, 'base64url').toString('utf8');
  const [, key, pool, machine] = /^gpu:(([^/]*)\/([^/]*)\/.*)$/s.exec(said) ?? [];
  if (key === undefined || pool === undefined || machine === undefined)
    throw new AppError('invalid_cursor', 'query parameter cursor is not one of ours');
  const at = all.findIndex((one) => keyOf(one) === key);
  if (at >= 0) return at + 1;
  const behind = all.findIndex((one) => one.poolName > pool || (one.poolName === pool && one.machineId > machine));
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
