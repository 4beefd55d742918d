// Reads of a workspace's events: the newest ones that match, or those from a number on.
// Invariants: a statement looks at few rows, and a read at 50 000, however many there are. Events of a statement and of
// an answer take a bounded number of bytes. The answer says where the next read goes on.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Db, Queryable } from '../../stores/store/db.ts';
import type { EventRow } from '../../stores/store/queries/events.ts';
import type { EventKey, EventMatch, EventRead, EventStart } from '../../stores/store/queries/event-reads.ts';
import {
  eventEdge,
  eventsAfter,
  lastSeqs,
  readEvents,
  seqAt,
  typesOf,
} from '../../stores/store/queries/event-reads.ts';
import { AUDIT, asksForAudit, matchesTypes } from './kinds.ts';

/** Events that are asked for; everything absent: all but the audit trail. */
export interface EventFilter {
  /** Entries as `matchesTypes` takes them. */
  readonly types?: readonly string[];
  readonly stubId?: string;
  readonly appId?: string;
  readonly taskId?: string;
  readonly containerId?: string;
  readonly withoutActions?: readonly string[];
  readonly fromMs?: number;
  /** Exclusive. */
  readonly toMs?: number;
}

export interface LatestEvents {
  /** In the order of their numbers. */
  readonly events: readonly EventRow[];
  /** Rows that were looked at. */
  readonly scanned: number;
  /** Events before that number were not looked at; undefined: all were. */
  readonly nextBeforeSeq: number | undefined;
}

export interface EventPage<Row> {
  readonly rows: readonly Row[];
  /** Everything before that number was looked at. */
  readonly nextSeq: number;
}

/** Most rows that a read looks at. Source: reference, REST §8. */
export const MOST_SCANNED = 50_000;
/** Most rows that one statement looks at: on PGlite some 20 ms, in which every other statement waits. */
const MOST_AT_ONCE = { pglite: 2_000, postgres: 5_000 } as const;
const FEWEST_AT_ONCE = 500;
/** Events of one statement: their data have some 64 KiB at most. */
const PORTION = 250;
const READ_MS = 15_000;
/** Bytes of an answer: data stands in it twice, and an event has about so much beside it. */
const MOST_BYTES = 16 * 1024 * 1024;
const BYTES_BESIDE = 1_000;
/**
 * Tolerance between the time of an event and the time at which it was stored: clocks of hosts differ, and an event of a
 * task waits for its batch.
 */
const STORED_WITHIN_MS = 10 * 60_000;

export class EventReads {
  readonly #db: Pick<Db, 'kind' | 'reads' | 'query'>;
  readonly #portion: number;
  readonly #mostBytes: number;

  /** @param bounds - other ones than the usual, for tests */
  constructor(
    db: Pick<Db, 'kind' | 'reads' | 'query'>,
    bounds: { readonly portion?: number; readonly mostBytes?: number } = {},
  ) {
    this.#db = db;
    this.#portion = bounds.portion ?? PORTION;
    this.#mostBytes = bounds.mostBytes ?? MOST_BYTES;
  }

