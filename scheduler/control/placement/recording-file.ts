// The file of a recording: JSON lines, from `begin` to `end`. The file is bounded in bytes and in time, and so is what
// waits in memory for the disk. Where the last line is not `end`, the scheduler ended without a stop.
import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import type { WriteStream } from 'node:fs';
import { once } from 'node:events';
import type { Clock } from '#shared/clock.ts';
import { ownVersion } from '#shared/version.ts';
import { RECORDING_VERSION } from '../plan/recording.ts';
import type { Line, Tape } from '../plan/recording.ts';

/** Why a recording ended: its time or its bytes were over, somebody stopped it, another replica leads, the disk. */
export type RecordingEnd = 'time' | 'bytes' | 'stopped' | 'leadership' | 'disk_slow' | 'disk_failed';

/** Lines that are not the planner's. */
export type Mark =
  | { readonly do: 'begin'; readonly version: number; readonly longshore: string; readonly atMs: number }
  /** Milliseconds since the begin. */
  | { readonly do: 'at'; readonly ms: number }
  /** `sha256`: of all bytes before this line. */
  | { readonly do: 'end'; readonly why: RecordingEnd; readonly lines: number; readonly sha256: string };

export interface RecordingBounds {
  readonly forMs: number;
  readonly bytes: number;
}

/** Milliseconds between two lines that tell the time. */
const MARK_MS = 1000;
const CHUNK_CHARACTERS = 64 * 1024;
/** Most bytes that wait for the disk. */
const MOST_WAITING_BYTES = 32 * 1024 ** 2;
const END_BYTES = 256;

export class RecordingFile implements Tape {
  readonly startedAtMs: number;
  readonly #clock: Clock;
  readonly #bounds: RecordingBounds;
  readonly #stream: WriteStream;
  readonly #hash = createHash('sha256');
  readonly #startedMs: number;
  readonly #timer: NodeJS.Timeout;
  readonly #ended: (why: RecordingEnd) => void;
  #chunk = '';
  #bytes = 0;
  #lines = 0;
  #markedMs = 0;
  #why: RecordingEnd | undefined;

  /** @param ended - called once, when nothing more is taken */
  constructor(path: string, bounds: RecordingBounds, clock: Clock, ended: (why: RecordingEnd) => void) {
    this.#clock = clock;
    this.#bounds = bounds;
    this.#ended = ended;
    this.#startedMs = clock.monotonicMs();
    this.startedAtMs = clock.nowMs();
    this.#stream = createWriteStream(path, { flags: 'wx', mode: 0o600 });
    this.#stream.on('error', () => this.end('disk_failed'));
    this.#timer = setTimeout(() => this.end('time'), bounds.forMs);
    this.#timer.unref();
    this.#put({ do: 'begin', version: RECORDING_VERSION, longshore: ownVersion(), atMs: this.startedAtMs });
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Resolves when the file is there. @throws the error of the disk */
  async opened(): Promise<void> {
    if (this.#stream.pending) await once(this.#stream, 'open');
  }

  write(line: Line): boolean {
    if (this.#why !== undefined) return false;
    const ms = Math.round(this.#clock.monotonicMs() - this.#startedMs);
    if (ms - this.#markedMs >= MARK_MS) {
      this.#markedMs = ms;
      this.#put({ do: 'at', ms });
    }
    return this.#put(line);
  }

  #put(line: Line | Mark): boolean {
    const text = `${JSON.stringify(line)}\n`;
    const bytes = Buffer.byteLength(text);
    if (this.#bytes + bytes + END_BYTES > this.#bounds.bytes) {
      this.end('bytes');
      return false;
    }
    this.#bytes += bytes;
    this.#lines += 1;
    this.#chunk += text;
    if (this.#chunk.length >= CHUNK_CHARACTERS) this.#flush();
    if (this.#stream.writableLength > MOST_WAITING_BYTES) this.end('disk_slow');
    return this.#why === undefined;
  }

  #flush(): void {
    this.#hash.update(this.#chunk);
    this.#stream.write(this.#chunk);
    this.#chunk = '';
  }

  /** Closes the file with a line that says why; a second end changes nothing. */
  end(why: RecordingEnd): void {
    if (this.#why !== undefined) return;
    this.#why = why;
    clearTimeout(this.#timer);
    this.#flush();
    const end: Mark = { do: 'end', why, lines: this.#lines, sha256: this.#hash.digest('hex') };
    const text = `${JSON.stringify(end)}\n`;
    this.#bytes += Buffer.byteLength(text);
    this.#stream.end(text);
    this.#ended(why);
  }

  /** Resolves when all that was taken is in the file, or the disk failed. */
  async closed(): Promise<void> {
    if (!this.#stream.closed) await once(this.#stream, 'close');
  }
}
