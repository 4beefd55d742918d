// Readers of request fields that several routes share. Pure. Each throws a 400 that names the field.
import { isRecord } from '#shared/json.ts';
import { badRequest } from './errors.ts';

export type JsonObject = Readonly<Record<string, unknown>>;

/** A document: the value that is read, and the text that is sent on. */
export interface JsonDocument {
  readonly text: string;
  readonly value: JsonObject;
}

const isAbsent = (value: unknown): boolean => value === undefined || value === null;

/** Checks a number where it is given. */
export function checkNumber(body: JsonObject, field: string, low: number, high: number, isWhole = false): void {
  const value = body[field];
  if (isAbsent(value)) return;
  const kind = isWhole ? 'an integer' : 'a number';
  if (typeof value !== 'number' || !Number.isFinite(value) || (isWhole && !Number.isInteger(value)))
    throw badRequest(`${field} must be ${kind}`, field);
  if (value < low || value > high)
    throw badRequest(
      high === Number.MAX_SAFE_INTEGER ? `${field} must be at least ${low}` : `${field} must be from ${low} to ${high}`,
      field,
    );
}

export function readFlag(body: JsonObject, field: string, param = field): boolean {
  const value = body[field];
  if (isAbsent(value)) return false;
  if (typeof value !== 'boolean') throw badRequest(`${param} must be true or false`, param);
  return value;
}

export interface StreamWish {
  readonly stream: boolean;
  /** The caller wants the usage in the stream. */
  readonly includeUsage: boolean;
}

/** `stream` and `stream_options`. */
export function readStream(body: JsonObject): StreamWish {
  const stream = readFlag(body, 'stream');
  const options = body['stream_options'];
  if (isAbsent(options)) return { stream, includeUsage: false };
  if (!isRecord(options)) throw badRequest('stream_options must be an object', 'stream_options');
  if (!stream) throw badRequest('stream_options is only for requests with stream: true', 'stream_options');
  readFlag(options, 'include_obfuscation', 'stream_options.include_obfuscation');
  return { stream, includeUsage: readFlag(options, 'include_usage', 'stream_options.include_usage') };
}

/** @throws InferenceError `missing_required_parameter` */
export function readModelId(body: JsonObject): string {
  const { model } = body;
  if (isAbsent(model) || model === '')
    throw badRequest('model must be given: GET /v1/models lists the models', 'model', 'missing_required_parameter');
  if (typeof model !== 'string') throw badRequest('model must be a string', 'model');
  return model;
}

/** Sampling options that chat and completions share. */
export function checkSampling(body: JsonObject): void {
  checkNumber(body, 'temperature', 0, 2);
  checkNumber(body, 'top_p', 0, 1);
  checkNumber(body, 'presence_penalty', -2, 2);
  checkNumber(body, 'frequency_penalty', -2, 2);
  checkNumber(body, 'n', 1, 8, true);
  checkNumber(body, 'max_tokens', 1, Number.MAX_SAFE_INTEGER, true);
  checkNumber(body, 'max_completion_tokens', 1, Number.MAX_SAFE_INTEGER, true);
  const { stop } = body;
  if (isAbsent(stop) || typeof stop === 'string') return;
  const isList = Array.isArray(stop) && stop.every((one) => typeof one === 'string');
  if (!isList) throw badRequest('stop must be a string or a list of strings', 'stop');
  if (stop.length > 4) throw badRequest('stop must have at most 4 entries', 'stop');
}

/** Options of hosted services that a model gets only when it lists them. */
const HOSTED: ReadonlySet<string> = new Set([
  'reasoning_effort',
  'modalities',
  'audio',
  'prediction',
  'service_tier',
  'store',
  'metadata',
  'prompt_cache_key',
  'safety_identifier',
  'verbosity',
]);
/** Options that a model gets unless its list leaves them out. */
const TUNING: ReadonlySet<string> = new Set(['seed', 'logit_bias', 'logprobs', 'top_logprobs']);

/** Whether a tuning option reaches the backend. Fields that are no known option always do. */
export function isForwarded(
  field: string,
  listed: readonly string[],
  capabilities: { readonly seed?: boolean; readonly logprobs?: boolean },
): boolean {
  if (listed.includes(field)) return true;
  if (HOSTED.has(field)) return false;
  if (!TUNING.has(field)) return true;
  if (field === 'seed' && capabilities.seed === false) return false;
  if (field.endsWith('logprobs') && capabilities.logprobs === false) return false;
  return listed.length === 0;
}
