import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { WorkspaceShare } from '../../../domain/shares.ts';
import { shareOf } from '../../../domain/workspace-share.ts';
import type { StoredShare } from '../../../domain/workspace-share.ts';
import type { Db, Queryable, Transaction } from '../db.ts';
import { many, maybeOne, msOf, msOrNull, one } from '../rows.ts';

export interface WorkspaceRow {
  readonly id: WorkspaceId;
  /** The internal number that token records show. */
  readonly number: number;
  readonly name: string;
  /** Sealed. */
  readonly signingKey: Uint8Array;
  readonly isAdmin: boolean;
  readonly limits: Readonly<Record<string, unknown>>;
  /** Share as it was given; null: the default. */
  readonly share: StoredShare | null;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
  /** When its deletion began; null: it is not being deleted. */
  readonly deletingAtMs: number | null;
  /** Reason why the deletion waits, for people; empty: it does not. */
  readonly deletionHold: string;
}

interface Raw {
  id: string;
  number: number;
  name: string;
  signing_key: Uint8Array;
  is_admin: boolean;
  limits: Record<string, unknown>;
  share: StoredShare | null;
  created_at: Date;
  updated_at: Date;
  deleting_at: Date | null;
  deletion_hold: string;
}
const COLUMNS =
  'id, number, name, signing_key, is_admin, limits, share, created_at, updated_at, deleting_at, deletion_hold';
const map = (row: Raw): WorkspaceRow => ({
  id: row.id as WorkspaceId,
  number: row.number,
  name: row.name,
  signingKey: row.signing_key,
  isAdmin: row.is_admin,
  limits: row.limits,
  share: row.share,
  createdAtMs: msOf(row.created_at),
  updatedAtMs: msOf(row.updated_at),
  deletingAtMs: msOrNull(row.deleting_at),
  deletionHold: row.deletion_hold,
});

export function insertWorkspace(
  db: Queryable,
  workspace: {
    readonly id: WorkspaceId;
    readonly name: string;
    readonly signingKey: Uint8Array;
    readonly isAdmin: boolean;
  },
): Promise<WorkspaceRow> {
  return one(
    db,
    `insert into workspaces (id, name, signing_key, is_admin) values ($1, $2, $3, $4) returning ${COLUMNS}`,
    [workspace.id, workspace.name, workspace.signingKey, workspace.isAdmin],
    map,
  );
}

export function workspaceById(db: Queryable, id: string): Promise<WorkspaceRow | undefined> {
  return maybeOne(db, `select ${COLUMNS} from workspaces where id = $1`, [id], map);
}

/** Workspaces that are being deleted. */
export function closedWorkspaces(db: Queryable): Promise<WorkspaceId[]> {
  return many(
    db,
    'select id from workspaces where deleting_at is not null order by deleting_at, id',
    [],
    (row: { id: string }) => row.id as WorkspaceId,
  );
}

export function listWorkspaces(db: Queryable): Promise<WorkspaceRow[]> {
  return many(db, `select ${COLUMNS} from workspaces order by number`, [], map);
}

/** A page of workspaces in the order they were made, those after `afterNumber`. */
export function pageOfWorkspaces(db: Queryable, afterNumber: number, limit: number): Promise<WorkspaceRow[]> {
  return many(
    db,
    `select ${COLUMNS} from workspaces where number > $1 order by number limit $2`,
    [afterNumber, limit],
    map,
  );
}

export async function anyWorkspaceExists(db: Queryable): Promise<boolean> {
  const { rows } = await db.query<{ found: boolean }>('select exists (select 1 from workspaces) as found');
  return rows[0]?.found === true;
}

/** Changes a workspace's limits, one change at a time for each workspace. undefined: the workspace does not exist. */
export async function changeWorkspaceLimits(
  tx: Transaction,
  id: WorkspaceId,
  next: (stored: Readonly<Record<string, unknown>>) => Readonly<Record<string, unknown>>,
): Promise<WorkspaceRow | undefined> {
  const row = await maybeOne(tx, `select ${COLUMNS} from workspaces where id = $1 for update`, [id], map);
  if (row === undefined) return undefined;
  return maybeOne(
    tx,
    `update workspaces set limits = $2::jsonb, updated_at = now() where id = $1 returning ${COLUMNS}`,
    [id, JSON.stringify(next(row.limits))],
    map,
  );
}

/**
 * Workspaces with these ids or names, and those whose share the file declares, locked against other changes of shares
 * until this transaction ends.
 */
