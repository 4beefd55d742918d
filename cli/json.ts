// Reads fields of answers whose shape another program decides: a field of the wrong type counts as absent.

import { JsonText, itemTextsOf, membersOf, plainOf } from '#shared/json-text.ts';
import { isRecord } from '#shared/json.ts';

/** An answer whose fields are unchecked: the readers below check each one. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** A string field, or the empty string. */
export function textField(value: JsonObject, name: string): string {
  const field = value[name];
  return typeof field === 'string' ? field : '';
}

/** A number field, also from decimal text. */
export function numberField(value: JsonObject, name: string): number {
  const field = value[name];
  if (typeof field === 'number') return field;
  return typeof field === 'string' && /^-?\d+$/.test(field) ? Number(field) : 0;
}

/** An object field, or one without fields. */
export function objectField(value: JsonObject, name: string): JsonObject {
  const field = plainOf(value[name]);
  return isRecord(field) ? field : {};
}

/** The objects of a list field. */
export function listField(value: JsonObject, name: string): readonly JsonObject[] {
  const field = value[name];
  return Array.isArray(field) ? field.filter(isRecord) : [];
}

/** The texts of a list field. */
export function textsField(value: JsonObject, name: string): readonly string[] {
  const field = value[name];
  return Array.isArray(field) ? field.filter((item) => typeof item === 'string') : [];
}

/** Reads an object, some fields of which are JSON of users and stay text; null stays null. @throws SyntaxError */
export function objectWith(text: string, names: readonly string[]): JsonObject {
  const value: unknown = JSON.parse(text);
  if (!isRecord(value)) throw new SyntaxError('it must be an object');
  const texts = membersOf(text).flatMap(({ name, valueFrom, to }) =>
    names.includes(name) && value[name] !== null ? [[name, new JsonText(text.slice(valueFrom, to))] as const] : [],
  );
  return { ...value, ...Object.fromEntries(texts) };
}

/** Reads a list of the REST API, with such fields in its records. @throws SyntaxError */
export function listWith(text: string, names: readonly string[]): JsonObject {
  const { data, ...rest } = objectWith(text, ['data']);
  const items = data instanceof JsonText ? itemTextsOf(data.text) : [];
  return { ...rest, data: items.map((item) => objectWith(item, names)) };
}

/** Reads a task's record. @throws SyntaxError */
export const taskOf = (text: string): JsonObject => objectWith(text, ['result']);
