// The three spellings of `filters`: pairs `a=1,2;b=3`, a JSON object, and brackets `filters[a]=1,2`.

export type FilterValues = Readonly<Record<string, readonly string[]>>;

/**
 * Reads entries of [key in brackets or '', text]. Values of a repeated key add up.
 * @returns null when the text has none of the three forms
 */
export function parseFilters(entries: readonly (readonly [string, string])[]): FilterValues | null {
  const out = new Map<string, string[]>();
  for (const [key, text] of entries) {
    if (key !== '') add(out, key, splitValues(text));
    else if (text.trimStart().startsWith('{')) {
      if (!addJson(out, text)) return null;
    } else if (!addPairs(out, text)) return null;
  }
  return Object.fromEntries(out);
}

function addPairs(out: Map<string, string[]>, text: string): boolean {
  for (const pair of text.split(';')) {
    if (pair.trim() === '') continue;
    const at = pair.indexOf('=');
    if (at <= 0) return false;
    add(out, pair.slice(0, at).trim(), splitValues(pair.slice(at + 1)));
  }
  return true;
}

function addJson(out: Map<string, string[]>, text: string): boolean {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    return false;
  }
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) return false;
  for (const [key, value] of Object.entries(parsed)) {
    const values = jsonValues(value);
    if (values === null) return false;
    add(out, key, values);
  }
  return true;
}

function jsonValues(value: unknown): string[] | null {
  if (typeof value === 'string') return splitValues(value);
  if (typeof value === 'number' || typeof value === 'boolean') return [String(value)];
  if (Array.isArray(value)) {
    const texts = value.filter((item) => typeof item === 'string' || typeof item === 'number');
    return texts.length === value.length ? texts.map(String) : null;
  }
  if (typeof value === 'object' && value !== null && 'values' in value) return jsonValues(value.values);
  return null;
}

const splitValues = (text: string): string[] =>
  text
    .split(',')
    .map((value) => value.trim())
    .filter((value) => value !== '');

function add(out: Map<string, string[]>, key: string, values: readonly string[]): void {
  const known = out.get(key);
  if (known === undefined) out.set(key, [...values]);
  else known.push(...values);
}
