// A stream of numbered rows to one caller: between the hub that has the rows and the connection that takes the frames.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Hub, Reader, Subscription, Taken } from '../../../workspaces/events/hub.ts';
import type { SseSource, SseStream } from '../sse.ts';
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
}

/** Opens a stream; it begins when its head is out. @throws when the rows cannot be read */
export async function openRowStream<Row extends StreamedRow, Filter>(
  parts: RowStreamParts<Row, Filter>,
): Promise<SseSource> {
  const stream = new RowStream<Row>(parts);
  const { hub, workspaceId, filter, fromSeq } = parts;
  stream.subscription = await hub.subscribe(workspaceId, filter, fromSeq, stream);
  return stream;
}

class RowStream<Row extends StreamedRow> implements SseSource, Reader<Row> {
  readonly #parts: Pick<RowStreamParts<Row, unknown>, 'end' | 'nowMs' | 'log'>;
  subscription: Subscription | undefined;
  #stream: SseStream | undefined;
  #left: number;
  /** Since when the caller has the newest row. */
  #atTailSinceMs: number | undefined;

  constructor(parts: Pick<RowStreamParts<Row, unknown>, 'end' | 'nowMs' | 'log'>) {
    this.#parts = parts;
    this.#left = parts.end.limit ?? Infinity;
  }

  begin(stream: SseStream): void {
    this.#stream = stream;
    this.subscription?.start();
  }

  drained(): void {
    this.subscription?.resume();
  }

  closed(): void {
    this.subscription?.end();
  }

  take(row: Row, frame: () => Buffer): Taken {
    const stream = this.#stream;
    const { untilMs = Infinity } = this.#parts.end;
    if (stream === undefined || !stream.isOpen) return 'over';
    if (row.storedAtMs >= untilMs) return this.#end();
    this.#atTailSinceMs = undefined;
    const mayGoOn = stream.write(frame());
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