  /**
   * The newest events that match.
   * @param beforeSeq - only events before this number
   * @throws AppError `database_busy`, `database_timeout`
   */
  async latest(
    workspaceId: WorkspaceId,
    filter: EventFilter,
    limit: number,
    beforeSeq: number = Number.MAX_SAFE_INTEGER,
  ): Promise<LatestEvents> {
    const reads = this.#db.reads.of(workspaceId);
    const found: EventRead[] = [];
    const match = await matchOf(reads, workspaceId, filter);
    if (match === undefined) return { events: [], scanned: 0, nextBeforeSeq: undefined };
    const { fromMs, toMs } = filter;
    const begin = fromMs === undefined ? 0 : await seqAt(reads, workspaceId, fromMs - STORED_WITHIN_MS);
    const end = toMs === undefined ? beforeSeq : await seqAt(reads, workspaceId, toMs + STORED_WITHIN_MS);
    let before = Math.min(beforeSeq, end);
    let rows = Math.min(Math.max(limit, FEWEST_AT_ONCE), MOST_AT_ONCE[this.#db.kind]);
    let scanned = 0;
    let bytes = 0;
    const untilMs = performance.now() + READ_MS;
    const mayGoOn = (): boolean => bytes < this.#mostBytes && performance.now() < untilMs;
    while (scanned < MOST_SCANNED && mayGoOn()) {
      rows = Math.min(rows, MOST_SCANNED - scanned);
      const edge = await eventEdge(reads, match, { beforeSeq: before }, rows);
      // Events of an id belong to one workspace: another workspace's read of it finds nothing.
      if (edge !== undefined && edge.workspaceId !== workspaceId)
        return { events: [], scanned: 0, nextBeforeSeq: undefined };
      if (edge !== undefined) scanned += rows;
      for (let next: number | undefined = before; next !== undefined;) {
        before = next;
        const most = Math.min(limit - found.length, this.#portion);
        const some = await readEvents(reads, match, { beforeSeq: before }, edge?.seq, most, rows);
        const kept = some.events.filter(({ type }) => matchesTypes(type, filter.types));
        found.push(...kept);
        if (edge === undefined) scanned += some.rows;
        bytes += kept.reduce((sum, { dataBytes }) => sum + 2 * dataBytes + BYTES_BESIDE, 0);
        ({ next } = some);
        if (next !== undefined && (found.length >= limit || !mayGoOn()))
          return { events: found.toReversed(), scanned, nextBeforeSeq: next };
      }
      if (edge === undefined || edge.firstSeq <= begin)
        return { events: found.toReversed(), scanned, nextBeforeSeq: undefined };
      before = edge.firstSeq;
      rows = Math.min(rows * 2, MOST_AT_ONCE[this.#db.kind]);
    }
    return { events: found.toReversed(), scanned, nextBeforeSeq: before };
  }

  /**
   * Events behind a number that match, oldest first; one call looks at a few thousand rows.
   * @param untilSeq - the last number that is committed, or an earlier one
   */
  async after(
    workspaceId: WorkspaceId,
    filter: EventFilter,
    afterSeq: number,
    untilSeq: number,
    limit: number,
  ): Promise<EventPage<EventRead>> {
    const reads = this.#db.reads.of(workspaceId);
    const rows = MOST_AT_ONCE[this.#db.kind];
    const match = await matchOf(reads, workspaceId, filter);
    if (match === undefined || afterSeq >= untilSeq) return { rows: [], nextSeq: untilSeq + 1 };
    const start: EventStart = { afterSeq, untilSeq };
    const edge = await eventEdge(reads, match, start, rows);
    if (edge !== undefined && edge.workspaceId !== workspaceId) return { rows: [], nextSeq: untilSeq + 1 };
    const some = await readEvents(reads, match, start, edge?.seq, limit, rows);
    return {
      rows: some.events.filter(({ type }) => matchesTypes(type, filter.types)),
      nextSeq: Math.min(some.next ?? edge?.seq ?? untilSeq, untilSeq) + 1,
    };
  }

  /** The next events of a workspace, of every kind: so many, and a few more that share a row with them. */
  next(workspaceId: WorkspaceId, afterSeq: number, most: number): Promise<readonly EventRead[]> {
    return eventsAfter(this.#db.reads.of(workspaceId), workspaceId, afterSeq, most);
  }

  /** Number of the last event of each of these workspaces; 0 where there is none. */
  async tails(workspaceIds: readonly WorkspaceId[]): Promise<ReadonlyMap<WorkspaceId, number>> {
    // The statement is of all workspaces, so it belongs in no workspace's share of reads.
    const known = workspaceIds.length === 0 ? new Map() : await lastSeqs(this.#db, workspaceIds);
    return new Map(workspaceIds.map((id) => [id, known.get(id) ?? 0]));
  }

  /** Number from which events were stored at that time or later. */
  seqAt(workspaceId: WorkspaceId, ms: number): Promise<number> {
    return seqAt(this.#db.reads.of(workspaceId), workspaceId, ms);
  }
}

/** The filter as the statements take it; undefined: nothing can match. */
async function matchOf(db: Queryable, workspaceId: WorkspaceId, filter: EventFilter): Promise<EventMatch | undefined> {
  const { types: entries = [], stubId, appId, taskId, containerId, withoutActions, fromMs, toMs } = filter;
  const isAll = entries.length === 0 || entries.includes('*');
  const types = isAll ? undefined : await namedTypes(db, workspaceId, entries);
  if (types?.length === 0) return undefined;
  const key: EventKey = {
    workspaceId,
    ...(taskId === undefined ? {} : { taskId }),
    ...(containerId === undefined ? {} : { containerId }),
    ...(stubId === undefined ? {} : { stubId }),
    ...(appId === undefined ? {} : { appId }),
    ...(types === undefined ? {} : { types }),
  };
  return {
    ...key,
    ...(isAll && !asksForAudit(entries) ? { withoutTypes: AUDIT } : {}),
    ...(withoutActions === undefined ? {} : { withoutActions }),
    ...(fromMs === undefined ? {} : { fromMs }),
    ...(toMs === undefined ? {} : { toMs }),
  };
}

/** Kinds in full that the entries name. Begins of kinds are looked up, in the index of kinds. */
async function namedTypes(
  db: Queryable,
  workspaceId: WorkspaceId,
  entries: readonly string[],
): Promise<readonly string[]> {
  if (entries.every((entry) => !entry.endsWith('*'))) return [...new Set(entries)];
  return (await typesOf(db, workspaceId)).filter((type) => matchesTypes(type, entries));
}

/** Whether an event passes the filter, the times apart. */
export function passes(event: EventRow, filter: EventFilter): boolean {
  const { stubId, appId, taskId, containerId } = filter;
  return (
    (taskId === undefined || event.taskId === taskId) &&
    (stubId === undefined || event.stubId === stubId) &&
    (appId === undefined || event.appId === appId) &&
    (containerId === undefined || event.containerId === containerId) &&
    matchesTypes(event.type, filter.types)
  );
}
