// Machines that may join: their secrets, the ways in, and the hosts that they came from.
import type { HostIdentity } from '#shared/domain/host-identity.ts';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { maybeOne, msOrNull, one } from '../rows.ts';
import { MACHINE_COLUMNS, mapMachine } from './machines.ts';
import type { MachineRow } from './machines.ts';

/**
 * Inserts a machine that may join.
 * @param joinSecretHash - sha256 of the secret part of the join token, which is stored nowhere
 */
export function insertMachine(
  db: Queryable,
  machine: {
    readonly id: MachineId;
    readonly poolId: number;
    readonly joinSecretHash: Uint8Array;
    readonly joinExpiresAtMs: number;
  },
): Promise<MachineRow> {
  return one(
    db,
    `with m as (
       insert into machines (id, pool_id, join_secret_hash, join_expires_at) values ($1, $2, $3, $4) returning *
     ) select ${MACHINE_COLUMNS} from m join pools p on p.id = m.pool_id`,
    [machine.id, machine.poolId, machine.joinSecretHash, new Date(machine.joinExpiresAtMs)],
    mapMachine,
  );
}

/**
 * Locks the admissions of the owner of the machines' pools: one admission at a time, until the transaction ends.
 * @param workspaceId - null: the shared pools
 * @returns false: the workspace is gone or being deleted, and nothing may come in
 */
export async function lockAdmissions(tx: Queryable, workspaceId: WorkspaceId | null): Promise<boolean> {
  // This lock does not block inserts of rows that refer to this one.
  if (workspaceId === null) {
    await tx.query('select 1 from installation where id = 1 for no key update');
    return true;
  }
  // The row is as its last change left it, also when that committed while the lock was waited for.
  const { rows } = await tx.query<{ open: boolean }>(
    'select deleting_at is null as open from workspaces where id = $1 for no key update',
    [workspaceId],
  );
  return rows[0]?.open === true;
}

/**
 * Machines of the owner that have not joined.
 * @returns their number, and those among them whose tokens have expired, the longest expired first
 */
export async function unjoinedMachines(
  db: Queryable,
  workspaceId: WorkspaceId | null,
  nowMs: number,
): Promise<{ readonly count: number; readonly expired: readonly MachineId[] }> {
  const { rows } = await db.query<{ id: string; is_expired: boolean }>(
    `select m.id, m.join_expires_at <= $2 as is_expired from machines m join pools p on p.id = m.pool_id
     where m.joined_at is null and m.deleted_at is null and p.workspace_id is not distinct from $1::text
     order by m.join_expires_at`,
    [workspaceId, new Date(nowMs)],
  );
  const expired = rows.filter((row) => row.is_expired).map((row) => row.id as MachineId);
  return { count: rows.length, expired };
}

/** Gives a machine that has not joined a new secret; PENDING again if it was EXPIRED. */
export function renewJoinSecret(
  db: Queryable,
  id: MachineId,
  joinSecretHash: Uint8Array,
  joinExpiresAtMs: number,
): Promise<MachineRow | undefined> {
  return maybeOne(
    db,
    `with m as (
       update machines set join_secret_hash = $2, join_expires_at = $3, health = 'PENDING', updated_at = now()
       where id = $1 and joined_at is null and deleted_at is null returning *
     ) select ${MACHINE_COLUMNS} from m join pools p on p.id = m.pool_id`,
    [id, joinSecretHash, new Date(joinExpiresAtMs)],
    mapMachine,
  );
}

/** An agent that joins, as it describes itself and its host. */
export interface JoiningAgent {
  readonly nonce: string;
  readonly fingerprint: string;
  readonly publicKey: string;
  readonly hostname: string;
  readonly agentVersion: string;
  /** null, absent: the agent finds out nothing about its host. */
  readonly hostIdentity?: HostIdentity | null;
  readonly nowMs: number;
}

/**
 * Swaps the join secret for an identity by one compare-and-set: the first use burns
 * the secret, and no second use succeeds. The same nonce from the same machine gets
 * the same answer for ten minutes, since an answer may be lost on the way.
 * @returns undefined: unknown, expired, used by another, or the machine is deleted
 */
export function joinMachine(
  db: Queryable,
  join: JoiningAgent & { readonly secretHash: Uint8Array },
): Promise<MachineRow | undefined> {
  return maybeOne(
    db,
    `with m as (
       update machines set
         joined_at = coalesce(joined_at, $7::timestamptz),
         join_nonce = $2, fingerprint = $3, public_key = $4, hostname = $5, agent_version = $6, host_identity = $8::jsonb,
         credential_version = case when joined_at is null then credential_version + 1 else credential_version end,
         updated_at = now()
       where join_secret_hash = $1 and deleted_at is null
         and ((joined_at is null and join_expires_at > $7::timestamptz)
           or (join_nonce = $2 and fingerprint = $3 and host_identity is not distinct from $8::jsonb and joined_at > $7::timestamptz - interval '10 minutes'))
       returning *
     ) select ${MACHINE_COLUMNS} from m join pools p on p.id = m.pool_id`,
    [
      join.secretHash,
      join.nonce,
      join.fingerprint,
      join.publicKey,
      join.hostname,
      join.agentVersion,
      new Date(join.nowMs),
      jsonOrNull(join.hostIdentity),
    ],
    mapMachine,
  );
}

