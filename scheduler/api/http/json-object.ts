// Checks a large body to be a JSON object without building it, in slices between which the event loop turns.
// `JSON.parse` of 16 MiB would delay every other request. Pure but for the turns.
// Invariant: a text is accepted exactly where `JSON.parse` accepts it and gives an object (a property test compares
// them). The bytes are valid UTF-8: the caller has checked them.
import { setImmediate as turn } from 'node:timers/promises';

/**
 * States of the scan, named after the token that may come next. Numbers serve a switch that runs once for each byte.
 */
const START = 0;
const FIRST_KEY = 1;
const KEY = 2;
const COLON = 3;
const VALUE = 4;
const FIRST_ITEM = 5;
const NEXT = 6;
const END = 7;
const STRING = 8;
const ESCAPE = 9;
const HEX = 10;
const LITERAL = 11;
const MINUS = 12;
const ZERO = 13;
const WHOLE = 14;
const POINT = 15;
const FRACTION = 16;
const EXPONENT = 17;
const EXPONENT_SIGN = 18;
const EXPONENT_DIGITS = 19;

const OBJECT = 1;
const LIST = 2;

const LITERALS: Readonly<Record<string, Uint8Array>> = {
  t: Buffer.from('true'),
  f: Buffer.from('false'),
  n: Buffer.from('null'),
};
/** Characters that may follow a backslash, beside `u`: `"\/bfnrt`. */
const ESCAPES: ReadonlySet<number> = new Set(Buffer.from('"\\/bfnrt'));

/** Tokens that a state takes; absent: a value. */
const WANTED: Readonly<Record<number, string>> = {
  [START]: '{',
  [FIRST_KEY]: 'a name in double quotes, or }',
  [KEY]: 'a name in double quotes',
  [COLON]: 'a colon',
  [FIRST_ITEM]: 'a value or ]',
  [END]: 'the end',
  [STRING]: 'no control character but as an escape',
  [ESCAPE]: 'an escape such as \\n',
  [HEX]: 'four hexadecimal digits',
  [LITERAL]: 'true, false or null',
  [MINUS]: 'a digit',
  [POINT]: 'a digit',
  [EXPONENT]: 'a digit',
  [EXPONENT_SIGN]: 'a digit',
};

