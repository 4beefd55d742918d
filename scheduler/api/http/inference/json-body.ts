// The body of a request as a JSON object.
import { badRequest } from './errors.ts';
import { isRecord } from '#shared/json.ts';
import type { JsonObject } from './fields.ts';

/** Deepest value of a request: deeper ones are refused before any code walks them. */
const MOST_DEPTH = 128;

/** @throws InferenceError `invalid_json`, `invalid_request` */
export function readBody(body: unknown): JsonObject {
  if (!(body instanceof Uint8Array) || body.length === 0)
    throw badRequest('send a JSON object', undefined, 'invalid_json');
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
  } catch {
    throw badRequest('the body is no JSON', undefined, 'invalid_json');
  }
  if (!isRecord(value)) throw badRequest('the body must be a JSON object', undefined, 'invalid_json');
  if (!isWithin(value, MOST_DEPTH)) throw badRequest(`the body is nested deeper than ${MOST_DEPTH} levels`);
  return value;
}

function isWithin(value: unknown, left: number): boolean {
  if (typeof value !== 'object' || value === null) return true;
  if (left === 0) return false;
  for (const item of Object.values(value)) if (!isWithin(item, left - 1)) return false;
  return true;
}
