// Server-sent events of a backend, read as they come. The data of an event is bounded; comments and other fields are
// passed over. Pure.
import { StringDecoder } from 'node:string_decoder';

/** Largest event of a backend. */
export const MOST_EVENT_CHARACTERS = 4 * 1024 * 1024;

export class TooLargeEvent extends Error {}

export class SseReader {
  readonly #decoder = new StringDecoder('utf8');
  readonly #most: number;
  #rest = '';
  #data: string[] = [];
  #size = 0;
  #endsWithReturn = false;

  constructor(most = MOST_EVENT_CHARACTERS) {
    this.#most = most;
  }

  /** @returns the data of the events that are complete now @throws TooLargeEvent */
  push(chunk: Buffer): readonly string[] {
    let text = this.#decoder.write(chunk);
    if (text === '') return [];
    const isSplitLineEnd = this.#endsWithReturn && text.startsWith('\n');
    this.#endsWithReturn = text.endsWith('\r');
    if (isSplitLineEnd) text = text.slice(1);
    const lines = (this.#rest + text).split(/\r\n|\n|\r/);
    this.#rest = lines.pop() ?? '';
    const events: string[] = [];
    for (const line of lines) {
      if (line === '') {
        if (this.#data.length > 0) events.push(this.#data.join('\n'));
        this.#data = [];
        this.#size = 0;
      } else if (line.startsWith('data:')) {
        const data = line.slice(line.charAt(5) === ' ' ? 6 : 5);
        this.#size += data.length;
        this.#data.push(data);
      }
      if (this.#size > this.#most) throw new TooLargeEvent();
    }
    if (this.#rest.length + this.#size > this.#most) throw new TooLargeEvent();
    return events;
  }

  /** Data of a last event without an empty line behind it. */
  end(): string | undefined {
    const line = this.#rest;
    if (line.startsWith('data:')) this.#data.push(line.slice(line.charAt(5) === ' ' ? 6 : 5));
    return this.#data.length > 0 ? this.#data.join('\n') : undefined;
  }
}
