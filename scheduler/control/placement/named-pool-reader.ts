// Facts about the pool that an app names, read when something is deployed or explained,
// never on a call. Invariant: a pool of another workspace does not exist here.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Machine } from '../../fleet/machine.ts';
import type { Queryable } from '../../stores/store/db.ts';
import { usablePools } from '../../stores/store/queries/pools.ts';
import type { FeasibilityCheck } from './feasibility-check.ts';
import { NO_POOL, lackOf } from '../../domain/named-pool.ts';
import type { NamedPool, PoolMachine } from '../../domain/named-pool.ts';
import { isForeign, poolNameProblem } from '../../domain/pools.ts';

export interface NamedPoolReaderParts {
  readonly db: Queryable;
  readonly machines: { all(): Iterable<Machine> };
  readonly feasibility: Pick<FeasibilityCheck, 'isMakeable'>;
}

/** Looks at a pool. @param name - empty: none is named */
export async function readNamedPool(
  { db, machines, feasibility }: NamedPoolReaderParts,
  workspaceId: WorkspaceId,
  name: string,
): Promise<NamedPool> {
  if (name === '') return NO_POOL;
  // The pool's provider makes a machine when work waits for one.
  if (feasibility.isMakeable(workspaceId, name)) return { name, lack: undefined };
  const there: PoolMachine[] = [];
  for (const { row, health } of machines.all()) {
    if (row.poolName !== name || isForeign({ poolOwner: row.poolWorkspaceId }, { workspaceId })) continue;
    there.push({ id: row.id, health });
  }
  const isName = poolNameProblem('', name) === undefined;
  const pools = isName ? await usablePools(db, { name, workspaceId }) : [];
  const [idle] = pools.flatMap(({ settings: { provider, maxMachines } }) =>
    provider === null ? [] : [{ provider, maxMachines }],
  );
  return { name, lack: lackOf(name, there.length > 0 || pools.length > 0, there, idle) };
}