const isDigit = (byte: number): boolean => byte >= 0x30 && byte <= 0x39;
const isHex = (byte: number): boolean => isDigit(byte) || ((byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x66);

/** Longest key that is read; longer than any spelling of the wanted names (each character may be a `\u` escape). */
const LONGEST_KEY_BYTES = 128;
/** Longest value that is read: no wanted value is longer. */
const LONGEST_VALUE_BYTES = 64 * 1024;
const SLICE_BYTES = 64 * 1024;

/** Outcome of a scan so far; empty: white space alone. */
type BodyProgress = 'more' | 'whole' | 'empty' | 'broken';

/** A single scan of a text; `step` continues where the last step ended. */
export class ObjectScan {
  readonly #bytes: Uint8Array;
  #at = 0;
  #state = START;
  /** Kind of the open container at each depth: an object or a list. */
  #open = new Uint8Array(64);
  #depth = 0;
  #stringAt = 0;
  #isKey = false;
  #hexLeft = 0;
  #literal: Uint8Array = LITERALS['n'] as Uint8Array;
  #literalAt = 0;
  /** The last key of the outermost object, and of `kwargs` inside it. */
  #outerKey = '';
  #innerKey = '';
  #valueAt = 0;
  #inKwargs = false;
  #kwargsIsObject = false;
  #outerValue: readonly [number, number] | undefined;
  #innerValue: readonly [number, number] | undefined;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  /**
   * `kwargs.callback_url` where `kwargs` is an object, else `callback_url`;
   * undefined: absent. false: the value is too long for an address.
   */
  get callbackUrl(): unknown {
    const range = this.#kwargsIsObject ? this.#innerValue : this.#outerValue;
    if (range === undefined) return undefined;
    const [from, to] = range;
    if (to - from > LONGEST_VALUE_BYTES) return false;
    return JSON.parse(this.#textOf(from, to)) as unknown;
  }

  /** Scans the next `most` bytes. */
  step(most: number): BodyProgress {
    const bytes = this.#bytes;
    const until = Math.min(bytes.length, this.#at + most);
    let at = this.#at;
    let state = this.#state;
    while (at < until) {
      const byte = bytes[at] as number;
      switch (state) {
        case STRING: {
          let seen = byte;
          while (seen !== 0x22 && seen !== 0x5c && seen >= 0x20 && ++at < until) seen = bytes[at] as number;
          if (at === until) continue;
          if (seen < 0x20) return this.#broken(at, state);
          if (seen === 0x5c) state = ESCAPE;
          else if (this.#isKey) {
            this.#keyEnded(at + 1);
            state = COLON;
          } else state = this.#valueEnded(at + 1);
          at++;
          continue;
        }
        case ESCAPE:
          if (byte === 0x75) {
            state = HEX;
            this.#hexLeft = 4;
          } else if (ESCAPES.has(byte)) state = STRING;
          else return this.#broken(at, state);
          at++;
          continue;
        case HEX:
          if (!isHex(byte)) return this.#broken(at, state);
          if (--this.#hexLeft === 0) state = STRING;
          at++;
          continue;
        case LITERAL:
          if (byte !== this.#literal[this.#literalAt]) return this.#broken(at, state);
          at++;
          if (++this.#literalAt === this.#literal.length) state = this.#valueEnded(at);
          continue;
        case MINUS:
          if (!isDigit(byte)) return this.#broken(at, state);
          state = byte === 0x30 ? ZERO : WHOLE;
          at++;
          continue;
        case ZERO:
        case WHOLE:
        case FRACTION:
        case EXPONENT_DIGITS:
          if (isDigit(byte) && state !== ZERO) at++;
          else if (byte === 0x2e && (state === ZERO || state === WHOLE)) {
            state = POINT;
            at++;
          } else if ((byte | 0x20) === 0x65 && state !== EXPONENT_DIGITS) {
            state = EXPONENT;
            at++;
          } else state = this.#valueEnded(at);
          continue;
        case POINT:
          if (!isDigit(byte)) return this.#broken(at, state);
          state = FRACTION;
          at++;
          continue;
        case EXPONENT:
          if (byte === 0x2b || byte === 0x2d) state = EXPONENT_SIGN;
          else if (isDigit(byte)) state = EXPONENT_DIGITS;
          else return this.#broken(at, state);
          at++;
          continue;
        case EXPONENT_SIGN:
          if (!isDigit(byte)) return this.#broken(at, state);
          state = EXPONENT_DIGITS;
          at++;
          continue;
        default:
      }
      if (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) {
        at++;
        continue;
      }
      const next = this.#token(state, byte, at);
      if (next < 0) return this.#broken(at, state);
      state = next;
      at++;
    }
    this.#at = at;
    this.#state = state;
    if (at < bytes.length) return 'more';
    return state === END ? 'whole' : state === START ? 'empty' : 'broken';
  }

  /** Where a broken text is broken, and what could stand there. */
  get problem(): { readonly at: number; readonly wanted: string } {
    const isObject = this.#open[this.#depth] === OBJECT;
    const wanted = this.#state === NEXT ? (isObject ? 'a comma or }' : 'a comma or ]') : WANTED[this.#state];
    return { at: this.#at, wanted: wanted ?? 'a value' };
  }

  #broken(at: number, state: number): 'broken' {
    this.#at = at;
    this.#state = state;
    return 'broken';
  }

  /** Handles a byte between tokens. @returns the next state; -1: the byte may not stand here */
  #token(state: number, byte: number, at: number): number {
    switch (state) {
      case START:
        return byte === 0x7b ? this.#opened(OBJECT) : -1;
      case FIRST_KEY:
        if (byte === 0x7d) return this.#closed(at);
        return byte === 0x22 ? this.#string(at, true) : -1;
      case KEY:
        return byte === 0x22 ? this.#string(at, true) : -1;
      case COLON:
        return byte === 0x3a ? VALUE : -1;
      case FIRST_ITEM:
        if (byte === 0x5d) return this.#closed(at);
        return this.#value(byte, at);
      case VALUE:
        return this.#value(byte, at);
      case NEXT: {
        const isObject = this.#open[this.#depth] === OBJECT;
        if (byte === 0x2c) return isObject ? KEY : VALUE;
        return byte === (isObject ? 0x7d : 0x5d) ? this.#closed(at) : -1;
      }
      default:
        return -1;
    }
  }

  #value(byte: number, at: number): number {
    const depth = this.#depth;
    if (depth <= 2) this.#valueBegins(byte, at, depth);
    switch (byte) {
      case 0x7b:
        return this.#opened(OBJECT);
      case 0x5b:
        return this.#opened(LIST);
      case 0x22:
        return this.#string(at, false);
      case 0x2d:
        return MINUS;
      case 0x30:
        return ZERO;
      default:
    }
    if (isDigit(byte)) return WHOLE;
    const literal = LITERALS[String.fromCharCode(byte)];
    if (literal === undefined) return -1;
    this.#literal = literal;
    this.#literalAt = 1;
    return LITERAL;
  }

  #string(at: number, isKey: boolean): number {
    this.#stringAt = at;
    this.#isKey = isKey;
    return STRING;
  }

  #opened(kind: number): number {
    this.#depth++;
    if (this.#depth === this.#open.length) {
      const longer = new Uint8Array(this.#open.length * 2);
      longer.set(this.#open);
      this.#open = longer;
    }
    this.#open[this.#depth] = kind;
    return kind === OBJECT ? FIRST_KEY : FIRST_ITEM;
  }

  #closed(at: number): number {
    this.#depth--;
    return this.#valueEnded(at + 1);
  }

  #keyEnded(to: number): void {
    const depth = this.#depth;
    if (depth > 2 || (depth === 2 && !this.#inKwargs)) return;
    const from = this.#stringAt;
    const key = to - from > LONGEST_KEY_BYTES ? '' : (JSON.parse(this.#textOf(from, to)) as string);
    if (depth === 1) this.#outerKey = key;
    else this.#innerKey = key;
  }

  #valueBegins(byte: number, at: number, depth: number): void {
    if (depth === 1 && this.#outerKey === 'kwargs') {
      // The last value of a repeated name counts.
      this.#inKwargs = this.#kwargsIsObject = byte === 0x7b;
      this.#innerValue = undefined;
      this.#innerKey = '';
    } else if (depth === 1 ? this.#outerKey === CALLBACK : this.#inKwargs && this.#innerKey === CALLBACK) {
      this.#valueAt = at;
    }
  }

  /** A value ended. @param to - the position behind its last byte */
  #valueEnded(to: number): number {
    const depth = this.#depth;
    if (depth === 0) return END;
    if (depth === 1) {
      if (this.#outerKey === CALLBACK) this.#outerValue = [this.#valueAt, to];
      this.#inKwargs = false;
    } else if (depth === 2 && this.#inKwargs && this.#innerKey === CALLBACK) {
      this.#innerValue = [this.#valueAt, to];
    }
    return NEXT;
  }

  #textOf(from: number, to: number): string {
    return Buffer.from(this.#bytes.buffer, this.#bytes.byteOffset + from, to - from).toString('utf8');
  }
}

const CALLBACK = 'callback_url';

/**
 * Scans a large body.
 * @returns the callback that the object names; empty: white space alone; a scan that has a problem: no JSON object
 */
export async function scanObject(
  bytes: Uint8Array,
): Promise<{ readonly callbackUrl?: unknown } | 'empty' | ObjectScan> {
  const scan = new ObjectScan(bytes);
  for (;;) {
    const verdict = scan.step(SLICE_BYTES);
    if (verdict === 'broken') return scan;
    if (verdict === 'empty') return verdict;
    if (verdict === 'whole') return { callbackUrl: scan.callbackUrl };
    await turn();
  }
}
