// Charges of requests to models: a hold before any work, its usage while it runs, and a ledger entry at its end. A hold
// that no replica renews lapses; the leader then settles the request (lost-holds.ts).
// Invariant: when `settle` resolves, Redis or the database has the entry. A request has one row, however often it is
// settled, and by whom.
import { backoffMs, repeat, sleep } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type {
  Admitted,
  ChargeRequest,
  ChargeStatus,
  Charging,
  LastingHolds,
  TokenUsage,
} from '../../domain/inference.ts';
import type { CreditBook, Held, Hold } from '../../stores/queues/credit-book.ts';
import { creditAccount, writeLedger } from '../../stores/store/queries/credits.ts';
import type { LedgerEntry } from '../../stores/store/queries/credits.ts';
import type { Db } from '../../stores/store/db.ts';
import { costOf, monthOf } from './cost.ts';
import { entryOf, entryText, holdText, usageText } from './entries.ts';
import { RecentEntries } from './recent-entries.ts';

/** Milliseconds after which a hold lapses that is not renewed. */
export const HOLD_MS = 60_000;
const RENEW_MS = 5_000;
/** Entries on their way to the database above which no request is admitted. */
export const MOST_LEDGER_ENTRIES = 200_000;
const RENEWED_AT_ONCE = 500;
/** Age at which an account in Redis is compared with the database again; a lost message costs this much. */
const REFRESH_MS = 60_000;
/** Time in which Redis must take an entry; then the database gets it directly. */
const SETTLE_IN_REDIS_MS = 3_000;
const SETTLE_MS = 20_000;

const SHOW = 'see `longshore credit show`';
const REFUSALS: Readonly<Record<'balance' | 'spend_limit', Admitted>> = {
  balance: {
    kind: 'refused',
    code: 'insufficient_credits',
    message: `the workspace's credits do not cover this request: ask an administrator for \`longshore credit grant\`, or lower max_tokens; ${SHOW}`,
  },
  spend_limit: {
    kind: 'refused',
    code: 'spend_limit_reached',
    message: `this request could exceed the workspace's spend limit of the month: ask an administrator for \`longshore credit limit\`, or lower max_tokens; ${SHOW}`,
  },
};

interface Open {
  readonly request: ChargeRequest;
  readonly hold: Hold;
  usage?: TokenUsage;
  /** Settling or release under way. */
  ending?: Promise<void>;
}

export interface ChargesParts {
  readonly db: Db;
  readonly book: CreditBook;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly log: Log;
  readonly renewMs?: number;
  readonly settleInRedisMs?: number;
}

export class Charges implements Charging, LastingHolds {
  readonly name = 'charges';
  readonly #parts: ChargesParts;
  readonly #open = new Map<string, Open>();
  /** Accounts by the time at which they were last read from the database. */
  readonly #readAtMs = new Map<WorkspaceId, number>();
  readonly #recent = new RecentEntries();
  readonly #settled = new Listeners<[]>();
  readonly #abort = new AbortController();

  constructor(parts: ChargesParts) {
    this.#parts = parts;
  }

  /** Told when an entry was put on the ledger in Redis. */
  onSettled(listener: () => void): void {
    this.#settled.add(listener);
  }

  start(): void {
    const { log, renewMs = RENEW_MS } = this.#parts;
    void repeat(
      renewMs,
      this.#abort.signal,
      () => this.renew(),
      (error) => log.info({ err: error }, 'holds of requests are renewed later'),
    );
  }

