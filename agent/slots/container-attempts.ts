/**
 * The attempts of one container: how they begin, what their processes send of their results, and how they end. Owned by
 * the container's slots (container-slots.ts), which say in which process an attempt is. Must stay true: an attempt ends
 * exactly once; a frame that names another attempt changes nothing.
 */
import type { RunTask__Output } from '#shared/protocol/generated/messages.ts';
import type { Frame } from '#shared/protocol/frames.ts';
import { numberOf, textOf } from '#shared/protocol/frames.ts';
import type { Adoption } from './adoption.ts';
import { MAX_NAME_LENGTH } from './adoption.ts';
import type { Attempt, Outcome, UnacknowledgedAttempts } from './attempts.ts';
import { MAX_RESULT_BYTES, keyOf } from './attempts.ts';
import { REPEATED_RESULTS_PER_RARE } from './budget.ts';
import type { RunnerConnection } from './connection.ts';
import { errorBody, outcomeOf } from './run-frames.ts';
import type { ContainerStreams } from './streams.ts';

const NO_ROOM_TEXT = 'results of this container wait for the scheduler, and there is no room for more of them';
/** A runner keeps no generator item after sending it. */
const GAP_TEXT = 'items of the generator were lost with a connection on its machine';
const NOTHING = Buffer.alloc(0);
const ENDED_BY = {
  timeout: 'the task ran out of time',
  cancelled: 'the task was cancelled',
  lost: 'the task was given back',
} as const;
/** Bound on acknowledgements that a process has not read: above it a repeated result gets none. */
const MOST_UNREAD_BYTES = 4 * 1024 * 1024;

export interface ContainerAttemptsParts {
  readonly containerId: string;
  /** The execution limit of attempts that are adopted. */
  readonly timeoutMs: number;
  /** The attempts of all containers. */
  readonly all: UnacknowledgedAttempts;
  readonly adoption: Adoption;
  readonly streams: Pick<ContainerStreams, 'over'>;
  /** Counts what runners send rarely. @returns false when there is too much of it */
  readonly countRare: (count: number) => boolean;
  readonly onTimeout: (attempt: Attempt) => void;
  /** Writes a line about a task into its log. */
  readonly say: (taskId: string, text: string) => void;
}

/** Whether these may be the names of an attempt. */
const isNamed = (taskId: string, token: string): boolean =>
  taskId !== '' && token !== '' && taskId.length <= MAX_NAME_LENGTH && token.length <= MAX_NAME_LENGTH;

export class ContainerAttempts {
  readonly #parts: ContainerAttemptsParts;
  readonly #all: UnacknowledgedAttempts;

  constructor(parts: ContainerAttemptsParts) {
    this.#parts = parts;
    this.#all = parts.all;
  }

  /** Takes in a part of a result. */
  chunk(connection: RunnerConnection, frame: Frame): void {
    const attempt = this.#sent(connection, textOf(frame.header, 'taskId'), textOf(frame.header, 'token'), true);
    if (attempt === undefined || !connection.inHand.has(attempt.key)) return;
    if (attempt.result !== undefined || attempt.chunkBytes > MAX_RESULT_BYTES) return;
    if (attempt.hadNoRoom || !this.#all.hasRoom(attempt, frame.body.length)) {
      attempt.hadNoRoom = true;
      return;
    }
    const full = this.#all.frame(attempt, numberOf(frame.header, 'seq'), Buffer.from(frame.body));
    if (full === undefined) return;
    connection.pause();
    full.onceWritable(() => connection.resume());
  }

