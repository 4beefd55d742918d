// The key and the credentials by which a machine proves itself.
import type { MachineId } from '#shared/domain/ids.ts';
import type { Queryable } from '../db.ts';
import { maybeOne, msOrNull } from '../rows.ts';
import { MACHINE_COLUMNS, mapMachine } from './machines.ts';
import type { MachineRow } from './machines.ts';

/** The public key with which a machine proves itself, also when it is deleted. */
export async function machineKey(
  db: Queryable,
  id: string,
): Promise<
  | {
      readonly publicKey: string | null;
      readonly isDeleted: boolean;
      /** When the machine was last seen, else when it joined. */
      readonly seenAtMs: number | null;
    }
  | undefined
> {
  const { rows } = await db.query<{
    public_key: string | null;
    deleted_at: Date | null;
    seen_at: Date | null;
  }>('select public_key, deleted_at, coalesce(last_seen_at, joined_at) as seen_at from machines where id = $1', [id]);
  const [row] = rows;
  if (row === undefined) return undefined;
  return { publicKey: row.public_key, isDeleted: row.deleted_at !== null, seenAtMs: msOrNull(row.seen_at) };
}

/**
 * Offers a new credential; the older one is valid until the new one is
 * used. A credential that was offered and not used is offered again.
 */
export function offerCredential(db: Queryable, id: MachineId, nowMs: number): Promise<MachineRow | undefined> {
  return maybeOne(
    db,
    `with m as (
       update machines set credential_next = coalesce(credential_next, credential_version + 1),
         credential_next_at = coalesce(credential_next_at, $2::timestamptz), updated_at = now()
       where id = $1 and deleted_at is null returning *
     ) select ${MACHINE_COLUMNS} from m join pools p on p.id = m.pool_id`,
    [id, new Date(nowMs)],
    mapMachine,
  );
}

/** Replaces the machine's credential: all earlier ones are invalid from now on. */
export function replaceCredentials(db: Queryable, id: MachineId): Promise<MachineRow | undefined> {
  return maybeOne(
    db,
    `with m as (
       update machines set credential_version = greatest(credential_version, coalesce(credential_next, 0)) + 1,
         credential_next = null, credential_next_at = null, updated_at = now()
       where id = $1 and deleted_at is null returning *
     ) select ${MACHINE_COLUMNS} from m join pools p on p.id = m.pool_id`,
    [id],
    mapMachine,
  );
}

/**
 * The offered credential was used: the one before it is invalid from now on.
 * @returns undefined: it was not on offer
 */
export function useCredential(db: Queryable, id: MachineId, version: number): Promise<MachineRow | undefined> {
  return maybeOne(
    db,
    `with m as (
       update machines set credential_version = $2, credential_next = null, credential_next_at = null, updated_at = now()
       where id = $1 and credential_next = $2 and deleted_at is null returning *
     ) select ${MACHINE_COLUMNS} from m join pools p on p.id = m.pool_id`,
    [id, version],
    mapMachine,
  );
}