const jsonOrNull = (value: object | null | undefined): string | null =>
  value === null || value === undefined ? null : JSON.stringify(value);

/** Inserts a machine that joins by an enrolment token, whose row the transaction has locked. */
export function enrolMachine(
  tx: Queryable,
  machine: JoiningAgent & { readonly id: MachineId; readonly poolId: number; readonly tokenId: string },
): Promise<MachineRow> {
  return one(
    tx,
    `with m as (
       insert into machines (id, pool_id, enrolment_token_id, joined_at, join_nonce, fingerprint, public_key, hostname, agent_version, host_identity, credential_version)
       values ($1, $2, $3, $10::timestamptz, $4, $5, $6, $7, $8, $9::jsonb, 1) returning *
     ) select ${MACHINE_COLUMNS} from m join pools p on p.id = m.pool_id`,
    [
      machine.id,
      machine.poolId,
      machine.tokenId,
      machine.nonce,
      machine.fingerprint,
      machine.publicKey,
      machine.hostname,
      machine.agentVersion,
      jsonOrNull(machine.hostIdentity),
      new Date(machine.nowMs),
    ],
    mapMachine,
  );
}

/** The machine that the host made by that token with that nonce in the last ten minutes: its answer was lost. */
export function enrolledBefore(
  tx: Queryable,
  join: Omit<JoiningAgent, 'agentVersion' | 'hostname'> & { readonly tokenId: string },
): Promise<MachineRow | undefined> {
  return maybeOne(
    tx,
    `with m as (
       update machines set public_key = $4, updated_at = now()
       where enrolment_token_id = $1 and join_nonce = $2 and fingerprint = $3 and deleted_at is null
         and host_identity is not distinct from $5::jsonb and joined_at > $6::timestamptz - interval '10 minutes'
       returning *
     ) select ${MACHINE_COLUMNS} from m join pools p on p.id = m.pool_id`,
    [join.tokenId, join.nonce, join.fingerprint, join.publicKey, jsonOrNull(join.hostIdentity), new Date(join.nowMs)],
    mapMachine,
  );
}

/** Stores the host that a machine's agent showed. @returns undefined: another one was stored meanwhile */
export function storeHostIdentity(
  db: Queryable,
  id: MachineId,
  known: HostIdentity | null,
  identity: HostIdentity,
): Promise<MachineRow | undefined> {
  return maybeOne(
    db,
    `with m as (
       update machines set host_identity = $3::jsonb, updated_at = now()
       where id = $1 and host_identity is not distinct from $2::jsonb and deleted_at is null returning *
     ) select ${MACHINE_COLUMNS} from m join pools p on p.id = m.pool_id`,
    [id, jsonOrNull(known), JSON.stringify(identity)],
    mapMachine,
  );
}

/**
 * Notes that another host came with the machine's disk and was refused.
 * @returns undefined: the same was noted in the last ten minutes
 */
export function noteRefusedHost(
  db: Queryable,
  id: MachineId,
  words: string,
  nowMs: number,
): Promise<MachineRow | undefined> {
  return maybeOne(
    db,
    `with m as (
       update machines set refused_at = $3::timestamptz, refused_words = $2, updated_at = now()
       where id = $1 and deleted_at is null
         and (refused_at is null or refused_words <> $2 or refused_at < $3::timestamptz - interval '10 minutes')
       returning *
     ) select ${MACHINE_COLUMNS} from m join pools p on p.id = m.pool_id`,
    [id, words, new Date(nowMs)],
    mapMachine,
  );
}

/** Why that secret joins no machine now; undefined: no machine has it. */
export async function joinSecretState(
  db: Queryable,
  secretHash: Uint8Array,
): Promise<{ readonly id: MachineId; readonly joinedAtMs: number | null } | undefined> {
  const { rows } = await db.query<{ id: string; joined_at: Date | null }>(
    'select id, joined_at from machines where join_secret_hash = $1 and deleted_at is null',
    [secretHash],
  );
  const [row] = rows;
  return row === undefined ? undefined : { id: row.id as MachineId, joinedAtMs: msOrNull(row.joined_at) };
}

/** Expires unused join secrets past their time: PENDING becomes EXPIRED. */
export async function expireJoinSecrets(db: Queryable, nowMs: number): Promise<number> {
  const { rowCount } = await db.query(
    `with locked as materialized (
       select id from machines
       where health = 'PENDING' and joined_at is null and join_expires_at <= $1 and deleted_at is null
       order by id collate "C" for no key update)
     update machines as m set health = 'EXPIRED', updated_at = now() from locked where m.id = locked.id`,
    [new Date(nowMs)],
  );
  return rowCount;
}

/** Ends the time of an unused join secret. @returns false: the machine has joined, or is deleted */
export async function voidJoinSecret(db: Queryable, id: MachineId, nowMs: number): Promise<boolean> {
  const { rowCount } = await db.query(
    `update machines set join_expires_at = least(join_expires_at, $2::timestamptz), updated_at = now()
     where id = $1 and joined_at is null and deleted_at is null`,
    [id, new Date(nowMs)],
  );
  return rowCount === 1;
}
