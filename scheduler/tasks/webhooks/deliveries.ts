// Delivery of messages of any kind to addresses that users named. A row per message is the truth; a job in
// the queue is only its alarm. A kind (callbacks.ts is one) says what is sent and how often it is tried.
// Invariants:
// - A try begins only with a claim that no other try has.
// - A message is over only when its row says so.
// - The leader's sweep finds messages left by a killed process or a lost Redis.
// - A receiver may get a message twice. No message is dropped before its tries or its life are used up.
// - Other workspaces get their turn, however many messages one has, and however slow its receivers are.
import type { DeliveryId, WorkspaceId } from '#shared/domain/ids.ts';
import { repeat } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { PlatformJob } from '../../stores/queues/platform-queue.ts';
import type { Db } from '../../stores/store/db.ts';
import {
  claimDelivery,
  countWaitingDeliveries,
  dueDeliveriesOf,
  overdueDeliveries,
  settleDelivery,
} from '../../stores/store/queries/deliveries.ts';
import type { DeliveryRow, NewDelivery, TryEnded } from '../../stores/store/queries/deliveries.ts';
import type { Outcome, Policy } from './decide.ts';
import { afterTry, pauseMs, wordOf } from './decide.ts';
import type { DeliveryMetrics } from './metrics.ts';
import type { Message, Poster } from './post.ts';

export type Prepared =
  /** `done` is called when the message's data are no longer needed. */
  | { readonly kind: 'message'; readonly message: Message; readonly done?: () => void }
  /** A newer message about the same subject replaces this one. */
  | { readonly kind: 'superseded' }
  /** The message cannot be made any more, because its subject is gone. */
  | { readonly kind: 'impossible'; readonly why: string };

/** Kind of message: what is sent, and how often it is tried. */
export interface DeliveryKind {
  readonly policy: Policy;
  /**
   * Makes the message as it is sent now.
   * @throws when a store does not answer: the message is tried again later, and no try is counted
   */
  prepare(row: DeliveryRow): Promise<Prepared>;
}

export interface DeliveryJob extends Readonly<Record<string, string | number>> {
  readonly id: DeliveryId;
  /** Claim number of the last try that began. */
  readonly claim: number;
  readonly workspaceId: WorkspaceId;
}

export interface DeliveriesParts {
  readonly db: Db;
  readonly queue: {
    add(jobs: readonly PlatformJob<DeliveryJob>[]): Promise<number>;
    start(): void;
    stop(): Promise<void>;
  };
  readonly poster: Pick<Poster, 'post' | 'close'>;
  readonly kinds: Readonly<Record<string, DeliveryKind>>;
  readonly metrics: DeliveryMetrics;
  readonly clock: Clock;
  readonly log: Log;
  readonly isLeader: () => boolean;
  readonly sweepEveryMs?: number;
}

/** Most deliveries under way here; one workspace gets a quarter, since its receivers may all be slow. */
export const DELIVERIES_AT_ONCE = 32;
const OF_ONE_WORKSPACE = 8;
/** Milliseconds after which a claim lapses, because its process must have died: longer than any try may take. */
const CLAIM_MS = 120_000;
const SWEEP_EVERY_MS = 5_000;
/** Milliseconds for which a row waits for its job before the sweep makes another. */
const LATE_MS = 2_000;
const SWEEP_LIMIT = 500;
/**
 * Most rows of one workspace per sweep. More than may be under
 * way at once: the jobs turned away show that there are more.
 */
const SWEEP_OF_ONE_WORKSPACE = 32;
const MOST_COUNTED = 100_000;

export class Deliveries {
  readonly name = 'deliveries';
  readonly #parts: DeliveriesParts;
  readonly #abort = new AbortController();
  readonly #underWay = new Map<WorkspaceId, number>();
  /** Workspaces with more due deliveries than there was room for. */
  readonly #turnedAway = new Set<WorkspaceId>();
  readonly #running = new Set<Promise<unknown>>();

