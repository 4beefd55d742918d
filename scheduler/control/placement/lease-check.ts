// Comparison of the GPU rows with the rows of containers, which decide. Every statement keeps both equal, so a
// difference is a fault of a program or of a person who changed rows by hand. It is repaired and counted.
import type { Counter } from '#shared/metrics.ts';
import type { Log } from '#shared/log.ts';
import type { LeaderLoopOptions } from '../../cluster/leader-loop.ts';
import type { Db } from '../../stores/store/db.ts';
import { repairLeases } from '../../stores/store/queries/container-placements.ts';

const EVERY_MS = 30_000;

export interface LeaseCheckParts {
  readonly db: Pick<Db, 'query'>;
  readonly log: Log;
  /** Fencing number of the leader; undefined: this replica does not lead. */
  readonly fence: () => number | undefined;
  /** Number of differences found, by kind. */
  readonly faults: Counter<'kind'>;
}

/** Compares the rows once, and repairs them. */
export async function checkLeases({ db, log, fence, faults }: LeaseCheckParts): Promise<void> {
  const number = fence();
  if (number === undefined) return;
  const found = await repairLeases(db, number);
  const kinds = Object.entries(found).filter(([, count]) => count > 0);
  for (const [kind, count] of kinds) faults.inc({ kind }, count);
  if (kinds.length > 0) log.warn({ found }, 'GPU rows did not follow from the rows of containers; repaired');
}

/** The comparison as a loop of the leader. */
export const leaseChecks = (parts: LeaseCheckParts): Omit<LeaderLoopOptions<void>, 'leader' | 'log'> => ({
  name: 'check of GPU rows',
  everyMs: EVERY_MS,
  round: () => checkLeases(parts),
  failed: 'GPU rows not compared with the rows of containers, trying again',
});
