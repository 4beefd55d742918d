// Credits in Redis: accounts, holds of requests under way, and ledger entries on their way to the database. The scripts
// in lua/ keep their sums: `held` of an account is the sum of its holds, `pending` the sum of its entries' costs.
import type { Redis } from 'ioredis';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { CreditAccount } from '../store/queries/credits.ts';
import type { Keys } from './keys.ts';
import { defineScript } from './scripts.ts';
import type { Script } from './scripts.ts';

/** Answers of reserve-credit.lua. */
const HELD_ANSWERS = { 1: 'held', 0: 'unknown_account', '-1': 'balance', '-2': 'spend_limit', '-3': 'behind' } as const;
export type Held = (typeof HELD_ANSWERS)[keyof typeof HELD_ANSWERS];

export interface Hold {
  readonly requestId: string;
  readonly workspaceId: WorkspaceId;
  readonly micros: number;
}

/** Entry of the stream. */
export interface StreamedEntry {
  readonly id: string;
  readonly text: string;
}

/** Live sums of an account, in micro-units. */
export interface CreditSums {
  readonly pendingMicros: number;
  readonly heldMicros: number;
}

export interface CreditBookOptions {
  readonly client: Redis;
  readonly keys: Keys;
  readonly holdMs: number;
  /** Entries on their way to the database above which no request is admitted. */
  readonly mostEntries: number;
}

/** @throws every method throws the client's error when Redis does not answer */
export class CreditBook {
  readonly #options: CreditBookOptions;
  readonly #reserve: Script;
  readonly #end: Script;
  readonly #renew: Script;
  readonly #put: Script;
  readonly #trim: Script;

  constructor(options: CreditBookOptions) {
    const { client } = options;
    this.#options = options;
    this.#reserve = defineScript(client, 'longshoreReserveCredit');
    this.#end = defineScript(client, 'longshoreEndCreditHold');
    this.#renew = defineScript(client, 'longshoreRenewCreditHolds');
    this.#put = defineScript(client, 'longshorePutCreditAccount');
    this.#trim = defineScript(client, 'longshoreTrimLedger');
  }

  /** @param check - reserve-credit.lua says what each checks */
  async hold(hold: Hold, text: string, month: string, check: 'all' | 'bound' | 'nothing'): Promise<Held> {
    const { keys, holdMs, mostEntries } = this.#options;
    const answer = await this.#reserve.run(
      keys.creditAccount(hold.workspaceId),
      keys.creditHolds,
      keys.creditDeadlines,
      keys.creditLedger,
      hold.requestId,
      text,
      hold.micros,
      holdMs,
      month,
      check,
      mostEntries,
    );
    return HELD_ANSWERS[answer as keyof typeof HELD_ANSWERS];
  }

  /**
   * Ends a hold.
   * @param entry - goes on the ledger; absent: nothing does
   * @param when - `overdue`: only if the hold has lapsed
   * @returns false: it had not lapsed, or was gone
   */
  async end(hold: Hold, entry?: { readonly text: string; readonly micros: number }, when = ''): Promise<boolean> {
    const { keys } = this.#options;
    const answer = await this.#end.run(
      keys.creditAccount(hold.workspaceId),
      keys.creditHolds,
      keys.creditDeadlines,
      keys.creditUsage,
      keys.creditLedger,
      hold.requestId,
      hold.micros,
      entry?.text ?? '',
      entry?.micros ?? 0,
      when,
    );
    return answer === 1;
  }

  /** Renews holds and notes usage. @returns requests without a hold */
  async renew(requests: readonly (readonly [requestId: string, usage: string])[]): Promise<readonly string[]> {
    const { keys, holdMs } = this.#options;
    if (requests.length === 0) return [];
    return (await this.#renew.run(keys.creditDeadlines, keys.creditUsage, holdMs, ...requests.flat())) as string[];
  }

  /** Holds that have lapsed, as text, with the usage that was noted. */
  async lapsed(most: number): Promise<readonly { requestId: string; hold: string | null; usage: string | null }[]> {
    const { client, keys } = this.#options;
    const [seconds] = await client.time();
    const ids = await client.zrangebyscore(keys.creditDeadlines, '-inf', Number(seconds) * 1000, 'LIMIT', 0, most);
    if (ids.length === 0) return [];
    const [holds, usages] = await Promise.all([
      client.hmget(keys.creditHolds, ...ids),
      client.hmget(keys.creditUsage, ...ids),
    ]);
    return ids.map((requestId, at) => ({ requestId, hold: holds[at] ?? null, usage: usages[at] ?? null }));
  }

  /** Keeps accounts as the database has them, unless later states are known. */
  async putAccounts(accounts: readonly CreditAccount[]): Promise<void> {
    const { keys } = this.#options;
    await Promise.all(
      accounts.map((account) =>
        this.#put.run(
          keys.creditAccount(account.workspaceId),
          account.revision,
          account.mode,
          account.balanceMicros,
          account.spendLimitMicros ?? '',
          account.spentMicros,
          account.spentMonth,
        ),
      ),
    );
  }

  async sums(workspaceId: WorkspaceId): Promise<CreditSums> {
    const { client, keys } = this.#options;
    const [pending, held] = await client.hmget(keys.creditAccount(workspaceId), 'pending', 'held');
    return { pendingMicros: Number(pending ?? 0), heldMicros: Number(held ?? 0) };
  }

  /** The oldest entries of the ledger. */
  async oldest(most: number): Promise<readonly StreamedEntry[]> {
    const { client, keys } = this.#options;
    const entries = await client.xrange(keys.creditLedger, '-', '+', 'COUNT', most);
    return entries.map(([id, fields]) => ({ id, text: fields[1] ?? '' }));
  }

  /** Id of the newest entry on its way; undefined: there is none. */
  async lastEntry(): Promise<string | undefined> {
    const { client, keys } = this.#options;
    const [newest] = await client.xrevrange(keys.creditLedger, '+', '-', 'COUNT', 1);
    return newest?.[0];
  }

  /** Whether that entry, or an older one, is on its way to the database. */
  async hasEntriesUntil(id: string): Promise<boolean> {
    const { client, keys } = this.#options;
    return (await client.xrange(keys.creditLedger, '-', id, 'COUNT', 1)).length > 0;
  }

  /** Takes entries off that the database has. @returns entries left */
  async trim(
    entries: readonly { readonly id: string; readonly workspaceId: WorkspaceId; readonly micros: number }[],
  ): Promise<number> {
    const { keys } = this.#options;
    return Number(
      await this.#trim.run(
        1 + entries.length,
        keys.creditLedger,
        ...entries.map(({ workspaceId }) => keys.creditAccount(workspaceId)),
        ...entries.flatMap(({ id, micros }) => [id, micros]),
      ),
    );
  }

  /** Puts an entry aside for a person to look at. Its cost stays pending, if it can be read. */
  async putAside({ id, text }: StreamedEntry, reason: string): Promise<void> {
    const { client, keys } = this.#options;
    await client.xadd(keys.creditLedgerAside, 'MAXLEN', '~', 10_000, '*', 'entry', text, 'reason', reason);
    await client.xdel(keys.creditLedger, id);
  }
}
