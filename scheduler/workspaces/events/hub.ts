// Live readers of numbered rows: events, and any other rows that get a number in the order of commits. The newest rows
// of a workspace are read once for all of its readers here, and kept for a while in a ring, with their text. A reader
// that is further behind reads pages of its own. A reader that takes nothing keeps its place and nothing else.
// Invariants: a reader gets each row behind its position once, in order. No reader delays another. Messages are hints:
// the sweep finds rows that no message told of.
import { backoffMs, sleep } from '#shared/backoff.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';

export interface HubSource<Row extends { readonly seq: number }, Filter> {
  /** Number of the last committed row of each workspace; 0: none. */
  tails(workspaceIds: readonly WorkspaceId[]): Promise<ReadonlyMap<WorkspaceId, number>>;
  /** A number behind which about `most` rows lie up to the tail, and no more. */
  startOf(workspaceId: WorkspaceId, tail: number, most: number): number | Promise<number>;
  /** The next rows behind a number, unfiltered, in order. Fewer than the limit: these are all; there may be more. */
  next(workspaceId: WorkspaceId, afterSeq: number, limit: number): Promise<readonly Row[]>;
  /** A page of rows that pass the filter, in order. Everything before `nextSeq` was looked at. */
  after(
    workspaceId: WorkspaceId,
    filter: Filter,
    afterSeq: number,
    untilSeq: number,
    limit: number,
  ): Promise<{ readonly rows: readonly Row[]; readonly nextSeq: number }>;
  passes(row: Row, filter: Filter): boolean;
  /** The row as it is sent. */
  frameOf(row: Row): Buffer;
  /** About the bytes of the row and its frame. */
  sizeOf(row: Row): number;
}

/** Effect of a row on its reader. full: it takes no more for now · over: it ended. */
export type Taken = 'more' | 'full' | 'over';

export interface Reader<Row> {
  /**
   * Takes a row.
   * @param frame - the row as it is sent, the same bytes for all readers
   */
  take(row: Row, frame: () => Buffer): Taken;
  /** Called each time when the reader has all rows that are known. */
  atTail?(): void;
  /** Called once when its pages cannot be read; the reader is no longer served. */
  failed(error: unknown): void;
}

export interface Subscription {
  /** Hands out rows from now on. */
  start(): void;
  /** Goes on after `full`. */
  resume(): void;
  /** Forgets the reader. */
  end(): void;
}

export interface HubParts<Row extends { readonly seq: number }, Filter> {
  readonly source: HubSource<Row, Filter>;
  readonly log: Log;
  /** Called for each page that a reader read by itself. */
  readonly onPage?: () => void;
  readonly ringRows?: number;
  readonly ringBytes?: number;
  readonly sweepMs?: number;
  /** Milliseconds of the first pause after a page that could not be read. */
  readonly retryMs?: number;
}

const RING_ROWS = 1_000;
const RING_BYTES = 4 * 1024 * 1024;
const SWEEP_MS = 5_000;
/** Rows of one read for all readers. */
const READ_ROWS = 500;
/** Rows of a reader's own page. */
const PAGE_ROWS = 200;
/** Readers of a workspace that read pages at once; the others wait their turn. */
const PAGES_AT_ONCE = 4;
/** Tries of a page before its reader is given up. */
const MOST_TRIES = 6;
const RETRY_MS = 250;

interface Entry<Row> {
  readonly row: Row;
  readonly size: number;
  frame: Buffer | undefined;
}

class Channel<Row, Filter> {
  readonly readers = new Set<Reading<Row, Filter>>();
  readonly ring: Entry<Row>[] = [];
  ringSize = 0;
  /** All rows from this number to the tail are in the ring. */
  ringFrom = 1;
  tail = 0;
  isReading = false;
  isStale = false;
  /** Pages that are read now, and readers that wait for their turn. */
  pages = 0;
  readonly waiting: (() => void)[] = [];
}

class Reading<Row, Filter> {
  readonly filter: Filter;
  readonly reader: Reader<Row>;
  /** Number of the next row. */
  position: number;
  isStarted = false;
  isFull = false;
  isBehind = false;
  isOver = false;

