import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { many, maybeOne, msOf, one } from '../rows.ts';

export interface PoolRow {
  readonly id: number;
  readonly name: string;
  /** null: shared by everybody. */
  readonly workspaceId: WorkspaceId | null;
  readonly cpuOvercommit: number;
  readonly settings: Readonly<Record<string, unknown>>;
  readonly createdAtMs: number;
}

interface Raw {
  id: number;
  name: string;
  workspace_id: string | null;
  cpu_overcommit: number;
  settings: Record<string, unknown>;
  created_at: Date;
}
const COLUMNS = 'id, name, workspace_id, cpu_overcommit, settings, created_at';
const map = (row: Raw): PoolRow => ({
  id: row.id,
  name: row.name,
  workspaceId: row.workspace_id as WorkspaceId | null,
  cpuOvercommit: row.cpu_overcommit,
  settings: row.settings,
  createdAtMs: msOf(row.created_at),
});

/** The owner's pool of that name, made when missing; an existing one keeps its over-commit. */
export function getOrCreatePool(
  db: Queryable,
  pool: { readonly name: string; readonly workspaceId: WorkspaceId | null; readonly cpuOvercommit: number },
): Promise<PoolRow> {
  return one(
    db,
    `insert into pools (name, workspace_id, cpu_overcommit) values ($1, $2, $3)
     on conflict (workspace_id, name) do update set updated_at = now(), deleted_at = null returning ${COLUMNS}`,
    [pool.name, pool.workspaceId, pool.cpuOvercommit],
    map,
  );
}

export function poolById(db: Queryable, id: number): Promise<PoolRow | undefined> {
  return maybeOne(db, `select ${COLUMNS} from pools where id = $1`, [id], map);
}

export function poolByName(db: Queryable, name: string, workspaceId: WorkspaceId | null): Promise<PoolRow | undefined> {
  return maybeOne(
    db,
    `select ${COLUMNS} from pools where name = $1 and workspace_id is not distinct from $2::text and deleted_at is null`,
    [name, workspaceId],
    map,
  );
}

export function setPoolOvercommit(db: Queryable, id: number, cpuOvercommit: number): Promise<PoolRow | undefined> {
  return maybeOne(
    db,
    `update pools set cpu_overcommit = $2, updated_at = now() where id = $1 returning ${COLUMNS}`,
    [id, cpuOvercommit],
    map,
  );
}

/** All pools of all owners, oldest first; who may see which is decided above. */
export function listPools(db: Queryable): Promise<PoolRow[]> {
  return many(db, `select ${COLUMNS} from pools where deleted_at is null order by id`, [], map);
}

/** The owner's pool of that name, unless a machine is in it. Its row stays, since machines that were deleted name it. */
export async function deletePool(
  db: Queryable,
  name: string,
  workspaceId: WorkspaceId | null,
): Promise<'missing' | 'occupied' | 'deleted'> {
  if ((await poolByName(db, name, workspaceId)) === undefined) return 'missing';
  const { rowCount } = await db.query(
    `update pools p set deleted_at = now(), updated_at = now()
     where p.name = $1 and p.workspace_id is not distinct from $2::text and p.deleted_at is null
       and not exists (select 1 from machines m where m.pool_id = p.id and m.deleted_at is null)`,
    [name, workspaceId],
  );
  return rowCount === 1 ? 'deleted' : 'occupied';
}
