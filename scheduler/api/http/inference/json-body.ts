// The body of a request as a JSON object, and the body for a backend, in which all but what is set keeps its bytes.
import { JsonText, TooManyMembers, membersOf, plainOf, stringifyExactly, withMembers } from '#shared/json-text.ts';
import { isRecord } from '#shared/json.ts';
import type { ModelRow } from '../../../stores/store/queries/models.ts';
import { whyNotObject } from '../not-object.ts';
import { InferenceError, badRequest } from './errors.ts';
import type { JsonDocument, JsonObject } from './fields.ts';

/** Deepest value of a request: deeper ones are refused before any code walks them. */
const MOST_DEPTH = 128;
/** Most fields of a request, also equal ones. */
const MOST_FIELDS = 1_000;

/** @throws InferenceError `invalid_json`, `invalid_request` */
export function readBody(body: unknown): JsonDocument {
  if (!(body instanceof Uint8Array) || body.length === 0) throw invalid('send a JSON object');
  let text: string;
  let value: unknown;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(body);
    if (text.trim() === '') throw invalid('send a JSON object');
    value = JSON.parse(text);
  } catch (error) {
    throw error instanceof InferenceError ? error : invalid(whyNotObject(body));
  }
  if (!isRecord(value)) throw invalid(whyNotObject(body));
  if (!isWithin(value, MOST_DEPTH)) throw badRequest(`the body is nested deeper than ${MOST_DEPTH} levels`);
  if (hasTooMany(text)) throw badRequest(`the body has more than ${MOST_FIELDS} fields`);
  return { text, value };
}

function invalid(why: string): InferenceError {
  const text = why.startsWith('byte ') ? `the body is no JSON object: ${why}` : why;
  return badRequest(text, undefined, 'invalid_json');
}

function hasTooMany(text: string): boolean {
  try {
    membersOf(text, MOST_FIELDS);
    return false;
  } catch (error) {
    if (error instanceof TooManyMembers) return true;
    throw error;
  }
}

function isWithin(value: unknown, left: number): boolean {
  if (typeof value !== 'object' || value === null) return true;
  if (left === 0) return false;
  for (const item of Object.values(value)) if (!isWithin(item, left - 1)) return false;
  return true;
}

/**
 * Fields by which a request is checked, held and routed. They go out once, so that a backend which takes the first of
 * two equal names does not read another value than was checked.
 */
const READ: ReadonlySet<string> = new Set([
  'model',
  'messages',
  'prompt',
  'input',
  'n',
  'stream',
  'max_tokens',
  'max_completion_tokens',
  'tools',
  'functions',
  'response_format',
  'dimensions',
  'encoding_format',
  'stream_options',
  'parallel_tool_calls',
  'temperature',
  'top_p',
  'presence_penalty',
  'frequency_penalty',
  'stop',
  'logprobs',
  'top_logprobs',
]);

/** Fields that a model has for requests without them. */
export function defaultsOf({ details }: Pick<ModelRow, 'details'>): Record<string, unknown> {
  const { text } = details.defaultParameters;
  return Object.fromEntries(
    membersOf(text).map(({ name, valueFrom, to }) => [name, new JsonText(text.slice(valueFrom, to))]),
  );
}

/**
 * The body for a backend with these fields. Those that the request has with the same value keep their bytes there.
 * @param texts - fields that are given as JSON
 */
export function bodyWith(
  request: JsonDocument,
  fields: JsonObject,
  texts: Readonly<Record<string, string>> = {},
): JsonDocument {
  const set = Object.create(null) as Record<string, string>;
  for (const [name, value] of Object.entries(fields)) {
    if (value === undefined || Object.hasOwn(texts, name)) continue;
    const isSame = Object.hasOwn(request.value, name) && Object.is(value, request.value[name]);
    if (!isSame) set[name] = stringifyExactly(value);
  }
  Object.assign(set, texts);
  const keeps = (name: string): boolean => Object.hasOwn(fields, name);
  const values = Object.entries(fields).map(([name, value]) => [name, plainOf(value)] as const);
  return {
    text: withMembers(request.text, { set, keeps, once: READ }),
    value: Object.fromEntries(values),
  };
}
