// Every sealed column, row by row, for a change of the key that seals them. A new sealed column gets its entry here.
import type { Queryable } from '../db.ts';
import { many } from '../rows.ts';

export const SEALED = {
  'installation.signing_key': { table: 'installation', column: 'signing_key', key: 'id::text', also: '' },
  'installation.ca_key': { table: 'installation', column: 'ca_key', key: 'id::text', also: '' },
  signing_keys: { table: 'signing_keys', column: 'private_key', key: 'id', also: '' },
  workspaces: { table: 'workspaces', column: 'signing_key', key: 'id', also: '' },
  webhook_secrets: { table: 'webhook_secrets', column: 'sealed', key: 'id', also: ', webhook_id as name' },
  secrets: { table: 'secrets', column: 'sealed', key: 'id', also: ', workspace_id, name' },
} as const;
export type SealedKind = keyof typeof SEALED;

export interface SealedRow {
  readonly key: string;
  readonly sealed: Uint8Array;
  /** Workspace of a secret; null for other kinds. */
  readonly workspaceId: string | null;
  /** Name of a secret; of a webhook's secret: the webhook. */
  readonly name: string | null;
}

/** Sealed rows of a kind, locked until the transaction ends. */
export function lockSealed(db: Queryable, kind: SealedKind): Promise<SealedRow[]> {
  const { table, column, key, also } = SEALED[kind];
  return many(
    db,
    `select ${key} as key, ${column} as sealed${also} from ${table} order by ${key} for update`,
    [],
    (row: Record<string, unknown>) => ({
      key: row['key'] as string,
      sealed: row['sealed'] as Uint8Array,
      workspaceId: (row['workspace_id'] as string | undefined) ?? null,
      name: (row['name'] as string | undefined) ?? null,
    }),
  );
}

export async function replaceSealed(db: Queryable, kind: SealedKind, key: string, sealed: Uint8Array): Promise<void> {
  const { table, column, key: name } = SEALED[kind];
  await db.query(`update ${table} set ${column} = $2 where ${name} = $1`, [key, sealed]);
}
