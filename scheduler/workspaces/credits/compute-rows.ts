// The time that containers and their GPUs ran, on the ledger: the leader writes what the last hours lack.
import type { Clock } from '#shared/clock.ts';
import type { Db } from '../../stores/store/db.ts';
import { MOST_COMPUTE_ROWS, writeComputeRows } from '../../stores/store/queries/compute-ledger.ts';

/** How far a new leader looks back: no installation is without one for so long, and keeps its containers. */
const FIRST_BACK_MS = 7 * 86_400_000;
/** How far it looks back at the begin of each hour: for ends that were told late. */
const HOURLY_BACK_MS = 2 * 3_600_000;
/** How far it looks back behind its last look otherwise. */
const BACK_MS = 3 * 60_000;
const HOUR_MS = 3_600_000;

export class ComputeRows {
  readonly #db: Db;
  readonly #clock: Pick<Clock, 'nowMs'>;
  /** Time of the last look that wrote all; undefined: there was none. */
  #lookedAtMs: number | undefined;

  constructor(db: Db, clock: Pick<Clock, 'nowMs'>) {
    this.#db = db;
    this.#clock = clock;
  }

  /** Writes every row that is missing. @returns their number */
  async write(signal: AbortSignal): Promise<number> {
    const nowMs = this.#clock.nowMs();
    const range = rangeOf(this.#lookedAtMs, nowMs);
    let written = 0;
    while (!signal.aborted) {
      const rows = await writeComputeRows(this.#db, { ...range, nowMs });
      written += rows;
      if (rows < MOST_COMPUTE_ROWS) {
        this.#lookedAtMs = nowMs;
        break;
      }
    }
    return written;
  }
}

/**
 * Range of a look: containers that ended since the last one, and at the begin of an hour all of the hour before.
 * Within an hour the cost thus grows with what ended alone. Pure.
 */
export function rangeOf(
  lookedAtMs: number | undefined,
  nowMs: number,
): { readonly sinceMs: number; readonly isWithRunning: boolean } {
  if (lookedAtMs === undefined) return { sinceMs: nowMs - FIRST_BACK_MS, isWithRunning: true };
  const isNewHour = Math.floor(lookedAtMs / HOUR_MS) !== Math.floor(nowMs / HOUR_MS);
  const backMs = isNewHour ? HOURLY_BACK_MS : BACK_MS;
  // A clock that went back, or a pause of the leader, leaves no gap.
  return { sinceMs: Math.min(lookedAtMs, nowMs) - backMs, isWithRunning: isNewHour };
}
