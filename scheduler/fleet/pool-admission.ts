// Admission of pools, by CreatePool and by the first machine of a pool: the owner's bound holds over replicas.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { PoolSettingsChange } from '#shared/api/pools.ts';
import { AppError } from '#shared/errors.ts';
import { noSuchWorkspace } from '../domain/no-workspace.ts';
import type { Transaction } from '../stores/store/db.ts';
import { lockAdmissions } from '../stores/store/queries/machine-joins.ts';
import { countPools, getOrCreatePool, makePool, poolByName } from '../stores/store/queries/pools.ts';
import type { PoolKey, PoolRow } from '../stores/store/queries/pools.ts';
import type { Actor } from '../workspaces/events/audit.ts';
import type { Entry, Say } from '../workspaces/events/installation-trail.ts';
import { MAX_POOLS } from './pools-file.ts';

/** Most pools of an owner. null: the shared pools. */
export type MostPools = (workspaceId: WorkspaceId | null) => number | Promise<number>;

/** Bound of the shared pools, and of workspaces whose limits nobody knows. */
export const mostShared: MostPools = () => MAX_POOLS;

const tooManyPools = ({ workspaceId }: PoolKey, limit: number): AppError => {
  const text =
    workspaceId === null
      ? `there are ${limit} shared pools already, and may be no more: delete one that has no machines`
      : `this workspace has ${limit} pools, and may have no more: delete one that has no machines, or have an administrator raise its limit counts.pools (\`longshore workspace limits\`)`;
  return new AppError('too_many_pools', text, { details: { limit } });
};

/**
 * The owner's pool of that name, made when missing. Admissions of the owner are locked until the transaction ends.
 * @param most - read before the transaction began
 * @throws AppError `too_many_pools` (details.limit); `workspace_not_found`: the workspace is gone or being deleted
 */
export async function admitPool(
  tx: Transaction,
  say: Say,
  by: Actor,
  pool: PoolKey & { readonly settings: PoolSettingsChange },
  most: number,
): Promise<PoolRow> {
  if (!(await lockAdmissions(tx, pool.workspaceId))) throw noSuchWorkspace();
  const there = await poolByName(tx, pool);
  if (there !== undefined) return there;
  if ((await countPools(tx, pool.workspaceId)) >= most) throw tooManyPools(pool, most);
  const made = await makePool(tx, pool);
  // A pools file makes its pools without this lock, and tells of them.
  if (made === undefined) return await getOrCreatePool(tx, pool);
  say(by, 'audit.pool.created', entryOf(made, pool.settings));
  return made;
}

/** Entry of the audit trail: the pool, and the settings that were given. */
export const entryOf = ({ name, workspaceId }: PoolKey, settings: PoolSettingsChange = {}, file?: string): Entry => ({
  workspaceId,
  target: { type: 'pool', id: name, name },
  attrs: {
    ...Object.fromEntries(
      Object.entries(settings).map(([key, value]) => [
        key,
        typeof value === 'object' && value !== null ? JSON.stringify(value) : value,
      ]),
    ),
    ...(file === undefined ? {} : { file }),
  },
});
