// Answers that are streams of server-sent events: their head, frames, pings and ends. Every such stream of the REST API
// is written here. Source: reference, REST §10.
// Invariants: one timer serves all streams. A caller who does not read has a bounded number of unsent bytes, and is cut
// after some minutes. A stream ends within seconds when its token stops being good, and when the scheduler stops.
import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { FastifyReply } from 'fastify';
import { AppError } from '#shared/errors.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { Counter, Gauge, fromZero } from '#shared/metrics.ts';
import type { Registry } from '#shared/metrics.ts';
import type { Caller } from '../../workspaces/identity/caller.ts';
import { countsStill } from './auth.ts';
import type { Look } from './auth.ts';
import { answerBegan } from './begun-answers.ts';

/** Streams of one workspace, and of all, at this replica. A workspace has at most as many as are left. */
export const MOST_STREAMS = { ofWorkspace: 1_000, ofReplica: 4_000 } as const;
const TICK_MS = 1_000;
const PING_MS = 15_000;
/** Time between two looks at a stream's token. */
const LOOK_MS = 2_000;
/** Unsent bytes of a stream above which its source waits. */
const MOST_UNSENT_BYTES = 64 * 1024;
/** Time after which a caller who reads nothing is cut. */
const UNREAD_MS = 10 * 60_000;
const RETRY_AFTER_SECONDS = 10;

/** Without its charset, a published client reads the stream as Latin-1. */
const HEAD = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache',
  'x-accel-buffering': 'no',
} as const;
const PING = Buffer.from(': ping\n\n');
/** First bytes of a stream: a comment, and the time after which a browser dials again. */
const OPENING = ': connected\n\nretry: 3000\n\n';
const RETRY_ALONE = 'retry: 3000\n\n';

/** Any of them ends a line for a reader. */
const LINE_END = /\r\n|\n|\r/;

/** A frame. Lines of the data are sent as lines of their own. */
export function sseFrame(frame: {
  readonly id?: number | string;
  readonly event?: string;
  readonly data: string;
}): Buffer {
  const { id, event, data } = frame;
  const lines = LINE_END.test(data) ? data.split(LINE_END).map((line) => `data: ${line}`) : [`data: ${data}`];
  return Buffer.from(
    `${id === undefined ? '' : `id: ${id}\n`}${event === undefined ? '' : `event: ${event}\n`}${lines.join('\n')}\n\n`,
  );
}

export class SseMetrics {
  readonly open: Gauge<'kind'>;
  readonly refused: Counter<'bound'>;

  constructor(registry: Registry) {
    const registers = [registry];
    this.open = new Gauge({
      name: 'longshore_scheduler_event_streams',
      help: 'Streams of server-sent events and of gRPC that are open at this replica, by what they tell of.',
      labelNames: ['kind'],
      registers,
    });
    for (const kind of ['events', 'logs', 'task', 'live', 'calls']) this.open.set({ kind }, 0);
    this.refused = new Counter({
      name: 'longshore_scheduler_event_streams_refused_total',
      help: 'Streams of server-sent events and of gRPC that were refused because too many of the workspace, or of all, are open.',
      labelNames: ['bound'],
      registers,
    });
    fromZero(this.refused, [{ bound: 'workspace' }, { bound: 'replica' }]);
  }
}

/** calls: streams of gRPC, which take places in the same room. */
export type SseKind = 'events' | 'logs' | 'task' | 'live' | 'calls';

export interface SsePlace {
  readonly kind: SseKind;
  readonly workspaceId: WorkspaceId;
  isFree: boolean;
}

/** Where a source writes its frames. */
export type SseOut = Pick<SseStream, 'isOpen' | 'write' | 'end' | 'finish' | 'fail'>;

/** The server of an open stream's frames; its methods are called by the stream. */
export interface SseSource {
  /** Called once when frames may be written. */
  begin(stream: SseOut): void;
  /** Called when the caller has read again after a write that was answered false. */
  drained(): void;
  /** Called once a second. @param nowMs - epoch milliseconds */
  tick(nowMs: number): void;
  /** Called once when the stream has ended in any way, or never began. */
  closed(): void;
}