export function lockWorkspacesForShares(
  tx: Transaction,
  { ids, names = [], file = null }: { ids: readonly string[]; names?: readonly string[]; file?: string | null },
): Promise<WorkspaceRow[]> {
  return many(
    tx,
    `select ${COLUMNS} from workspaces
     where deleting_at is null and (id = any ($1::text[]) or name = any ($2::text[]) or share ->> 'declaredIn' = $3::text)
     order by number for no key update`,
    [ids, names, file],
    map,
  );
}

export function setWorkspaceShare(
  tx: Transaction,
  id: WorkspaceId,
  share: StoredShare | null,
): Promise<WorkspaceRow | undefined> {
  return maybeOne(
    tx,
    `update workspaces set share = $2::jsonb, updated_at = now() where id = $1 returning ${COLUMNS}`,
    [id, share === null ? null : JSON.stringify(share)],
    map,
  );
}

/** Sum of what is guaranteed to workspaces, by each market that shares name; 0: there are limits alone. */
export async function guaranteesOfAll(db: Queryable): Promise<ReadonlyMap<string, number>> {
  const { rows } = await db.query<{ market: string; amount: number }>(
    `select g.key as market, coalesce(sum(g.value::float8) filter (where part = 'guaranteed'), 0) as amount
     from workspaces, (values ('guaranteed'), ('limits')) parts (part), jsonb_each_text(share -> part) g
     where share is not null and deleting_at is null group by g.key order by g.key`,
  );
  return new Map(rows.map(({ market, amount }) => [market, Number(amount)]));
}

/**
 * Claims the making of the first workspace. True for one caller, ever. Waits for another claim's transaction to end.
 */
export async function claimBootstrap(db: Queryable): Promise<boolean> {
  const { rowCount } = await db.query('insert into bootstrap (id) values (1) on conflict (id) do nothing');
  return rowCount === 1;
}

export interface WorkspaceConcurrency {
  readonly gpus: number | null;
  readonly cpuMillicores: number | null;
  readonly memoryMib: number | null;
  readonly containers: number | null;
  readonly share: WorkspaceShare;
}

/** `concurrency` of the workspaces' limits (null: no bound), and their shares. */
export function workspaceConcurrency(
  db: Queryable,
  ids: readonly WorkspaceId[],
): Promise<(WorkspaceConcurrency & { readonly id: WorkspaceId })[]> {
  return many(
    db,
    `select id, (limits #>> '{concurrency,gpu_limit}')::int as gpus, (limits #>> '{concurrency,cpu_millicore_limit}')::int as millicores,
       (limits #>> '{concurrency,memory_mib_limit}')::int as memory_mib, (limits #>> '{concurrency,container_limit}')::int as containers, share
     from workspaces where id = any ($1::text[])`,
    [ids],
    (row: {
      id: string;
      gpus: number | null;
      millicores: number | null;
      memory_mib: number | null;
      containers: number | null;
      share: StoredShare | null;
    }) => ({
      id: row.id as WorkspaceId,
      gpus: row.gpus,
      cpuMillicores: row.millicores,
      memoryMib: row.memory_mib,
      containers: row.containers,
      share: shareOf(row.share),
    }),
  );
}

/** The administrator's workspace; undefined: the installation has none yet. */
export async function adminWorkspaceId(db: Queryable): Promise<WorkspaceId | undefined> {
  return maybeOne(
    db,
    'select id from workspaces where is_admin order by number limit 1',
    [],
    (row: { id: string }) => row.id as WorkspaceId,
  );
}

/**
 * Holds others who make things of the workspace until the transaction ends, so that the things can be counted. Inserts
 * of rows that only refer to the workspace go on.
 */
export async function lockCounts(tx: Queryable, workspaceId: WorkspaceId): Promise<void> {
  await tx.query('select 1 from workspaces where id = $1 for no key update', [workspaceId]);
}

/**
 * Far from their bound, writes of rows that are counted do not wait for each other and are one statement. Their number
 * at one moment is that of the connections to the database, which is far below this one.
 */
export const COUNT_MARGIN = 500;

/**
 * Writes a counted row of a kind that is written often: at first without the lock, and with a margin to the bound.
 * Only where that finds no room, the writes take turns, and the bound itself counts.
 * @param write - `hasTurn`: the bound itself counts. It returns undefined when there is no room
 */
export async function writeCounted<T>(
  db: Db,
  workspaceId: WorkspaceId,
  write: (db: Queryable, hasTurn: boolean) => Promise<T | undefined>,
): Promise<T | undefined> {
  return (
    (await write(db, false)) ??
    (await db.transaction(async (tx) => {
      await lockCounts(tx, workspaceId);
      return await write(tx, true);
    }))
  );
}
