// The attempts that the agent knows: running ones, and results that the scheduler has not acknowledged. Owned by the
// slot table.
import type { LiveAttempt, TaskFromAgent, TaskReport, TaskResult } from '#shared/protocol/generated/messages.ts';
import { attemptParts } from './message-parts.ts';
import { PART_BYTES, PART_COST_BYTES } from '#shared/protocol/link.ts';

/** Result bodies up to this size travel in the result message itself. */
const INLINE_RESULT_BYTES = 256 * 1024;
/** Bound on a result, whose parts are kept until it is acknowledged; a larger answer of a handler becomes an error. */
export const MAX_RESULT_BYTES = 64 * 1024 * 1024;
/**
 * Bounds on results that wait for their acknowledgement, per container and in total; a container may take at most the
 * room that is left.
 */
const MOST_KEPT_BYTES = 256 * 1024 * 1024;
const MOST_KEPT_BYTES_OF_ALL = 1024 * 1024 * 1024;
/**
 * Acknowledged attempts that are remembered to recognise a runner's repetition: at least this many, at most twice as
 * many.
 */
const REMEMBERED_ACKS = 10_000;

const STARTED_AFTER_MS = 50;

export type Outcome = 'ok' | 'error' | 'invalid' | 'retry' | 'timeout' | 'cancelled' | 'exited' | 'lost';

export interface Attempt {
  readonly key: string;
  readonly taskId: string;
  readonly token: string;
  readonly containerId: string;
  readonly timeoutMs: number;
  /** From its order: a scheduler that takes the attempt over reads them in the report. */
  readonly facts: Buffer;
  /** Monotonic milliseconds. */
  readonly sinceMs: number;
  process: number;
  started: boolean;
  /**
   * Whether its handler was called. False: its process has it, and has not said so. Undefined: this may have been said
   * on a connection of before.
   */
  begun: boolean | undefined;
  /** Outcome that an order to end stands for; `lost`: its task goes on elsewhere. Undefined without such an order. */
  ending: 'timeout' | 'cancelled' | 'lost' | undefined;
  limitTimer: NodeJS.Timeout | undefined;
  killTimer: NodeJS.Timeout | undefined;
  awayTimer: NodeJS.Timeout | undefined;
  readonly chunks: Uint8Array[];
  /** Bytes of the parts, with a fixed cost for each. */
  chunkBytes: number;
  /** Number of frames with parts; the runner numbers them. */
  frames: number;
  /** A part never arrived here: an earlier agent process received it, or nobody. */
  hasGap: boolean;
  /** The room for kept results of its container did not suffice. */
  hadNoRoom: boolean;
  result: TaskResult | undefined;
}

export const keyOf = (taskId: string, token: string): string => `${taskId} ${token}`;

const named = ({ taskId, token, containerId }: Attempt): LiveAttempt => ({ taskId, token, containerId });
const withFacts = (attempt: Attempt): LiveAttempt => ({ ...named(attempt), facts: attempt.facts });

/** Reports of running and finished attempts, in messages of bounded size: each but the last announces another. */
function reportsOf(running: LiveAttempt[], finished: LiveAttempt[]): TaskReport[] {
  const parts: TaskReport[] = [
    ...attemptParts(running).map((part) => ({ running: part, finished: [], more: true })),
    ...attemptParts(finished).map((part) => ({ running: [], finished: part, more: true })),
  ];
  if (parts.length === 2) return [{ running, finished }];
  return parts.map((part, index) => ({ ...part, more: index < parts.length - 1 }));
}

/**
 * The sink of messages for the scheduler. `send` returns false when the link is full or down; kept results are sent
 * again.
 */
export interface TaskSink {
  send(message: TaskFromAgent): boolean;
  /** Calls back once, when the link has room again or is gone. */
  onceWritable(callback: () => void): void;
}

/**
 * The attempts of all containers of this machine. Bounded by their slots: a finished attempt holds its place until
 * acknowledged.
 */
export class UnacknowledgedAttempts {
  readonly #all = new Map<string, Attempt>();
  /** Acknowledged attempts in two generations: the newest, and those before. */
  #acked = new Set<string>();
  #ackedBefore = new Set<string>();
  readonly #justStarted = new Set<Attempt>();
  /** Bytes of kept results by container, and in total. */
  readonly #kept = new Map<string, number>();
  #keptOfAll = 0;
  #startTimer: NodeJS.Timeout | undefined;
  #sink: TaskSink | undefined;
  /** Attempts ever taken by this process. */
  taken = 0;

  get(key: string): Attempt | undefined {
    return this.#all.get(key);
  }

  wasAcked(key: string): boolean {
    return this.#acked.has(key) || this.#ackedBefore.has(key);
  }

  add(attempt: Attempt): void {
    this.taken += 1;
    this.#all.set(attempt.key, attempt);
  }

