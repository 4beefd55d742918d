// Credits on a real Redis and a real Postgres: replicas that charge requests, and a leader that drains and sweeps.
import { pino } from 'pino';
import type { Redis } from 'ioredis';
import { newId } from '#shared/domain/ids.ts';
import type { TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import type { ChargeRequest, TokenUsage } from '#scheduler/domain/inference.ts';
import { CreditBook } from '#scheduler/stores/queues/credit-book.ts';
import { keysOf } from '#scheduler/stores/queues/keys.ts';
import type { Keys } from '#scheduler/stores/queues/keys.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { openDb } from '#scheduler/stores/store/db.ts';
import { migrate } from '#scheduler/stores/store/migrate.ts';
import { changeCreditAccount, creditAccount, writeLedger } from '#scheduler/stores/store/queries/credits.ts';
import { Charges } from '#scheduler/workspaces/credits/charges.ts';
import { EMPTY } from '#scheduler/workspaces/credits/entries.ts';
import { LedgerDrain } from '#scheduler/workspaces/credits/ledger-drain.ts';
import { settleLostHolds } from '#scheduler/workspaces/credits/lost-holds.ts';
import { tempDirectory, test as base, waitFor } from '../helpers/services.ts';

const log = pino({ level: 'silent' });
const clock = { nowMs: () => Date.now() };

export interface CreditWorld {
  readonly client: Redis;
  readonly db: Db;
  readonly keys: Keys;
  readonly book: CreditBook;
  readonly aReplica: () => Charges;
  readonly drain: () => Promise<void>;
  /** A leader that drains at the same time. */
  readonly secondDrainer: LedgerDrain;
  /** Makes holds lapse, all or those of some requests, and settles them as the leader does. */
  readonly loseHolds: (ids?: readonly string[]) => Promise<number>;
  readonly grant: (workspaceId: WorkspaceId, micros: number) => Promise<void>;
  readonly change: (
    workspaceId: WorkspaceId,
    change: { mode?: 'prepaid' | 'postpaid'; spendLimitMicros?: number | null },
  ) => Promise<void>;
  readonly account: (workspaceId: WorkspaceId) => ReturnType<typeof creditAccount>;
  readonly rows: (workspaceId: WorkspaceId) => Promise<readonly LedgerRow[]>;
}

export interface LedgerRow {
  readonly request_id: string;
  readonly kind: string;
  readonly status: string;
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly cost_micros: number;
  readonly grant_micros: number;
}

export const test = base
  .extend('database', { scope: 'file' }, async ({ postgres }, { onCleanup }): Promise<Db> => {
    const directory = tempDirectory('credits');
    const db = await openDb({ databaseUrl: postgres.url, dataDir: directory.path, log });
    onCleanup(async () => {
      await db.close();
      directory.remove();
    });
    await migrate(db);
    return db;
  })
  .extend('world', async ({ redis, database: db }, { onCleanup }): Promise<CreditWorld> => {
    const client = redis.connect({
      maxRetriesPerRequest: 1,
      enableOfflineQueue: false,
      commandTimeout: 2_000,
      retryStrategy: () => 20,
    });
    await waitFor(async () => client.status === 'ready', 'the client is connected');
    const world = aWorld(client, db);
    onCleanup(() => client.disconnect());
    return world;
  });

export function aWorld(client: Redis, db: Db): CreditWorld {
  const keys = keysOf(`c${newId().slice(0, 8)}`);
  const book = new CreditBook({ client, keys, holdMs: 600_000, mostEntries: 10_000 });
  const drainer = new LedgerDrain({ db, book, log });
  return {
    client,
    db,
    keys,
    book,
    secondDrainer: new LedgerDrain({ db, book, log }),
    aReplica: () => new Charges({ db, book, clock, log, settleInRedisMs: 200 }),
    drain: () => drainer.flush(),
    loseHolds: async (ids) => {
      const open = ids ?? (await client.zrange(keys.creditDeadlines, '0', '-1'));
      if (open.length > 0) await client.zadd(keys.creditDeadlines, 'XX', ...open.flatMap((id) => [1, id]));
      return settleLostHolds({ book, clock, log });
    },
    grant: async (workspaceId, micros) => {
      const entry = {
        ...EMPTY,
        requestId: `grant:${newId()}`,
        kind: 'grant',
        workspaceId,
        grantMicros: micros,
      } as const;
      const { accounts } = await writeLedger(db, [{ ...entry, status: 'complete', createdAtMs: Date.now() }]);
      await book.putAccounts(accounts);
    },
    change: async (workspaceId, change) => {
      await book.putAccounts([await db.transaction((tx) => changeCreditAccount(tx, workspaceId, change))]);
    },
    account: (workspaceId) => creditAccount(db, workspaceId),
    rows: async (workspaceId) =>
      (
        await db.query<LedgerRow>(
          `select request_id, kind, status, prompt_tokens, completion_tokens, cost_micros, grant_micros
           from credit_ledger where workspace_id = $1 order by id`,
          [workspaceId],
        )
      ).rows,
  };
}

/** A micro-unit for each prompt token, two for each completion token. */
export const prices = { promptMicrosPerMillion: 1_000_000, completionMicrosPerMillion: 2_000_000, requestMicros: 0 };

export const aRequest = (workspaceId: WorkspaceId, said: Partial<ChargeRequest> = {}): ChargeRequest => ({
  requestId: `req_${newId().replaceAll('-', '')}`,
  workspaceId,
  tokenId: newId<TokenId>(),
  model: 'org/model',
  type: 'chat',
  stream: true,
  prices,
  isCharged: true,
  most: { promptTokens: 10, completionTokens: 45 },
  ...said,
});

export const usage = (promptTokens: number, completionTokens: number): TokenUsage => ({
  promptTokens,
  completionTokens,
  estimated: false,
});

export const aWorkspaceId = (): WorkspaceId => newId<WorkspaceId>();
