// Delivery of messages of any kind to addresses that users named: a row for each, which any replica claims when it is
// due. A kind (callbacks.ts is one) says what is sent and how often it is tried.
// Invariants:
// - A try begins only with a claim that no other try has.
// - A message is over only when its row says so.
// - The claim of a killed process lapses, and another one has the message.
// - A receiver may get a message twice. No message is dropped before its tries or its life are used up.
// - Other workspaces get their turn, however many messages one has, and however slow its receivers are.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Db } from '../../stores/store/db.ts';
import { claimDeliveries, countWaitingDeliveries, settleDelivery } from '../../stores/store/queries/deliveries.ts';
import type { DeliveryRow, TryEnded } from '../../stores/store/queries/deliveries.ts';
import { RowWorker } from '../../stores/store/row-worker.ts';
import type { Outcome, Policy } from './decide.ts';
import { afterTry, FIRST_PAUSE_MS, LONGEST_PAUSE_MS, pauseMs, wordOf } from './decide.ts';
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

export interface DeliveriesParts {
  readonly db: Db;
  readonly poster: Pick<Poster, 'post' | 'close'>;
  readonly kinds: Readonly<Record<string, DeliveryKind>>;
  readonly metrics: DeliveryMetrics;
  readonly clock: Clock;
  readonly log: Log;
  /** Has the other replicas look, too; absent: there are none. */
  readonly tellOthers?: () => void;
  readonly lookMs?: number;
}

/** Most deliveries under way here; one workspace gets a quarter, since its receivers may all be slow. */
const AT_ONCE = 32;
const OF_ONE_WORKSPACE = 8;
/** Time after which a claim lapses, because its process must have died: longer than any try may take. */
const CLAIM_MS = 120_000;
/** Interval of looks for what nobody announced here. */
const LOOK_MS = 2_000;
const MOST_COUNTED = 100_000;

export class Deliveries {
  readonly name = 'deliveries';
  readonly #parts: DeliveriesParts;
  readonly #abort = new AbortController();
  readonly #underWay = new Map<WorkspaceId, number>();
  readonly #worker: RowWorker<DeliveryRow>;

  constructor(parts: DeliveriesParts) {
    this.#parts = parts;
    const { db, log, tellOthers } = parts;
    // The delivery itself may have killed an earlier process, so each claim lasts longer.
    const times = { leastMs: CLAIM_MS, firstMs: FIRST_PAUSE_MS, mostMs: LONGEST_PAUSE_MS };
    this.#worker = new RowWorker({
      places: AT_ONCE,
      lookMs: parts.lookMs ?? LOOK_MS,
      claim: (most) => claimDeliveries(db, most, OF_ONE_WORKSPACE, this.#underWay, times),
      work: (row) => this.#inItsPlace(row),
      ...(tellOthers === undefined ? {} : { onFull: tellOthers }),
      onFailed: (error) => log.warn({ err: error }, 'deliveries not looked through, trying again'),
    });
  }

  start(): void {
    this.#worker.start();
  }

  /** Aborts the deliveries under way and gives them back: another process, or the next one, sends them again. */
  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#worker.stop();
    await this.#parts.poster.close();
  }

  /** Looks for due deliveries now, because rows were committed. */
  wake(): void {
    this.#worker.wake();
  }

  /** Looks once, and resolves when what it found was tried. @throws when the database does not answer */
  look(): Promise<void> {
    return this.#worker.look();
  }

  /** Shows how many deliveries wait, at the leader. @throws when the database does not answer */
  async count(): Promise<void> {
    this.#parts.metrics.waiting.set(await countWaitingDeliveries(this.#parts.db, MOST_COUNTED));
  }

  async #inItsPlace(row: DeliveryRow): Promise<void> {
    const { workspaceId } = row;
    this.#underWay.set(workspaceId, (this.#underWay.get(workspaceId) ?? 0) + 1);
    try {
      await this.#try(row);
    } catch (error) {
      this.#parts.log.warn({ err: error, deliveryId: row.id }, 'a delivery is tried again when its claim lapses');
    } finally {
      const left = (this.#underWay.get(workspaceId) ?? 0) - 1;
      if (left > 0) this.#underWay.set(workspaceId, left);
      else this.#underWay.delete(workspaceId);
    }
  }

  async #try(row: DeliveryRow): Promise<void> {
    const { kinds, clock } = this.#parts;
    const kind = kinds[row.kind];
    if (kind === undefined) return await this.#end(row, 'failed', 'unknown_kind');
    if (clock.nowMs() - row.createdAtMs > kind.policy.lifeMs) return await this.#end(row, 'failed', 'too_old');
    let prepared: Prepared;
    try {
      prepared = await kind.prepare(row);
    } catch (error) {
      this.#parts.log.info({ err: error, deliveryId: row.id }, 'a message could not be made, trying again');
      return await this.#again(row, pauseMs(row.claim - 1 - row.attempts));
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
      await this.#settle(row, ended);
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

  /** Puts a message off without counting a try. */
  async #again(row: DeliveryRow, againMs: number): Promise<void> {
    const { outcome, httpStatus } = row;
    await this.#settle(row, { state: 'waiting', counts: false, outcome, httpStatus, againMs });
  }

  /** Writes the outcome. @returns false: another try has begun, and decides about the message */
  async #settle(row: DeliveryRow, ended: TryEnded): Promise<boolean> {
    const isOurs = await settleDelivery(this.#parts.db, row.id, row.claim, ended);
    if (isOurs && ended.againMs !== undefined) this.#worker.wake(ended.againMs);
    return isOurs;
  }
}

/** Host of an address: the only part that is logged, because the rest may carry secrets. */
export const hostOf = (url: string): string => URL.parse(url)?.host ?? '';
