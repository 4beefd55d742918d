// A call as lines to copy: for curl, Python and the command line. And the fields of a form, as a stub declares its
// inputs. Pure.
import { word } from './word.ts';

export interface Field {
  readonly name: string;
  /** As a schema of inputs names it: `String`, `Integer`, `JSON`, `File`, `Image`, `Object`. */
  readonly type: string;
}

/** Fields that a stub's configuration declares; undefined: none, so that the input is any JSON object. */
export function fieldsOf(config: string): readonly Field[] | undefined {
  const { inputs } = JSON.parse(config === '' ? '{}' : config) as {
    readonly inputs?: { readonly fields?: unknown } | null;
  };
  const fields = inputs?.fields;
  if (typeof fields !== 'object' || fields === null) return undefined;
  const read = Object.entries(fields).map(([name, field]: [string, unknown]) => {
    const { type } = (field ?? {}) as { readonly type?: unknown };
    return { name, type: typeof type === 'string' ? type : 'JSON' };
  });
  return read.length === 0 ? undefined : read;
}

/** Types that are typed as they are; others as JSON. */
const isText = ({ type }: Field): boolean => ['string', 'file', 'image'].includes(type.toLowerCase());

/** The input that typed texts make. A text that is not what its field wants is told with the field's name. */
export function inputOf(
  fields: readonly Field[],
  typed: Readonly<Record<string, string>>,
): { readonly json: string } | { readonly field: string; readonly why: string } {
  const values: Record<string, unknown> = {};
  for (const field of fields) {
    const text = typed[field.name] ?? '';
    if (isText(field)) {
      values[field.name] = text;
      continue;
    }
    const value = parsed(text);
    if (value === undefined) return { field: field.name, why: 'is not JSON' };
    if (field.type.toLowerCase() === 'integer' && !Number.isInteger(value))
      return { field: field.name, why: 'is not a whole number' };
    values[field.name] = value;
  }
  return { json: JSON.stringify(values) };
}

/** Why a text is no input; empty: it is one. */
export function problemOf(text: string): string {
  if (text.trim() === '') return '';
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    // The browser's own words have the place.
    return `This is not JSON: ${error instanceof Error ? error.message : String(error)}`;
  }
  return typeof value !== 'object' || value === null || Array.isArray(value) ? 'An input is a JSON object.' : '';
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** The address of the version that serves, made of that of one version; the same where there is no other. */
export function latestOf(url: string, { name, version }: { readonly name: string; readonly version: number }): string {
  const versioned = new RegExp(`/v${version}(?=(?:/\\d+)?$)`);
  return url.includes(`/${encodeURIComponent(name)}/v${version}`) ? url.replace(versioned, '') : url;
}

/** The line for a shell that gives Python and other programs the token. */
export const EXPORT_TOKEN = 'export LONGSHORE_TOKEN="$(longshore context token)"';

/** A value of JSON as Python writes it. */
export function pythonOf(value: unknown): string {
  if (value === null) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (Array.isArray(value)) return `[${value.map(pythonOf).join(', ')}]`;
  if (typeof value === 'object')
    return `{${Object.entries(value)
      .map(([name, inner]) => `${JSON.stringify(name)}: ${pythonOf(inner)}`)
      .join(', ')}}`;
  return JSON.stringify(value);
}

/** @param json - valid JSON */
export const pythonCall = (url: string, json: string): string =>
  [
    'import os, requests',
    '',
    'answer = requests.post(',
    `    ${JSON.stringify(url)},`,
    `    headers={"Authorization": "Bearer " + os.environ["LONGSHORE_TOKEN"]},`,
    `    json=${pythonOf(JSON.parse(json))},`,
    ')',
    'print(answer.json())',
  ].join('\n');

export const invokeLine = (
  { name, version, kind }: { readonly name: string; readonly version: number | undefined; readonly kind: string },
  json: string,
): string =>
  [
    'longshore invoke',
    word(name),
    ...(version === undefined ? [] : [`--version ${version}`]),
    ...(kind === 'endpoint' ? [] : [`--kind ${kind}`]),
    ...(json === '{}' ? [] : [`--data ${word(json)}`]),
  ].join(' ');
