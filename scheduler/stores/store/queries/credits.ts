// Accounts of credits, and the rows of the ledger with what they change in an account, in one transaction.
// Invariant: a request id has at most one row, and an account's balance is its grants less its costs.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Db, Queryable, Transaction } from '../db.ts';
import { many, maybeOne } from '../rows.ts';

export type CreditMode = 'prepaid' | 'postpaid';

/** An account as the database has it. Amounts are micro-units. */
export interface CreditAccount {
  readonly workspaceId: WorkspaceId;
  readonly mode: CreditMode;
  readonly balanceMicros: number;
  /** Bound of the costs of a calendar month; null: none. */
  readonly spendLimitMicros: number | null;
  /** Costs of `spentMonth`, which is `YYYY-MM`, or empty. */
  readonly spentMicros: number;
  readonly spentMonth: string;
  /** Grows with each change. 0: there is no row. */
  readonly revision: number;
}

/** A row of the ledger. */
export interface LedgerEntry {
  readonly requestId: string;
  readonly kind: 'request' | 'grant' | 'compute';
  readonly workspaceId: WorkspaceId;
  readonly tokenId: string | null;
  readonly model: string | null;
  readonly type: string | null;
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly promptMicrosPerMillion: number;
  readonly completionMicrosPerMillion: number;
  readonly requestMicros: number;
  readonly costMicros: number;
  readonly grantMicros: number;
  readonly stream: boolean;
  readonly status: string;
  readonly estimated: boolean;
  readonly containerId: string | null;
  readonly stubId: string | null;
  readonly containerMs: number;
  readonly gpuMs: number;
  readonly note: string;
  readonly createdAtMs: number;
}

interface RawAccount {
  workspace_id: string;
  mode: CreditMode;
  balance_micros: number;
  spend_limit_micros: number | null;
  spent_micros: number;
  spent_month: string;
  revision: number;
}
const ACCOUNT = 'workspace_id, mode, balance_micros, spend_limit_micros, spent_micros, spent_month, revision';
const accountOf = (row: RawAccount): CreditAccount => ({
  workspaceId: row.workspace_id as WorkspaceId,
  mode: row.mode,
  balanceMicros: row.balance_micros,
  spendLimitMicros: row.spend_limit_micros,
  spentMicros: row.spent_micros,
  spentMonth: row.spent_month,
  revision: row.revision,
});

/** The account of a workspace; without a row, the default one. */
export async function creditAccount(db: Queryable, workspaceId: WorkspaceId): Promise<CreditAccount> {
  const sql = `select ${ACCOUNT} from credit_accounts where workspace_id = $1`;
  return (await maybeOne(db, sql, [workspaceId], accountOf)) ?? newAccount(workspaceId);
}

const newAccount = (workspaceId: WorkspaceId): CreditAccount => ({
  workspaceId,
  mode: 'postpaid',
  balanceMicros: 0,
  spendLimitMicros: null,
  spentMicros: 0,
  spentMonth: '',
  revision: 0,
});

/** Sets the mode or the spend limit. @returns the account after it */
export async function changeCreditAccount(
  tx: Transaction,
  workspaceId: WorkspaceId,
  change: { readonly mode?: CreditMode; readonly spendLimitMicros?: number | null },
): Promise<CreditAccount> {
  const [before] = await lockAccounts(tx, [workspaceId]);
  const { mode, spendLimitMicros } = { ...(before ?? newAccount(workspaceId)), ...change };
  const sql = `update credit_accounts set mode = $2, spend_limit_micros = $3::bigint, revision = revision + 1, updated_at = now()
    where workspace_id = $1 returning ${ACCOUNT}`;
  const [after] = await many(tx, sql, [workspaceId, mode, spendLimitMicros], accountOf);
  return after ?? newAccount(workspaceId);
}