  constructor(parts: DeliveriesParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#parts.queue.start();
    void repeat(
      this.#parts.sweepEveryMs ?? SWEEP_EVERY_MS,
      this.#abort.signal,
      () => (this.#parts.isLeader() ? this.sweep() : this.#parts.metrics.waiting.reset()),
      (error) => this.#parts.log.warn({ err: error }, 'deliveries not looked through, trying again'),
    );
  }

  /** Aborts the deliveries under way and gives them back: another process, or the next one, sends them again. */
  async stop(): Promise<void> {
    this.#abort.abort();
    // The queue stops before anything is given back, or this process would take it again.
    await this.#parts.queue.stop();
    await Promise.allSettled(this.#running);
    await this.#parts.poster.close();
  }

  /**
   * Queues deliveries whose rows are committed, to be sent now. Where Redis
   * does not take the jobs, or is full of them, the sweep finds the rows.
   */
  announce(deliveries: readonly NewDelivery[]): void {
    const jobs = deliveries.map(({ id, workspaceId }) => jobOf({ id, workspaceId, claim: 0 }));
    this.#parts.queue.add(jobs).catch((error: unknown) => {
      this.#parts.log.info({ err: error, deliveries: jobs.length }, 'deliveries wait for the next sweep');
    });
  }

  /** Makes alarms for rows whose own was lost; runs on the leader. @returns how many rows were late */
  async sweep(): Promise<number> {
    const { db, queue, metrics } = this.#parts;
    const late = await overdueDeliveries(db, LATE_MS, SWEEP_LIMIT, SWEEP_OF_ONE_WORKSPACE);
    await queue.add(late.map((row) => jobOf(row)));
    metrics.waiting.set(late.length === 0 ? 0 : await countWaitingDeliveries(db, MOST_COUNTED));
    return late.length;
  }

  /**
   * Processes a job of the queue. A job that finds no room is dropped: its
   * row stays due. The job comes again when a place is free, or by the sweep.
   */
  async process(job: DeliveryJob): Promise<void> {
    if (this.#abort.signal.aborted) return;
    const { workspaceId } = job;
    if (this.#underWayOf(workspaceId) >= OF_ONE_WORKSPACE) {
      this.#turnedAway.add(workspaceId);
      return;
    }
    const running = this.#inItsPlace(job);
    this.#running.add(running);
    try {
      await running;
    } finally {
      this.#running.delete(running);
    }
  }

  #underWayOf(workspaceId: WorkspaceId): number {
    return this.#underWay.get(workspaceId) ?? 0;
  }

