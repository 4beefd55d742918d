// Reads of the series of metrics, on the connections of people's reads.
// Invariant: a read looks at a bounded number of rows; of more rows the newest count, and the answer says so.
import type { StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { CONTAINER_STEPS, MOST_SCANNED, POOL_STEPS, segmentsOf, stepOf } from '../../domain/series.ts';
import type { Db } from '../../stores/store/db.ts';
import { readBuckets } from '../../stores/store/queries/metric-samples.ts';
import type { BucketRead, SampleBucket } from '../../stores/store/queries/metric-samples.ts';
import { readPoolBuckets } from '../../stores/store/queries/pool-samples.ts';
import type { PoolBucket } from '../../stores/store/queries/pool-samples.ts';

/** Most rows that one read looks at. On PGlite every other statement waits meanwhile. */
const MOST = { pglite: 10_000, postgres: MOST_SCANNED } as const;

export interface SeriesRange {
  readonly fromMs: number;
  /** Exclusive. */
  readonly toMs: number;
  readonly intervalMs: number;
}

export interface SeriesReads {
  stub(workspaceId: WorkspaceId, stubId: StubId, range: SeriesRange): Promise<BucketRead<SampleBucket>>;
  workspace(
    workspaceId: WorkspaceId,
    filter: { readonly appId?: string; readonly stubKind?: string },
    range: SeriesRange,
  ): Promise<BucketRead<SampleBucket>>;
  /** @param owner - undefined: every pool */
  pools(workspaceId: WorkspaceId, owner: WorkspaceId | undefined, range: SeriesRange): Promise<BucketRead<PoolBucket>>;
}

export class SeriesReader implements SeriesReads {
  readonly #db: Pick<Db, 'kind' | 'reads'>;

  constructor(db: Pick<Db, 'kind' | 'reads'>) {
    this.#db = db;
  }

  stub(workspaceId: WorkspaceId, stubId: StubId, range: SeriesRange): Promise<BucketRead<SampleBucket>> {
    return this.#buckets({ workspaceId, stubId }, range);
  }

  workspace(
    workspaceId: WorkspaceId,
    filter: { readonly appId?: string; readonly stubKind?: string },
    range: SeriesRange,
  ): Promise<BucketRead<SampleBucket>> {
    return this.#buckets({ workspaceId, ...filter }, range);
  }

  pools(workspaceId: WorkspaceId, owner: WorkspaceId | undefined, range: SeriesRange): Promise<BucketRead<PoolBucket>> {
    const segments = segmentsOf(range, stepOf(range.intervalMs, POOL_STEPS), POOL_STEPS);
    const db = this.#db.reads.of(workspaceId);
    return readPoolBuckets(db, owner, segments, range.intervalMs, MOST[this.#db.kind]);
  }

  #buckets(filter: Parameters<typeof readBuckets>[1], range: SeriesRange): Promise<BucketRead<SampleBucket>> {
    const segments = segmentsOf(range, stepOf(range.intervalMs, CONTAINER_STEPS), CONTAINER_STEPS);
    const db = this.#db.reads.of(filter.workspaceId);
    return readBuckets(db, filter, segments, range.intervalMs, MOST[this.#db.kind]);
  }
}
