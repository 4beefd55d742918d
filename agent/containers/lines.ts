import { StringDecoder } from 'node:string_decoder';

/** No log line is longer; the rest of one becomes the next. */
export const MAX_LINE_BYTES = 64 * 1024;

/** Cuts text into lines however it arrives; the last line needs no newline. */
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
    // Characters, not bytes: a quarter of the limit is safe whatever they are.
    const step = MAX_LINE_BYTES / 4;
    if (line.length <= step) {
      this.#onLine(line);
      return;
    }
    for (let at = 0; at < line.length; at += step) this.#onLine(line.slice(at, at + step));
  }
}

/** The engine's log stream without a terminal: 8 bytes (stream, three zeros, length big-endian), then that many bytes. */
export class LogDemultiplexer {
  readonly #out: LineCutter;
  readonly #err: LineCutter;
  #pending: Buffer = Buffer.alloc(0);

  constructor(onLine: (stream: 'stdout' | 'stderr', line: string) => void) {
    this.#out = new LineCutter((line) => onLine('stdout', line));
    this.#err = new LineCutter((line) => onLine('stderr', line));
  }

  push(data: Buffer): void {
    let all = this.#pending.length === 0 ? data : Buffer.concat([this.#pending, data]);
    while (all.length >= 8) {
      const length = all.readUInt32BE(4);
      if (all.length < 8 + length) break;
      (all[0] === 2 ? this.#err : this.#out).push(all.subarray(8, 8 + length));
      all = all.subarray(8 + length);
    }
    this.#pending = all;
  }

  end(): void {
    this.#out.end();
    this.#err.end();
  }
}
