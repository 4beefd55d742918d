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
 * row is replaced by what its replica says itself. Rows and balances change in one statement, so that no fault comes
 * between them. The accounts are locked before, so that a row of another writer is there or not for all of it.
 */
export async function appendLedger(tx: Transaction, entries: readonly LedgerEntry[]): Promise<LedgerWritten> {
  const given = new Map<string, LedgerEntry>();
  for (const entry of entries) {
    const held = given.get(entry.requestId);
    if (held === undefined || (held.status === 'lost' && entry.status !== 'lost')) given.set(entry.requestId, entry);
  }
  const rows = [...given.values()];
  const locked = await lockAccounts(
    tx,
    rows.map(({ workspaceId }) => workspaceId),
  );
  const changed = await tx.query<RawAccount & { request_ids: readonly string[] }>(WRITE, [
    JSON.stringify(rows.map(columnsOf)),
  ]);
  const after = new Map(changed.rows.map((row) => [row.workspace_id, accountOf(row)]));
  return {
    accounts: locked.map((account) => after.get(account.workspaceId) ?? account),
    added: new Set(changed.rows.flatMap((row) => row.request_ids)),
  };
}

/** Amount of a grant; undefined: there is none. */
export const grantOf = (db: Queryable, requestId: string): Promise<number | undefined> =>
  maybeOne(
    db,
    'select grant_micros from credit_ledger where request_id = $1',
    [requestId],
    (row: { grant_micros: number }) => row.grant_micros,
  );

const COLUMNS = `request_id text, kind text, workspace_id text, token_id text, model text, type text, prompt_tokens bigint,
  completion_tokens bigint, prompt_micros_per_million bigint, completion_micros_per_million bigint,
  request_micros bigint, cost_micros bigint, grant_micros bigint, stream boolean, status text, estimated boolean,
  container_id text, stub_id text, container_ms bigint, gpu_ms bigint, note text, created_at timestamptz`;
const NAMES = COLUMNS.replaceAll(/ (text|bigint|boolean|timestamptz)\b/g, '');

const columnsOf = (entry: LedgerEntry): Readonly<Record<string, unknown>> => ({
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
});

const MONTH_OF = (time: string): string => `to_char(${time} at time zone 'UTC', 'YYYY-MM')`;

/**
 * Rows, and the accounts that they change, with the ids of the rows that were added or replaced. A replaced row first
 * gives back what it had cost. The spent amount is that of the latest month with costs.
 */
const WRITE = `with given as materialized (select ${NAMES} from jsonb_to_recordset($1::jsonb) as g (${COLUMNS})),
  lost as materialized (
    select l.request_id, l.cost_micros, l.created_at from credit_ledger l join given g on g.request_id = l.request_id
    where l.status = 'lost' and g.status <> 'lost' for update of l),
  inserted as (
    insert into credit_ledger (${NAMES}) select ${NAMES} from given on conflict (request_id) do nothing
    returning request_id, workspace_id, cost_micros, grant_micros, created_at),
  replaced as (
    update credit_ledger l
    set status = g.status, prompt_tokens = g.prompt_tokens, completion_tokens = g.completion_tokens,
      cost_micros = g.cost_micros, estimated = g.estimated, created_at = g.created_at
    from given g join lost on lost.request_id = g.request_id
    where l.request_id = g.request_id and l.status = 'lost'
    returning l.request_id, l.workspace_id, l.cost_micros, l.created_at,
      lost.cost_micros as old_cost, lost.created_at as old_created_at),
  changes as (
    select request_id, workspace_id, cost_micros as cost, grant_micros as granted, ${MONTH_OF('created_at')} as month
    from inserted
    union all
    select request_id, workspace_id, cost_micros, 0, ${MONTH_OF('created_at')} from replaced
    union all
    select request_id, workspace_id, -old_cost, 0, ${MONTH_OF('old_created_at')} from replaced),
  months as (
    select a.workspace_id, greatest(a.spent_month, max(c.month) filter (where c.cost <> 0)) as month
    from credit_accounts a join changes c on c.workspace_id = a.workspace_id group by a.workspace_id),
  sums as (
    select c.workspace_id, m.month, sum(c.granted - c.cost)::bigint as balance,
      coalesce(sum(c.cost) filter (where c.month = m.month), 0)::bigint as spent,
      array_agg(distinct c.request_id) as request_ids
    from changes c join months m on m.workspace_id = c.workspace_id group by c.workspace_id, m.month)
  update credit_accounts a
  set balance_micros = a.balance_micros + s.balance, spent_month = s.month,
    spent_micros = greatest(0, case when a.spent_month = s.month then a.spent_micros else 0 end + s.spent),
    revision = a.revision + 1, updated_at = now()
  from sums s where a.workspace_id = s.workspace_id
  returning ${ACCOUNT.replaceAll(/\w+/g, 'a.$&')}, s.request_ids`;
