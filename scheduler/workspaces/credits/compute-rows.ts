// The time that containers and their GPUs ran, on the ledger: the leader writes what the last hours lack.
import type { Clock } from '#shared/clock.ts';
import type { Db } from '../../stores/store/db.ts';
import { MOST_COMPUTE_ROWS, writeComputeRows } from '../../stores/store/queries/compute-ledger.ts';

/** How far a new leader looks back: no installation is without one for so long, and keeps its containers. */
const FIRST_BACK_MS = 7 * 86_400_000;
const BACK_MS = 2 * 3_600_000;

export class ComputeRows {
  readonly #db: Db;
  readonly #clock: Pick<Clock, 'nowMs'>;
  #isCaughtUp = false;

  constructor(db: Db, clock: Pick<Clock, 'nowMs'>) {
    this.#db = db;
    this.#clock = clock;
  }

  /** Writes every row that is missing. @returns their number */
  async write(signal: AbortSignal): Promise<number> {
    const nowMs = this.#clock.nowMs();
    const sinceMs = nowMs - (this.#isCaughtUp ? BACK_MS : FIRST_BACK_MS);
    let written = 0;
    while (!signal.aborted) {
      const rows = await writeComputeRows(this.#db, sinceMs, nowMs);
      written += rows;
      if (rows < MOST_COMPUTE_ROWS) {
        this.#isCaughtUp = true;
        break;
      }
    }
    return written;
  }
}
