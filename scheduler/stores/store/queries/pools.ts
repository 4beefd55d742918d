import { POOL_DEFAULTS } from '#shared/api/pools.ts';
import type { PoolSettings, PoolSettingsChange } from '#shared/api/pools.ts';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { many, maybeOne, msOf, one } from '../rows.ts';

export interface PoolRow {
  readonly id: number;
  readonly name: string;
  /** Owner of the pool; null: shared by everybody. */
  readonly workspaceId: WorkspaceId | null;
  readonly settings: PoolSettings;
  /** The file that declares the pool's settings; null: operations change them. */
  readonly declaredIn: string | null;
  readonly createdAtMs: number;
}

/** A pool as its owner names it. */
export interface PoolKey {
  readonly name: string;
  readonly workspaceId: WorkspaceId | null;
}

/** The columns that hold a pool's settings. */
export interface RawPoolSettings {
  readonly cpu_overcommit: number;
  readonly settings: Readonly<Record<string, unknown>>;
}

interface Raw extends RawPoolSettings {
  id: number;
  name: string;
  workspace_id: string | null;
  declared_in: string | null;
  created_at: Date;
}
const COLUMNS = 'id, name, workspace_id, cpu_overcommit, settings, declared_in, created_at';
const map = (row: Raw): PoolRow => ({
  id: row.id,
  name: row.name,
  workspaceId: row.workspace_id as WorkspaceId | null,
  settings: poolSettingsOf(row),
  declaredIn: row.declared_in,
  createdAtMs: msOf(row.created_at),
});

/** The pool's settings; a setting that was not given has today's default. */
export const poolSettingsOf = (row: RawPoolSettings): PoolSettings => ({
  ...POOL_DEFAULTS,
  ...row.settings,
  cpuOvercommit: row.cpu_overcommit,
});

/** Columns of the settings: over-commit (null: not set), and the rest as JSON with null for defaults. */
function columnsOf({ cpuOvercommit, ...rest }: PoolSettingsChange): [number | null, string] {
  const overcommit = cpuOvercommit === null ? POOL_DEFAULTS.cpuOvercommit : cpuOvercommit;
  return [overcommit ?? null, JSON.stringify(rest)];
}

/** The owner's pool of that name, made when missing. An existing pool keeps its settings; a deleted one begins anew. */
export function getOrCreatePool(
  db: Queryable,
  pool: PoolKey & { readonly settings?: PoolSettingsChange },
): Promise<PoolRow> {
  return one(
    db,
    `insert into pools as p (name, workspace_id, cpu_overcommit, settings) values ($1, $2, coalesce($3::double precision, 1), jsonb_strip_nulls($4::jsonb))
     on conflict (workspace_id, name) do update set
       cpu_overcommit = case when p.deleted_at is null then p.cpu_overcommit else excluded.cpu_overcommit end,
       settings = case when p.deleted_at is null then p.settings else excluded.settings end,
       updated_at = case when p.deleted_at is null then p.updated_at else now() end,
       deleted_at = null
     returning ${COLUMNS}`,
    [pool.name, pool.workspaceId, ...columnsOf(pool.settings ?? {})],
    map,
  );
}

/**
 * Makes the owner's pool of that name, or makes it again after its deletion. A pool that is there is locked until the
 * commit.
 * @returns undefined: the pool is there already
 */
export function makePool(
  db: Queryable,
  pool: PoolKey & { readonly settings: PoolSettingsChange },
): Promise<PoolRow | undefined> {
  return maybeOne(
    db,
    `insert into pools as p (name, workspace_id, cpu_overcommit, settings) values ($1, $2, coalesce($3::double precision, 1), jsonb_strip_nulls($4::jsonb))
     on conflict (workspace_id, name) do update set
       cpu_overcommit = excluded.cpu_overcommit, settings = excluded.settings, updated_at = now(), deleted_at = null
     where p.deleted_at is not null
     returning ${COLUMNS}`,
    [pool.name, pool.workspaceId, ...columnsOf(pool.settings)],
    map,
  );
}

export function poolByName(db: Queryable, { name, workspaceId }: PoolKey): Promise<PoolRow | undefined> {
  return maybeOne(
    db,
    `select ${COLUMNS} from pools where name = $1 and workspace_id is not distinct from $2::text and deleted_at is null`,
    [name, workspaceId],
    map,
  );
}

/** The owner's pool of that name, locked against other changes until this transaction ends. */
export function lockPool(tx: Queryable, { name, workspaceId }: PoolKey): Promise<PoolRow | undefined> {
  return maybeOne(
    tx,
    `select ${COLUMNS} from pools where name = $1 and workspace_id is not distinct from $2::text and deleted_at is null
     for no key update`,
    [name, workspaceId],
    map,
  );
}

/** The pools of that name that the workspace may use, its own first: at most two. */
export function usablePools(db: Queryable, { name, workspaceId }: PoolKey): Promise<PoolRow[]> {
  return many(
    db,
    `select ${COLUMNS} from pools where name = $1 and (workspace_id is null or workspace_id = $2) and deleted_at is null
     order by workspace_id nulls last`,
    [name, workspaceId],
    map,
  );
}

