// Changes between two answers of a route. Rows of a list are told by their ids, other fields by their names. Pure.
import { stringifyExactly } from '#shared/json-text.ts';

type Json = Readonly<Record<string, unknown>>;

/** An answer as the texts of its parts. Each text is kept once. */
export interface Seen {
  /** Rows of `data` by their ids, in their order; undefined: the answer is no list. */
  readonly rows: ReadonlyMap<string, string> | undefined;
  /** The other fields by their names, as they are sent and as they are compared. */
  readonly fields: ReadonlyMap<string, { readonly text: string; readonly steady: string }>;
  /** Characters of all texts. */
  readonly size: number;
}

/** Field that says when the answer was made, and does not count as a change. */
const AT = 'at';

/** @param steady - the answer without what changes with the clock alone */
export function seenOf(answer: unknown, steady: (answer: Json) => unknown = (same) => same): Seen {
  const value = answer as Json;
  const compared = steady(value) as Json;
  const rows = rowsOf(value['data']);
  const fields = new Map<string, { readonly text: string; readonly steady: string }>();
  for (const [name, field] of Object.entries(value)) {
    if (field === undefined || (name === 'data' && rows !== undefined)) continue;
    const text = stringifyExactly(field);
    const same = name === AT ? null : (compared[name] ?? null);
    fields.set(name, { text, steady: same === field ? text : stringifyExactly(same) });
  }
  let size = 0;
  for (const text of rows?.values() ?? []) size += text.length;
  for (const { text, steady: other } of fields.values()) size += text.length + (other === text ? 0 : other.length);
  return { rows, fields, size };
}

/** The answer's JSON. */
export function wholeOf({ rows, fields }: Seen): string {
  const parts = [...fields].map(([name, { text }]) => `${JSON.stringify(name)}:${text}`);
  if (rows !== undefined) parts.push(`"data":[${[...rows.values()].join(',')}]`);
  return `{${parts.join(',')}}`;
}

function rowsOf(data: unknown): ReadonlyMap<string, string> | undefined {
  if (!Array.isArray(data)) return undefined;
  const rows = new Map<string, string>();
  for (const row of data as readonly Json[]) {
    const id = idOf(row);
    // Rows without ids of their own are sent as one field.
    if (id === undefined || rows.has(id)) return undefined;
    rows.set(id, stringifyExactly(row));
  }
  return rows;
}

export const idOf = (row: Json | null | undefined): string | undefined => {
  const id = row?.['id'] ?? row?.['external_id'] ?? row?.['container_id'] ?? row?.['uuid'] ?? row?.['oldest_id'];
  return typeof id === 'string' ? id : undefined;
};

/**
 * The fields of a frame that make the later answer of the earlier one, as the inside of a JSON object.
 * @returns empty: nothing changed; undefined: the whole answer is needed
 */
export function changesBetween(before: Seen, after: Seen): string | undefined {
  if ((before.rows === undefined) !== (after.rows === undefined)) return undefined;
  const parts: string[] = [];
  if (before.rows !== undefined && after.rows !== undefined) {
    const changed = [...after.rows].filter(([id, text]) => before.rows?.get(id) !== text).map(([, text]) => text);
    const ids = [...after.rows.keys()];
    const isMoved = ids.length !== before.rows.size || [...before.rows.keys()].some((id, at) => id !== ids[at]);
    if (isMoved) parts.push(`"order":${JSON.stringify(ids)}`);
    if (changed.length > 0) parts.push(`"rows":[${changed.join(',')}]`);
  }
  if ([...before.fields.keys()].some((name) => !after.fields.has(name))) return undefined;
  const fields = [...after.fields]
    .filter(([name, { steady }]) => before.fields.get(name)?.steady !== steady)
    .map(([name, { text }]) => `${JSON.stringify(name)}:${text}`);
  if (fields.length > 0) parts.push(`"fields":{${fields.join(',')}}`);
  return parts.join(',');
}
