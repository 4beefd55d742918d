import type { AppId, ObjectId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { many, maybeOne, msOf, one } from '../rows.ts';

export interface StubRow {
  readonly id: StubId;
  readonly workspaceId: WorkspaceId;
  readonly appId: AppId;
  readonly name: string;
  readonly type: string;
  /** null: no code. */
  readonly objectId: ObjectId | null;
  /** The configuration as stored; its shape belongs to the module that wrote it. */
  readonly config: object;
  readonly configHash: string;
  readonly configVersion: number;
  readonly public: boolean;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
}

export type NewStub = Omit<StubRow, 'createdAtMs' | 'updatedAtMs' | 'configVersion'>;

interface Raw {
  id: string;
  workspace_id: string;
  app_id: string;
  name: string;
  type: string;
  object_id: string | null;
  config: object;
  config_hash: string;
  config_version: number;
  public: boolean;
  created_at: Date;
  updated_at: Date;
}
const COLUMNS =
  'id, workspace_id, app_id, name, type, object_id, config, config_hash, config_version, public, created_at, updated_at';
const map = (row: Raw): StubRow => ({
  id: row.id as StubId,
  workspaceId: row.workspace_id as WorkspaceId,
  appId: row.app_id as AppId,
  name: row.name,
  type: row.type,
  objectId: row.object_id as ObjectId | null,
  config: row.config,
  configHash: row.config_hash,
  configVersion: row.config_version,
  public: row.public,
  createdAtMs: msOf(row.created_at),
  updatedAtMs: msOf(row.updated_at),
});

export function insertStub(db: Queryable, stub: NewStub): Promise<StubRow> {
  return one(
    db,
    `insert into stubs (id, workspace_id, app_id, name, type, object_id, config, config_hash, public)
     values ($1, $2, $3, $4, $5, $6, $7::jsonb, $8, $9) returning ${COLUMNS}`,
    [
      stub.id,
      stub.workspaceId,
      stub.appId,
      stub.name,
      stub.type,
      stub.objectId,
      JSON.stringify(stub.config),
      stub.configHash,
      stub.public,
    ],
    map,
  );
}

export type StubReuseKey = Pick<
  NewStub,
  'workspaceId' | 'appId' | 'name' | 'type' | 'objectId' | 'configHash' | 'public'
>;

/** The newest stub equal in all these fields; its `updatedAtMs` moves, and retention looks at it later. */
export function reuseStub(db: Queryable, key: StubReuseKey): Promise<StubRow | undefined> {
  return maybeOne(
    db,
    `update stubs set updated_at = now(), touched_at = now() where id = (
       select id from stubs where workspace_id = $1 and app_id = $2 and name = $3 and type = $4
         and object_id is not distinct from $5 and config_hash = $6 and public = $7
       order by created_at desc, id desc limit 1
     ) returning ${COLUMNS}`,
    [key.workspaceId, key.appId, key.name, key.type, key.objectId, key.configHash, key.public],
    map,
  );
}

/** Whether the workspace has at least `count` stubs. */
export async function hasStubs(db: Queryable, workspaceId: WorkspaceId, count: number): Promise<boolean> {
  const { rows } = await db.query<{ found: number }>(
    'select count(*)::int as found from (select 1 from stubs where workspace_id = $1 limit $2) as counted',
    [workspaceId, count],
  );
  return (rows[0]?.found ?? 0) >= count;
}

/** The stub with this id, of any workspace; callers compare it. */
export function stubById(db: Queryable, id: string): Promise<StubRow | undefined> {
  return maybeOne(db, `select ${COLUMNS} from stubs where id = $1`, [id], map);
}

/** Gives a schedule to a stub that has none. @param made - the schedule, and the hash of the configuration with it */
export async function setStubSchedule(
  db: Queryable,
  id: StubId,
  made: { readonly schedule: object; readonly configHash: string },
): Promise<void> {
  await db.query(
    `update stubs set config = config || jsonb_build_object('schedule', $2::jsonb), config_hash = $3, updated_at = now()
     where id = $1 and not config ? 'schedule'`,
    [id, JSON.stringify(made.schedule), made.configHash],
  );
}

/** The stub of each app that was made last. */
export function latestStubsOfApps(
  db: Queryable,
  workspaceId: WorkspaceId,
  appIds: readonly AppId[],
): Promise<StubRow[]> {
  return many(
    db,
    `select distinct on (app_id) ${COLUMNS} from stubs where workspace_id = $1 and app_id = any ($2::text[])
     order by app_id, created_at desc, id desc`,
    [workspaceId, appIds],
    map,
  );
}

export function listStubs(
  db: Queryable,
  workspaceId: WorkspaceId,
  limit: number,
  types: readonly string[] | null = null,
): Promise<StubRow[]> {
  return many(
    db,
    `select ${COLUMNS} from stubs where workspace_id = $1 and ($2::text[] is null or type = any ($2::text[]))
     order by created_at desc, id desc limit $3`,
    [workspaceId, types, limit],
    map,
  );
}
