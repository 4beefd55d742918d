// Reads fields of answers whose shape another program decides: a field of the wrong type counts as absent.

import { JsonText, membersOf } from '#shared/json-text.ts';
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
  const field = value[name];
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

/** Reads a task's record. Its result, which is JSON of its user, stays text; no result is null. @throws SyntaxError */
export function taskOf(text: string): JsonObject {
  const value: unknown = JSON.parse(text);
  if (!isRecord(value)) throw new SyntaxError('a task is an object');
  const texts = membersOf(text).flatMap(({ name, valueFrom, to }) =>
    name === 'result' && value[name] !== null ? [[name, new JsonText(text.slice(valueFrom, to))] as const] : [],
  );
  return { ...value, ...Object.fromEntries(texts) };
}

/** JSON of a user in a task's record, as a value. */
export const userValue = (field: unknown): unknown => (field instanceof JsonText ? field.value : field);
