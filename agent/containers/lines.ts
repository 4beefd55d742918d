import { StringDecoder } from 'node:string_decoder';

/** Limit of a log line; the rest of a longer one becomes the next line. */
export const MAX_LINE_BYTES = 64 * 1024;

/** Cuts text into lines, in pieces of any size; the last line needs no newline. */
export class LineCutter {
  readonly #decoder = new StringDecoder('utf8');
  readonly #onLine: (line: string) => void;
  #rest = '';

  constructor(onLine: (line: string) => void) {
    this.#onLine = onLine;
  }

  push(data: Buffer): void {
    const text = this.#rest + this.#decoder.write(data);
    let from = 0;
    for (;;) {
      const end = text.indexOf('\n', from);
      if (end < 0) break;
      this.#emit(text.slice(from, end).replace(/\r$/, ''));
      from = end + 1;
    }
    this.#rest = text.slice(from);
    if (this.#rest.length > MAX_LINE_BYTES) this.end();
  }

  end(): void {
    const last = this.#rest + this.#decoder.end();
    this.#rest = '';
    if (last !== '') this.#emit(last);
  }

  #emit(line: string): void {
    // The step counts characters, not bytes: a quarter of the limit is safe for every encoding.
    const step = MAX_LINE_BYTES / 4;
    if (line.length <= step) {
      this.#onLine(line);
      return;
    }
    for (let at = 0; at < line.length; at += step) this.#onLine(line.slice(at, at + step));
  }
}

/** Before a line that a container's first process wrote for a task (`python/longshore/runner/keeper.py`). */
// oxlint-disable-next-line no-control-regex
const TASK_MARK = /^\0task ([\x21-\x7e]{1,200})\0/;

/** A line of the engine's log, and the task to which it belongs; empty: to none. */
export function markedLine(line: string): { readonly taskId: string; readonly line: string } {
  const mark = line.startsWith('\0') ? TASK_MARK.exec(line) : null;
  return mark === null ? { taskId: '', line } : { taskId: mark[1] ?? '', line: line.slice(mark[0].length) };
}

/** The engine's time before each message: RFC 3339 with nine digits, then a space. Such texts sort like their times. */
const TIMESTAMP = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z $/;
const TIMESTAMP_BYTES = 31;

/**
 * The engine's log stream without a terminal: 8 bytes (stream, three zeros, length big-endian), then that many bytes: a
 * time, a space, and the output. A long line arrives as several messages. Messages up to `since` are left out.
 */
export class LogDemultiplexer {
  readonly #out: LineCutter;
  readonly #err: LineCutter;
  readonly #since: string;
  #pending: Buffer = Buffer.alloc(0);
  #position = '';

  constructor(onLine: (stream: 'stdout' | 'stderr', line: string, position: string) => void, since = '') {
    this.#since = since;
    this.#out = new LineCutter((line) => onLine('stdout', line, this.#position));
    this.#err = new LineCutter((line) => onLine('stderr', line, this.#position));
  }

  push(data: Buffer): void {
    let all = this.#pending.length === 0 ? data : Buffer.concat([this.#pending, data]);
    while (all.length >= 8) {
      const length = all.readUInt32BE(4);
      if (all.length < 8 + length) break;
      this.#message(all[0] === 2 ? this.#err : this.#out, all.subarray(8, 8 + length));
      all = all.subarray(8 + length);
    }
    this.#pending = all;
  }

  #message(cutter: LineCutter, message: Buffer): void {
    const head = message.toString('latin1', 0, TIMESTAMP_BYTES);
    if (!TIMESTAMP.test(head)) {
      cutter.push(message);
      return;
    }
    const position = head.slice(0, -1);
    if (position <= this.#since) return;
    this.#position = position;
    cutter.push(message.subarray(TIMESTAMP_BYTES));
  }

  end(): void {
    this.#out.end();
    this.#err.end();
  }
}