/** Changes the named settings and leaves the rest. @returns undefined: there is no such pool, or a file declares it */
export function changePool(
  db: Queryable,
  { name, workspaceId }: PoolKey,
  change: PoolSettingsChange,
): Promise<PoolRow | undefined> {
  return maybeOne(
    db,
    `update pools set cpu_overcommit = coalesce($3::double precision, cpu_overcommit), settings = jsonb_strip_nulls(settings || $4::jsonb), updated_at = now()
     where name = $1 and workspace_id is not distinct from $2::text and deleted_at is null and declared_in is null
     returning ${COLUMNS}`,
    [name, workspaceId, ...columnsOf(change)],
    map,
  );
}

/**
 * A shared pool as the file declares it, made when missing.
 * @returns undefined: the pool matches already, and nothing was written
 */
export function declarePool(
  db: Queryable,
  pool: { readonly name: string; readonly settings: PoolSettingsChange; readonly file: string },
): Promise<PoolRow | undefined> {
  return maybeOne(
    db,
    `insert into pools as p (name, cpu_overcommit, settings, declared_in) values ($1, coalesce($2::double precision, 1), jsonb_strip_nulls($3::jsonb), $4)
     on conflict (workspace_id, name) do update set
       cpu_overcommit = excluded.cpu_overcommit, settings = excluded.settings, declared_in = excluded.declared_in, deleted_at = null, updated_at = now()
     where (p.cpu_overcommit, p.settings, p.declared_in, p.deleted_at)
       is distinct from (excluded.cpu_overcommit, excluded.settings, excluded.declared_in, null::timestamptz)
     returning ${COLUMNS}`,
    [pool.name, ...columnsOf(pool.settings), pool.file],
    map,
  );
}

/**
 * Releases the pools that this file declared and declares no longer: they stay as they are, and operations change them.
 */
export function releasePools(db: Queryable, file: string, declared: readonly string[]): Promise<PoolRow[]> {
  return many(
    db,
    `update pools set declared_in = null, updated_at = now()
     where declared_in = $1 and not (name = any ($2::text[])) returning ${COLUMNS}`,
    [file, declared],
    map,
  );
}

/** Machines in each of these pools; a pool without machines is absent. */
export async function machinesOfPools(
  db: Queryable,
  ids: readonly number[],
): Promise<ReadonlyMap<number, readonly MachineId[]>> {
  const { rows } = await db.query<{ pool_id: number; id: string }>(
    'select pool_id, id from machines where pool_id = any ($1::bigint[]) and deleted_at is null order by id',
    [ids],
  );
  return new Map(
    [...Map.groupBy(rows, (row) => row.pool_id)].map(([id, of]) => [id, of.map((row) => row.id as MachineId)]),
  );
}

/** undefined: there is no such pool, or it is deleted. */
export function poolById(db: Queryable, id: number): Promise<PoolRow | undefined> {
  return maybeOne(db, `select ${COLUMNS} from pools where id = $1 and deleted_at is null`, [id], map);
}

/** The owner's pools, oldest first. @param workspaceId - null: the shared ones */
export function listPools(db: Queryable, workspaceId: WorkspaceId | null): Promise<PoolRow[]> {
  return many(
    db,
    `select ${COLUMNS} from pools where workspace_id is not distinct from $1::text and deleted_at is null order by id`,
    [workspaceId],
    map,
  );
}

/** Pools of all owners that name a provider. */
export function poolsWithProvider(db: Queryable): Promise<PoolRow[]> {
  return many(
    db,
    `select ${COLUMNS} from pools where settings ? 'provider' and deleted_at is null order by id`,
    [],
    map,
  );
}

/** Text that differs after any change of any pool. */
export async function poolsVersion(db: Queryable): Promise<string> {
  const { rows } = await db.query<{ version: string }>(
    "select count(*) || ' ' || coalesce(sum(extract(epoch from updated_at)), 0) as version from pools",
  );
  return rows[0]?.version ?? '';
}

/** The shared pools, locked against other changes until this transaction ends. */
export function lockSharedPools(tx: Queryable): Promise<PoolRow[]> {
  return many(
    tx,
    `select ${COLUMNS} from pools where workspace_id is null and deleted_at is null order by id for no key update`,
    [],
    map,
  );
}

export async function countPools(db: Queryable, workspaceId: WorkspaceId | null): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    'select count(*)::int as count from pools where workspace_id is not distinct from $1::text and deleted_at is null',
    [workspaceId],
  );
  return rows[0]?.count ?? 0;
}

/**
 * Deletes the owner's pool of that name, unless a machine is in it or a
 * file declares it. The row stays, since deleted machines refer to it.
 */
export async function deletePool(db: Queryable, { name, workspaceId }: PoolKey): Promise<boolean> {
  const { rowCount } = await db.query(
    `update pools p set deleted_at = now(), updated_at = now()
     where p.name = $1 and p.workspace_id is not distinct from $2::text and p.deleted_at is null and p.declared_in is null
       and not exists (select 1 from machines m where m.pool_id = p.id and m.deleted_at is null)`,
    [name, workspaceId],
  );
  return rowCount === 1;
}
