// Server-sent events of a backend, read as they come. The data of an event is bounded; comments and other fields are
// passed over, but for the name `error`. Pure.
import { StringDecoder } from 'node:string_decoder';

/** Largest event of a backend. */
export const MOST_EVENT_CHARACTERS = 4 * 1024 * 1024;

export interface SseEvent {
  readonly data: string;
  /** The server calls the event `error`. */
  readonly isError: boolean;
}

/** Mark at the begin of a text that says how it is encoded, and means nothing in UTF-8. */
export const BYTE_ORDER_MARK = /^\ufeff/;

export class TooLargeEvent extends Error {}

export class SseReader {
  readonly #decoder = new StringDecoder('utf8');
  readonly #most: number;
  #rest = '';
  #data: string[] = [];
  #isError = false;
  #size = 0;
  #endsWithReturn = false;
  #isBegin = true;

  constructor(most = MOST_EVENT_CHARACTERS) {
    this.#most = most;
  }

  /** @returns the events that are complete now, with data or of the name `error` @throws TooLargeEvent */
  push(chunk: Buffer): readonly SseEvent[] {
    let text = this.#decoder.write(chunk);
    if (text === '') return [];
    if (this.#isBegin) text = text.replace(BYTE_ORDER_MARK, '');
    this.#isBegin = false;
    const isSplitLineEnd = this.#endsWithReturn && text.startsWith('\n');
    this.#endsWithReturn = text.endsWith('\r');
    if (isSplitLineEnd) text = text.slice(1);
    const lines = (this.#rest + text).split(/\r\n|\n|\r/);
    this.#rest = lines.pop() ?? '';
    const events: SseEvent[] = [];
    for (const line of lines) {
      if (line === '') {
        const event = this.#event();
        if (event !== undefined) events.push(event);
        this.#data = [];
        this.#isError = false;
        this.#size = 0;
      } else this.#take(line);
      if (this.#size > this.#most) throw new TooLargeEvent();
    }
    if (this.#rest.length + this.#size > this.#most) throw new TooLargeEvent();
    return events;
  }

  /** A last event without an empty line behind it. */
  end(): SseEvent | undefined {
    this.#take(this.#rest);
    return this.#event();
  }

  #take(line: string): void {
    if (line.startsWith('data:')) {
      const data = line.slice(line.charAt(5) === ' ' ? 6 : 5);
      this.#size += data.length;
      this.#data.push(data);
    } else if (line.startsWith('event:')) this.#isError = line.slice(6).trim() === 'error';
  }

  #event(): SseEvent | undefined {
    return this.#data.length > 0 || this.#isError ? { data: this.#data.join('\n'), isError: this.#isError } : undefined;
  }
}
