/**
 * What containers print, followed from their start (or adoption) to their end and handed to the log buffer. Owned by workbench.ts. Must stay true: a stream that ends before its
 * container does (the engine was started again under it) is followed again where it broke, for as long as the container is there.
 */
import { backoffMs, sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import { Limiter } from '../containers/limiter.ts';
import type { LogPositions } from '../containers/log-positions.ts';
import type { LogBuffer } from '../containers/log-buffer.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import type { Books } from './books.ts';
import { abortable, NO_PYTHON } from './starting.ts';

/** The end of the output comes before the word that its container has ended, mostly by milliseconds. */
const END_MS = 1_000;
const AGAIN = { baseMs: 1_000, capMs: 30_000, floorMs: 200 };
const OPEN_AGAIN = { baseMs: 500, capMs: 5_000, floorMs: 200 };
/** One that broke so long after it was followed is the first again. */
const STEADY_MS = 60_000;
/** The rest of an ended container's output is asked for so often. */
const MOST_AT_THE_END = 10;
/** Of those that are taken up again: what their tasks need of the engine and of this process comes first. */
const OPENED_AT_ONCE = 4;

export interface OutputParts {
  readonly runtime: Pick<ContainerRuntime, 'followLogs'>;
  readonly logs: Pick<LogBuffer, 'add'>;
  readonly positions: Pick<LogPositions, 'follow' | 'forget' | 'resumeAt'>;
  readonly books: Pick<Books, 'isOver'>;
  readonly log: Log;
  /** As in production by default. */
  readonly endMs?: number;
}

interface Following {
  readonly containerId: string;
  readonly dockerId: string;
  /** Nobody wants it any more. */
  readonly ends: AbortController;
  /** Its container has ended: the rest is wanted now. */
  readonly hurry: AbortController;
  /** Its lines may be read. */
  readonly opened: PromiseWithResolvers<void>;
  done: Promise<void>;
}

/** Done before the first line is read; tried until it is. */
type Opening = (ends: AbortSignal) => Promise<void>;

export class ContainerOutput {
  readonly #parts: OutputParts;
  readonly #following = new Map<string, Following>();
  readonly #opening = new Limiter(OPENED_AT_ONCE);
  /** Containers whose init said that there is no such program as ours. */
  readonly #noPython = new Set<string>();

  constructor(parts: OutputParts) {
    this.#parts = parts;
  }

  /** From its beginning (`start`), or from where an earlier agent came to. One that is followed is let be. @param opening - of many containers few at a time */
  follow(containerId: string, dockerId: string, from: 'start' | 'resume', opening?: Opening): void {
    if (this.isFollowing(containerId)) return;
    const { positions } = this.#parts;
    // Of what an agent without such notes has told nothing is known: rather lost than told twice.
    const now = new Date().toISOString().replace('Z', '000000Z');
    const since = from === 'start' ? '' : (positions.resumeAt(containerId) ?? now);
    positions.follow(containerId);
    const following: Following = {
      containerId,
      dockerId,
      ends: new AbortController(),
      hurry: new AbortController(),
      opened: Promise.withResolvers(),
      done: Promise.resolve(),
    };
    this.#following.set(containerId, following);
    following.done = this.#openAndFollow(following, since, opening);
  }

  isFollowing(containerId: string): boolean {
    return this.#following.has(containerId);
  }

  /** Resolves when its lines may be read; never, when it is forgotten before that. */
  async opened(containerId: string): Promise<void> {
    await this.#following.get(containerId)?.opened.promise;
  }

  /** Waits for the end of an exited container's output, at most so long. */
  async settle(containerId: string, ms: number): Promise<void> {
    const following = this.#following.get(containerId);
    if (following === undefined) return;
    following.hurry.abort();
    let timer: NodeJS.Timeout | undefined;
    await Promise.race([following.done, new Promise<void>((resolve) => (timer = setTimeout(resolve, ms)))]);
    clearTimeout(timer);
  }

  /** Whether its init found no Python; told once. */
  takeNoPython(containerId: string): boolean {
    return this.#noPython.delete(containerId);
  }

  /** The container is gone. */
  forget(containerId: string): void {
    this.#following.get(containerId)?.ends.abort();
    this.#following.delete(containerId);
    this.#noPython.delete(containerId);
    this.#parts.positions.forget(containerId);
  }

  /** Follows nothing any more; the containers go on. */
  async close(): Promise<void> {
    const following = [...this.#following.values()];
    for (const { ends } of following) ends.abort();
    await Promise.all(following.map(({ done }) => done));
  }

  async #openAndFollow(following: Following, since: string, opening: Opening | undefined): Promise<void> {
    if (opening !== undefined) await this.#open(following, opening);
    if (following.ends.signal.aborted) return;
    following.opened.resolve();
    await this.#followToEnd(following, since);
  }

  async #open({ containerId, ends: { signal } }: Following, opening: Opening): Promise<void> {
    const { log } = this.#parts;
    for (let tries = 0; !signal.aborted; tries += 1) {
      try {
        // A place is not held for what nobody wants any more, and nobody waits for its turn then.
        await abortable(
          this.#opening.run(async () => (signal.aborted ? undefined : opening(signal))),
          signal,
        );
        return;
      } catch (error) {
        if (tries === 0)
          log.warn({ containerId, err: error }, 'the output of a container cannot be opened: its lines wait');
      }
      await sleep(backoffMs(tries, OPEN_AGAIN), signal);
    }
  }

  async #followToEnd({ containerId, dockerId, ends, hurry }: Following, since: string): Promise<void> {
    const { runtime, logs, books, log, endMs = END_MS } = this.#parts;
    let reached = since;
    let breaks = 0;
    while (!ends.signal.aborted) {
      const fromMs = performance.now();
      let broken: unknown;
      try {
        await runtime.followLogs(
          dockerId,
          reached,
          (stream, line, position) => {
            reached = position;
            if (NO_PYTHON.test(line)) this.#noPython.add(containerId);
            logs.add(containerId, { taskId: '', stream, line, timestampMs: Date.now(), position });
          },
          ends.signal,
        );
        if (!ends.signal.aborted && !books.isOver(dockerId))
          await sleep(endMs, AbortSignal.any([ends.signal, hurry.signal]));
        if (books.isOver(dockerId)) return;
      } catch (error) {
        broken = error;
      }
      breaks = performance.now() - fromMs < STEADY_MS ? breaks + 1 : 1;
      if (ends.signal.aborted || (books.isOver(dockerId) && breaks > MOST_AT_THE_END)) return;
      if (breaks === 1) log.info({ containerId, err: broken }, 'the log of a living container ended: followed again');
      // Once its container has ended nobody waits long for the rest, and it is not asked for without a pause.
      const waitMs = hurry.signal.aborted ? AGAIN.floorMs : backoffMs(breaks - 1, AGAIN);
      await sleep(waitMs, hurry.signal.aborted ? ends.signal : AbortSignal.any([ends.signal, hurry.signal]));
    }
  }
}
