// The way of one webhook's events, on the leader: pages of events behind the cursor, a few posts at once, one after
// another for a subject. The cursor passes an event when its outcome is on its way to the database.
// Invariants:
// - Events of one subject are sent in their order. An event that waits for another try holds back those behind it.
// - A page is the most that is in memory.
// - The cursor is behind every event that has no outcome.
import { sleep } from '#shared/backoff.ts';
import { newId } from '#shared/domain/ids.ts';
import type { DeliveryId, WebhookId, WorkspaceId } from '#shared/domain/ids.ts';
import { timestampOf } from '#shared/api/fields.ts';
import type { EventRow } from '../../stores/store/queries/events.ts';
import type { Delivered, DueDelivery, EventPage, Progress } from '../../stores/store/queries/webhook-deliveries.ts';
import type { LastDelivery, WebhookWork } from '../../stores/store/queries/webhooks.ts';
import type { Outcome } from '../webhooks/decide.ts';
import { POSTPONED_MS, afterEventTry, errorOf } from './decide.ts';
import { EventOrder } from './event-order.ts';
import type { Entry } from './event-order.ts';
import { kindsOf } from './filters.ts';
import { WaitingDeliveries } from './waiting.ts';

/** Most posts of one webhook at once. */
export const OF_ONE_WEBHOOK = 8;
/** Most at once to a receiver that has not answered yet, and to one that did not answer in time. */
const UNPROVEN = 2;
const SILENT = 1;
/** Milliseconds from which on a receiver is slow: its posts have places of their own. */
const SLOW_MS = 2_000;
export const PAGE = 50;
/** Bytes of data at which a page is cut. */
const PAGE_BYTES = 512 * 1024;
/** Open events below which the next page is read. */
const LOW_WATER = PAGE / 2;
/** Deliveries of a webhook that wait for another try; with more, new events are not tried before some are over. */
const MOST_WAITING = 1_000;
const BACKLOG_CHECK_MS = 10_000;
const BRING_EVERY_MS = 5_000;
const BEHIND = 'waits behind an earlier event of the same subject';

export interface LaneHost {
  readonly nowMs: () => number;
  /** Most events of its kinds that a webhook may have before it; the oldest are passed over. */
  readonly mostBacklog: number;
  /** Whether outcomes may be added: the database takes them. */
  mayStart(): boolean;
  /** @throws the reason of a stop */
  post(lane: Lane, event: EventRow): Promise<{ readonly outcome: Outcome; readonly durationMs: number }>;
  page(lane: Lane, afterSeq: number, types: readonly string[]): Promise<EventPage>;
  edge(
    lane: Lane,
    afterSeq: number,
    types: readonly string[],
  ): Promise<{ readonly seq: number; readonly skipped: number } | undefined>;
  /** The webhook as it is now. */
  fresh(lane: Lane): Promise<WebhookWork | undefined>;
  due(lane: Lane, except: readonly DeliveryId[]): Promise<readonly DueDelivery[]>;
  bringForward(lane: Lane): Promise<void>;
  /** Takes an outcome, to be written with the progress of the lane. @param storedAtMs - of the event */
  ended(lane: Lane, outcome: Delivered, storedAtMs: number): void;
  /** The lane's progress is to be written. */
  moved(lane: Lane): void;
  /** The receiver answered that it is gone. */
  gone(lane: Lane): void;
  failed(lane: Lane, error: unknown): void;
}

interface Retry {
  readonly event: EventRow;
  readonly subject: string;
  readonly id: DeliveryId;
  readonly attempts: number;
}

export class Lane {
  readonly id: WebhookId;
  readonly workspaceId: WorkspaceId;
  readonly #host: LaneHost;
  readonly #signal: AbortSignal;
  #webhook: WebhookWork;
  #types: readonly string[];
  #lastSeq: number;
  /** Every matching event up to here was read. */
  #readTo: number;
  /** Events that were read. */
  readonly #events = new EventOrder();
  readonly #retries: Retry[] = [];
  /** Retries that were read and have no written outcome. */
  readonly #underWay = new Set<DeliveryId>();
  readonly #waiting: WaitingDeliveries;
  #running = 0;
  #pace: 'unproven' | 'quick' | 'slow' | 'silent';
  #isReading = false;
  #isLeaving = false;
  #isStopped = false;
  #retriesDue: boolean;
  #checkedAtMs = -Infinity;
  #broughtAtMs = -Infinity;
  #skipped = 0;
  #last: LastDelivery | undefined;