/** Locks the accounts in the order of their ids, so that two writers never wait for each other. Makes missing ones. */
function lockAccounts(tx: Transaction, ids: readonly WorkspaceId[]): Promise<CreditAccount[]> {
  const sorted = [...new Set(ids)].toSorted();
  return tx
    .query('insert into credit_accounts (workspace_id) select unnest($1::text[]) order by 1 on conflict do nothing', [
      sorted,
    ])
    .then(() =>
      many(
        tx,
        `select ${ACCOUNT} from credit_accounts where workspace_id = any ($1::text[]) order by workspace_id for update`,
        [sorted],
        accountOf,
      ),
    );
}

/** Accounts after a write, and the request ids whose rows it added or replaced. */
export interface LedgerWritten {
  readonly accounts: readonly CreditAccount[];
  readonly added: ReadonlySet<string>;
}

/** Writes entries in a transaction of its own. */
export const writeLedger = (db: Db, entries: readonly LedgerEntry[]): Promise<LedgerWritten> =>
  db.transaction((tx) => appendLedger(tx, entries));

/**
 * Writes entries and changes their accounts. A request id that has a row changes nothing, with one exception: a `lost`
 * row is replaced by what its replica says itself.
 */
export async function appendLedger(tx: Transaction, entries: readonly LedgerEntry[]): Promise<LedgerWritten> {
  const given = new Map<string, LedgerEntry>();
  for (const entry of entries) {
    const held = given.get(entry.requestId);
    if (held === undefined || (held.status === 'lost' && entry.status !== 'lost')) given.set(entry.requestId, entry);
  }
  const accounts = await lockAccounts(
    tx,
    [...given.values()].map(({ workspaceId }) => workspaceId),
  );
  const known = new Map(
    await many(
      tx,
      'select request_id, status, cost_micros, created_at from credit_ledger where request_id = any ($1::text[])',
      [[...given.keys()]],
      (row: { request_id: string; status: string; cost_micros: number; created_at: Date }) =>
        [row.request_id, { status: row.status, costMicros: row.cost_micros, atMs: row.created_at.getTime() }] as const,
    ),
  );
  const fresh = [...given.values()].filter(({ requestId }) => !known.has(requestId));
  const replacing = [...given.values()].filter(
    ({ requestId, status }) => known.get(requestId)?.status === 'lost' && status !== 'lost',
  );
  if (fresh.length > 0) await insertEntries(tx, fresh);
  for (const entry of replacing) await replaceLost(tx, entry);
  const changes: AccountChange[] = [];
  for (const entry of fresh) changes.push(changeOf(entry));
  for (const entry of replacing) {
    const before = known.get(entry.requestId);
    changes.push(changeOf(entry));
    if (before !== undefined)
      changes.push({ workspaceId: entry.workspaceId, cost: -before.costMicros, grant: 0, month: monthOf(before.atMs) });
  }
  const written = await changeAccounts(tx, accounts, changes);
  return { accounts: written, added: new Set([...fresh, ...replacing].map(({ requestId }) => requestId)) };
}

/** Amount of a grant; undefined: there is none. */
export const grantOf = (db: Queryable, requestId: string): Promise<number | undefined> =>
  maybeOne(
    db,
    'select grant_micros from credit_ledger where request_id = $1',
    [requestId],
    (row: { grant_micros: number }) => row.grant_micros,
  );

interface AccountChange {
  readonly workspaceId: WorkspaceId;
  readonly cost: number;
  readonly grant: number;
  readonly month: string;
}
const monthOf = (ms: number): string => new Date(ms).toISOString().slice(0, 7);
const changeOf = ({ workspaceId, costMicros, grantMicros, createdAtMs }: LedgerEntry): AccountChange => ({
  workspaceId,
  cost: costMicros,
  grant: grantMicros,
  month: monthOf(createdAtMs),
});

