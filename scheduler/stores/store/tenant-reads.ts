// Reads that people ask for: lists, pages of logs. Such reads have connections, a deadline and a share of their own, so
// that no workspace's reads delay the control loop or another workspace's reads.
import { FairLine } from '#shared/fair-line.ts';
import { AppError } from '#shared/errors.ts';
import { databaseTimeout } from './limits.ts';
import type { Queryable, QueryResult, TenantReads } from './queryable.ts';

const MOST_WAITING = 1_000;
const MOST_WAITING_OF_ONE = 32;
const WAIT_MS = 5_000;

export type ReadOutcome = 'ok' | 'failed' | 'refused';

export class TenantReadQueue implements TenantReads {
  readonly #line: FairLine;
  readonly #run: (sql: string, params: readonly unknown[]) => Promise<QueryResult<unknown>>;
  /** Called at the end of each read with the seconds that it waited and ran; set by the metrics. */
  onRead: TenantReads['onRead'];

  /** @param atOnce - statements that run side by side; a workspace has at most half of them */
  constructor(atOnce: number, run: (sql: string, params: readonly unknown[]) => Promise<QueryResult<unknown>>) {
    this.#run = run;
    this.#line = new FairLine({
      atOnce,
      atOnceOfOne: Math.max(1, Math.floor(atOnce / 2)),
      mostWaiting: MOST_WAITING,
      mostWaitingOfOne: MOST_WAITING_OF_ONE,
      waitMs: WAIT_MS,
      refusal: (why) =>
        why === 'late'
          ? databaseTimeout()
          : new AppError('database_busy', 'too many reads of this workspace wait for the database'),
    });
  }

  get waiting(): number {
    return this.#line.waiting;
  }

  of(workspaceId: string): Queryable {
    return {
      query: async <R>(sql: string, params: readonly unknown[] = []): Promise<QueryResult<R>> => {
        const from = performance.now();
        let beganAt: number | undefined;
        let outcome: ReadOutcome = 'failed';
        try {
          const result = await this.#line.run(workspaceId, () => {
            beganAt = performance.now();
            return this.#run(sql, params);
          });
          outcome = 'ok';
          return result as QueryResult<R>;
        } finally {
          const seconds = (performance.now() - from) / 1000;
          this.onRead?.(beganAt === undefined ? 'refused' : outcome, seconds);
        }
      },
    };
  }
}
