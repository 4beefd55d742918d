// Last uses of tokens, noted apart from the calls that use them. A call costs one look into a map; a timer writes what
// is new, at most once a minute for each token. A use that cannot be written is dropped: the next one tells it again.
import type { Clock } from '#shared/clock.ts';
import type { TokenId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import { BoundedMap } from '../deployments/bounded-map.ts';
import type { Queryable } from '../../stores/store/db.ts';
import { noteTokenUses } from '../../stores/store/queries/tokens.ts';

/** Longer than the minute that the statement demands, so that the clocks of both never disagree. */
const NOTED_EVERY_MS = 61_000;
const FLUSH_EVERY_MS = 5_000;
/** Most tokens whose uses wait to be written; further uses are dropped. */
const MOST_WAITING = 10_000;
const BATCH = 1_000;

export class TokenUses {
  readonly name = 'token uses';
  readonly #db: Queryable;
  readonly #clock: Clock;
  readonly #log: Log;
  /** Monotonic times at which uses were last noted. */
  readonly #noted = new BoundedMap<TokenId, number>(MOST_WAITING);
  readonly #waiting = new Map<TokenId, number>();
  #timer: NodeJS.Timeout | undefined;
  #flushing: Promise<void> | undefined;

  constructor(db: Queryable, clock: Clock, log: Log) {
    this.#db = db;
    this.#clock = clock;
    this.#log = log;
  }

  start(): void {
    this.#timer = setInterval(() => void this.flush(), FLUSH_EVERY_MS);
    this.#timer.unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#flushing;
    await this.flush();
  }

  used(tokenId: TokenId): void {
    const monotonicMs = this.#clock.monotonicMs();
    const notedMs = this.#noted.get(tokenId);
    if (notedMs !== undefined && monotonicMs - notedMs < NOTED_EVERY_MS) return;
    this.#noted.set(tokenId, monotonicMs);
    if (this.#waiting.size < MOST_WAITING) this.#waiting.set(tokenId, this.#clock.nowMs());
  }

  /** Writes what waits; one round at a time. */
  flush(): Promise<void> {
    this.#flushing ??= this.#write().finally(() => (this.#flushing = undefined));
    return this.#flushing;
  }

  async #write(): Promise<void> {
    const uses = [...this.#waiting].map(([tokenId, atMs]) => ({ tokenId, atMs }));
    this.#waiting.clear();
    try {
      for (let from = 0; from < uses.length; from += BATCH) {
        await noteTokenUses(this.#db, uses.slice(from, from + BATCH));
      }
    } catch (error) {
      this.#log.info({ err: error, tokens: uses.length }, 'last uses of tokens were not noted');
    }
  }
}
