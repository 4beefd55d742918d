// A stream of numbered rows to one caller: between the hub that has the rows and the connection that takes the frames.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Hub, Reader, Subscription, Taken } from '../../../workspaces/events/hub.ts';
import { sseFrame } from '../sse.ts';
import type { SseOut, SseSource } from '../sse.ts';
import type { StreamEnd } from './stream-start.ts';

interface StreamedRow {
  readonly seq: number;
  readonly storedAtMs: number;
}

export interface RowStreamParts<Row extends StreamedRow, Filter> {
  readonly hub: Pick<Hub<Row, Filter>, 'subscribe'>;
  readonly workspaceId: WorkspaceId;
  readonly filter: Filter;
  /** Number of the first row; undefined: rows from now on. */
  readonly fromSeq: number | undefined;
  readonly end: StreamEnd;
  readonly nowMs: () => number;
  readonly log: Log;
  /** Opens a source of further frames; absent: there is none. */
  readonly beside?: ((into: FramesBeside) => Promise<Beside>) | undefined;
}

/** Taker of frames that are no rows. */
export interface FramesBeside {
  /** Takes a frame, or counts it as dropped while the caller takes no more. */
  pass(frame: Buffer): void;
  /** Takes a frame whose source keeps its place, and waits where the answer says so. */
  keep(frame: Buffer): Taken;
  /** Tells the caller that so many frames never came here. */
  dropped(count: number): void;
  failed(): void;
}

/** A source of frames that are no rows. */
export interface Beside {
  start(): void;
  /** Goes on after `full`. */
  resume(): void;
  end(): void;
}

/** Opens a stream; it begins when its head is out. @throws when the rows cannot be read */
export async function openRowStream<Row extends StreamedRow, Filter>(
  parts: RowStreamParts<Row, Filter>,
): Promise<SseSource> {
  const stream = new RowStream<Row>(parts);
  const { hub, workspaceId, filter, fromSeq, beside } = parts;
  stream.subscription = await hub.subscribe(workspaceId, filter, fromSeq, stream);
  try {
    stream.beside = await beside?.({
      pass: (frame) => stream.pass(frame),
      keep: (frame) => stream.keep(frame),
      dropped: (count) => stream.dropped(count),
      failed: () => stream.failed(new Error('log lines cannot be read')),
    });
  } catch (error) {
    stream.closed();
    throw error;
  }
  return stream;
}

class RowStream<Row extends StreamedRow> implements SseSource, Reader<Row> {
  readonly #parts: Pick<RowStreamParts<Row, unknown>, 'end' | 'nowMs' | 'log'>;
  subscription: Subscription | undefined;
  beside: Beside | undefined;
  #stream: SseOut | undefined;
  #left: number;
  #isFull = false;
  /** Frames beside the rows that the caller did not get, and has not been told of. */
  #dropped = 0;
  /** Since when the caller has the newest row. */
  #atTailSinceMs: number | undefined;

  constructor(parts: Pick<RowStreamParts<Row, unknown>, 'end' | 'nowMs' | 'log'>) {
    this.#parts = parts;
    this.#left = parts.end.limit ?? Infinity;
  }

  begin(stream: SseOut): void {
    this.#stream = stream;
    this.subscription?.start();
    this.beside?.start();
  }

  drained(): void {
    this.#isFull = false;
    this.#tellDropped();
    this.subscription?.resume();
    this.beside?.resume();
  }

  closed(): void {
    this.subscription?.end();
    this.beside?.end();
  }

  take(row: Row, frame: () => Buffer): Taken {
    const stream = this.#stream;
    const { untilMs = Infinity } = this.#parts.end;
    if (stream === undefined || !stream.isOpen) return 'over';
    if (row.storedAtMs >= untilMs) return this.#end();
    this.#atTailSinceMs = undefined;
    return this.#write(stream, frame());
  }

  /** Writes a frame that is no row, unless the caller takes no more now. */
  pass(frame: Buffer): void {
    if (this.#isFull) this.#dropped += 1;
    else this.keep(frame);
  }

  /** Writes a frame that is no row. */
  keep(frame: Buffer): Taken {
    const stream = this.#stream;
    if (stream === undefined || !stream.isOpen || this.#left <= 0) return 'over';
    if (this.#atTailSinceMs !== undefined) this.#atTailSinceMs = this.#parts.nowMs();
    return this.#write(stream, frame);
  }

  dropped(count: number): void {
    this.#dropped += count;
    this.#tellDropped();
  }

  #tellDropped(): void {
    const stream = this.#stream;
    if (this.#dropped === 0 || this.#isFull || stream?.isOpen !== true) return;
    const data = JSON.stringify({ dropped: this.#dropped });
    this.#dropped = 0;
    if (!stream.write(sseFrame({ event: 'dropped', data }))) this.#isFull = true;
  }

  #write(stream: SseOut, frame: Buffer): Taken {
    const mayGoOn = stream.write(frame);
    if (!mayGoOn) this.#isFull = true;
    this.#left -= 1;
    if (this.#left <= 0) return this.#end();
    return mayGoOn ? 'more' : 'full';
  }

  atTail(): void {
    const nowMs = this.#parts.nowMs();
    this.#atTailSinceMs ??= nowMs;
    this.tick(nowMs);
  }

  tick(nowMs: number): void {
    const { waitMs = Infinity, untilMs = Infinity } = this.#parts.end;
    if (this.#atTailSinceMs === undefined) return;
    if (nowMs < untilMs && nowMs - this.#atTailSinceMs < waitMs) return;
    this.#end();
    this.subscription?.end();
  }

  failed(error: unknown): void {
    this.#parts.log.warn({ err: error }, 'a stream ended, because its rows cannot be read');
    this.#stream?.fail('the records cannot be read now: dial again');
  }

  #end(): Taken {
    this.#stream?.end();
    return 'over';
  }
}
