/**
 * Lines of containers on their way to the scheduler: bounded per container and in total, cut into batches, kept until
 * acknowledged. The buffer never blocks a container: above a bound the oldest lines of the noisiest one are dropped,
 * and a marker line gives their number. Lines are held back while the container's secrets are unknown.
 */
import { randomUUID } from 'node:crypto';
import { joinLines } from '#shared/domain/log-lines.ts';
import { Listeners } from '#shared/listeners.ts';
import { redactor } from './redaction.ts';
import type { LogBatch, LogRecord } from '#shared/protocol/generated/messages.ts';

export interface LogLimits {
  readonly containerBytes: number;
  readonly totalBytes: number;
  /** Markers of dropped lines count, too. */
  readonly batchLines: number;
  /** So many lines go without a pause, while no other batch is under way. */
  readonly soonLines: number;
  readonly batchBytes: number;
  readonly linesPerSecond: number;
  /** Limit of batches that are sent and not acknowledged. */
  readonly inFlight: number;
}

export const LOG_LIMITS: LogLimits = {
  containerBytes: 4 * 1024 * 1024,
  totalBytes: 64 * 1024 * 1024,
  batchLines: 512,
  soonLines: 512,
  batchBytes: 256 * 1024,
  linesPerSecond: 1000,
  inFlight: 8,
};

/** Bytes that a record costs beside its text. */
const RECORD_BYTES = 64;
/** A burst may have this many seconds' worth of lines. */
const BURST_SECONDS = 5;
const WITHHELD = '[not shown: what must be hidden in it is not known yet]';

interface Line {
  readonly taskId: string;
  readonly stream: string;
  readonly line: string;
  readonly atMs: number;
  /** Set for joined lines; see shared/domain/log-lines.ts. */
  readonly afterMs?: readonly number[] | undefined;
  /** Position in the engine's log; lines that came as frames have none. */
  readonly position?: string | undefined;
  readonly bytes: number;
}

interface ContainerLines {
  lines: Line[];
  /** Index of the first line not yet taken. */
  from: number;
  bytes: number;
  /** Number of lines dropped before the first waiting line: the container had too many bytes. */
  droppedBefore: number;
  /** Number of lines dropped among and behind the waiting lines: the container printed too fast. */
  droppedBehind: number;
  tokens: number;
  tokensAtMs: number;
  /** The container is gone: only waiting lines are kept. */
  isOver: boolean;
}

export class LogBuffer {
  readonly #limits: LogLimits;
  readonly #monotonicMs: () => number;
  readonly #containers = new Map<string, ContainerLines>();
  /** Rates of containers without waiting lines. */
  readonly #idle = new Map<string, ContainerLines>();
  readonly #unacked: LogBatch[] = [];
  /** For each unacknowledged batch: the position in the engine's log that it reaches, by container. */
  readonly #reach: ReadonlyMap<string, string>[] = [];
  readonly #redactors = new Map<string, (line: string) => string>();
  /** Lines of containers whose secrets are not known yet. */
  readonly #held = new Map<string, ContainerLines>();
  #bytes = 0;
  /** Lines that came since the last batch. */
  #fresh = 0;
  readonly #sender = randomUUID();
  #seq = 0;
  readonly #results = new Listeners<['accepted' | 'dropped', number]>();
  readonly #reached = new Listeners<[string, string]>();
  readonly #waiting = new Listeners<[]>();

  constructor(limits: LogLimits, monotonicMs: () => number) {
    this.#limits = limits;
    this.#monotonicMs = monotonicMs;
  }

  /** Told how many lines were accepted or dropped. */
  onResult(listener: (result: 'accepted' | 'dropped', count: number) => void): void {
    this.#results.add(listener);
  }

  /** Told when lines wait to be sent, or the marker of dropped lines does. */
  onWaiting(listener: () => void): void {
    this.#waiting.add(listener);
  }