  /** Waits for requests that are being settled. */
  async stop(): Promise<void> {
    this.#abort.abort();
    await Promise.allSettled([...this.#open.values()].map(({ ending }) => ending ?? Promise.resolve()));
  }

  /** @throws AppError `queues_unavailable`, `database_unavailable`, `ledger_behind` */
  async reserve(request: ChargeRequest): Promise<Admitted> {
    const hold = holdOf(request);
    const check = request.isCharged ? 'all' : 'bound';
    if (check === 'all') this.#refreshLater(request.workspaceId);
    let held = await this.#hold(hold, request, check);
    if (held === 'unknown_account') {
      await this.#refresh(request.workspaceId);
      held = await this.#hold(hold, request, check);
    }
    if (held === 'balance' || held === 'spend_limit') return REFUSALS[held];
    if (held === 'behind') {
      throw new AppError('ledger_behind', 'the ledger does not reach the database; no request is admitted meanwhile');
    }
    if (held === 'unknown_account') throw unavailable('read the account of the workspace');
    this.#open.set(request.requestId, { request, hold });
    return { kind: 'admitted' };
  }

  progress(requestId: string, usage: TokenUsage): void {
    const open = this.#open.get(requestId);
    if (open !== undefined) open.usage = usage;
  }

  settle(requestId: string, usage: TokenUsage, status: ChargeStatus): Promise<void> {
    const open = this.#open.get(requestId);
    if (open === undefined) return Promise.resolve();
    open.ending ??= this.#settle(open, entryOf(open.request, usage, status, this.#parts.clock.nowMs()));
    return open.ending;
  }

  release(requestId: string): Promise<void> {
    const open = this.#open.get(requestId);
    if (open === undefined) return Promise.resolve();
    open.ending ??= this.#release(open);
    return open.ending;
  }

  handOver(requestId: string): void {
    this.#open.delete(requestId);
  }

  /** @throws the client's error when Redis does not answer */
  async keep(requests: readonly ChargeRequest[]): Promise<void> {
    const byId = new Map(requests.map((request) => [request.requestId, request]));
    const missing = await this.#parts.book.renew([...byId.keys()].map((requestId) => [requestId, ''] as const));
    for (const requestId of missing) {
      const request = byId.get(requestId);
      if (request !== undefined) await this.#hold(holdOf(request), request, 'nothing');
    }
  }

  /** @throws AppError `queues_unavailable` */
  async adopt(request: ChargeRequest): Promise<void> {
    const hold = holdOf(request);
    await this.#hold(hold, request, 'nothing');
    this.#open.set(request.requestId, { request, hold });
  }

  async giveBack(request: ChargeRequest): Promise<void> {
    this.#open.delete(request.requestId);
    await this.#endHold(holdOf(request));
  }

  /** Requests whose holds this replica renews. */
  get openRequests(): number {
    return this.#open.size;
  }

  /** Renews all holds, notes usage, and holds again for requests whose hold is gone. */
  async renew(): Promise<void> {
    const open = [...this.#open.values()].filter(({ ending }) => ending === undefined);
    for (let at = 0; at < open.length; at += RENEWED_AT_ONCE) {
      const some = open.slice(at, at + RENEWED_AT_ONCE);
      const missing = await this.#parts.book.renew(
        some.map(({ request, usage }) => [request.requestId, usageText(usage)] as const),
      );
      for (const id of missing) {
        const lost = this.#open.get(id);
        if (lost !== undefined && lost.ending === undefined) await this.#hold(lost.hold, lost.request, 'nothing');
      }
    }
  }

  /**
   * Redis may have lost data: puts entries back that the database may not have, and the holds. Tries until Redis takes
   * them, because nobody else has these entries.
   */
  async redisLost(): Promise<void> {
    this.#readAtMs.clear();
    const { signal } = this.#abort;
    for (let failures = 1; !signal.aborted; failures += 1) {
      try {
        for (const { entry, hold } of this.#recent.all()) await this.#append(hold, entry);
        await this.renew();
        this.#settled.tell();
        return;
      } catch (error) {
        this.#parts.log.info({ err: error, failures }, 'recent ledger entries are put back later');
        await sleep(backoffMs(failures, { baseMs: 50, capMs: 2_000, floorMs: 20 }), signal);
      }
    }
  }

  #hold(hold: Hold, request: ChargeRequest, check: 'all' | 'bound' | 'nothing'): Promise<Held> {
    const month = monthOf(this.#parts.clock.nowMs());
    return this.#parts.book.hold(hold, holdText(request, hold.micros), month, check).catch((error: unknown) => {
      // The hold may stand: it lapses, and costs nothing, unless it is given back now.
      void this.#parts.book.end(hold).catch(() => undefined);
      throw unavailable('hold credits for a request', error);
    });
  }

  async #settle(open: Open, entry: LedgerEntry): Promise<void> {
    const { db, log, settleInRedisMs = SETTLE_IN_REDIS_MS } = this.#parts;
    const beganAt = performance.now();
    for (let failures = 1; ; failures += 1) {
      try {
        await this.#append(open.hold, entry);
        this.#recent.add(open.hold, entry);
        break;
      } catch (error) {
        if (performance.now() - beganAt >= settleInRedisMs) {
          log.warn(
            { err: error, requestId: entry.requestId },
            'Redis does not take a ledger entry; the database gets it',
          );
          if (await this.#writeDirectly(db, entry, beganAt)) break;
        }
        if (performance.now() - beganAt >= SETTLE_MS) {
          void this.#settleLater(open, entry);
          throw unavailable('write the ledger', error);
        }
      }
      await sleep(backoffMs(failures, { baseMs: 50, capMs: 1_000, floorMs: 20 }));
    }
    this.#open.delete(entry.requestId);
    this.#settled.tell();
  }

  async #writeDirectly(db: Db, entry: LedgerEntry, beganAt: number): Promise<boolean> {
    try {
      const { accounts } = await writeLedger(db, [entry]);
      void this.#parts.book.putAccounts(accounts).catch(() => undefined);
      return true;
    } catch (error) {
      const waitedMs = Math.round(performance.now() - beganAt);
      this.#parts.log.warn({ err: error, requestId: entry.requestId, waitedMs }, 'no store takes a ledger entry');
      return false;
    }
  }

