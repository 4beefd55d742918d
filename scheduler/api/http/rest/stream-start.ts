// The place where a stream of numbered rows begins, and where it ends, as its query and the header of a browser that
// dials again say. Source: reference, REST §10.3.
import type { IncomingHttpHeaders } from 'node:http';
import { AppError } from '#shared/errors.ts';
import { instantOf } from './query.ts';

/** Parameters of {@link START_AND_END}, as they are read. */
export interface StartQuery {
  readonly seq_num?: number;
  readonly timestamp?: string;
  readonly start_time?: string;
  readonly tail_offset?: number;
  readonly wait?: number;
  readonly until?: string;
  readonly clamp?: boolean;
  readonly limit?: number;
}

export type Start =
  | { readonly kind: 'seq'; readonly seq: number }
  | { readonly kind: 'time'; readonly ms: number }
  | { readonly kind: 'offset'; readonly rows: number }
  | { readonly kind: 'tail' };

/** End of a stream; nothing: it lasts. */
export interface StreamEnd {
  readonly limit?: number;
  readonly untilMs?: number;
  /** Time at the newest row after which the stream ends. */
  readonly waitMs?: number;
}

/** Most rows that a stream begins before the newest one. */
const MOST_OFFSET = 10_000;

const invalid = (text: string): AppError => new AppError('invalid_query', text);

/** @throws AppError `invalid_query`, `bad_request` */
export function startOf(query: StartQuery, headers: IncomingHttpHeaders): Start {
  const given = (['seq_num', 'timestamp', 'start_time', 'tail_offset'] as const).filter(
    (name) => query[name] !== undefined,
  );
  if (given.length > 1) throw invalid(`query parameters ${given.join(' and ')} exclude each other`);
  const last = lastEventId(headers);
  if (query.seq_num !== undefined) return { kind: 'seq', seq: query.seq_num };
  if (last !== undefined) return { kind: 'seq', seq: last + 1 };
  if (query.timestamp !== undefined) return { kind: 'time', ms: instantOf(query.timestamp, 'timestamp') };
  if (query.start_time !== undefined) return { kind: 'time', ms: instantOf(query.start_time, 'start_time') };
  if (query.tail_offset === undefined) return { kind: 'tail' };
  if (query.tail_offset > MOST_OFFSET) throw invalid(`query parameter tail_offset is at most ${MOST_OFFSET}`);
  return { kind: 'offset', rows: query.tail_offset };
}

function lastEventId({ 'last-event-id': text }: IncomingHttpHeaders): number | undefined {
  if (text === undefined || text === '') return undefined;
  if (typeof text === 'string' && /^[0-9]{1,15}$/.test(text)) return Number(text);
  throw new AppError('bad_request', 'the header Last-Event-ID must be a number');
}

/** @throws AppError `invalid_query` */
export function endOf({ limit, until, wait }: StartQuery): StreamEnd {
  if (limit === 0) throw invalid('query parameter limit must be 1 or more');
  return {
    ...(limit === undefined ? {} : { limit }),
    ...(until === undefined ? {} : { untilMs: instantOf(until, 'until') }),
    ...(wait === undefined ? {} : { waitMs: wait * 1000 }),
  };
}

/** Questions that a start needs answered. */
export interface StartReads {
  readonly nowMs: number;
  readonly tail: () => Promise<number>;
  /** Number from which rows were stored at that time or later. */
  readonly seqAt: (ms: number) => Promise<number>;
  /** Number of the row that has so many matching rows from it to the newest. */
  readonly seqOfOffset: (rows: number) => Promise<number | undefined>;
}

/**
 * Number of the first row.
 * @param clamp - whether a start beyond the newest row begins there
 * @returns undefined: behind the newest row
 * @throws AppError `range_not_satisfiable`
 */
export async function firstSeq(start: Start, clamp: boolean, reads: StartReads): Promise<number | undefined> {
  switch (start.kind) {
    case 'tail':
      return undefined;
    case 'offset':
      return start.rows === 0 ? undefined : await reads.seqOfOffset(start.rows);
    case 'seq':
      return start.seq <= (await reads.tail()) + 1 ? start.seq : beyond(clamp);
    case 'time':
      return start.ms <= reads.nowMs ? await reads.seqAt(start.ms) : beyond(clamp);
  }
}

function beyond(clamp: boolean): undefined {
  if (clamp) return undefined;
  throw new AppError('range_not_satisfiable', 'the start lies beyond the newest record');
}
