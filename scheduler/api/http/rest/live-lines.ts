// Log lines as a topic of the live stream: the frames of the stream of lines, collected for half a second each time.
import { sseFrame } from '../sse.ts';
import type { SseOut, SseSource } from '../sse.ts';

const EVERY_MS = 500;
/** Bytes of lines that wait; then their source waits. */
const MOST_BYTES = 64 * 1024;

/** A frame of a stream of rows: its event, and its data on a line of its own. JSON may have U+2028, which `.` lacks. */
const FRAME = /^(?:id: \d+\n)?event: (\w+)\ndata: (.*)\n\n$/s;

/** Takes the frames of a stream of lines, and passes them on in groups. */
export class CollectedLines implements SseOut {
  readonly #topic: string;
  readonly #source: SseSource;
  /** Writes a frame. @returns false: nothing more is taken until `drained` is called */
  readonly #pass: (frame: Buffer) => boolean;
  readonly #nowMs: () => number;
  #lines: string[] = [];
  #bytes = 0;
  #timer: NodeJS.Timeout | undefined;
  #passedMs = -EVERY_MS;
  #isFull = false;
  #isOpen = true;

  constructor(of: {
    readonly topic: string;
    readonly source: SseSource;
    readonly pass: (frame: Buffer) => boolean;
    readonly nowMs: () => number;
  }) {
    this.#topic = of.topic;
    this.#source = of.source;
    this.#pass = of.pass;
    this.#nowMs = of.nowMs;
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  begin(): void {
    this.#source.begin(this);
    // Followers learn that the topic is there, also while nobody prints.
    this.#flush();
  }

  write(frame: Buffer): boolean {
    const [, event, data] = FRAME.exec(frame.toString()) ?? [];
    if (data === undefined || !this.#isOpen) return this.#isOpen;
    if (event === 'log') this.#lines.push(data);
    this.#bytes += data.length;
    this.#arm();
    return this.#bytes < MOST_BYTES;
  }

  /** Goes on after a frame that was answered false. */
  drained(): void {
    this.#isFull = false;
    this.#arm();
    if (this.#bytes < MOST_BYTES) this.#source.drained();
  }

  tick(nowMs: number): void {
    this.#source.tick(nowMs);
  }

  fail(message: string): void {
    this.#flush();
    const data = JSON.stringify({ topic: this.#topic, status: 503, code: 'logs_unavailable', message });
    if (this.#isOpen) this.#pass(sseFrame({ event: 'failed', data }));
    this.close();
  }

  end(): void {
    this.fail('the lines ended: follow them again');
  }

  finish(): void {
    this.end();
  }

  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    clearTimeout(this.#timer);
    this.#source.closed();
  }

  #arm(): void {
    if (this.#timer !== undefined || this.#isFull || this.#lines.length === 0) return;
    const waitMs = Math.max(0, this.#passedMs + EVERY_MS - this.#nowMs());
    this.#timer = setTimeout(() => this.#flush(), waitMs).unref();
  }

  #flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (!this.#isOpen || this.#isFull) return;
    const wasFull = this.#bytes >= MOST_BYTES;
    const data = `{"topic":${JSON.stringify(this.#topic)},"lines":[${this.#lines.join(',')}]}`;
    this.#lines = [];
    this.#bytes = 0;
    this.#passedMs = this.#nowMs();
    this.#isFull = !this.#pass(sseFrame({ event: 'lines', data }));
    if (wasFull && !this.#isFull) this.#source.drained();
  }
}
