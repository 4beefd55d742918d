// Carries out calls that are answered later, on every replica: as many as it has room for, workspaces in turn.
// Invariants: a try that runs here has a lease, which is renewed. Its end is fenced by its number. A replica that stops
// puts its calls back; one that dies leaves them to the leader.
import { backoffMs, repeat, sleep } from '#shared/backoff.ts';
import type { InstanceId, TaskId } from '#shared/domain/ids.ts';
import type { Part } from '#shared/lifecycle.ts';
import type { Log } from '#shared/log.ts';
import type { Db } from '../../stores/store/db.ts';
import {
  claimDeferredCalls,
  deferredBody,
  endDeferredTry,
  putBackDeferredCall,
  renewDeferredCalls,
} from '../../stores/store/queries/deferred-calls.ts';
import type { DeferredCallRow, DeferredEnding, DeferredTry } from '../../stores/store/queries/deferred-calls.ts';
import { RowWorker } from '../../stores/store/row-worker.ts';
import type { TaskBodies } from '../dispatch/bodies.ts';
import type { Changes } from '../records/changes.ts';
import { errorBody } from '../records/recording.ts';
import type { DeferredCalls } from './deferred-calls.ts';
import type { DeferredCallMetrics } from './metrics.ts';
import { openRecord } from './task-record.ts';

/** Outcome of a try. */
export type TryOutcome =
  | { readonly kind: 'done'; readonly text: string }
  | { readonly kind: 'failed'; readonly status: 'ERROR' | 'TIMEOUT'; readonly reason: string; readonly text: string }
  /** The model has no room, or is away: the call waits, and is tried again. */
  | { readonly kind: 'later'; readonly reason: string };

/** Why a try is given up. `gone`: its call has ended, or another replica has it. */
export class TryGivenUp extends Error {
  readonly why: 'stopping' | 'gone';
  constructor(why: 'stopping' | 'gone') {
    super(`the try is given up: ${why}`);
    this.name = 'TryGivenUp';
    this.why = why;
  }
}

/**
 * Asks the model. Settles what the answer cost, and otherwise leaves or ends the hold. Never throws.
 * @param signal - its reason is a {@link TryGivenUp}
 */
export type RunDeferred = (call: DeferredCallRow, body: string, signal: AbortSignal) => Promise<TryOutcome>;

/** Calls that a replica carries out at a time, and of one workspace over all replicas. */
const MOST_RUNNING = 32;
const MOST_OF_WORKSPACE = 16;
/** Interval of looks for calls of other replicas; own ones are told. */
const LOOK_MS = 2_000;
const LEASE_MS = 30_000;
const RENEW_MS = 5_000;
const DELAYS = { baseMs: 500, capMs: 30_000, floorMs: 250 } as const;
const END_TRIES = 20;

export interface DeferredTimes {
  readonly lookMs: number;
  readonly leaseMs: number;
  readonly renewMs: number;
}

export interface DeferredExecutorParts {
  readonly db: Db;
  readonly calls: Pick<DeferredCalls, 'tellEnd'>;
  readonly changes: Pick<Changes, 'apply'>;
  readonly bodies: Pick<TaskBodies, 'storeResult' | 'dropInput' | 'maxResultBytes'>;
  readonly instance: InstanceId;
  readonly metrics: DeferredCallMetrics;
  readonly log: Log;
  readonly times?: Partial<DeferredTimes>;
}

interface Running {
  readonly attempt: number;
  readonly abort: AbortController;
  readonly over: Promise<void>;
}

export class DeferredExecutor implements Part {
  readonly name = 'deferred calls';
  readonly #parts: DeferredExecutorParts;
  readonly #times: DeferredTimes;
  readonly #running = new Map<TaskId, Running>();
  readonly #stopping = new AbortController();
  readonly #worker: RowWorker<DeferredCallRow>;
  #run: RunDeferred | undefined;

