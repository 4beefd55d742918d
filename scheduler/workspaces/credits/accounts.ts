// Accounts of credits as people see and change them: balance, mode, spend limit, grants, and usage.
// Invariant: a change is in the database when it is answered, and in Redis unless that is away; it then gets there
// within a minute of the account's next request.
import { randomUUID } from 'node:crypto';
import { sleep } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { isUuid } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import { noSuchWorkspace } from '../../domain/no-workspace.ts';
import type { Log } from '#shared/log.ts';
import type { CreditBook } from '../../stores/queues/credit-book.ts';
import type { Db, Transaction } from '../../stores/store/db.ts';
import { appendLedger, changeCreditAccount, creditAccount, grantOf } from '../../stores/store/queries/credits.ts';
import type { CreditAccount, CreditMode } from '../../stores/store/queries/credits.ts';
import { ledgerRows } from '../../stores/store/queries/ledger-rows.ts';
import type { LedgerFilter, LedgerRowRead } from '../../stores/store/queries/ledger-rows.ts';
import { usageBy, usageTotal } from '../../stores/store/queries/ledger-usage.ts';
import type { UsageGroupSums, UsageRange, UsageSums } from '../../stores/store/queries/ledger-usage.ts';
import { workspaceById } from '../../stores/store/queries/workspaces.ts';
import { auditEvent } from '../events/audit.ts';
import type { Actor } from '../events/audit.ts';
import type { EventWriter } from '../events/writer.ts';
import { MOST_MICROS, monthOf } from './cost.ts';
import { EMPTY } from './entries.ts';

/** Longest wait of a read for entries on their way to the database. */
const CAUGHT_UP_MS = 2_000;
const LOOK_MS = 20;
export const MOST_USAGE_ROWS = 10_000;

/** An account with what is under way. */
export interface AccountState {
  readonly workspaceId: WorkspaceId;
  readonly mode: CreditMode;
  readonly balanceMicros: number;
  readonly heldMicros: number;
  /** null: nothing bounds new requests. */
  readonly availableMicros: number | null;
  readonly month: string;
  readonly spentMicros: number;
  readonly spendLimitMicros: number | null;
}

/** Credits of an account, less what is held of them. */
export interface CreditsLeft {
  readonly mode: CreditMode;
  /** Below 0: owed. */
  readonly leftMicros: number;
}

export interface CreditAccountsParts {
  readonly db: Db;
  readonly book: Pick<CreditBook, 'sums' | 'putAccounts' | 'lastEntry' | 'hasEntriesUntil'>;
  readonly events: Pick<EventWriter, 'transaction'>;
  /** Drains at once where this replica leads. */
  readonly drainSoon: () => void;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly log: Log;
}

export class CreditAccounts {
  readonly #parts: CreditAccountsParts;

  constructor(parts: CreditAccountsParts) {
    this.#parts = parts;
  }

  /** @throws AppError `queues_unavailable`: what is under way is not known */
  async show(workspaceId: WorkspaceId): Promise<AccountState> {
    await this.#caughtUp();
    return this.#stateOf(await creditAccount(this.#parts.db.reads.of(workspaceId), workspaceId));
  }

  /**
   * Mode of the account, and its balance less holds. While Redis is away, the balance is the database's alone.
   * Waits for nothing that is on its way.
   */
  async left(workspaceId: WorkspaceId): Promise<CreditsLeft> {
    const { db, book, log } = this.#parts;
    const { mode, balanceMicros } = await creditAccount(db.reads.of(workspaceId), workspaceId);
    if (mode === 'postpaid') return { mode, leftMicros: balanceMicros };
    const { pendingMicros, heldMicros } = await book.sums(workspaceId).catch((error: unknown) => {
      log.info({ err: error, workspaceId }, 'a balance is shown without what is held of it');
      return { pendingMicros: 0, heldMicros: 0 };
    });
    return { mode, leftMicros: balanceMicros - pendingMicros - heldMicros };
  }

  /** @throws AppError `workspace_not_found` */
  async change(
    workspaceId: WorkspaceId,
    change: { readonly mode?: CreditMode; readonly spendLimitMicros?: number | null },
    by: Actor,
  ): Promise<AccountState> {
    const { db, events, clock } = this.#parts;
    const account = await events.transaction(db, async (tx, emit) => {
      const name = await nameOf(tx, workspaceId);
      const target = { type: 'workspace', id: workspaceId, name };
      const attrs = {
        ...(change.mode === undefined ? {} : { mode: change.mode }),
        ...(change.spendLimitMicros === undefined ? {} : { spend_limit_micros: change.spendLimitMicros }),
      };
      emit(auditEvent(by, 'audit.credit.updated', { workspaceId, target, attrs }, clock.nowMs()));
      return changeCreditAccount(tx, workspaceId, change);
    });
    await this.#put(account);
    return this.#stateOf(account);
  }

