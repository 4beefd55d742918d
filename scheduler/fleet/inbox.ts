/** Number of waiting messages at which reading from the agent stops, and the number at which it resumes. */
export const MOST_IN_LINE = 64;
const READ_ON_AT = 16;
/** Longest time for which an unread ping is not held against the agent while its stream is paused. */
const HELD_MS = 60_000;

/**
 * Messages of an agent, handled one after another. When too many wait, the stream is paused: the rest stays with the
 * agent, so that no machine can fill the memory of a scheduler. No message is lost or overtaken.
 */
export class Inbox<T> {
  readonly #stream: { pause(): unknown; resume(): unknown };
  readonly #handle: (message: T) => Promise<void>;
  #tail: Promise<void> = Promise.resolve();
  #inLine = 0;
  #heldAtMs: number | undefined;

  /** @param handle - handles a message; never rejects */
  constructor(stream: { pause(): unknown; resume(): unknown }, handle: (message: T) => Promise<void>) {
    this.#stream = stream;
    this.#handle = handle;
  }

  /** Adds a message. @returns true: the stream is paused from here on */
  add(message: T): boolean {
    this.#inLine += 1;
    this.#tail = this.#tail.then(() => this.#handle(message)).then(() => this.#done());
    if (this.#inLine < MOST_IN_LINE || this.#heldAtMs !== undefined) return false;
    this.#heldAtMs = performance.now();
    this.#stream.pause();
    return true;
  }

  /** Whether the stream is paused: the agent's answer may lie unread meanwhile, through no fault of its own. */
  get holds(): boolean {
    return this.#heldAtMs !== undefined && performance.now() - this.#heldAtMs < HELD_MS;
  }

  #done(): void {
    this.#inLine -= 1;
    if (this.#heldAtMs === undefined || this.#inLine > READ_ON_AT) return;
    this.#heldAtMs = undefined;
    this.#stream.resume();
  }
}
