// Rows of machines that providers make. Every write carries the leader's fencing number and the revision that was read.
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { MachineShape } from '../../../domain/provisioning.ts';
import type { Queryable } from '../db.ts';
import { dateOrNull, many, maybeOne, msOf, msOrNull, one, storableText } from '../rows.ts';

/** A machine of a provider, as stored; its states and reasons are those of fleet/provisioning/states.ts. */
export interface StoredProvisioned {
  /** Tag of the instance at its provider. */
  readonly requestId: string;
  readonly poolId: number;
  readonly poolName: string;
  /** Owner of the pool; null: shared. */
  readonly poolWorkspaceId: WorkspaceId | null;
  readonly machineId: MachineId;
  readonly provider: string;
  readonly state: string;
  readonly shape: MachineShape;
  readonly reason: string;
  /** Sealed join token; null: not needed any more. */
  readonly joinToken: Uint8Array | null;
  /** null: not known. */
  readonly instanceId: string | null;
  readonly address: string | null;
  readonly hourlyCost: number | null;
  readonly endsAtMs: number | null;
  /** Calls of `create` that began. */
  readonly creates: number;
  /** Begin of the last call of `create` or `terminate`. */
  readonly calledAtMs: number | null;
  /** End of the last `terminate` that succeeded. */
  readonly terminatedAtMs: number | null;
  /** Failed calls since the last change of state. */
  readonly failures: number;
  readonly failedAtMs: number | null;
  readonly failure: string | null;
  readonly endWhy: string | null;
  readonly drainUntilMs: number | null;
  readonly revision: number;
  readonly requestedAtMs: number;
  readonly createdAtMs: number | null;
  readonly joinedAtMs: number | null;
  readonly endedAtMs: number | null;
}

interface Raw {
  request_id: string;
  pool_id: number;
  pool_name: string;
  pool_workspace_id: string | null;
  machine_id: string;
  provider: string;
  state: string;
  shape: MachineShape;
  reason: string;
  join_token: Uint8Array | null;
  instance_id: string | null;
  address: string | null;
  hourly_cost: number | null;
  ends_at: Date | null;
  creates: number;
  called_at: Date | null;
  terminated_at: Date | null;
  failures: number;
  failed_at: Date | null;
  failure: string | null;
  end_why: string | null;
  drain_until: Date | null;
  revision: number;
  requested_at: Date;
  created_at: Date | null;
  joined_at: Date | null;
  ended_at: Date | null;
}

const COLUMNS = `r.request_id, r.pool_id, p.name as pool_name, p.workspace_id as pool_workspace_id, r.machine_id, r.provider, r.state, r.shape,
  r.reason, r.join_token, r.instance_id, r.address, r.hourly_cost, r.ends_at, r.creates, r.called_at, r.terminated_at, r.failures, r.failed_at,
  r.failure, r.end_why, r.drain_until, r.revision, r.requested_at, r.created_at, r.joined_at, r.ended_at`;

const map = (row: Raw): StoredProvisioned => ({
  requestId: row.request_id,
  poolId: row.pool_id,
  poolName: row.pool_name,
  poolWorkspaceId: row.pool_workspace_id as WorkspaceId | null,
  machineId: row.machine_id as MachineId,
  provider: row.provider,
  state: row.state,
  shape: row.shape,
  reason: row.reason,
  joinToken: row.join_token,
  instanceId: row.instance_id,
  address: row.address,
  hourlyCost: row.hourly_cost,
  endsAtMs: msOrNull(row.ends_at),
  creates: row.creates,
  calledAtMs: msOrNull(row.called_at),
  terminatedAtMs: msOrNull(row.terminated_at),
  failures: row.failures,
  failedAtMs: msOrNull(row.failed_at),
  failure: row.failure,
  endWhy: row.end_why,
  drainUntilMs: msOrNull(row.drain_until),
  revision: row.revision,
  requestedAtMs: msOf(row.requested_at),
  createdAtMs: msOrNull(row.created_at),
  joinedAtMs: msOrNull(row.joined_at),
  endedAtMs: msOrNull(row.ended_at),
});

const text = (value: string | null): string | null => (value === null ? null : storableText(value));

