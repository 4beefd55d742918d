// Deletes rows that are older than their retention. The leader runs a turn from time to time: small batches of each
// kind in rotation. After each batch follows a pause as long as the batch took.
// Invariant: only ended rows are deleted. A batch never holds the database longer than a moment. A turn has an end, and
// the next one continues where it stopped. No state is kept: overdue rows are read anew.
import { repeat, sleep } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { PrunedTable } from '../../stores/store/queries/retention.ts';
import type { RetentionMetrics } from './metrics.ts';

/** Rows that are deleted by their age. */
export interface PrunedKind {
  readonly table: PrunedTable;
  readonly keptMs: number;
  /** Begins a turn. The returned function deletes at most `limit` rows. */
  readonly begin: () => (
    beforeMs: number,
    limit: number,
  ) => Promise<{ readonly gone: number; readonly isDone: boolean }>;
}

export interface RetentionParts {
  readonly kinds: readonly PrunedKind[];
  readonly oldest: (table: PrunedTable) => Promise<number | undefined>;
  readonly metrics: RetentionMetrics;
  readonly clock: Clock;
  readonly log: Log;
  readonly isLeader: () => boolean;
  readonly everyMs?: number;
  /** Longest time of a turn. */
  readonly turnMs?: number;
}

const EVERY_MS = 5 * 60_000;
const TURN_MS = 60_000;
const FIRST_BATCH = 100;
const LEAST_BATCH = 20;
const MOST_BATCH = 1_000;
/** Time of a batch above which the next one is smaller. */
const LONG_MS = 40;
const LEAST_PAUSE_MS = 5;

export class Retention {
  readonly name = 'retention';
  readonly #parts: RetentionParts;
  readonly #abort = new AbortController();
  #limit = FIRST_BATCH;
  #running: Promise<void> | undefined;

  constructor(parts: RetentionParts) {
    this.#parts = parts;
  }

  start(): void {
    const { log, everyMs = EVERY_MS, isLeader, metrics } = this.#parts;
    this.#running = repeat(
      everyMs,
      this.#abort.signal,
      () => (isLeader() ? this.turn() : metrics.overdue.reset()),
      (error) => log.warn({ err: error }, 'old rows not deleted, trying again'),
    );
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#running;
  }

  /** Runs a turn. @returns number of deleted rows, by kind @throws when the database does not answer */
  async turn(): Promise<Readonly<Record<string, number>>> {
    const { kinds, clock, log, turnMs = TURN_MS } = this.#parts;
    const untilMs = clock.monotonicMs() + turnMs;
    const gone: Record<string, number> = {};
    let open: { readonly kind: PrunedKind; readonly prune: ReturnType<PrunedKind['begin']> }[] = [];
    for (const kind of kinds) if (await this.#isOverdue(kind)) open.push({ kind, prune: kind.begin() });
    while (open.length > 0 && this.#mayGoOn(untilMs)) {
      const left: typeof open = [];
      for (const one of open) {
        if (!this.#mayGoOn(untilMs)) break;
        const batch = await this.#batch(one.kind, one.prune);
        if (batch.gone > 0) gone[one.kind.table] = (gone[one.kind.table] ?? 0) + batch.gone;
        if (!batch.isDone) left.push(one);
      }
      open = left;
    }
    if (Object.keys(gone).length === 0) return gone;
    log.info({ gone }, 'old rows were deleted');
    for (const kind of kinds) if (gone[kind.table] !== undefined) await this.#isOverdue(kind);
    return gone;
  }

  #mayGoOn(untilMs: number): boolean {
    const { clock, isLeader } = this.#parts;
    return !this.#abort.signal.aborted && isLeader() && clock.monotonicMs() < untilMs;
  }

  async #isOverdue({ table, keptMs }: PrunedKind): Promise<boolean> {
    const { oldest, clock, metrics } = this.#parts;
    const oldestMs = await oldest(table);
    const overdueMs = oldestMs === undefined ? 0 : clock.nowMs() - oldestMs - keptMs;
    metrics.overdue.set({ kind: table }, Math.max(0, overdueMs) / 1000);
    return overdueMs > 0;
  }

  async #batch(
    { table, keptMs }: PrunedKind,
    prune: ReturnType<PrunedKind['begin']>,
  ): Promise<{ readonly gone: number; readonly isDone: boolean }> {
    const { clock, metrics } = this.#parts;
    const startedMs = clock.monotonicMs();
    const batch = await prune(clock.nowMs() - keptMs, this.#limit);
    const tookMs = clock.monotonicMs() - startedMs;
    metrics.deleted.inc({ kind: table }, batch.gone);
    metrics.batch.observe({ kind: table }, tookMs / 1000);
    if (tookMs > LONG_MS) this.#limit = Math.max(LEAST_BATCH, Math.floor(this.#limit / 2));
    else if (tookMs < LONG_MS / 2) this.#limit = Math.min(MOST_BATCH, this.#limit * 2);
    // The pause leaves the database to its other users for at least half of the time.
    await sleep(Math.max(LEAST_PAUSE_MS, tookMs), this.#abort.signal);
    return batch;
  }
}