  /** Takes in the end of an attempt. */
  result(connection: RunnerConnection, frame: Frame): void {
    const { header } = frame;
    const taskId = textOf(header, 'taskId');
    const token = textOf(header, 'token');
    const key = keyOf(taskId, token);
    const attempt = this.#sent(connection, taskId, token, false);
    connection.inHand.delete(key);
    if (attempt === undefined || attempt.containerId !== this.#parts.containerId) {
      if (!this.#parts.countRare(1 / REPEATED_RESULTS_PER_RARE)) return;
      // The result was acknowledged before, or never ours: the runner may drop it.
      const isAnswered = isNamed(taskId, token) && connection.unsentBytes <= MOST_UNREAD_BYTES;
      if (isAnswered) connection.sendLater('acked', { taskId, token });
      return;
    }
    // A result repeated after a new hello: the first one counts.
    if (attempt.result !== undefined) return;
    this.#parts.streams.over(attempt.key);
    const durationMs = Math.max(0, Math.round(numberOf(header, 'durationMs')));
    if (attempt.chunkBytes > MAX_RESULT_BYTES) {
      this.#all.discardChunks(attempt);
      this.#all.finish(attempt, 'error', durationMs, errorBody(`result is larger than ${MAX_RESULT_BYTES} bytes`));
      return;
    }
    attempt.started = true;
    if (attempt.hadNoRoom || !this.#all.hasRoom(attempt, frame.body.length)) {
      this.#all.discardChunks(attempt);
      this.#all.finish(attempt, 'error', durationMs, errorBody(NO_ROOM_TEXT));
      return;
    }
    if (attempt.hasGap || numberOf(header, 'chunks') > attempt.frames) {
      this.#all.discardChunks(attempt);
      this.#all.finish(attempt, 'error', durationMs, errorBody(GAP_TEXT));
      return;
    }
    const said = outcomeOf(textOf(header, 'outcome'));
    const outcome = said === 'cancelled' && attempt.ending === 'lost' ? 'lost' : said;
    // Items of a generator before its failure were sent already; its result is the failure alone.
    if (outcome !== 'ok' && numberOf(header, 'items') > 0) this.#all.discardChunks(attempt);
    this.#all.finish(attempt, outcome, durationMs, Buffer.from(frame.body));
  }

  /** Adds an attempt that an earlier agent process handed over. */
  adopt(connection: RunnerConnection, taskId: string, token: string): Attempt {
    const { process } = connection;
    const attempt = this.begin({ taskId, token, timeoutMs: this.#parts.timeoutMs, facts: NOTHING }, process);
    attempt.started = true;
    attempt.begun = undefined;
    return attempt;
  }

  /** Adds an attempt, and watches its execution limit. */
  begin(
    { taskId, token, timeoutMs, facts }: Pick<RunTask__Output, 'taskId' | 'token' | 'timeoutMs' | 'facts'>,
    process: number,
  ): Attempt {
    const attempt: Attempt = {
      key: keyOf(taskId, token),
      taskId,
      token,
      containerId: this.#parts.containerId,
      timeoutMs,
      // A view into its message would hold the message's input, too.
      facts: Buffer.from(facts),
      sinceMs: performance.now(),
      process,
      started: false,
      begun: true,
      ending: undefined,
      limitTimer: undefined,
      killTimer: undefined,
      awayTimer: undefined,
      chunks: [],
      chunkBytes: 0,
      frames: 0,
      hasGap: false,
      hadNoRoom: false,
      result: undefined,
    };
    if (timeoutMs > 0) {
      // setTimeout takes 31 bits; a longer execution limit is cut to 24 days.
      attempt.limitTimer = setTimeout(() => this.#parts.onTimeout(attempt), Math.min(timeoutMs, 0x7fffffff));
      attempt.limitTimer.unref();
    }
    this.#all.add(attempt);
    return attempt;
  }

  /** The attempt that a frame names, if that process holds it. */
  of(connection: RunnerConnection, header: Frame['header']): Attempt | undefined {
    const key = keyOf(textOf(header, 'taskId'), textOf(header, 'token'));
    return connection.inHand.has(key) ? this.#all.get(key) : undefined;
  }

  /** The attempt of which a result arrives; one that an earlier agent handed over is added. */
  #sent(connection: RunnerConnection, taskId: string, token: string, isPart: boolean): Attempt | undefined {
    const key = keyOf(taskId, token);
    const known = this.#all.get(key);
    if (known !== undefined) return known;
    if (!isNamed(taskId, token) || this.#all.wasAcked(key)) return undefined;
    if (!this.#parts.adoption.takesResult(isPart, performance.now())) return undefined;
    connection.inHand.add(key);
    return this.adopt(connection, taskId, token);
  }

  /** Gives an attempt back that its process did not begin: the scheduler sends it anew. */
  giveBack(attempt: Attempt, reason: string): void {
    if (attempt.result !== undefined) return;
    this.#parts.streams.over(attempt.key);
    this.#all.acknowledge(attempt.key);
    this.#all.send({ refused: { taskId: attempt.taskId, token: attempt.token, reason } });
  }

  /**
   * Ends an attempt whose process is gone. An attempt that was being ended anyway keeps that outcome. Its process could
   * not say why in the task's log.
   */
  end(attempt: Attempt, outcome: Outcome, text: string): void {
    if (attempt.result !== undefined) return;
    this.#parts.streams.over(attempt.key);
    const durationMs = Math.round(performance.now() - attempt.sinceMs);
    this.#all.discardChunks(attempt);
    if (attempt.ending !== undefined) {
      const why = ENDED_BY[attempt.ending];
      // Without a text its process never had it.
      if (text !== '') this.#parts.say(attempt.taskId, `${why}, and did not end: its process was killed`);
      this.#all.finish(attempt, attempt.ending, durationMs, NOTHING);
    } else {
      if (outcome === 'exited') this.#parts.say(attempt.taskId, text);
      // The process had the attempt. Whether its handler saw it is unknown, so it counts as started.
      attempt.started = true;
      this.#all.finish(attempt, outcome, durationMs, errorBody(text));
    }
  }
}