export interface SseParts {
  readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs'>;
  readonly metrics: SseMetrics;
  readonly most?: { readonly ofWorkspace: number; readonly ofReplica: number };
}

export class SseStreams {
  readonly #parts: SseParts;
  readonly #open = new Set<SseStream>();
  readonly #counts = new Map<WorkspaceId, number>();
  #total = 0;
  /** Callers as their streams were opened for them. */
  readonly #callers = new WeakMap<SseStream, Pick<Caller, 'confined'>>();
  #isEnding = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: SseParts) {
    this.#parts = parts;
  }

  /**
   * Takes a place for a stream; {@link leave} gives it back where no stream begins.
   * @throws AppError `too_many_streams`, `streams_full`
   */
  take(kind: SseKind, workspaceId: WorkspaceId): SsePlace {
    const { metrics, most = MOST_STREAMS } = this.#parts;
    const count = this.#counts.get(workspaceId) ?? 0;
    const details = { retryAfterSeconds: RETRY_AFTER_SECONDS };
    if (count >= most.ofWorkspace) {
      metrics.refused.inc({ bound: 'workspace' });
      const text = `this workspace has ${most.ofWorkspace} streams open at this scheduler: close some`;
      throw new AppError('too_many_streams', text, { details });
    }
    if (this.#total >= most.ofReplica) {
      metrics.refused.inc({ bound: 'replica' });
      throw new AppError('streams_full', `this scheduler has ${most.ofReplica} streams open: try again`, { details });
    }
    if (count >= most.ofReplica - this.#total) {
      metrics.refused.inc({ bound: 'workspace' });
      const text = `this workspace has ${count} streams open at this scheduler, as many as are left for all: close some`;
      throw new AppError('too_many_streams', text, { details });
    }
    this.#counts.set(workspaceId, count + 1);
    this.#total += 1;
    metrics.open.inc({ kind });
    return { kind, workspaceId, isFree: false };
  }

  leave(place: SsePlace): void {
    if (place.isFree) return;
    place.isFree = true;
    const count = (this.#counts.get(place.workspaceId) ?? 1) - 1;
    if (count === 0) this.#counts.delete(place.workspaceId);
    else this.#counts.set(place.workspaceId, count);
    this.#total -= 1;
    this.#parts.metrics.open.dec({ kind: place.kind });
  }

  /**
   * Sends the head of a stream and has its source begin. The place is given back when the stream ends.
   * @param by - the caller, as the source was opened for it, who is looked for again while the stream lasts
   * @throws AppError `unauthorized`: the token was switched off or limited while the source opened
   */
  async begin(
    reply: FastifyReply,
    place: SsePlace,
    by: { readonly look: Look; readonly caller: Pick<Caller, 'confined' | 'isLast'> },
    source: SseSource,
  ): Promise<void> {
    const { raw } = reply;
    const { look, caller } = by;
    if (caller.isLast !== true && !(await countsStill(look, caller))) {
      this.leave(place);
      source.closed();
      throw new AppError('unauthorized', 'Unauthorized');
    }
    const common = reply.getHeaders() as OutgoingHttpHeaders;
    reply.hijack();
    // A token of one use is used up by now: its stream goes on without looks.
    const stream = new SseStream(raw, source, caller.isLast === true ? undefined : look, this.#parts.clock);
    this.#callers.set(stream, caller);
    const gone = (): void => {
      this.#open.delete(stream);
      this.leave(place);
      source.closed();
      if (this.#open.size > 0) return;
      clearInterval(this.#timer);
      this.#timer = undefined;
    };
    if (raw.destroyed) {
      gone();
      return;
    }
    raw.once('close', gone);
    this.#open.add(stream);
    this.#timer ??= setInterval(() => this.#tick(), TICK_MS).unref();
    raw.writeHead(200, { ...common, ...HEAD });
    const { socket } = raw as { readonly socket: Parameters<typeof answerBegan>[0] | null };
    if (socket !== null) answerBegan(socket, raw);
    raw.write(place.kind === 'task' ? RETRY_ALONE : OPENING);
    source.begin(stream);
    if (this.#isEnding) stream.end();
  }

  /** Ends all streams, because the scheduler stops: their callers dial another replica, or this one when it is back. */
  endAll(): void {
    this.#isEnding = true;
    for (const stream of this.#open) stream.end();
  }

  #tick(): void {
    const { clock } = this.#parts;
    const [nowMs, atMs] = [clock.nowMs(), clock.monotonicMs()];
    for (const stream of this.#open) {
      stream.tick(nowMs, atMs);
      const look = stream.dueLook(atMs);
      if (look !== undefined) void this.#endUnlessGood(stream, look);
    }
  }

  async #endUnlessGood(stream: SseStream, look: Look): Promise<void> {
    // A token that was limited meanwhile may dial again, and is judged anew.
    if (!(await countsStill(look, this.#callers.get(stream) ?? {}))) stream.end();
  }
}

/** A stream whose head is out. */
export class SseStream {
  readonly #raw: ServerResponse;
  readonly #source: SseSource;
  readonly #look: Look | undefined;
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  #writtenMs: number;
  #lookedMs: number;
  /** Since when the caller has read nothing, while bytes wait. */
  #fullSinceMs: number | undefined;

  constructor(raw: ServerResponse, source: SseSource, look: Look | undefined, clock: Pick<Clock, 'monotonicMs'>) {
    this.#raw = raw;
    this.#source = source;
    this.#look = look;
    this.#clock = clock;
    this.#writtenMs = clock.monotonicMs();
    this.#lookedMs = this.#writtenMs;
  }

  get isOpen(): boolean {
    return !this.#raw.destroyed && !this.#raw.writableEnded;
  }

  /** Writes a frame. @returns false: the source waits until `drained` is called */
  write(frame: Buffer): boolean {
    if (!this.isOpen) return false;
    this.#writtenMs = this.#clock.monotonicMs();
    this.#raw.write(frame);
    if (this.#raw.writableLength < MOST_UNSENT_BYTES) return true;
    if (this.#fullSinceMs === undefined) {
      this.#fullSinceMs = this.#writtenMs;
      this.#raw.once('drain', this.#onDrain);
    }
    return false;
  }

  /** Ends the stream after the frames that are written; a caller who does not read is cut. */
  end(): void {
    if (!this.isOpen) return;
    if (this.#fullSinceMs === undefined) this.#raw.end();
    else this.#raw.destroy();
  }

  /** Ends the stream once its frames are read, also a frame above the bound of unsent bytes. */
  finish(): void {
    if (!this.isOpen) return;
    this.#raw.end();
    if (this.#raw.writableFinished) return;
    const unread = setTimeout(() => this.#raw.destroy(), UNREAD_MS).unref();
    this.#raw.once('close', () => clearTimeout(unread));
  }

  /** Tells the caller what went wrong, and ends the stream. */
  fail(message: string): void {
    this.write(sseFrame({ event: 'error', data: JSON.stringify({ error: message }) }));
    this.end();
  }

  readonly #onDrain = (): void => {
    this.#fullSinceMs = undefined;
    if (this.isOpen) this.#source.drained();
  };

  /** @param nowMs - epoch milliseconds @param atMs - of the clock that no one sets */
  tick(nowMs: number, atMs: number): void {
    if (!this.isOpen) return;
    if (this.#fullSinceMs !== undefined) {
      if (atMs - this.#fullSinceMs > UNREAD_MS) this.#raw.destroy();
    } else if (atMs - this.#writtenMs >= PING_MS) this.write(PING);
    this.#source.tick(nowMs);
  }

  /** How to look for the caller again, when it is time to. */
  dueLook(atMs: number): Look | undefined {
    if (this.#look === undefined || atMs - this.#lookedMs < LOOK_MS) return undefined;
    this.#lookedMs = atMs;
    return this.#look;
  }
}
