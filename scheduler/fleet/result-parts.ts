/**
 * Parts of large results until their result comes: those of one task
 * stream, with one budget for all streams. Owned by the task stream.
 * Invariant: parts are kept only for attempts that the caller vouches for. No stream
 * keeps more entries or bytes than its bounds. However many machines or workspaces hold
 * parts, there is room for another one. All machines of a workspace count as one holder.
 */
import { beginsEventStream } from '#shared/domain/event-stream.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { PART_COST_BYTES } from '#shared/protocol/link.ts';
import type { TaskChunk__Output } from '#shared/protocol/generated/messages.ts';

/** Bounds on the bytes of all streams of this process, and of one of them. */
const MOST_BYTES_OF_ALL = 512 * 1024 * 1024;
const MOST_BYTES = 256 * 1024 * 1024;
/** Bound on one stream's bytes for attempts that its machine named and this process does not have (yet). */
const MOST_BYTES_NAMED = 64 * 1024 * 1024;
/** Share of the bytes of all streams that such attempts may take. */
const SHARE_NAMED = 1 / 4;
/** Most results that arrive in parts at once on one stream. */
const MOST_ENTRIES = 10_000;

/** Shared by all task streams of a process. */
export class PartsBudget {
  bytes = 0;
  readonly mostBytes: number;
  /** Bytes by holder; holders without bytes have no entry. */
  readonly #held = new Map<Standing, number>();

  constructor(mostBytes = MOST_BYTES_OF_ALL) {
    this.mostBytes = mostBytes;
  }

  hasRoom(cost: number, holder: Standing): boolean {
    const held = (this.#held.get(holder) ?? 0) + cost;
    return held <= this.mostBytes - this.bytes && (holder !== 'named' || held <= this.mostBytes * SHARE_NAMED);
  }

  count(bytes: number, holder: Standing): void {
    this.bytes += bytes;
    const held = (this.#held.get(holder) ?? 0) + bytes;
    if (held > 0) this.#held.set(holder, held);
    else this.#held.delete(holder);
  }
}

/**
 * The workspace of an attempt that this process has, and that is charged
 * for its bytes. `named`: only the machine's report names the attempt.
 */
export type Standing = WorkspaceId | 'named';

interface Parts {
  readonly chunks: Buffer[];
  bytes: number;
  holder: Standing;
  tooLarge: boolean;
  /** Whether each part is an event that a caller gets as it comes. */
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

  /** Keeps a part if it is the next of its result. @returns whether the part is an item that its caller gets now */
  keep({ token, seq, data }: TaskChunk__Output, standing: Standing): boolean {
    if (seq === 0) this.drop(token);
    let parts = this.#byToken.get(token);
    if (parts === undefined) {
      // The first part was refused, or never came: the result will be found incomplete.
      if (seq !== 0 || this.#byToken.size >= MOST_ENTRIES) return false;
      parts = { chunks: [], bytes: 0, holder: standing, tooLarge: false, areItems: beginsEventStream(data) };
      this.#byToken.set(token, parts);
    }
    if (parts.tooLarge || seq !== parts.chunks.length) return false;
    this.#own(parts, standing);
    const cost = data.length + PART_COST_BYTES;
    if (parts.bytes + cost > this.#maxResultBytes || !this.#hasRoom(cost, standing)) {
      this.drop(token);
      this.#byToken.set(token, { chunks: [], bytes: 0, holder: standing, tooLarge: true, areItems: false });
      return false;
    }
    parts.chunks.push(ownBytes(data));
    parts.bytes += cost;
    this.#count(cost, standing);
    return parts.areItems;
  }

  /** Takes out the parts before the result's own bytes. */
  take(token: string, expected: number): readonly Buffer[] | 'incomplete' | 'too_large' {
    const parts = this.#byToken.get(token);
    this.drop(token);
    if (expected === 0) return [];
    if (parts?.tooLarge === true) return 'too_large';
    return parts?.chunks.length === expected ? parts.chunks : 'incomplete';
  }

  drop(token: string): void {
    const parts = this.#byToken.get(token);
    if (parts === undefined) return;
    this.#count(-parts.bytes, parts.holder);
    this.#byToken.delete(token);
  }

  /** The stream has ended: an agent sends all parts again on its next one. */
  dropAll(): void {
    for (const token of this.#byToken.keys()) this.drop(token);
  }

  #hasRoom(cost: number, standing: Standing): boolean {
    const most = standing === 'named' ? MOST_BYTES_NAMED : MOST_BYTES;
    const isWithin = this.#bytes + cost <= Math.min(most, this.#budget.mostBytes - this.#budget.bytes);
    return isWithin && this.#budget.hasRoom(cost, standing);
  }

  /**
   * Charges the parts to their present holder: the process may have
   * taken the attempt over, or ended it, since the part before.
   */
  #own(parts: Parts, standing: Standing): void {
    if (parts.holder === standing) return;
    this.#budget.count(-parts.bytes, parts.holder);
    this.#budget.count(parts.bytes, standing);
    parts.holder = standing;
  }

  #count(bytes: number, holder: Standing): void {
    this.#bytes += bytes;
    this.#budget.count(bytes, holder);
  }
}

/** Copies a small part out of a large message, which would otherwise stay in memory whole. */
function ownBytes(data: Buffer): Buffer {
  if (data.buffer.byteLength <= 2 * data.length + 64 * 1024) return data;
  const own = Buffer.allocUnsafeSlow(data.length);
  data.copy(own);
  return own;
}