  /** Tries on after the caller was told that it failed; a later success still counts. */
  async #settleLater(open: Open, entry: LedgerEntry): Promise<void> {
    while (await sleep(RENEW_MS, this.#abort.signal)) {
      const isWritten = await this.#append(open.hold, entry).then(
        () => true,
        () => this.#writeDirectly(this.#parts.db, entry, performance.now()),
      );
      if (!isWritten) continue;
      this.#open.delete(entry.requestId);
      this.#settled.tell();
      return;
    }
  }

  async #append(hold: Hold, entry: LedgerEntry): Promise<void> {
    await this.#parts.book.end(hold, { text: entryText(entry), micros: entry.costMicros });
  }

  async #release({ hold }: Open): Promise<void> {
    this.#open.delete(hold.requestId);
    await this.#endHold(hold);
  }

  async #endHold(hold: Hold): Promise<void> {
    // A hold that stays lapses, and costs nothing.
    await this.#parts.book.end(hold).catch((error: unknown) => {
      this.#parts.log.info({ err: error, requestId: hold.requestId }, 'a hold is not given back; it lapses');
    });
  }

  #refreshLater(workspaceId: WorkspaceId): void {
    const nowMs = performance.now();
    if (nowMs - (this.#readAtMs.get(workspaceId) ?? -Infinity) < REFRESH_MS) return;
    this.#readAtMs.set(workspaceId, nowMs);
    if (this.#readAtMs.size > 10_000) this.#readAtMs.clear();
    this.#refresh(workspaceId).catch(() => this.#readAtMs.delete(workspaceId));
  }

  async #refresh(workspaceId: WorkspaceId): Promise<void> {
    const account = await creditAccount(this.#parts.db, workspaceId);
    await this.#parts.book.putAccounts([account]).catch((error: unknown) => {
      throw unavailable('keep the account of the workspace', error);
    });
  }
}

const holdOf = (request: ChargeRequest): Hold => ({
  requestId: request.requestId,
  workspaceId: request.workspaceId,
  micros: request.isCharged ? costOf(request.prices, request.most) : 0,
});

const unavailable = (what: string, cause?: unknown): AppError =>
  new AppError('queues_unavailable', `cannot ${what}`, cause === undefined ? {} : { cause });