  /** Told of the position in a container's log that the scheduler has acknowledged. */
  onReached(listener: (containerId: string, position: string) => void): void {
    this.#reached.add(listener);
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Whether any lines wait to be sent. */
  get waiting(): boolean {
    return this.#containers.size > 0;
  }

  /**
   * Whether so many lines wait that a batch goes without a pause. Small batches keep the scheduler and its database
   * busy for a short time each. While a batch is under way lines gather, so a slow scheduler gets fewer, larger ones.
   */
  get isEnough(): boolean {
    return this.#fresh >= this.#limits.soonLines && this.#unacked.length === 0 && this.#containers.size > 0;
  }

  get mayTake(): boolean {
    return this.#containers.size > 0 && this.#unacked.length < this.#limits.inFlight;
  }

  /** Holds the container's lines back until `hide` or `giveUp`. */
  holdBack(containerId: string): void {
    if (this.isHeld(containerId)) return;
    this.#held.set(containerId, this.#linesOf(containerId));
    this.#containers.delete(containerId);
  }

  isHeld(containerId: string): boolean {
    return this.#held.has(containerId);
  }

  /** Hides these values in all lines of the container from now on, held-back lines included. */
  hide(containerId: string, values: readonly string[]): void {
    const hidden = redactor(values);
    if (hidden !== undefined) this.#redactors.set(containerId, hidden);
    const held = this.#held.get(containerId);
    if (held !== undefined) this.#letGo(containerId, held);
  }

  #letGo(containerId: string, held: ContainerLines): void {
    this.#held.delete(containerId);
    const lines = held.lines.slice(held.from).map((one) => {
      const line = this.#redact(containerId, one.line);
      return { ...one, line, bytes: Buffer.byteLength(line) + RECORD_BYTES };
    });
    const bytes = lines.reduce((sum, one) => sum + one.bytes, 0);
    this.#bytes += bytes - held.bytes;
    const free = { ...held, lines, from: 0, bytes };
    const hasAny = lines.length > 0 || held.droppedBefore + held.droppedBehind > 0;
    (hasAny ? this.#containers : this.#idle).set(containerId, free);
    this.#fresh += lines.length;
    if (hasAny) this.#results.tell('accepted', lines.length);
    this.#keepWithin(free);
    if (hasAny) this.#waiting.tell();
  }

  /** The container is gone and its secrets stay unknown: held-back lines are dropped, with the marker. */
  giveUp(containerId: string): void {
    const held = this.#held.get(containerId);
    if (held === undefined) return;
    const count = held.lines.length - held.from;
    if (count > 0) this.#results.tell('dropped', count);
    this.#letGo(containerId, { ...held, lines: [], from: 0, droppedBefore: held.droppedBefore + count });
  }

  /** A text about the container with its secrets hidden. */
  shown(containerId: string, text: string): string {
    return this.isHeld(containerId) ? WITHHELD : this.#redact(containerId, text);
  }

  #redact(containerId: string, text: string): string {
    return this.#redactors.get(containerId)?.(text) ?? text;
  }

  /** Adds a line of the agent itself to a container's log. */
  say(containerId: string, message: string): void {
    this.add(containerId, { taskId: '', stream: 'stderr', line: `longshore: ${message}`, atMs: Date.now() });
  }

  /**
   * @param record - `line`: undefined for a line that was dropped before;
   *   `position`: where the line stands in the engine's log
   */
  add(
    containerId: string,
    record: { taskId: string; stream: string; line: string | undefined; atMs: number; position?: string },
  ): void {
    const lines = this.#linesOf(containerId);
    this.#refill(lines);
    if (record.line === undefined || lines.tokens < 1) {
      lines.droppedBehind += 1;
      this.#results.tell('dropped', 1);
      // The marker goes without a further line, too: the container may have printed its last.
      if (!this.isHeld(containerId)) this.#waiting.tell();
      return;
    }
    lines.tokens -= 1;
    const line = this.#redact(containerId, record.line);
    const bytes = Buffer.byteLength(line) + RECORD_BYTES;
    lines.lines.push({ ...record, line, bytes });
    lines.bytes += bytes;
    this.#bytes += bytes;
    const isHeld = this.isHeld(containerId);
    if (!isHeld) {
      this.#fresh += 1;
      this.#results.tell('accepted', 1);
    }
    this.#keepWithin(lines);
    if (!isHeld) this.#waiting.tell();
  }