  constructor(filter: Filter, reader: Reader<Row>, position: number) {
    this.filter = filter;
    this.reader = reader;
    this.position = position;
  }
}

export class Hub<Row extends { readonly seq: number }, Filter> {
  readonly name = 'live readers';
  readonly #parts: HubParts<Row, Filter>;
  readonly #channels = new Map<WorkspaceId, Channel<Row, Filter>>();
  readonly #opening = new Map<WorkspaceId, Promise<Channel<Row, Filter>>>();
  readonly #listeners = new Set<(workspaceId: WorkspaceId | undefined) => void>();
  readonly #abort = new AbortController();
  #sweep: NodeJS.Timeout | undefined;

  constructor(parts: HubParts<Row, Filter>) {
    this.#parts = parts;
  }

  start(): void {
    this.#sweep = setInterval(() => void this.#lookAtAll(), this.#parts.sweepMs ?? SWEEP_MS);
    this.#sweep.unref();
  }

  stop(): void {
    clearInterval(this.#sweep);
    this.#abort.abort();
  }

  /** Readers here. */
  get size(): number {
    let size = 0;
    for (const { readers } of this.#channels.values()) size += readers.size;
    return size;
  }

  /** Number of the workspace's last committed row. */
  async tailOf(workspaceId: WorkspaceId): Promise<number> {
    return (await this.#parts.source.tails([workspaceId])).get(workspaceId) ?? 0;
  }

  /**
   * Number of the workspace's last row, as far as it is known here: rows to come are behind it. Nothing is read for it
   * while the workspace has readers here.
   */
  async knownTail(workspaceId: WorkspaceId): Promise<number> {
    const channel = await this.#channelOf(workspaceId);
    if (channel.readers.size === 0 && this.#channels.get(workspaceId) === channel) this.#channels.delete(workspaceId);
    return channel.tail;
  }

  /**
   * Registers a reader. Rows come once the subscription was started.
   * @param fromSeq - number of the first row; undefined: rows that are committed from now on
   * @throws what the source throws
   */
  async subscribe(
    workspaceId: WorkspaceId,
    filter: Filter,
    fromSeq: number | undefined,
    reader: Reader<Row>,
  ): Promise<Subscription> {
    const position = fromSeq ?? (await this.tailOf(workspaceId)) + 1;
    const channel = await this.#channelOf(workspaceId);
    const reading = new Reading<Row, Filter>(filter, reader, position);
    channel.readers.add(reading);
    // The last reader before may have left meanwhile.
    if (!this.#channels.has(workspaceId)) this.#channels.set(workspaceId, channel);
    return {
      start: () => {
        reading.isStarted = true;
        this.#serve(workspaceId, channel, reading);
        // A message of newer rows may have been lost.
        if (!reading.isOver) this.#read(workspaceId, channel);
      },
      resume: () => {
        reading.isFull = false;
        this.#serve(workspaceId, channel, reading);
      },
      end: () => this.#forget(workspaceId, channel, reading),
    };
  }

  /**
   * Adds a listener of messages about new rows, also of workspaces without readers here.
   * @param listener - gets undefined where messages of any workspace may have been missed
   */
  onWoken(listener: (workspaceId: WorkspaceId | undefined) => void): void {
    this.#listeners.add(listener);
  }

  /** Looks for new rows of a workspace that has readers here. @param lastSeq - where the teller knows it */
  wake(workspaceId: WorkspaceId, lastSeq?: number): void {
    for (const listener of this.#listeners) listener(workspaceId);
    this.#lookAt(workspaceId, lastSeq);
  }

  #lookAt(workspaceId: WorkspaceId, lastSeq?: number): void {
    const channel = this.#channels.get(workspaceId);
    if (channel === undefined || (lastSeq !== undefined && lastSeq <= channel.tail)) return;
    this.#read(workspaceId, channel);
  }

  /** Looks at every workspace that has readers here: messages may have been missed. */
  wakeAll(): void {
    for (const listener of this.#listeners) listener(undefined);
    void this.#lookAtAll();
  }

  async #lookAtAll(): Promise<void> {
    if (this.#channels.size === 0) return;
    try {
      const tails = await this.#parts.source.tails([...this.#channels.keys()]);
      for (const [workspaceId, tail] of tails) this.#lookAt(workspaceId, tail);
    } catch (error) {
      this.#parts.log.info({ err: error }, 'live readers are not looked after now');
    }
  }

  #channelOf(workspaceId: WorkspaceId): Promise<Channel<Row, Filter>> {
    const known = this.#channels.get(workspaceId);
    if (known !== undefined) return Promise.resolve(known);
    const opening =
      this.#opening.get(workspaceId) ??
      this.#open(workspaceId)
        .then((opened) => {
          const channel = this.#channels.get(workspaceId) ?? opened;
          this.#channels.set(workspaceId, channel);
          return channel;
        })
        .finally(() => void this.#opening.delete(workspaceId));
    this.#opening.set(workspaceId, opening);
    return opening;
  }

  /** Opens a channel with the newest rows, so that readers who come back find theirs in the ring. */
  async #open(workspaceId: WorkspaceId): Promise<Channel<Row, Filter>> {
    const channel = new Channel<Row, Filter>();
    const tail = await this.tailOf(workspaceId);
    const from = tail > 0 ? await this.#parts.source.startOf(workspaceId, tail, READ_ROWS) : 0;
    channel.tail = from;
    channel.ringFrom = from + 1;
    if (tail > 0) this.#append(channel, await this.#parts.source.next(workspaceId, from, READ_ROWS));
    channel.tail = Math.max(channel.tail, tail);
    return channel;
  }

  #append(channel: Channel<Row, Filter>, rows: readonly Row[]): void {
    const { source, ringRows = RING_ROWS, ringBytes = RING_BYTES } = this.#parts;
    for (const row of rows) {
      if (row.seq <= channel.tail) continue;
      const size = source.sizeOf(row);
      channel.ring.push({ row, size, frame: undefined });
      channel.ringSize += size;
      channel.tail = row.seq;
    }
    let gone = 0;
    while (channel.ring.length - gone > ringRows || (channel.ringSize > ringBytes && gone < channel.ring.length)) {
      const oldest = channel.ring[gone];
      if (oldest === undefined) break;
      channel.ringSize -= oldest.size;
      channel.ringFrom = oldest.row.seq + 1;
      gone += 1;
    }
    if (gone > 0) channel.ring.splice(0, gone);
  }

  /** Reads new rows and hands them out; one read at a time for a workspace. */
  #read(workspaceId: WorkspaceId, channel: Channel<Row, Filter>): void {
    if (this.#abort.signal.aborted) return;
    channel.isStale = true;
    if (channel.isReading) return;
    channel.isReading = true;
    void this.#readAll(workspaceId, channel)
      .catch((error: unknown) => this.#parts.log.info({ err: error, workspaceId }, 'new rows are read later'))
      .finally(() => {
        channel.isReading = false;
        if (channel.isStale && channel.readers.size > 0) this.#read(workspaceId, channel);
      });
  }

  async #readAll(workspaceId: WorkspaceId, channel: Channel<Row, Filter>): Promise<void> {
    while (channel.isStale && channel.readers.size > 0) {
      channel.isStale = false;
      const rows = await this.#parts.source.next(workspaceId, channel.tail, READ_ROWS);
      if (rows.length >= READ_ROWS) channel.isStale = true;
      if (rows.length === 0) continue;
      this.#append(channel, rows);
      for (const reading of channel.readers) this.#serve(workspaceId, channel, reading);
    }
  }

  #serve(workspaceId: WorkspaceId, channel: Channel<Row, Filter>, reading: Reading<Row, Filter>): void {
    if (!reading.isStarted || reading.isBehind || reading.isFull || reading.isOver) return;
    if (reading.position < channel.ringFrom && reading.position <= channel.tail) {
      reading.isBehind = true;
      void this.#catchUp(workspaceId, channel, reading);
      return;
    }
    const { source } = this.#parts;
    for (let at = placeOf(channel.ring, reading.position); at < channel.ring.length; at += 1) {
      const entry = channel.ring[at];
      if (entry === undefined) break;
      if (source.passes(entry.row, reading.filter)) {
        const taken = reading.reader.take(entry.row, () => (entry.frame ??= source.frameOf(entry.row)));
        if (!this.#goesOn(workspaceId, channel, reading, entry.row.seq, taken)) return;
      }
      reading.position = entry.row.seq + 1;
    }
    reading.position = Math.max(reading.position, channel.tail + 1);
    if (reading.position === channel.tail + 1) reading.reader.atTail?.();
  }

  /** Notes what a reader made of a row. @returns whether it takes another one */
  #goesOn(
    workspaceId: WorkspaceId,
    channel: Channel<Row, Filter>,
    reading: Reading<Row, Filter>,
    seq: number,
    taken: Taken,
  ): boolean {
    reading.position = seq + 1;
    if (taken === 'over') this.#forget(workspaceId, channel, reading);
    else if (taken === 'full') reading.isFull = true;
    return taken === 'more' && !reading.isOver;
  }

  /** Reads pages for a reader that is behind the ring, until it is in it again, takes no more, or is gone. */
  async #catchUp(
    workspaceId: WorkspaceId,
    channel: Channel<Row, Filter>,
    reading: Reading<Row, Filter>,
  ): Promise<void> {
    let failures = 0;
    while (!reading.isOver && !reading.isFull && reading.position < channel.ringFrom) {
      await turnOf(channel);
      try {
        if (reading.isOver || this.#abort.signal.aborted) return;
        await this.#page(workspaceId, channel, reading);
        failures = 0;
      } catch (error) {
        failures += 1;
        this.#parts.log.info({ err: error, workspaceId, failures }, 'a page for a live reader is read later');
        if (failures >= MOST_TRIES) {
          this.#forget(workspaceId, channel, reading);
          reading.reader.failed(error);
          return;
        }
      } finally {
        endTurn(channel);
      }
      const { retryMs = RETRY_MS } = this.#parts;
      if (failures > 0) await sleep(backoffMs(failures, { baseMs: retryMs, capMs: 5_000 }), this.#abort.signal);
    }
    reading.isBehind = false;
    this.#serve(workspaceId, channel, reading);
  }

  async #page(workspaceId: WorkspaceId, channel: Channel<Row, Filter>, reading: Reading<Row, Filter>): Promise<void> {
    const { source, onPage } = this.#parts;
    const { filter, position } = reading;
    const page = await source.after(workspaceId, filter, position - 1, channel.tail, PAGE_ROWS);
    onPage?.();
    for (const row of page.rows) {
      if (reading.isOver) return;
      const taken = reading.reader.take(row, () => source.frameOf(row));
      // The rest of the page is dropped: the reader holds its place alone.
      if (!this.#goesOn(workspaceId, channel, reading, row.seq, taken)) return;
    }
    reading.position = Math.max(reading.position, page.nextSeq);
  }

  #forget(workspaceId: WorkspaceId, channel: Channel<Row, Filter>, reading: Reading<Row, Filter>): void {
    reading.isOver = true;
    channel.readers.delete(reading);
    if (channel.readers.size === 0 && this.#channels.get(workspaceId) === channel) this.#channels.delete(workspaceId);
  }
}

/** Place in the ring of the first row from that number on. */
function placeOf(ring: readonly Entry<{ readonly seq: number }>[], seq: number): number {
  let low = 0;
  let high = ring.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((ring[middle]?.row.seq ?? Infinity) < seq) low = middle + 1;
    else high = middle;
  }
  return low;
}

type Turns = Pick<Channel<never, never>, 'pages' | 'waiting'>;

/** Waits until one of the places for pages is free, and takes it. */
async function turnOf(channel: Turns): Promise<void> {
  if (channel.pages >= PAGES_AT_ONCE) await new Promise<void>((resolve) => channel.waiting.push(resolve));
  else channel.pages += 1;
}

/** Gives the place to the next one who waits. */
function endTurn(channel: Turns): void {
  const next = channel.waiting.shift();
  if (next === undefined) channel.pages -= 1;
  else next();
}
