// Sums of the machines of a pool's provider, and the pool's back-off, from their rows alone. Pure.
import type { PoolCapacity } from '../../domain/provisioning.ts';
import { retryAfterMs } from './next-step.ts';
import { isFailedEnd, isOver, isPending } from './states.ts';
import type { ProvisionedRow } from './states.ts';

/** Machines of a pool that are requested and have not joined. */
export const MOST_PENDING = 5;

export interface PoolKeys {
  readonly poolId: number;
  readonly workspaceId: PoolCapacity['workspaceId'];
}

/** @param rows - of the pool: those that are not over, and those that ended lately */
export function poolCapacity({ poolId, workspaceId }: PoolKeys, rows: readonly ProvisionedRow[]): PoolCapacity {
  const alive = rows.filter((row) => !isOver(row));
  const priced = alive.filter((row) => row.hourlyCost !== null);
  const back = backOff(rows);
  return {
    poolId,
    workspaceId,
    pending: alive.filter(isPending).length,
    alive: alive.length,
    hourlyCost: priced.reduce((sum, row) => sum + (row.hourlyCost ?? 0), 0),
    unpriced: alive.length - priced.length,
    notBeforeMs: back.notBeforeMs,
    lastFailure: back.failure,
  };
}

/**
 * The pool's back-off after failures of `create` and machines that ended without a join: 5 s, doubled by each failure
 * since the last machine that joined, up to 5 min. An instance alone proves nothing: its image may be broken.
 */
export function backOff(rows: readonly ProvisionedRow[]): {
  readonly notBeforeMs: number;
  readonly failure: string | null;
} {
  const joinedAtMs = Math.max(0, ...rows.map((row) => row.joinedAtMs ?? 0));
  let failures = 0;
  let last: ProvisionedRow | undefined;
  for (const row of rows) {
    const failedAtMs = row.failedAtMs ?? 0;
    const count = failuresOf(row);
    if (count === 0 || failedAtMs <= joinedAtMs) continue;
    failures += count;
    if (failedAtMs >= (last?.failedAtMs ?? 0)) last = row;
  }
  if (last === undefined) return { notBeforeMs: 0, failure: null };
  return { notBeforeMs: (last.failedAtMs ?? 0) + retryAfterMs(failures), failure: last.failure };
}

/** Failures by which a row hinders other machines of its pool. Those of `terminate` are none of them. */
function failuresOf(row: ProvisionedRow): number {
  if (row.state === 'creating') return row.failures;
  if (!isFailedEnd(row)) return 0;
  return row.createdAtMs === null ? Math.max(1, row.creates) : 1;
}