  inHand(): Attempt[] {
    return [...this.#all.values()].filter((attempt) => attempt.result === undefined);
  }

  /** Attempts whose end the scheduler has not acknowledged: running and finished ones. */
  live(): LiveAttempt[] {
    return [...this.#all.values()].map(named);
  }

  /** Begins a new task stream: sends the report of all attempts first, then their parts, then every kept result. */
  connect(sink: TaskSink): void {
    this.#sink = sink;
    const finished = [...this.#all.values()].filter((attempt) => attempt.result !== undefined);
    for (const report of reportsOf(this.inHand().map(withFacts), finished.map(withFacts))) sink.send({ report });
    for (const attempt of this.#all.values()) {
      if (attempt.result === undefined && attempt.started)
        sink.send({ started: { taskId: attempt.taskId, token: attempt.token } });
      attempt.chunks.forEach((data, seq) => this.#sendChunk(attempt, seq, data));
      if (attempt.result !== undefined) sink.send({ result: attempt.result });
    }
  }

  disconnect(sink: TaskSink): void {
    if (this.#sink === sink) this.#sink = undefined;
  }

  send(message: TaskFromAgent): void {
    this.#sink?.send(message);
  }

  /**
   * Reports the start after a short delay, unless the result comes first: most tasks are short, and the result implies
   * the start.
   */
  start(attempt: Attempt): void {
    if (attempt.started) return;
    attempt.started = true;
    this.#justStarted.add(attempt);
    this.#startTimer ??= setTimeout(() => {
      this.#startTimer = undefined;
      for (const one of this.#justStarted) {
        if (one.result === undefined) this.#sink?.send({ started: { taskId: one.taskId, token: one.token } });
      }
      this.#justStarted.clear();
    }, STARTED_AFTER_MS);
    this.#startTimer.unref();
  }

  /** Keeps a part and passes it on. @returns the sink when the link is full, to register a callback */
  chunk(attempt: Attempt, data: Uint8Array): TaskSink | undefined {
    let full = false;
    for (let at = 0; at < data.length; at += PART_BYTES) {
      const part = data.subarray(at, at + PART_BYTES);
      attempt.chunks.push(part);
      attempt.chunkBytes += part.length + PART_COST_BYTES;
      this.#count(attempt, part.length + PART_COST_BYTES);
      if (!this.#sendChunk(attempt, attempt.chunks.length - 1, part)) full = true;
    }
    return full ? this.#sink : undefined;
  }

  /** The attempt has ended; its result is kept until `acknowledge`. */
  finish(attempt: Attempt, outcome: Outcome, durationMs: number, body: Uint8Array): void {
    if (attempt.result !== undefined) return;
    this.#justStarted.delete(attempt);
    clearTimeout(attempt.limitTimer);
    clearTimeout(attempt.killTimer);
    clearTimeout(attempt.awayTimer);
    if (body.length > INLINE_RESULT_BYTES) {
      this.chunk(attempt, body);
      body = new Uint8Array();
    }
    this.#count(attempt, body.length);
    attempt.result = {
      taskId: attempt.taskId,
      token: attempt.token,
      containerId: attempt.containerId,
      outcome,
      durationMs,
      chunks: attempt.chunks.length,
      body: body as Buffer,
      started: attempt.started,
    };
    this.#sink?.send({ result: attempt.result });
  }

  /**
   * Takes a numbered frame of the runner. After a broken connection the runner repeats its result from the first frame;
   * a repeated frame replaces the kept ones from its number on.
   * @returns the same as `chunk`
   */
  frame(attempt: Attempt, seq: number, data: Uint8Array): TaskSink | undefined {
    if (seq > attempt.frames) attempt.hasGap = true;
    if (attempt.hasGap) return undefined;
    if (seq < attempt.frames) {
      for (const part of attempt.chunks.splice(seq)) {
        attempt.chunkBytes -= part.length + PART_COST_BYTES;
        this.#count(attempt, -part.length - PART_COST_BYTES);
      }
    }
    attempt.frames = seq + 1;
    return this.chunk(attempt, data);
  }

  /** Drops the parts of an attempt that ends with another result. */
  discardChunks(attempt: Attempt): void {
    this.#count(attempt, -attempt.chunkBytes);
    attempt.chunks.length = 0;
    attempt.chunkBytes = 0;
  }

  /** The scheduler has the result, or will never need it. */
  acknowledge(key: string): Attempt | undefined {
    const attempt = this.#all.get(key);
    if (attempt === undefined) return undefined;
    clearTimeout(attempt.limitTimer);
    clearTimeout(attempt.killTimer);
    clearTimeout(attempt.awayTimer);
    this.#all.delete(key);
    this.#count(attempt, -attempt.chunkBytes - (attempt.result?.body?.length ?? 0));
    this.#acked.add(key);
    if (this.#acked.size >= REMEMBERED_ACKS) {
      this.#ackedBefore = this.#acked;
      this.#acked = new Set();
    }
    return attempt;
  }

  /**
   * Whether that many more bytes of a result may be kept. A container may take at most the room that is left, so the
   * others always find some.
   */
  hasRoom({ containerId }: Attempt, bytes: number): boolean {
    const share = Math.min(MOST_KEPT_BYTES, MOST_KEPT_BYTES_OF_ALL - this.#keptOfAll);
    return (this.#kept.get(containerId) ?? 0) + bytes <= share;
  }

  #count({ containerId }: Attempt, bytes: number): void {
    if (bytes === 0) return;
    const kept = (this.#kept.get(containerId) ?? 0) + bytes;
    this.#keptOfAll += bytes;
    if (kept > 0) this.#kept.set(containerId, kept);
    else this.#kept.delete(containerId);
  }

  /** Stops the timers when the agent stops. */
  stop(): void {
    clearTimeout(this.#startTimer);
    for (const attempt of this.#all.values()) {
      clearTimeout(attempt.limitTimer);
      clearTimeout(attempt.killTimer);
      clearTimeout(attempt.awayTimer);
    }
  }

  #sendChunk(attempt: Attempt, seq: number, data: Uint8Array): boolean {
    return (
      this.#sink?.send({
        chunk: { taskId: attempt.taskId, token: attempt.token, seq, data: data as Buffer },
      }) ?? true
    );
  }
}
