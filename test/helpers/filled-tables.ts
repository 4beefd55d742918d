/**
 * A row in every table that belongs to a workspace, whatever the schema is: columns without a default get a value of
 * their type, and references the row that was made before. A table that is added later is filled as well.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import type { Queryable } from '#scheduler/stores/store/db.ts';

interface Column {
  readonly table: string;
  readonly name: string;
  readonly type: string;
  readonly isGiven: boolean;
  /** Table that it refers to; empty: none. */
  readonly refers: string;
}

/** Tables that belong to the installation, and are left alone. */
const OTHERS = new Set(['installation', 'bootstrap', 'workspaces', 'deleted_workspaces', 'leadership']);

const known = new WeakMap<Queryable, readonly Column[]>();

async function columnsOf(db: Queryable): Promise<readonly Column[]> {
  const before = known.get(db);
  if (before !== undefined) return before;
  const { rows: references } = await db.query<{ of: string; refers: string }>(
    `select t.relname || '.' || a.attname as of, f.relname::text as refers from pg_constraint k
       join pg_class t on t.oid = k.conrelid join pg_class f on f.oid = k.confrelid
       join pg_attribute a on a.attrelid = k.conrelid and a.attnum = k.conkey[1] where k.contype = 'f'`,
  );
  const refers = new Map(references.map((row) => [row.of, row.refers]));
  const { rows } = await db.query<{ table_name: string; column_name: string; data_type: string; given: boolean }>(
    `select c.table_name, c.column_name, c.data_type,
       c.is_nullable = 'YES' or c.column_default is not null or c.is_identity = 'YES' or c.is_generated = 'ALWAYS' as given
     from information_schema.columns c join information_schema.tables t using (table_schema, table_name)
     where c.table_schema = 'public' and t.table_type = 'BASE TABLE' order by c.table_name, c.ordinal_position`,
  );
  const columns = rows.map((row) => ({
    table: row.table_name,
    name: row.column_name,
    type: row.data_type,
    isGiven: row.given,
    refers: refers.get(`${row.table_name}.${row.column_name}`) ?? '',
  }));
  known.set(db, columns);
  return columns;
}

/** Tables with a column `workspace_id`. */
export async function tablesOfWorkspaces(db: Queryable): Promise<readonly string[]> {
  return (await columnsOf(db)).filter(({ name }) => name === 'workspace_id').map(({ table }) => table);
}

function valueOf({ type, name }: Column): unknown {
  if (type === 'bytea') return randomBytes(16);
  if (type === 'boolean') return false;
  if (/^(?:integer|bigint|smallint)$/.test(type)) return 1;
  if (type === 'double precision') return 1;
  if (/^jsonb?$/.test(type)) return name.endsWith('s') && name !== 'details' ? '[]' : '{}';
  if (type === 'date' || type.startsWith('timestamp')) return new Date();
  if (type === 'uuid') return randomUUID();
  return `${name}-${randomUUID()}`;
}

/**
 * Writes a row in every table with a workspace, and in those that refer to such a row.
 * @param set - values of columns, by `table.column`
 * @returns ids of the rows, by their tables
 */
export async function fillTables(
  db: Queryable,
  workspaceId: string,
  set: Readonly<Record<string, unknown>> = {},
): Promise<ReadonlyMap<string, string | number>> {
  const tables = Map.groupBy(await columnsOf(db), ({ table }) => table);
  const ids = new Map<string, string | number>([['workspaces', workspaceId]]);
  const filled = new Set<string>();
  const belongs = (columns: readonly Column[]): boolean =>
    columns.some(({ name, refers, table }) => name === 'workspace_id' || (ids.has(refers) && refers !== table));
  for (let isNew = true; isNew;) {
    isNew = false;
    for (const [table, columns] of tables) {
      if (OTHERS.has(table) || filled.has(table) || !belongs(columns)) continue;
      const needed = columns.filter(({ refers, name }) => refers !== '' && refers !== 'workspaces' && name !== 'id');
      const waits = needed.some(({ refers }) => !ids.has(refers) && tables.has(refers) && !filled.has(refers));
      if (waits) continue;
      const row = columns.flatMap((column): (readonly [string, unknown])[] => {
        const key = `${table}.${column.name}`;
        if (key in set) return [[column.name, set[key]]];
        if (column.name === 'workspace_id') return [[column.name, workspaceId]];
        if (column.refers !== '') return [[column.name, ids.get(column.refers)]];
        return column.isGiven ? [] : [[column.name, valueOf(column)]];
      });
      const names = row.map(([name]) => name);
      const { rows } = await db.query<{ id?: string | number }>(
        `insert into ${table} (${names.join(', ')}) values (${names.map((_, at) => `$${at + 1}`).join(', ')}) returning *`,
        row.map(([, value]) => value),
      );
      if (rows[0]?.id !== undefined) ids.set(table, rows[0].id);
      filled.add(table);
      isNew = true;
    }
  }
  return ids;
}

/** Number of rows of each table, of the workspace or of all. */
export async function countsOf(db: Queryable, workspaceId?: string): Promise<Readonly<Record<string, number>>> {
  const columns = await columnsOf(db);
  const tables = [...new Set(columns.map(({ table }) => table))].filter((table) => !OTHERS.has(table));
  const counted = tables.filter(
    (table) => workspaceId === undefined || columns.some((one) => one.table === table && one.name === 'workspace_id'),
  );
  const where = workspaceId === undefined ? '' : 'where workspace_id = $1';
  const sql = counted.map((table) => `select '${table}' as name, count(*)::int as n from ${table} ${where}`);
  const { rows } = await db.query<{ name: string; n: number }>(
    sql.join(' union all '),
    workspaceId === undefined ? [] : [workspaceId],
  );
  return Object.fromEntries(rows.map(({ name, n }) => [name, n]));
}