  #keepWithin(lines: ContainerLines): void {
    while (lines.bytes > this.#limits.containerBytes) this.#dropOldest(lines);
    while (this.#bytes > this.#limits.totalBytes) this.#dropOldest(this.#noisiest());
  }

  /**
   * The next batch, which counts as sent until acknowledged; undefined: nothing to send, or too many batches in flight.
   */
  take(nowMs: number): LogBatch | undefined {
    if (!this.mayTake) return undefined;
    const records: LogRecord[] = [];
    let count = 0;
    const reach = new Map<string, string>();
    let bytes = 0;
    for (const [containerId, lines] of this.#containers) {
      if (lines.droppedBefore > 0) {
        records.push(markerOf(containerId, lines.droppedBefore, nowMs));
        count += 1;
        lines.droppedBefore = 0;
      }
      const taken: Line[] = [];
      while (lines.from < lines.lines.length && count < this.#limits.batchLines) {
        const line = lines.lines[lines.from] as Line;
        if (bytes > 0 && bytes + line.bytes > this.#limits.batchBytes) break;
        lines.from += 1;
        lines.bytes -= line.bytes;
        this.#bytes -= line.bytes;
        bytes += line.bytes;
        if (line.position !== undefined) reach.set(containerId, line.position);
        taken.push(line);
        count += 1;
      }
      for (const one of joinLines(taken, isOfOne)) records.push(recordOf(containerId, one));
      if (lines.from === lines.lines.length) {
        if (lines.droppedBehind > 0) {
          records.push(markerOf(containerId, lines.droppedBehind, nowMs));
          count += 1;
          lines.droppedBehind = 0;
        }
        lines.lines = [];
        lines.from = 0;
        this.#containers.delete(containerId);
        if (!lines.isOver) this.#idle.set(containerId, lines);
      } else {
        compact(lines);
        break;
      }
      if (count >= this.#limits.batchLines || bytes >= this.#limits.batchBytes) break;
    }
    this.#fresh = 0;
    if (records.length === 0) return undefined;
    this.#seq += 1;
    const batch: LogBatch = { seq: this.#seq, records, sender: this.#sender };
    this.#unacked.push(batch);
    this.#reach.push(reach);
    return batch;
  }

  acknowledge(seq: number): void {
    while (this.#unacked.length > 0 && Number(this.#unacked[0]?.seq) <= seq) {
      this.#unacked.shift();
      for (const [containerId, position] of this.#reach.shift() ?? []) this.#reached.tell(containerId, position);
    }
  }

  /** Batches that are sent and not acknowledged: the first to send on a new stream. */
  unacknowledged(): readonly LogBatch[] {
    return this.#unacked;
  }

  /** The container is gone: its rate is forgotten; waiting lines are still sent. */
  forget(containerId: string): void {
    this.giveUp(containerId);
    this.#redactors.delete(containerId);
    this.#idle.delete(containerId);
    const waiting = this.#containers.get(containerId);
    if (waiting !== undefined) waiting.isOver = true;
  }

  #linesOf(containerId: string): ContainerLines {
    let lines = this.#containers.get(containerId) ?? this.#held.get(containerId);
    if (lines !== undefined) {
      lines.isOver = false;
      return lines;
    }
    lines = this.#idle.get(containerId);
    this.#idle.delete(containerId);
    lines ??= {
      lines: [],
      from: 0,
      bytes: 0,
      droppedBefore: 0,
      droppedBehind: 0,
      tokens: this.#limits.linesPerSecond * BURST_SECONDS,
      tokensAtMs: this.#monotonicMs(),
      isOver: false,
    };
    this.#containers.set(containerId, lines);
    return lines;
  }

  #refill(lines: ContainerLines): void {
    const now = this.#monotonicMs();
    const rate = this.#limits.linesPerSecond;
    lines.tokens = Math.min(rate * BURST_SECONDS, lines.tokens + ((now - lines.tokensAtMs) / 1000) * rate);
    lines.tokensAtMs = now;
  }

  #noisiest(): ContainerLines {
    let noisiest: ContainerLines | undefined;
    for (const all of [this.#containers, this.#held])
      for (const lines of all.values()) if (noisiest === undefined || lines.bytes > noisiest.bytes) noisiest = lines;
    return noisiest as ContainerLines;
  }

  #dropOldest(lines: ContainerLines): void {
    const line = lines.lines[lines.from];
    if (line === undefined) return;
    lines.from += 1;
    lines.bytes -= line.bytes;
    this.#bytes -= line.bytes;
    lines.droppedBefore += 1;
    this.#results.tell('dropped', 1);
    compact(lines);
  }
}

const isOfOne = (line: Line, first: Line): boolean => line.taskId === first.taskId && line.stream === first.stream;

const recordOf = (containerId: string, { taskId, stream, line, atMs, afterMs }: Line): LogRecord => ({
  containerId,
  taskId,
  stream,
  line,
  timestampMs: atMs,
  ...(afterMs === undefined ? {} : { afterMs: [...afterMs] }),
});

/** The line that tells how many lines were dropped at its place. */
const markerOf = (containerId: string, dropped: number, timestampMs: number): LogRecord => ({
  containerId,
  taskId: '',
  stream: 'stderr',
  line: `[longshore: ${dropped} lines dropped]`,
  timestampMs,
});

/**
 * Frees lines that were taken. Without it, a backlog that never empties would keep all lines of its container.
 * Amortised: each slice halves the array at least.
 */
function compact(lines: ContainerLines): void {
  if (lines.from <= 1024 || lines.from * 2 <= lines.lines.length) return;
  lines.lines = lines.lines.slice(lines.from);
  lines.from = 0;
}
