/**
 * Parts of large results until their result comes: of one task stream, with one budget for all streams. Owned by the task stream.
 * Must stay true: parts are kept only for attempts that the caller vouches for; no stream keeps more entries or bytes than its bounds; as many machines as hold on to theirs, each leaves room for another.
 */
import { beginsEventStream } from '#shared/domain/event-stream.ts';
import { PART_COST_BYTES } from '#shared/protocol/link.ts';
import type { TaskChunk__Output } from '#shared/protocol/generated/messages.ts';

/** Bytes of all streams of this process, and of one of them. */
const MOST_BYTES_OF_ALL = 512 * 1024 * 1024;
const MOST_BYTES = 256 * 1024 * 1024;
/** Bytes of one stream for attempts that its machine named and this process does not have (yet). */
const MOST_BYTES_NAMED = 64 * 1024 * 1024;
/** Results in parts at once on one stream. */
const MOST_ENTRIES = 10_000;

/** Shared by all task streams of a process. */
export class PartsBudget {
  bytes = 0;
  readonly mostBytes: number;

  constructor(mostBytes = MOST_BYTES_OF_ALL) {
    this.mostBytes = mostBytes;
  }
}

/** known: this process has the attempt · named: only the machine's report says so. */
export type Standing = 'known' | 'named';

interface Parts {
  readonly chunks: Buffer[];
  bytes: number;
  tooLarge: boolean;
  /** Each is an event that a caller gets as it comes. */
  readonly areItems: boolean;
}

export class ResultParts {
  readonly #byToken = new Map<string, Parts>();
  readonly #budget: PartsBudget;
  readonly #maxResultBytes: number;
  #bytes = 0;

  constructor(budget: PartsBudget, maxResultBytes: number) {
    this.#budget = budget;
    this.#maxResultBytes = maxResultBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Keeps a part that is the next of its result. @returns whether it is an item that its caller gets now */
  keep({ token, seq, data }: TaskChunk__Output, standing: Standing): boolean {
    if (seq === 0) this.drop(token);
    let parts = this.#byToken.get(token);
    if (parts === undefined) {
      // The first part was refused, or never came: its result is found incomplete.
      if (seq !== 0 || this.#byToken.size >= MOST_ENTRIES) return false;
      parts = { chunks: [], bytes: 0, tooLarge: false, areItems: beginsEventStream(data) };
      this.#byToken.set(token, parts);
    }
    if (parts.tooLarge || seq !== parts.chunks.length) return false;
    const cost = data.length + PART_COST_BYTES;
    if (parts.bytes + cost > this.#maxResultBytes || !this.#hasRoom(cost, standing)) {
      this.drop(token);
      this.#byToken.set(token, { chunks: [], bytes: 0, tooLarge: true, areItems: false });
      return false;
    }
    parts.chunks.push(ownBytes(data));
    parts.bytes += cost;
    this.#count(cost);
    return parts.areItems;
  }

  /** The parts before the result's own bytes, which are kept no longer. */
  take(token: string, expected: number): readonly Buffer[] | 'incomplete' | 'too_large' {
    const parts = this.#byToken.get(token);
    this.drop(token);
    if (expected === 0) return [];
    if (parts?.tooLarge === true) return 'too_large';
    return parts?.chunks.length === expected ? parts.chunks : 'incomplete';
  }

  drop(token: string): void {
    this.#count(-(this.#byToken.get(token)?.bytes ?? 0));
    this.#byToken.delete(token);
  }

  /** The stream has ended: an agent sends all parts again on its next one. */
  dropAll(): void {
    this.#byToken.clear();
    this.#count(-this.#bytes);
  }

  #hasRoom(cost: number, standing: Standing): boolean {
    const most = standing === 'known' ? MOST_BYTES : MOST_BYTES_NAMED;
    return this.#bytes + cost <= Math.min(most, this.#budget.mostBytes - this.#budget.bytes);
  }

  #count(bytes: number): void {
    this.#bytes += bytes;
    this.#budget.bytes += bytes;
  }
}

/** A small part in a large message would keep the whole message. */
function ownBytes(data: Buffer): Buffer {
  if (data.buffer.byteLength <= 2 * data.length + 64 * 1024) return data;
  const own = Buffer.allocUnsafeSlow(data.length);
  data.copy(own);
  return own;
}