/** @returns undefined: a leader with a higher number has begun */
export function insertProvisioned(
  tx: Queryable,
  row: Pick<StoredProvisioned, 'requestId' | 'poolId' | 'machineId' | 'provider' | 'shape' | 'reason' | 'joinToken'> & {
    readonly requestedAtMs: number;
  },
  fence: number,
): Promise<StoredProvisioned | undefined> {
  return maybeOne(
    tx,
    `with led as (select fence from leadership where id = 1 for share), r as (
       insert into provisioned_machines (request_id, pool_id, machine_id, provider, state, shape, reason, join_token, requested_at)
       select $1::uuid, $2::integer, $3::text, $4::text, 'requested', $5::json, $6::text, $7::bytea, $8::timestamptz
       where (select fence from led) <= $9::bigint returning *
     ) select ${COLUMNS} from r join pools p on p.id = r.pool_id`,
    [
      row.requestId,
      row.poolId,
      row.machineId,
      row.provider,
      JSON.stringify(row.shape),
      storableText(row.reason),
      row.joinToken,
      new Date(row.requestedAtMs),
      fence,
    ],
    map,
  );
}

/**
 * Writes a row as given, if it still has the revision that was read.
 * @returns the row with its next revision; undefined: it changed meanwhile, or a higher leader has begun
 */
export async function writeProvisioned(
  db: Queryable,
  row: StoredProvisioned,
  fence: number,
): Promise<StoredProvisioned | undefined> {
  const { rowCount } = await db.query(
    `with led as (select fence from leadership where id = 1 for share)
     update provisioned_machines set state = $3, join_token = $4, instance_id = $5, address = $6, hourly_cost = $7::double precision, ends_at = $8::timestamptz,
       creates = $9, called_at = $10::timestamptz, terminated_at = $11::timestamptz, failures = $12, failed_at = $13::timestamptz, failure = $14, end_why = $15,
       drain_until = $16::timestamptz, created_at = $17::timestamptz, joined_at = $18::timestamptz, ended_at = $19::timestamptz, revision = revision + 1
     where request_id = $1::uuid and revision = $2 and (select fence from led) <= $20::bigint`,
    [
      row.requestId,
      row.revision,
      row.state,
      row.joinToken,
      text(row.instanceId),
      text(row.address),
      row.hourlyCost,
      dateOrNull(row.endsAtMs),
      row.creates,
      dateOrNull(row.calledAtMs),
      dateOrNull(row.terminatedAtMs),
      row.failures,
      dateOrNull(row.failedAtMs),
      text(row.failure),
      row.endWhy,
      dateOrNull(row.drainUntilMs),
      dateOrNull(row.createdAtMs),
      dateOrNull(row.joinedAtMs),
      dateOrNull(row.endedAtMs),
      fence,
    ],
  );
  return rowCount === 1 ? { ...row, revision: row.revision + 1 } : undefined;
}

/** A row; undefined: there is none. */
export function provisionedOf(db: Queryable, requestId: string): Promise<StoredProvisioned | undefined> {
  const sql = `select ${COLUMNS} from provisioned_machines r join pools p on p.id = r.pool_id where r.request_id = $1::uuid`;
  return maybeOne(db, sql, [requestId], map);
}

/** Rows that are not over, and those that ended since then. */
export function liveProvisioned(db: Queryable, endedSinceMs: number): Promise<StoredProvisioned[]> {
  return many(
    db,
    `select ${COLUMNS} from provisioned_machines r join pools p on p.id = r.pool_id
     where r.ended_at is null or r.ended_at > $1 order by r.requested_at, r.request_id`,
    [new Date(endedSinceMs)],
    map,
  );
}

/**
 * Which of these instances belong to a row that is not over. A tag is unique for ever, and names a row of any provider,
 * since several may share an account; an id counts within its provider alone.
 */
export async function ownedInstances(
  db: Queryable,
  provider: string,
  instances: readonly { readonly instanceId: string; readonly requestId: string }[],
): Promise<ReadonlySet<string>> {
  const { rows } = await db.query<{ instance_id: string }>(
    `select i.id as instance_id from unnest($2::text[], $3::text[]) as i (id, request_id)
     where exists (select 1 from provisioned_machines r where r.ended_at is null
       and (r.request_id::text = i.request_id or (r.provider = $1 and r.instance_id = i.id)))`,
    [provider, instances.map((one) => one.instanceId), instances.map((one) => one.requestId)],
  );
  return new Set(rows.map((row) => row.instance_id));
}

/** Deletes rows that ended before then. */
export async function pruneProvisioned(db: Queryable, beforeMs: number, limit: number): Promise<number> {
  const { rowCount } = await db.query(
    `delete from provisioned_machines where request_id in
       (select request_id from provisioned_machines where ended_at < $1 order by ended_at limit $2)`,
    [new Date(beforeMs), limit],
  );
  return rowCount;
}

/** Tag of the installation's instances. */
export function installationTag(db: Queryable): Promise<string> {
  return one(db, 'select tag from installation where id = 1', [], (row: { tag: string }) => row.tag);
}
