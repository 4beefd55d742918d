/**
 * Registries on one bucket tell each other what they do, by objects beside their data. A collection of layers takes
 * those of a push that is under way, so a registry collects only while no other one serves. Must stay true: each writes
 * its own mark before it looks for those of others, so of two that begin at once one at least sees the other.
 */
import { repeat, sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { ObjectBackend } from '#scheduler/stores/objects/backend.ts';

const RENEW_MS = 30_000;
/** A mark that old, by the bucket's clock, is of a registry that is gone. */
export const STALE_MS = 5 * 60_000;
/** A collection whose mark could not be renewed for so long ends. */
const LOST_MS = 2 * 60_000;
const POLL_MS = 5_000;
const KEY = /^(serving|collecting)-([0-9a-f]{16})$/;

type Doing = 'serving' | 'collecting';

export interface RegistryMarksParts {
  readonly store: Pick<ObjectBackend, 'put' | 'list' | 'remove' | 'close'>;
  /** Sixteen hexadecimal digits, the same after a restart. */
  readonly id: string;
  readonly log: Log;
  readonly renewMs?: number;
  readonly pollMs?: number;
}

export class RegistryMarks {
  readonly #parts: RegistryMarksParts;
  readonly #abort = new AbortController();
  #doing: Doing | undefined;
  #writtenAtMs = 0;
  #lost = new AbortController();
  /** Changes of the own mark, one at a time. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(parts: RegistryMarksParts) {
    this.#parts = parts;
    void repeat(
      parts.renewMs ?? RENEW_MS,
      this.#abort.signal,
      () => this.#inTurn(() => this.#renew()),
      (error) => {
        parts.log.warn({ err: error }, 'the mark of this registry in the bucket could not be renewed');
        if (performance.now() - this.#writtenAtMs >= LOST_MS) this.#lost.abort();
      },
    );
  }

  /**
   * Asks to collect layers. The mark stays until `serving` or `close`.
   * @returns a signal that ends the collection; undefined: another registry serves or collects
   */
  async collecting(): Promise<AbortSignal | undefined> {
    this.#lost = new AbortController();
    await this.#become('collecting');
    const others = await this.#others();
    return others?.length === 0 ? this.#lost.signal : undefined;
  }

  /** Says that this registry takes pushes from now on. Waits while another one collects. */
  async serving(signal: AbortSignal): Promise<void> {
    await this.#become('serving');
    for (;;) {
      const others = await this.#others();
      if (others?.includes('collecting') === false || signal.aborted) return;
      this.#parts.log.info('another registry collects layers in this bucket: waiting');
      await sleep(this.#parts.pollMs ?? POLL_MS, signal);
    }
  }

  /** Takes the mark away. */
  async close(): Promise<void> {
    this.#abort.abort();
    try {
      await this.#become(undefined);
    } catch (error) {
      this.#parts.log.warn({ err: error }, 'the mark of this registry stays in the bucket for some minutes');
    }
    this.#parts.store.close?.();
  }

  async #become(doing: Doing | undefined): Promise<void> {
    await this.#inTurn(async () => {
      const before = this.#doing;
      this.#doing = doing;
      await this.#renew();
      if (before !== undefined && before !== doing) await this.#parts.store.remove(this.#keyOf(before));
    });
  }

  async #renew(): Promise<void> {
    if (this.#doing === undefined) return;
    const fromMs = performance.now();
    await this.#parts.store.put(this.#keyOf(this.#doing), nothing(), 0);
    this.#writtenAtMs = fromMs;
  }

  /** @returns what others do; undefined: the bucket does not list the own mark, and so tells nothing */
  async #others(): Promise<readonly Doing[] | undefined> {
    const { store, id } = this.#parts;
    const marks: { readonly doing: Doing; readonly id: string; readonly writtenAtMs: number }[] = [];
    for await (const { key, writtenAtMs } of store.list()) {
      const [, doing, owner] = KEY.exec(key) ?? [];
      if (doing !== undefined && owner !== undefined) marks.push({ doing: doing as Doing, id: owner, writtenAtMs });
    }
    const own = marks.find((mark) => mark.id === id && mark.doing === this.#doing);
    if (own === undefined) return undefined;
    const isFresh = (mark: { readonly writtenAtMs: number }): boolean => own.writtenAtMs - mark.writtenAtMs < STALE_MS;
    return marks.filter((mark) => mark.id !== id && isFresh(mark)).map(({ doing }) => doing);
  }

  readonly #keyOf = (doing: Doing): string => `${doing}-${this.#parts.id}`;

  async #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const before = this.#turn;
    const mine = (async () => {
      await before.catch(() => undefined);
      return work();
    })();
    this.#turn = mine;
    return mine;
  }
}

async function* nothing(): AsyncGenerator<Uint8Array> {
  await Promise.resolve();
  yield new Uint8Array();
}
