import type { Queryable } from '../db.ts';
import { many, maybeOne, msOf, msOrNull } from '../rows.ts';

/** A key that tokens are signed with. The first is the installation's own. */
export interface SigningKeyRow {
  /** Id of the key; null: the installation's first, which tokens do not name. */
  readonly id: string | null;
  /** Sealed PKCS #8. */
  readonly privateKey: Uint8Array;
  readonly createdAtMs: number;
  readonly retiredAtMs: number | null;
  /** Number of active tokens signed with this key. */
  readonly activeTokens: number;
}

interface Raw {
  id: string | null;
  private_key: Uint8Array;
  created_at: Date;
  retired_at: Date | null;
  active_tokens: number;
}

/** Signing keys, oldest first: the last one signs. */
export function signingKeys(db: Queryable): Promise<SigningKeyRow[]> {
  return many(
    db,
    `with keys as (
       select null as id, 0 as number, signing_key as private_key, created_at, signing_key_retired_at as retired_at from installation where id = 1
       union all
       select id, number, private_key, created_at, retired_at from signing_keys
     )
     select k.id, k.private_key, k.created_at, k.retired_at,
       (select count(*) from tokens t where t.active and t.key_id is not distinct from k.id)::int as active_tokens
     from keys k order by k.number`,
    [],
    (row: Raw) => ({
      id: row.id,
      privateKey: row.private_key,
      createdAtMs: msOf(row.created_at),
      retiredAtMs: msOrNull(row.retired_at),
      activeTokens: row.active_tokens,
    }),
  );
}

export async function insertSigningKey(
  db: Queryable,
  key: { readonly id: string; readonly privateKey: Uint8Array },
): Promise<void> {
  await db.query('insert into signing_keys (id, private_key) values ($1, $2)', [key.id, key.privateKey]);
}

/** Retires a key. False: no such key, or it is the newest, which signs. Retiring twice has the effect of once. */
export async function retireSigningKey(db: Queryable, id: string | null): Promise<boolean> {
  const found =
    id === null
      ? await maybeOne(
          db,
          `update installation set signing_key_retired_at = coalesce(signing_key_retired_at, now())
           where id = 1 and exists (select 1 from signing_keys) returning id`,
          [],
          (row: { id: number }) => row,
        )
      : await maybeOne(
          db,
          `update signing_keys k set retired_at = coalesce(k.retired_at, now())
           where k.id = $1 and exists (select 1 from signing_keys newer where newer.number > k.number) returning k.id`,
          [id],
          (row: { id: string }) => row,
        );
  return found !== undefined;
}
