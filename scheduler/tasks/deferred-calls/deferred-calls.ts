// Calls of models that are answered later: accepted with a row, ended once, and told as tasks.
// Invariants: an accepted call has a committed row, and ends once, whatever dies: the row decides, the record of its
// task follows. What a call can cost is held from its acceptance to its end.
import type { TokenId } from '#shared/domain/ids.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import { failureReasonOf } from '../../domain/endings.ts';
import type { Ending } from '../../domain/endings.ts';
import type { LastingHolds } from '../../domain/inference.ts';
import type { Db } from '../../stores/store/db.ts';
import { databaseUnavailable, isOutcomeUnknown } from '../../stores/store/limits.ts';
import {
  countWaitingCalls,
  deferredCallOfKey,
  endDeferredCall,
  expireDeferredCalls,
  forgetDeferredCalls,
  insertDeferredCall,
  takeLostDeferredCalls,
  untoldDeferredCalls,
  waitingCharges,
  wasDeferredCallAccepted,
} from '../../stores/store/queries/deferred-calls.ts';
import type { DeferredBounds, DeferredCallRow, NewDeferredCall } from '../../stores/store/queries/deferred-calls.ts';
import { errorBody } from '../records/recording.ts';
import type { Changes } from '../records/changes.ts';
import type { TaskRecord } from '../records/task-record.ts';
import type { TaskRecords } from '../records/records.ts';
import { ENDED_BY } from '../state.ts';
import type { DeferredCallMetrics } from './metrics.ts';
import { endedRecord, openRecord } from './task-record.ts';

/** Calls of a workspace that wait or run, and the bytes of their bodies. */
export const DEFERRED_BOUNDS: DeferredBounds = { calls: 1_000, bytes: 64 * 1024 * 1024 };
/** Time for which a call may wait. */
export const DEFERRED_WAIT_MS = 3_600_000;
/** Replicas that may die with a call before it is given up. */
const MOST_LOSSES = 5;
/** Time for which a row of an ended call keeps its key, from its acceptance. */
const KEY_MS = 24 * 3_600_000;
/** Time after which the record of an end is written again. */
const TOLD_MS = 30_000;
const AT_ONCE = 500;

const LOST_TOO_OFTEN = {
  status: 'ERROR',
  reason: 'infrastructure_limit',
  result: errorBody('the schedulers that ran this call were lost'),
} as const;
const EXPIRED = { status: 'EXPIRED', reason: 'expired', result: errorBody('the call waited too long') } as const;

export interface DeferredCallsParts {
  readonly db: Db;
  readonly records: Pick<TaskRecords, 'isOverloaded'>;
  readonly changes: Pick<Changes, 'accept' | 'apply' | 'applied'>;
  readonly holds: Pick<LastingHolds, 'keep' | 'giveBack'>;
  readonly metrics: DeferredCallMetrics;
  readonly log: Log;
  readonly bounds?: DeferredBounds;
}

export type Accepted =
  | { readonly kind: 'accepted' | 'known' | 'overloaded' }
  | { readonly kind: 'too_many_calls' | 'too_many_bytes'; readonly most: number };

/** Whether an acceptance failed without an answer: the call may be accepted all the same. */
export const mayBeAccepted = isOutcomeUnknown;

type Inserted = Awaited<ReturnType<typeof insertDeferredCall>>;

export class DeferredCalls {
  readonly #parts: DeferredCallsParts;
  readonly #waiting = new Listeners<[]>();
  readonly #ended = new Listeners<[TaskRecord['taskId']]>();

  constructor(parts: DeferredCallsParts) {
    this.#parts = parts;
  }

  /** Told when calls wait that did not before. */
  onWaiting(listener: () => void): void {
    this.#waiting.add(listener);
  }

  /** Told when a call that runs was ended from outside. */
  onEnded(listener: (taskId: TaskRecord['taskId']) => void): void {
    this.#ended.add(listener);
  }

  /** The call that an idempotency key stands for. */
  ofKey(tokenId: TokenId, keyHash: string): Promise<DeferredCallRow | undefined> {
    return deferredCallOfKey(this.#parts.db, tokenId, keyHash);
  }

  /**
   * Accepts a call: when this resolves with `accepted`, nothing loses it.
   * @returns `known`: its key stands for another call
   * @throws AppError `database_outcome_unknown`: the call may be accepted, and is carried out then; any other: it is
   * not accepted
   */
  async accept(call: NewDeferredCall): Promise<Accepted> {
    const { records, changes, metrics, bounds = DEFERRED_BOUNDS } = this.#parts;
    if (records.isOverloaded()) return { kind: 'overloaded' };
    const record = openRecord(
      { ...call, attempt: 0, startedAtMs: null, endedAtMs: null, ending: undefined },
      'PENDING',
    );
    const kind = await this.#insert(call, record, bounds);
    if (kind === 'too_many_calls' || kind === 'too_many_bytes') {
      metrics.refused.inc({ bound: kind === 'too_many_calls' ? 'calls' : 'bytes' });
      return { kind, most: kind === 'too_many_calls' ? bounds.calls : bounds.bytes };
    }
    if (kind === 'known') return { kind };
    changes.accept(record);
    metrics.accepted.inc();
    this.#waiting.tell();
    return { kind };
  }

  /** Writes the rows. A commit that is not answered is looked up, because a second call would cost a second time. */
  async #insert(call: NewDeferredCall, record: TaskRecord, bounds: DeferredBounds): Promise<Inserted> {
    const { db, log } = this.#parts;
    try {
      return await db.transaction((tx) => insertDeferredCall(tx, call, record, bounds));
    } catch (error) {
      if (!isOutcomeUnknown(error)) throw error;
      const isAccepted = await db
        .transaction((tx) => wasDeferredCallAccepted(tx, call))
        .catch((failed: unknown) => {
          log.warn({ err: failed, taskId: call.taskId }, 'whether a call of a model was accepted is not known');
          throw error;
        });
      if (isAccepted) return 'accepted';
      throw databaseUnavailable(error);
    }
  }