  async #inItsPlace(job: DeliveryJob): Promise<void> {
    const { workspaceId } = job;
    this.#underWay.set(workspaceId, this.#underWayOf(workspaceId) + 1);
    try {
      await this.#try(job);
    } finally {
      const left = this.#underWayOf(workspaceId) - 1;
      if (left > 0) this.#underWay.set(workspaceId, left);
      else this.#underWay.delete(workspaceId);
    }
    await this.#bringMore(workspaceId);
  }

  /**
   * Queues deliveries of a workspace whose jobs were turned away,
   * as many as there is room for, behind the jobs of others.
   */
  async #bringMore(workspaceId: WorkspaceId): Promise<void> {
    if (this.#abort.signal.aborted || !this.#turnedAway.delete(workspaceId)) return;
    const room = OF_ONE_WORKSPACE - this.#underWayOf(workspaceId);
    const due = await dueDeliveriesOf(this.#parts.db, workspaceId, room);
    if (due.length === room) this.#turnedAway.add(workspaceId);
    await this.#parts.queue.add(due.map((row) => jobOf(row)));
  }

  async #try(job: DeliveryJob): Promise<void> {
    const { db, kinds, clock } = this.#parts;
    // The delivery itself may have killed an earlier process, so each claim lasts longer.
    const leaseMs = Math.max(CLAIM_MS, pauseMs(job.claim));
    const row = await claimDelivery(db, job.id, job.claim, leaseMs);
    // The message is over, or another try has the claim.
    if (row === undefined) return;
    const before = job.claim - row.attempts;
    const kind = kinds[row.kind];
    if (kind === undefined) return await this.#end(row, 'failed', 'unknown_kind');
    if (clock.nowMs() - row.createdAtMs > kind.policy.lifeMs) return await this.#end(row, 'failed', 'too_old');
    let prepared: Prepared;
    try {
      prepared = await kind.prepare(row);
    } catch (error) {
      this.#parts.log.info({ err: error, deliveryId: row.id }, 'a message could not be made, trying again');
      return await this.#again(row, pauseMs(before));
    }
    if (prepared.kind === 'superseded') return await this.#end(row, 'superseded', '');
    if (prepared.kind === 'impossible') return await this.#end(row, 'failed', prepared.why);
    let outcome: Outcome;
    try {
      outcome = await this.#parts.poster.post(row.url, prepared.message, row.workspaceId, this.#abort.signal);
    } catch {
      return await this.#again(row, 0);
    } finally {
      prepared.done?.();
    }
    await this.#tried(row, outcome, kind.policy);
  }

  async #tried(row: DeliveryRow, outcome: Outcome, policy: Policy): Promise<void> {
    const { metrics, log } = this.#parts;
    const attempts = row.attempts + 1;
    const verdict = afterTry(outcome, attempts, policy, row.claim);
    const word = wordOf(outcome);
    const httpStatus = outcome.kind === 'answered' ? outcome.status : null;
    metrics.tries.inc({ kind: row.kind, outcome: word });
    const facts = {
      deliveryId: row.id,
      subject: row.subject,
      host: hostOf(row.url),
      outcome: word,
      httpStatus,
      attempts,
    };
    if (verdict.kind === 'postpone') {
      log.info({ ...facts, attempts: row.attempts, afterMs: verdict.afterMs }, 'not sent yet, trying later');
      return await this.#again(row, verdict.afterMs);
    }
    if (verdict.kind === 'retry') {
      log.info({ ...facts, afterMs: verdict.afterMs }, 'not delivered, trying again');
      const ended = { state: 'waiting', counts: true, outcome: word, httpStatus, againMs: verdict.afterMs } as const;
      if (await this.#settle(row, ended)) this.#alarm(row, verdict.afterMs);
      return;
    }
    log[verdict.kind === 'delivered' ? 'info' : 'warn'](
      facts,
      verdict.kind === 'delivered' ? 'delivered' : 'not delivered',
    );
    await this.#end(row, verdict.kind, word, { counts: true, httpStatus });
  }

  async #end(
    row: DeliveryRow,
    state: 'delivered' | 'failed' | 'superseded',
    outcome: string,
    extra: Pick<TryEnded, 'counts' | 'httpStatus'> = { counts: false, httpStatus: null },
  ): Promise<void> {
    if (!(await this.#settle(row, { state, outcome, ...extra }))) return;
    const { metrics, clock, log } = this.#parts;
    metrics.ended.inc({ kind: row.kind, result: state });
    if (state === 'delivered') metrics.duration.observe({ kind: row.kind }, (clock.nowMs() - row.createdAtMs) / 1000);
    else if (!extra.counts) log.info({ deliveryId: row.id, subject: row.subject, state, outcome }, 'not sent');
  }

  /**
   * Puts a message off without counting a try. The sweep finds one
   * that rests for long, so that it takes no room in the queue.
   */
  async #again(row: DeliveryRow, againMs: number): Promise<void> {
    const ended = {
      state: 'waiting',
      counts: false,
      outcome: row.outcome,
      httpStatus: row.httpStatus,
      againMs,
    } as const;
    if ((await this.#settle(row, ended)) && againMs <= LATE_MS) this.#alarm(row, againMs);
  }

  /** Writes the outcome. @returns false: another try has begun, and decides about the message */
  async #settle(row: DeliveryRow, ended: TryEnded): Promise<boolean> {
    return await settleDelivery(this.#parts.db, row.id, row.claim, ended);
  }

  /** Adds an alarm; the sweep makes good a lost one. */
  #alarm(row: DeliveryRow, delayMs: number): void {
    this.#parts.queue.add([jobOf(row, delayMs)]).catch(() => undefined);
  }
}

function jobOf(row: Pick<DeliveryRow, 'id' | 'workspaceId' | 'claim'>, delayMs = 0): PlatformJob<DeliveryJob> {
  const { id, workspaceId, claim } = row;
  return { id: `${id}-${claim}`, facts: { id, workspaceId, claim }, ...(delayMs > 0 ? { delayMs } : {}) };
}

/** Host of an address: the only part that is logged, because the rest may carry secrets. */
export const hostOf = (url: string): string => URL.parse(url)?.host ?? '';