  /**
   * Adds to a balance, once for each key.
   * @throws AppError `workspace_not_found`, `credit_grant_exists` for the key with another amount, `invalid_body`
   */
  async grant(
    workspaceId: WorkspaceId,
    given: { readonly micros: number; readonly key?: string; readonly note?: string },
    by: Actor,
  ): Promise<{ readonly granted: boolean; readonly account: AccountState }> {
    const { db, events, clock } = this.#parts;
    const requestId = `grant:${workspaceId}:${given.key ?? randomUUID()}`;
    const { granted, account } = await events.transaction(db, async (tx, emit) => {
      const name = await nameOf(tx, workspaceId);
      const entry = {
        ...EMPTY,
        requestId,
        kind: 'grant',
        workspaceId,
        tokenId: by.tokenId,
        grantMicros: given.micros,
        status: 'complete',
        note: given.note ?? '',
        createdAtMs: clock.nowMs(),
      } as const;
      const { accounts, added } = await appendLedger(tx, [entry]);
      const [after] = accounts;
      if (after === undefined) throw new Error('a grant has an account');
      if (!added.has(requestId)) {
        if ((await grantOf(tx, requestId)) === given.micros) return { granted: false, account: after };
        throw new AppError('credit_grant_exists', 'a grant with this key and another amount was there before');
      }
      if (Math.abs(after.balanceMicros) > MOST_MICROS)
        throw new AppError('invalid_body', `amount_micros would bring the balance above ${MOST_MICROS}`);
      const target = { type: 'workspace', id: workspaceId, name };
      const attrs = { amount_micros: given.micros, note: given.note ?? '' };
      emit(auditEvent(by, 'audit.credit.granted', { workspaceId, target, attrs }, clock.nowMs()));
      return { granted: true, account: after };
    });
    await this.#put(account);
    return { granted, account: await this.#stateOf(account) };
  }

  /** Sums of requests to models, and of the time of containers, by any of the groups. */
  async usage(
    range: UsageRange,
    by: Parameters<typeof usageBy>[2],
  ): Promise<{ readonly rows: readonly UsageGroupSums[]; readonly truncated: boolean; readonly total: UsageSums }> {
    await this.#caughtUp();
    const reads = this.#parts.db.reads.of(range.workspaceId);
    const total = await usageTotal(reads, range);
    if (by.length === 0) return { rows: [total], truncated: false, total };
    const rows = await usageBy(reads, range, by, MOST_USAGE_ROWS + 1);
    return { rows: rows.slice(0, MOST_USAGE_ROWS), truncated: rows.length > MOST_USAGE_ROWS, total };
  }

  /** Rows of the ledger, the newest first. */
  async ledger(filter: LedgerFilter): Promise<readonly LedgerRowRead[]> {
    await this.#caughtUp();
    return ledgerRows(this.#parts.db.reads.of(filter.workspaceId), filter);
  }

  async #stateOf(account: CreditAccount): Promise<AccountState> {
    const { book, clock } = this.#parts;
    const { pendingMicros, heldMicros } = await book.sums(account.workspaceId).catch((error: unknown) => {
      throw new AppError('queues_unavailable', 'cannot read what is held for requests', { cause: error });
    });
    const month = monthOf(clock.nowMs());
    const balanceMicros = account.balanceMicros - pendingMicros;
    const spentMicros = (account.spentMonth === month ? account.spentMicros : 0) + pendingMicros;
    const bounds = [
      ...(account.mode === 'prepaid' ? [balanceMicros - heldMicros] : []),
      ...(account.spendLimitMicros === null ? [] : [account.spendLimitMicros - spentMicros - heldMicros]),
    ];
    return {
      workspaceId: account.workspaceId,
      mode: account.mode,
      balanceMicros,
      heldMicros,
      availableMicros: bounds.length === 0 ? null : Math.max(0, Math.min(...bounds)),
      month,
      spentMicros,
      spendLimitMicros: account.spendLimitMicros,
    };
  }

  async #put(account: CreditAccount): Promise<void> {
    await this.#parts.book.putAccounts([account]).catch((error: unknown) => {
      this.#parts.log.warn({ err: error, workspaceId: account.workspaceId }, 'Redis gets a changed account later');
    });
  }

  /** Waits until the database has the entries that Redis has now, so that a caller sees its own requests. */
  async #caughtUp(): Promise<void> {
    const { book, drainSoon, log } = this.#parts;
    const untilMs = performance.now() + CAUGHT_UP_MS;
    try {
      const last = await book.lastEntry();
      while (last !== undefined && performance.now() < untilMs) {
        drainSoon();
        if (!(await book.hasEntriesUntil(last))) return;
        await sleep(LOOK_MS);
      }
    } catch (error) {
      log.info({ err: error }, 'the ledger is read without a look at the entries on their way');
    }
  }
}

async function nameOf(tx: Transaction, workspaceId: WorkspaceId): Promise<string> {
  const workspace = isUuid(workspaceId) ? await workspaceById(tx, workspaceId) : undefined;
  if (workspace === undefined) throw noSuchWorkspace();
  return workspace.name;
}