  constructor(parts: DeferredExecutorParts) {
    this.#parts = parts;
    this.#times = { lookMs: LOOK_MS, leaseMs: LEASE_MS, renewMs: RENEW_MS, ...parts.times };
    const { leaseMs, lookMs } = this.#times;
    const { db, instance, log } = parts;
    this.#worker = new RowWorker({
      places: MOST_RUNNING,
      lookMs,
      claim: async (most) =>
        this.#run === undefined ? [] : await claimDeferredCalls(db, instance, leaseMs, most, MOST_OF_WORKSPACE),
      work: (call) => this.#inItsPlace(call),
      onFailed: (error) => log.info({ err: error }, 'calls that wait are looked for later'),
    });
  }

  /** Sets who asks the models. Nothing is carried out before. */
  runsWith(run: RunDeferred): void {
    this.#run = run;
    this.wake();
  }

  start(): void {
    this.#worker.start();
    void repeat(
      this.#times.renewMs,
      this.#stopping.signal,
      () => this.#renew(),
      (error) => this.#parts.log.info({ err: error }, 'leases of calls are renewed later'),
    );
  }

  /** Puts back what runs here. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    for (const { abort } of this.#running.values()) abort.abort(new TryGivenUp('stopping'));
    await this.#worker.stop();
  }

  /** Looks for calls now. */
  wake(): void {
    this.#worker.wake();
  }

  /** Gives up a try here whose call was ended from outside. */
  endedElsewhere(taskId: TaskId): void {
    this.#running.get(taskId)?.abort.abort(new TryGivenUp('gone'));
  }

  #inItsPlace(call: DeferredCallRow): Promise<void> {
    // A lease of this replica itself may have run out. The try before ends first: both have the same hold.
    const before = this.#running.get(call.taskId);
    before?.abort.abort(new TryGivenUp('gone'));
    const abort = new AbortController();
    // The call may have been claimed in the moment of the stop.
    if (this.#stopping.signal.aborted) abort.abort(new TryGivenUp('stopping'));
    const over = (before?.over ?? Promise.resolve())
      .then(() => this.#carryOut(call, abort.signal))
      .finally(() => {
        if (this.#running.get(call.taskId)?.attempt === call.attempt) this.#running.delete(call.taskId);
        this.#parts.metrics.running.set(this.#running.size);
      });
    this.#running.set(call.taskId, { attempt: call.attempt, abort, over });
    this.#parts.metrics.running.set(this.#running.size);
    return over;
  }

  /** Never throws. */
  async #carryOut(call: DeferredCallRow, signal: AbortSignal): Promise<void> {
    const { db, changes, instance, log } = this.#parts;
    const { taskId, attempt } = call;
    const one: DeferredTry = { taskId, owner: instance, attempt };
    try {
      changes.apply(attempt === 1 ? 'PENDING' : 'RETRY', 'start', openRecord(call, 'RUNNING'));
      const body = await deferredBody(db, taskId, attempt);
      if (body === undefined || this.#run === undefined) return;
      const outcome = await this.#run(call, body, signal);
      const givenUp = signal.aborted ? (signal.reason as TryGivenUp).why : undefined;
      if (outcome.kind === 'done' || (outcome.kind === 'failed' && givenUp === undefined))
        return await this.#end(one, outcome);
      if (givenUp !== 'gone') await this.#putBack(call, one, outcome, givenUp);
    } catch (error) {
      // The lease runs out, and the leader lets the call wait again.
      log.warn({ err: error, taskId, attempt }, 'a try of a call came to no end');
    }
  }

  async #putBack(
    call: DeferredCallRow,
    one: DeferredTry,
    outcome: TryOutcome,
    givenUp: 'stopping' | undefined,
  ): Promise<void> {
    const { db, changes, metrics, log } = this.#parts;
    const isStopping = givenUp !== undefined;
    const pauseMs = isStopping ? 0 : backoffMs(call.delays + 1, DELAYS);
    if (!(await putBackDeferredCall(db, one, pauseMs, isStopping ? 'stopping' : 'delayed'))) return;
    const reason = isStopping ? 'scheduler_stopping' : outcome.kind === 'later' ? outcome.reason : 'failed';
    metrics.returned.inc({ cause: isStopping ? 'stopping' : 'no_room' });
    changes.apply('RUNNING', 'lose', openRecord(call, 'RETRY', reason));
    log.info({ taskId: one.taskId, reason, pauseMs }, 'a call of a model waits again');
    if (!isStopping) this.#worker.wake(pauseMs);
  }

  async #end(one: DeferredTry, outcome: Exclude<TryOutcome, { kind: 'later' }>): Promise<void> {
    const { db, bodies, calls } = this.#parts;
    const ending = await this.#again(() => this.#endingOf(outcome));
    const ended = await this.#again(() => endDeferredTry(db, one, ending));
    if (ended !== undefined) return await calls.tellEnd(ended, true);
    // The call ended meanwhile: nobody reads this result.
    await bodies.dropInput(ending.resultObjectId);
  }

  async #endingOf(outcome: Exclude<TryOutcome, { kind: 'later' }>): Promise<DeferredEnding> {
    const { bodies } = this.#parts;
    if (outcome.kind === 'failed')
      return { status: outcome.status, reason: outcome.reason, ...(await bodies.storeResult(outcome.text)) };
    if (Buffer.byteLength(outcome.text) <= bodies.maxResultBytes)
      return { status: 'COMPLETE', reason: '', ...(await bodies.storeResult(outcome.text)) };
    const text = `the answer has more than ${bodies.maxResultBytes} bytes, which a task may keep`;
    return { status: 'ERROR', reason: 'result_too_large', result: errorBody(text) };
  }

  /** Tries until it works, while the lease is renewed. @throws the last error */
  async #again<T>(work: () => Promise<T>): Promise<T> {
    for (let failures = 1; ; failures += 1) {
      try {
        return await work();
      } catch (error) {
        if (failures >= END_TRIES || !(await sleep(backoffMs(failures, DELAYS), this.#stopping.signal))) throw error;
        this.#parts.log.info({ err: error, failures }, 'the end of a call is written later');
      }
    }
  }

  async #renew(): Promise<void> {
    if (this.#running.size === 0) return;
    const before = [...this.#running];
    const held = await renewDeferredCalls(this.#parts.db, this.#parts.instance, this.#times.leaseMs);
    for (const [taskId, { attempt, abort }] of before) {
      if (held.get(taskId) !== attempt && this.#running.get(taskId)?.attempt === attempt)
        abort.abort(new TryGivenUp('gone'));
    }
  }
}
