import type { Queryable } from '../db.ts';
import { many, msOf } from '../rows.ts';

export interface SettingRow {
  readonly name: string;
  readonly value: string;
  readonly updatedAtMs: number;
}

export function settingRows(db: Queryable): Promise<SettingRow[]> {
  return many(
    db,
    'select name, value, updated_at from settings',
    [],
    (row: { name: string; value: string; updated_at: Date }) => ({
      name: row.name,
      value: row.value,
      updatedAtMs: msOf(row.updated_at),
    }),
  );
}

export async function writeSetting(db: Queryable, name: string, value: string): Promise<void> {
  await db.query(
    `insert into settings (name, value) values ($1, $2)
     on conflict (name) do update set value = excluded.value, updated_at = now()`,
    [name, value],
  );
}

export async function deleteSetting(db: Queryable, name: string): Promise<void> {
  await db.query('delete from settings where name = $1', [name]);
}
