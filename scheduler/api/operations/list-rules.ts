// Rules of every list: limits, and filters by key.

type Filters = Readonly<Record<string, readonly string[]>>;

const MAX_LIST = 1_000;

/** Limit of a list: 0 and too large values mean the maximum. */
export const limitOf = (limit: number): number => (limit === 0 ? MAX_LIST : Math.min(limit, MAX_LIST));

/** All values of any spelling of a key; undefined: no such filter. */
export function filterValues(filters: Filters, keys: readonly string[]): readonly string[] | undefined {
  const values = keys.flatMap((key) => (Object.hasOwn(filters, key) ? (filters[key] ?? []) : []));
  return values.length === 0 ? undefined : values;
}

export const firstFilter = (filters: Filters, keys: readonly string[]): string | undefined =>
  filterValues(filters, keys)?.[0];

/** A filter's boolean; an unreadable value is no filter. */
export function booleanFilter(text: string | undefined): boolean | undefined {
  if (text === undefined) return undefined;
  if (/^(?:yes|y|true|t|1)$/i.test(text)) return true;
  return /^(?:no|n|false|f|0)$/i.test(text) ? false : undefined;
}

export function numberFilter(text: string | undefined): number | undefined {
  if (text === undefined || !/^[0-9]{1,9}$/.test(text)) return undefined;
  return Number(text);
}

/** Spellings of a key: `stub-id`, `stub-ids`, `stub_id`, `stub_ids`. */
export const spellings = (first: string, second: string): readonly string[] => [
  `${first}-${second}`,
  `${first}-${second}s`,
  `${first}_${second}`,
  `${first}_${second}s`,
];