  constructor(host: LaneHost, webhook: WebhookWork, held: ReadonlyMap<string, number>, signal: AbortSignal) {
    this.#host = host;
    this.#signal = signal;
    this.#webhook = webhook;
    this.#types = kindsOf(webhook.eventTypes);
    this.id = webhook.id;
    this.workspaceId = webhook.workspaceId;
    this.#readTo = webhook.cursorSeq;
    this.#lastSeq = webhook.lastSeq;
    this.#waiting = new WaitingDeliveries(held);
    this.#retriesDue = this.#waiting.total > 0;
    const { lastDelivery } = webhook;
    this.#pace = lastDelivery !== null && lastDelivery.status_code === null ? 'silent' : 'unproven';
  }

  get webhook(): WebhookWork {
    return this.#webhook;
  }

  /** Events up to here have outcomes, or are not the webhook's. */
  get cursor(): number {
    const first = this.#events.firstSeq;
    return first === undefined ? this.#readTo : first - 1;
  }

  /** Whether its posts may take long. */
  get isSlow(): boolean {
    return this.#pace === 'slow' || this.#pace === 'silent';
  }

  get isBehind(): boolean {
    return this.#events.size > 0 || this.#readTo < this.#lastSeq;
  }

  /** Whether the lane has nothing to do, and nothing that is not written. */
  get isIdle(): boolean {
    if (this.#running > 0 || this.#isReading || this.#events.size > 0) return false;
    if (this.#retries.length > 0 || this.#underWay.size > 0) return false;
    return this.#isLeaving || this.#readTo >= this.#lastSeq;
  }

  get hasWaiting(): boolean {
    return this.#waiting.total > 0;
  }

  /** Whether no delivery is in motion. */
  get isCalm(): boolean {
    return this.#running === 0 && this.#underWay.size === 0;
  }

  /** Grows with each change of the waiting deliveries, as they are known here. */
  get waitingVersion(): number {
    return this.#waiting.version;
  }

  /** The workspace has events up to this number. */
  more(lastSeq: number): void {
    if (lastSeq <= this.#lastSeq) return;
    this.#lastSeq = lastSeq;
    this.step();
  }

  /**
   * The webhook's row as it is now.
   * @param held - waiting deliveries, counted anew while none was in motion
   */
  changed(webhook: WebhookWork, held?: ReadonlyMap<string, number>): void {
    this.#take(webhook);
    if (held !== undefined) this.#waiting.replace(held);
    this.#retriesDue = this.#waiting.total > 0;
    this.step();
  }

  #take(webhook: WebhookWork): void {
    this.#webhook = webhook;
    this.#types = kindsOf(webhook.eventTypes);
    this.#lastSeq = Math.max(this.#lastSeq, webhook.lastSeq);
    // A webhook that was inactive in between goes on behind the events of that time.
    this.#readTo = Math.max(this.#readTo, webhook.cursorSeq);
  }

  /** Retries whose outcomes are written may be read again. */
  written(ids: readonly DeliveryId[]): void {
    for (const id of ids) if (this.#underWay.delete(id)) this.#retriesDue = true;
    this.step();
  }

  /** Progress since the last call. */
  takeProgress(): Progress {
    const progress = {
      webhookId: this.id,
      cursorSeq: this.cursor,
      skipped: this.#skipped,
      lastDelivery: this.#last,
    };
    this.#skipped = 0;
    this.#last = undefined;
    return progress;
  }

  /** Progress that could not be written. */
  giveBack({ skipped, lastDelivery }: Progress): void {
    this.#skipped += skipped;
    this.#last ??= lastDelivery;
  }

  /** Makes room for others: what has begun ends, and nothing more begins. */
  leave(): void {
    if (this.#isLeaving) return;
    this.#isLeaving = true;
    const dropped = this.#events.dropUnbegun();
    if (dropped !== undefined) this.#readTo = dropped - 1;
    for (const { id } of this.#retries.splice(0)) this.#underWay.delete(id);
    this.step();
  }

  /** Begins nothing more. */
  stop(): void {
    this.#isStopped = true;
  }

  /** Starts whatever may start now. */
  step(): void {
    if (this.#isStopped || this.#signal.aborted) return;
    while (this.#running < this.#room && this.#host.mayStart()) {
      const retry = this.#retries.shift();
      if (retry !== undefined) {
        void this.#again(retry);
        continue;
      }
      if (this.#waiting.total >= MOST_WAITING) break;
      const entry = this.#events.next();
      if (entry === undefined) break;
      if (this.#waiting.has(entry.subject)) this.#putBehind(entry);
      else void this.#send(entry);
    }
    if (!this.#isReading) void this.#read();
  }

  get #room(): number {
    if (this.#pace === 'unproven') return UNPROVEN;
    return this.#pace === 'silent' ? SILENT : OF_ONE_WEBHOOK;
  }

  async #read(): Promise<void> {
    const wantsRetries = this.#retriesDue && !this.#isLeaving && this.#retries.length === 0;
    const wantsPage =
      !this.#isLeaving &&
      this.#readTo < this.#lastSeq &&
      this.#waiting.total < MOST_WAITING &&
      this.#events.size < LOW_WATER;
    if (!wantsRetries && !wantsPage) return;
    this.#isReading = true;
    try {
      if (wantsRetries) await this.#readRetries();
      if (wantsPage) await this.#readPage();
    } catch (error) {
      // The next sweep tries again.
      this.#host.failed(this, error);
      return;
    } finally {
      this.#isReading = false;
    }
    this.step();
  }

  async #readRetries(): Promise<void> {
    const due = await this.#host.due(this, [...this.#underWay]);
    this.#retriesDue = false;
    for (const { delivery, event } of due) {
      const { id, subject, attempts } = delivery;
      this.#underWay.add(id);
      if (event !== undefined) this.#retries.push({ event, subject, id, attempts });
      else this.#endLost(delivery);
    }
  }

  async #readPage(): Promise<void> {
    const types = this.#types;
    const nowMs = this.#host.nowMs();
    if (this.#lastSeq - this.#readTo > this.#host.mostBacklog && nowMs - this.#checkedAtMs > BACKLOG_CHECK_MS) {
      this.#checkedAtMs = nowMs;
      const edge = await this.#host.edge(this, this.#readTo, types);
      if (edge !== undefined) this.#skip(edge.seq, edge.skipped);
    }
    const from = this.#readTo;
    const page = await this.#host.page(this, from, types);
    if (this.#isLeaving || this.#isStopped || this.#readTo !== from) return;
    if (page.webhookAtMs !== this.#webhook.updatedAtMs) {
      // A change counts from the next page on. The page is read again by the new filters.
      const fresh = await this.#host.fresh(this);
      if (fresh === undefined || !fresh.active) this.leave();
      else this.#take(fresh);
      return;
    }
    const { oldestSeq = 0 } = page;
    // Numbers in front of the oldest event were deleted by age.
    if (this.#readTo > 0 && oldestSeq > this.#readTo + 1) this.#skipped += oldestSeq - this.#readTo - 1;
    let bytes = 0;
    let readTo = page.upTo;
    for (const event of page.events) {
      this.#events.add(event);
      bytes += JSON.stringify(event.data).length;
      if (bytes < PAGE_BYTES) continue;
      readTo = event.seq;
      break;
    }
    this.#lastSeq = Math.max(this.#lastSeq, page.lastSeq);
    this.#readTo = readTo;
    this.#host.moved(this);
  }

  #skip(toSeq: number, events: number): void {
    this.#readTo = toSeq;
    this.#skipped += events;
    this.#host.moved(this);
  }

  #finish(entry: Entry): void {
    this.#events.finish(entry);
    this.#host.moved(this);
  }

  async #send(entry: Entry): Promise<void> {
    entry.state = 'running';
    this.#running += 1;
    let after: 'finished' | 'postponed';
    try {
      after = await this.#try(entry.event, entry.subject, newId<DeliveryId>(), 0);
    } catch (error) {
      // The message could not be made.
      this.#host.failed(this, error);
      await sleep(POSTPONED_MS, this.#signal);
      after = 'postponed';
    } finally {
      this.#running -= 1;
    }
    if (after === 'finished') this.#finish(entry);
    else this.#events.reopen(entry);
    this.step();
  }

  async #again(retry: Retry): Promise<void> {
    this.#running += 1;
    const { event, subject, id, attempts } = retry;
    try {
      const after = await this.#try(event, subject, id, attempts);
      // A retry for which there was no place is found again by the next sweep.
      if (after === 'postponed') this.#underWay.delete(id);
    } catch (error) {
      this.#host.failed(this, error);
      this.#underWay.delete(id);
    } finally {
      this.#running -= 1;
    }
    this.step();
  }

  /**
   * Tries an event once.
   * @param attempts - tries before
   * @throws the reason of a stop
   */
  async #try(event: EventRow, subject: string, id: DeliveryId, attempts: number): Promise<'finished' | 'postponed'> {
    const { outcome, durationMs } = await this.#host.post(this, event);
    const nowMs = this.#host.nowMs();
    const verdict = afterEventTry(outcome, attempts + 1, this.#webhook.retry, nowMs);
    if (verdict.kind === 'postpone') {
      await sleep(verdict.afterMs, this.#signal);
      return 'postponed';
    }
    if (outcome.kind === 'timed_out') this.#pace = 'silent';
    else if (outcome.kind === 'answered') this.#pace = durationMs > SLOW_MS ? 'slow' : 'quick';
    const waited = attempts > 0 || this.#underWay.has(id);
    const waits = verdict.kind === 'again';
    this.#waiting.change(subject, waits ? (waited ? 0 : 1) : waited ? -1 : 0);
    const statusCode = outcome.kind === 'answered' ? outcome.status : null;
    const error = errorOf(outcome);
    this.#last = { event_id: event.id, status_code: statusCode, at: timestampOf(nowMs), error: error || null };
    this.#host.ended(
      this,
      {
        ...this.#outcomeOf(event, subject, id),
        state: waits ? 'waiting' : verdict.kind === 'delivered' ? 'delivered' : 'failed',
        attempts: attempts + 1,
        statusCode,
        error,
        durationMs,
        dueInMs: waits ? verdict.afterMs : null,
        atMs: nowMs,
      },
      event.storedAtMs,
    );
    if (verdict.kind === 'gone') this.#host.gone(this);
    // The receiver answers again: new events wait for those that wait.
    if (verdict.kind === 'delivered' && this.#waiting.total >= MOST_WAITING / 2) this.#bringForward(nowMs);
    return 'finished';
  }

  #bringForward(nowMs: number): void {
    if (nowMs - this.#broughtAtMs < BRING_EVERY_MS) return;
    this.#broughtAtMs = nowMs;
    this.#host.bringForward(this).then(
      () => {
        this.#retriesDue = true;
        this.step();
      },
      (error: unknown) => this.#host.failed(this, error),
    );
  }

  /** An earlier event of the subject waits for another try: this one comes after it. */
  #putBehind(entry: Entry): void {
    this.#waiting.change(entry.subject, 1);
    this.#host.ended(
      this,
      {
        ...this.#outcomeOf(entry.event, entry.subject, newId<DeliveryId>()),
        state: 'waiting',
        attempts: 0,
        statusCode: null,
        error: BEHIND,
        durationMs: null,
        dueInMs: 0,
        atMs: this.#host.nowMs(),
      },
      entry.event.storedAtMs,
    );
    this.#finish(entry);
  }

  /** The event of a retry was deleted by age. */
  #endLost(delivery: DueDelivery['delivery']): void {
    this.#waiting.change(delivery.subject, -1);
    this.#host.ended(
      this,
      {
        ...delivery,
        state: 'failed',
        error: 'the event is not kept any more',
        dueInMs: null,
        atMs: this.#host.nowMs(),
      },
      delivery.createdAtMs,
    );
  }

  #outcomeOf(event: EventRow, subject: string, id: DeliveryId) {
    return {
      id,
      webhookId: this.id,
      eventSeq: event.seq,
      eventId: event.id,
      eventType: event.type,
      subject,
    };
  }
}
