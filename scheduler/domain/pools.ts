// Names of pools, and the workspaces that may use one. Pure.
import { plainOf } from '#shared/json-text.ts';
import { isRecord } from '#shared/json.ts';

/** Facts about a pool that decide who may use it. */
export interface PoolAccess {
  readonly poolName: string;
  /** Workspace that owns the pool; null: the pool is shared. */
  readonly poolOwner: string | null;
  /** Whether only work that names the pool goes there. */
  readonly requiresPoolSelector: boolean;
}

const POOL_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;
const BAD_POOL_NAME = 'must be letters, digits, dot, dash or underscore, at most 63, and begin with a letter or digit';

/** Why a pool cannot have that name; undefined: it can. @param field - as the request calls it */
export const poolNameProblem = (field: string, name: string): string | undefined =>
  POOL_NAME.test(name) ? undefined : `${field} ${BAD_POOL_NAME}`;

/** The pool a stub names (`pool: {name}`); empty: none. */
export function poolNameOf(extra: Readonly<Record<string, unknown>>): string {
  const pool = plainOf(extra['pool']);
  const name = isRecord(pool) ? pool['name'] : undefined;
  return typeof name === 'string' ? name : '';
}

/** Whether the machine is in a pool of another workspace. */
export const isForeign = (
  { poolOwner }: Pick<PoolAccess, 'poolOwner'>,
  { workspaceId }: { readonly workspaceId: string },
): boolean => poolOwner !== null && poolOwner !== workspaceId;

/** Whether the pool is open to the request: not another workspace's, and named if it must be. */
export function mayUsePool(
  machine: PoolAccess,
  request: { readonly workspaceId: string; readonly poolName: string },
): boolean {
  return !isForeign(machine, request) && isPoolNamed(machine, request.poolName);
}

/** @param name - name of the pool that is asked for; empty: any that need not be named */
export const isPoolNamed = (
  { poolName, requiresPoolSelector }: Pick<PoolAccess, 'poolName' | 'requiresPoolSelector'>,
  name: string,
): boolean => (name === '' ? !requiresPoolSelector : poolName === name);