  /** Ends a call from outside. @returns true: it has ended, now or before */
  async cancel({ taskId }: Pick<TaskRecord, 'taskId'>, ending: Ending): Promise<boolean> {
    const { db, holds } = this.#parts;
    const { status } = ending;
    const reason = failureReasonOf(ending);
    const result = errorBody(reason);
    const ended = await endDeferredCall(db, taskId, { status, reason, result });
    if (ended === undefined) return true;
    const { call, wasRunning } = ended;
    if (wasRunning) this.#ended.tell(taskId);
    else await holds.giveBack(call.charge);
    await this.tellEnd(call, wasRunning);
    return true;
  }

  /** Writes the record of a call that has ended, durable in Redis or kept here when it resolves. */
  async tellEnd(call: DeferredCallRow, wasRunning: boolean): Promise<void> {
    const { ending } = call;
    if (ending === undefined || call.endedAtMs === null) return;
    this.#parts.metrics.ended.inc({ status: ending.status });
    await this.#writeEnd(call, wasRunning);
  }

  async #writeEnd(call: DeferredCallRow, wasRunning: boolean): Promise<void> {
    const record = endedRecord(call);
    if (record === undefined || call.ending === undefined) return;
    await this.#parts.changes.applied(statusBefore(call, wasRunning), ENDED_BY[call.ending.status], record);
  }

  /** Upkeep for the leader: a round of all kinds. */
  async upkeep(): Promise<void> {
    const { db, metrics } = this.#parts;
    const { waiting, hasRows } = await countWaitingCalls(db);
    metrics.waiting.set(waiting);
    if (!hasRows) return;
    await this.#takeLost();
    await this.#expire();
    await this.#keepHolds();
    await this.#tellAgain();
    await forgetDeferredCalls(db, KEY_MS, AT_ONCE);
  }

  async #takeLost(): Promise<void> {
    const { db, changes, holds, metrics, log } = this.#parts;
    const lost = await takeLostDeferredCalls(db, AT_ONCE);
    for (const call of lost) {
      const { taskId, attempt, losses } = call;
      metrics.returned.inc({ cause: 'lost' });
      if (losses >= MOST_LOSSES) {
        const ended = await endDeferredCall(db, taskId, LOST_TOO_OFTEN);
        if (ended === undefined) continue;
        await holds.giveBack(call.charge);
        await this.tellEnd(ended.call, true);
        continue;
      }
      log.warn({ taskId, attempt, losses }, 'a call of a model whose replica is lost waits again');
      changes.apply('RUNNING', 'lose', openRecord(call, 'RETRY', 'lost'));
    }
    if (lost.length > 0) this.#waiting.tell();
  }

  async #expire(): Promise<void> {
    const { db, holds, log } = this.#parts;
    for (const call of await expireDeferredCalls(db, EXPIRED, AT_ONCE)) {
      await holds.giveBack(call.charge);
      await this.tellEnd(call, false);
      log.info({ taskId: call.taskId, delays: call.delays }, 'a call of a model waited too long');
    }
  }

  async #keepHolds(): Promise<void> {
    const { db, holds } = this.#parts;
    for (let after = ''; ;) {
      const page = await waitingCharges(db, AT_ONCE, after);
      if (page.length > 0) await holds.keep(page.map(({ charge }) => charge));
      if (page.length < AT_ONCE) return;
      after = page.at(-1)?.taskId ?? '';
    }
  }

  /** Ends whose records were lost with a process or with Redis. */
  async #tellAgain(): Promise<void> {
    for (const call of await untoldDeferredCalls(this.#parts.db, TOLD_MS, AT_ONCE)) await this.#writeEnd(call, true);
  }
}

/** Status of a call's task before its end, as far as it decides which ends are allowed. */
function statusBefore({ attempt, ending }: DeferredCallRow, wasRunning: boolean): TaskRecord['status'] {
  if (attempt === 0) return 'PENDING';
  // A call expires only while it waits.
  return wasRunning && ending?.status !== 'EXPIRED' ? 'RUNNING' : 'RETRY';
}
