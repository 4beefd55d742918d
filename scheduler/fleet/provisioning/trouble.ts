// Machines that cannot go on, because calls of their provider fail again and again. Their pool may go on without them,
// so people must see them. Pure.
import type { PoolTrouble, StuckMachine } from '../../domain/provisioning.ts';
import type { Step } from './next-step.ts';
import { isFailedEnd } from './states.ts';
import type { ProvisionedRow } from './states.ts';

/** Failures in a row from which a call counts as one that keeps failing. */
export const KEEPS_FAILING = 3;

/** Listings of a provider that failed since the last that worked. */
export interface FailedListings {
  readonly failures: number;
  readonly failure: string | null;
}

export interface TroubleFacts {
  readonly stepOf: (row: ProvisionedRow) => Step | undefined;
  readonly listingsOf: (provider: string) => FailedListings;
  /** Failure of the row's last `terminate`, as far as this leader knows. */
  readonly terminateFailureOf: (row: ProvisionedRow) => string | null;
}

/** @param rows - of the pool @param provider - of the pool now */
export function poolTrouble(rows: readonly ProvisionedRow[], provider: string, facts: TroubleFacts): PoolTrouble {
  const { failures, failure } = facts.listingsOf(provider);
  const fails = failures >= KEEPS_FAILING;
  return {
    listFailures: fails ? failures : 0,
    listFailure: fails ? failure : null,
    stuck: rows.flatMap((row) => stuckMachine(row, facts) ?? []),
  };
}

function stuckMachine(row: ProvisionedRow, facts: TroubleFacts): StuckMachine | undefined {
  const { machineId, instanceId, provider, state } = row;
  // Rows of other states need neither call to go on.
  if (state !== 'creating' && state !== 'terminating') return undefined;
  const known = { machineId, instanceId, provider, isComing: state === 'creating' };
  if (state === 'terminating' && row.terminatedAtMs === null && row.failures >= KEEPS_FAILING) {
    // The row of a failed end keeps why its machine failed.
    const failure = facts.terminateFailureOf(row) ?? (isFailedEnd(row) ? null : row.failure);
    return { ...known, verb: 'terminate', failures: row.failures, failure };
  }
  const listings = facts.listingsOf(provider);
  if (listings.failures < KEEPS_FAILING || facts.stepOf(row)?.kind !== 'look') return undefined;
  return { ...known, verb: 'list', ...listings };
}
