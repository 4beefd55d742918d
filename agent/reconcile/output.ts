/**
 * Follows the output of containers from their start (or adoption) to their end, and hands it to the log buffer. Owned
 * by executor-context.ts. Must stay true: a stream that ends before its container (after a restart of the engine) is
 * followed again from where it broke, for as long as the container exists.
 */
import { backoffMs, sleep } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import { Limiter } from '../containers/limiter.ts';
import { markedLine } from '../containers/lines.ts';
import type { LogPositions } from '../containers/log-positions.ts';
import type { LogBuffer } from '../containers/log-buffer.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import type { AgentState } from './agent-state.ts';
import { abortable, NO_PYTHON } from './starting.ts';

/** Wait for the report of a container's end after its output has ended; mostly milliseconds. */
const END_MS = 1_000;
const AGAIN = { baseMs: 1_000, capMs: 30_000, floorMs: 200 };
const OPEN_AGAIN = { baseMs: 500, capMs: 5_000, floorMs: 200 };
/** After this time of following, a break counts as the first again. */
const STEADY_MS = 60_000;
/** Bound on further tries to read the rest of an ended container's output. */
const MOST_AT_THE_END = 10;
/**
 * Bound on streams opened at once after an agent's start: its tasks' needs come first, in the engine and in this
 * process.
 */
const OPENED_AT_ONCE = 4;

export interface OutputParts {
  readonly runtime: Pick<ContainerRuntime, 'followLogs'>;
  readonly logs: Pick<LogBuffer, 'add'>;
  readonly positions: Pick<LogPositions, 'follow' | 'forget' | 'resumeAt'>;
  readonly agentState: Pick<AgentState, 'isOver'>;
  readonly log: Log;
  /** Wait for the report of an end; by default production's value. */
  readonly endMs?: number;
}

interface Following {
  readonly containerId: string;
  readonly dockerId: string;
  /** Aborts following the output. */
  readonly ends: AbortController;
  /** The container has ended: the rest of its output is due now. */
  readonly hurry: AbortController;
  /** Resolves when the container's lines may be read. */
  readonly opened: PromiseWithResolvers<void>;
  done: Promise<void>;
}

/** Step before the first line is read; repeated until it succeeds. */
type Opening = (ends: AbortSignal) => Promise<void>;

export class ContainerOutput {
  readonly #parts: OutputParts;
  readonly #following = new Map<string, Following>();
  readonly #opening = new Limiter(OPENED_AT_ONCE);
  /** Containers whose init reported that our program does not exist. */
  readonly #noPython = new Set<string>();

  constructor(parts: OutputParts) {
    this.#parts = parts;
  }

  /**
   * Follows the output from its beginning (`start`), or from the stored position (`resume`). A container that is
   * followed already stays as it is.
   * @param opening - runs first, for few containers at a time
   */
  follow(containerId: string, dockerId: string, from: 'start' | 'resume', opening?: Opening): void {
    if (this.isFollowing(containerId)) return;
    const { positions } = this.#parts;
    // Without readable positions nobody knows the sent lines: losing some is better than sending them twice.
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

  /** Resolves when the container's lines may be read; never, if it is forgotten before. */
  async opened(containerId: string): Promise<void> {
    await this.#following.get(containerId)?.opened.promise;
  }

  /** Waits for the end of an exited container's output, for `ms` at most. */
  async awaitEnd(containerId: string, ms: number): Promise<void> {
    const following = this.#following.get(containerId);
    if (following === undefined) return;
    following.hurry.abort();
    let timer: NodeJS.Timeout | undefined;
    await Promise.race([following.done, new Promise<void>((resolve) => (timer = setTimeout(resolve, ms)))]);
    clearTimeout(timer);
  }

  /** Whether the container's init found no Python; true only once. */
  takeNoPython(containerId: string): boolean {
    return this.#noPython.delete(containerId);
  }

  /** Forgets a container that is gone. */
  forget(containerId: string): void {
    this.#following.get(containerId)?.ends.abort();
    this.#following.delete(containerId);
    this.#noPython.delete(containerId);
    this.#parts.positions.forget(containerId);
  }

  /** Stops following all output; the containers go on. */
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
        // An aborted stream takes no place, and does not wait for one.
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
    const { runtime, logs, agentState, log, endMs = END_MS } = this.#parts;
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
            logs.add(containerId, { ...markedLine(line), stream, atMs: Date.now(), position });
          },
          ends.signal,
        );
        if (!ends.signal.aborted && !agentState.isOver(dockerId))
          await sleep(endMs, AbortSignal.any([ends.signal, hurry.signal]));
        if (agentState.isOver(dockerId)) return;
      } catch (error) {
        broken = error;
      }
      breaks = performance.now() - fromMs < STEADY_MS ? breaks + 1 : 1;
      if (ends.signal.aborted || (agentState.isOver(dockerId) && breaks > MOST_AT_THE_END)) return;
      if (breaks === 1) log.info({ containerId, err: broken }, 'the log of a living container ended: followed again');
      // After its container's end the rest is due soon, but the tries still need a pause between them.
      const waitMs = hurry.signal.aborted ? AGAIN.floorMs : backoffMs(breaks - 1, AGAIN);
      await sleep(waitMs, hurry.signal.aborted ? ends.signal : AbortSignal.any([ends.signal, hurry.signal]));
    }
  }
}
