// Delivers messages to addresses that people named, whatever they are about: a row per message is the truth, a job in the queue is only its alarm, and a kind (callbacks.ts is one) says what is sent and how often it is
// tried. Must stay true: a try begins only with a claim that nobody else has; a message is over only when its row says so; what a killed process or a lost Redis left is found by the leader's sweep; a receiver may
// get one twice, and none is lost before its tries or its life are used up; however many one workspace has, and however slow its receivers are, the others have their turn.
import type { DeliveryId, WorkspaceId } from '#shared/domain/ids.ts';
import { repeat } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { PlatformJob } from '../queues/platform-queue.ts';
import type { Db } from '../store/db.ts';
import {
  claimDelivery,
  countWaitingDeliveries,
  dueDeliveriesOf,
  overdueDeliveries,
  settleDelivery,
} from '../store/queries/deliveries.ts';
import type { DeliveryRow, NewDelivery, TryEnded } from '../store/queries/deliveries.ts';
import type { Outcome, Policy } from './decide.ts';
import { afterTry, pauseMs, wordOf } from './decide.ts';
import type { DeliveryMetrics } from './metrics.ts';
import type { Message, Poster } from './post.ts';

export type Prepared =
  /** `done` is called when nothing of it is needed any more. */
  | { readonly kind: 'message'; readonly message: Message; readonly done?: () => void }
  /** Something newer is told about the same. */
  | { readonly kind: 'superseded' }
  /** It cannot be told any more: what it is about is gone. */
  | { readonly kind: 'impossible'; readonly why: string };

/** What is told, and how. */
export interface DeliveryKind {
  readonly policy: Policy;
  /** The message as it is sent now. @throws when a store does not answer: tried again later, and no try is counted */
  prepare(row: DeliveryRow): Promise<Prepared>;
}

export interface DeliveryJob extends Readonly<Record<string, string | number>> {
  readonly id: DeliveryId;
  /** Of the last try that began. */
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

/** Under way here at once; of one workspace, whose receivers may all be slow, a quarter. */
export const DELIVERIES_AT_ONCE = 32;
const OF_ONE_WORKSPACE = 8;
/** A try that began and was not heard of for so long died with its process: longer than any may take. */
const CLAIM_MS = 120_000;
const SWEEP_EVERY_MS = 5_000;
/** A job has so long to come before the sweep makes another. */
const LATE_MS = 2_000;
const SWEEP_LIMIT = 500;
/** More than there is room for: what is turned away says that there is more. */
const SWEEP_OF_ONE_WORKSPACE = 32;
const MOST_COUNTED = 100_000;

export class Deliveries {
  readonly name = 'deliveries';
  readonly #parts: DeliveriesParts;
  readonly #abort = new AbortController();
  readonly #underWay = new Map<WorkspaceId, number>();
  /** Have more to be sent than there was room for. */
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

  /** What is under way is cut off and given back: another process, or the next one, sends it again. */
  async stop(): Promise<void> {
    this.#abort.abort();
    // Before anything is given back: this process would take it again.
    await this.#parts.queue.stop();
    await Promise.allSettled(this.#running);
    await this.#parts.poster.close();
  }

  /** Their rows are committed: they are sent now. Where Redis does not take the jobs, or is full of them, the sweep finds the rows. */
  announce(deliveries: readonly NewDelivery[]): void {
    const jobs = deliveries.map(({ id, workspaceId }) => jobOf({ id, workspaceId, claim: 0 }));
    this.#parts.queue.add(jobs).catch((error: unknown) => {
      this.#parts.log.info({ err: error, deliveries: jobs.length }, 'deliveries wait for the next sweep');
    });
  }

  /** The leader's: alarms for rows whose own was lost. @returns how many were found late */
  async sweep(): Promise<number> {
    const { db, queue, metrics } = this.#parts;
    const late = await overdueDeliveries(db, LATE_MS, SWEEP_LIMIT, SWEEP_OF_ONE_WORKSPACE);
    await queue.add(late.map((row) => jobOf(row)));
    metrics.waiting.set(late.length === 0 ? 0 : await countWaitingDeliveries(db, MOST_COUNTED));
    return late.length;
  }

  /** A job of the queue. One that finds no room is dropped: its row stays due, and is brought again when a place is free, or by the sweep. */
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

  /** For those that were turned away: as many as there is room for, behind what others have in the queue. */
  async #bringMore(workspaceId: WorkspaceId): Promise<void> {
    if (this.#abort.signal.aborted || !this.#turnedAway.delete(workspaceId)) return;
    const room = OF_ONE_WORKSPACE - this.#underWayOf(workspaceId);
    const due = await dueDeliveriesOf(this.#parts.db, workspaceId, room);
    if (due.length === room) this.#turnedAway.add(workspaceId);
    await this.#parts.queue.add(due.map((row) => jobOf(row)));
  }

  async #try(job: DeliveryJob): Promise<void> {
    const { db, kinds, clock } = this.#parts;
    // Whoever died at it may have died of it: it rests longer each time.
    const leaseMs = Math.max(CLAIM_MS, pauseMs(job.claim));
    const row = await claimDelivery(db, job.id, job.claim, leaseMs);
    // Over, or somebody else is at it.
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

  /** Without a try being counted. What rests for long is the sweep's to find: it takes no room in the queue. */
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

  /** @returns false: another try has begun, which says what becomes of it */
  async #settle(row: DeliveryRow, ended: TryEnded): Promise<boolean> {
    return await settleDelivery(this.#parts.db, row.id, row.claim, ended);
  }

  /** Lost alarms are the sweep's. */
  #alarm(row: DeliveryRow, delayMs: number): void {
    this.#parts.queue.add([jobOf(row, delayMs)]).catch(() => undefined);
  }
}

function jobOf(row: Pick<DeliveryRow, 'id' | 'workspaceId' | 'claim'>, delayMs = 0): PlatformJob<DeliveryJob> {
  const { id, workspaceId, claim } = row;
  return { id: `${id}-${claim}`, facts: { id, workspaceId, claim }, ...(delayMs > 0 ? { delayMs } : {}) };
}

/** Of an address that may carry secrets only this is written down. */
export const hostOf = (url: string): string => URL.parse(url)?.host ?? '';