/** The rows are locked: new values are computed from those read. */
async function changeAccounts(
  tx: Transaction,
  accounts: readonly CreditAccount[],
  changes: readonly AccountChange[],
): Promise<readonly CreditAccount[]> {
  const next = new Map<WorkspaceId, { balance: bigint; spent: bigint; month: string }>();
  const before = new Map(accounts.map((account) => [account.workspaceId, account]));
  for (const change of changes) {
    const account = before.get(change.workspaceId);
    if (account === undefined) continue;
    const value = next.get(change.workspaceId) ?? {
      balance: BigInt(account.balanceMicros),
      spent: BigInt(account.spentMicros),
      month: account.spentMonth,
    };
    value.balance += BigInt(change.grant) - BigInt(change.cost);
    if (change.cost !== 0 && change.month > value.month) {
      value.spent = 0n;
      value.month = change.month;
    }
    if (change.month === value.month) value.spent += BigInt(change.cost);
    next.set(change.workspaceId, value);
  }
  if (next.size === 0) return accounts;
  const rows = [...next].map(([id, value]) => ({
    id,
    balance: String(value.balance),
    spent: String(value.spent < 0n ? 0n : value.spent),
    month: value.month,
  }));
  const written = await many(
    tx,
    `update credit_accounts a
     set balance_micros = g.balance, spent_micros = g.spent, spent_month = g.month, revision = revision + 1, updated_at = now()
     from jsonb_to_recordset($1::jsonb) as g (id text, balance bigint, spent bigint, month text)
     where a.workspace_id = g.id returning ${ACCOUNT.replace('workspace_id', 'a.workspace_id')}`,
    [JSON.stringify(rows)],
    accountOf,
  );
  return accounts.map((account) => written.find(({ workspaceId }) => workspaceId === account.workspaceId) ?? account);
}

const COLUMNS = `request_id text, kind text, workspace_id text, token_id text, model text, type text, prompt_tokens bigint,
  completion_tokens bigint, prompt_micros_per_million bigint, completion_micros_per_million bigint,
  request_micros bigint, cost_micros bigint, grant_micros bigint, stream boolean, status text, estimated boolean,
  container_id text, stub_id text, container_ms bigint, gpu_ms bigint, note text, created_at timestamptz`;
const NAMES = COLUMNS.replaceAll(/ (text|bigint|boolean|timestamptz)\b/g, '');

async function insertEntries(tx: Transaction, entries: readonly LedgerEntry[]): Promise<void> {
  const rows = entries.map((entry) => ({
    request_id: entry.requestId,
    kind: entry.kind,
    workspace_id: entry.workspaceId,
    token_id: entry.tokenId,
    model: entry.model,
    type: entry.type,
    prompt_tokens: entry.promptTokens,
    completion_tokens: entry.completionTokens,
    prompt_micros_per_million: entry.promptMicrosPerMillion,
    completion_micros_per_million: entry.completionMicrosPerMillion,
    request_micros: entry.requestMicros,
    cost_micros: entry.costMicros,
    grant_micros: entry.grantMicros,
    stream: entry.stream,
    status: entry.status,
    estimated: entry.estimated,
    container_id: entry.containerId,
    stub_id: entry.stubId,
    container_ms: entry.containerMs,
    gpu_ms: entry.gpuMs,
    note: entry.note,
    created_at: new Date(entry.createdAtMs).toISOString(),
  }));
  const sql = `insert into credit_ledger (${NAMES}) select ${NAMES} from jsonb_to_recordset($1::jsonb) as g (${COLUMNS})`;
  await tx.query(sql, [JSON.stringify(rows)]);
}

async function replaceLost(tx: Transaction, entry: LedgerEntry): Promise<void> {
  await tx.query(
    `update credit_ledger set status = $2, prompt_tokens = $3, completion_tokens = $4, cost_micros = $5, estimated = $6, created_at = $7
     where request_id = $1 and status = 'lost'`,
    [
      entry.requestId,
      entry.status,
      entry.promptTokens,
      entry.completionTokens,
      entry.costMicros,
      entry.estimated,
      new Date(entry.createdAtMs),
    ],
  );
}
