// How a caller is told that a backend gave no answer, or an answer that is a refusal. Pure. Source: reference, §7.
import { outcomes } from '../invoke/outcomes.ts';
import { textOf } from '../invoke/answer.ts';
import type { NoAnswer } from '../streams/backend-call.ts';
import { InferenceError } from './errors.ts';
import { isRecord } from '#shared/json.ts';
import type { JsonObject } from './fields.ts';
import type { TaskId } from '#shared/domain/ids.ts';

const NO_RETRY = { 'x-should-retry': 'false' };
const SOON = { 'retry-after': '1' };
const LATER = { 'retry-after': '5' };
/** For callers who may not read why. */
export const NOT_AVAILABLE = 'the model is not available now';
export const NOT_REACHED = 'the server of this model was not reached';
const MOST_MESSAGE = 1000;
const MOST_PARAM = 200;
/** Codes of a backend that callers get as they are. */
const TOO_LONG = 'context_length_exceeded';
const UNSUPPORTED = 'unsupported_parameter';
const REFUSED = 'the model refused the request';

const overloaded = (text: string): InferenceError =>
  new InferenceError(429, 'model_overloaded', text, { headers: SOON });
export const unavailable = (text: string): InferenceError =>
  new InferenceError(503, 'model_unavailable', text, { headers: LATER });
export const backendFailed = (text: string, cause?: unknown): InferenceError =>
  new InferenceError(502, 'backend_error', text, { cause });
export const timedOut = (text: string): InferenceError => new InferenceError(504, 'timeout', text);

/**
 * @param isOwn - the caller is of the workspace that owns the model, and may read how a start failed
 * @param taskId - of the call; undefined: it became no task
 */
export function failureOf(why: NoAnswer, isOwn: boolean, taskId?: TaskId): InferenceError {
  if (why.kind === 'broken') return brokenOff(isOwn, taskId);
  if (why.kind === 'refused') {
    const { submission } = why;
    if (submission.kind === 'queue_full' || submission.kind === 'queue_bytes_reached')
      return overloaded(
        isOwn
          ? 'the model has as many requests as its deployment may have at a time (max_pending_tasks): try again'
          : 'the model has as many requests as it may have: try again',
      );
    if (submission.kind === 'rate_limited')
      return new InferenceError(429, 'rate_limit_exceeded', textOf(submission).error, {
        headers: { 'retry-after': String(submission.retryAfterSeconds) },
      });
    return unavailable(isOwn ? textOf(submission).error : NOT_AVAILABLE);
  }
  const { status, reason, body } = why.finished;
  if (reason === 'start_failed') {
    const text = isOwn ? `the container of the model did not start: ${textIn(body)}` : 'the model did not start';
    return new InferenceError(500, 'model_start_failed', text.slice(0, MOST_MESSAGE), { headers: NO_RETRY });
  }
  switch (outcomes.httpStatusOf(status, reason)) {
    case 504:
      return reason === 'execution_timeout'
        ? timedOut('the model took longer than it may')
        : new InferenceError(504, 'timeout', 'no container of the model was free in time', { isUnserved: true });
    case 503:
      return unavailable(isOwn ? textIn(body) || NOT_AVAILABLE : NOT_AVAILABLE);
    default:
      return brokenOff(isOwn, taskId);
  }
}

function brokenOff(isOwn: boolean, taskId: TaskId | undefined): InferenceError {
  const text = 'the model broke off before it answered';
  if (!isOwn || taskId === undefined) return backendFailed(text);
  return new InferenceError(502, 'backend_error', `${text}: \`longshore logs --task ${taskId}\` shows what it wrote`, {
    headers: { 'x-task-id': taskId },
  });
}

function textIn(body: string): string {
  try {
    const value: unknown = JSON.parse(body);
    return isRecord(value) && typeof value['error'] === 'string' ? value['error'].trim() : '';
  } catch {
    return '';
  }
}

/**
 * A backend's own refusal. Of its body the message reaches the caller, and the name of the field at fault.
 * @param servedName - name by which the model was asked for; undefined: the caller may not know it
 */
export function refusalOf(status: number, body: string, servedName?: string): InferenceError {
  const refused = saidIn(body);
  if (status === 429) return overloaded('the model has as many requests as it takes: try again');
  if (status === 401 || status === 403)
    return backendFailed('the server of this model refused the key of the platform');
  if (status === 404 || status === 405)
    return backendFailed(
      servedName === undefined
        ? 'the server of this model does not have this route or model'
        : `the server of this model does not have this route, or no model ${JSON.stringify(servedName.slice(0, 200))}: \`served_model_name\` is the name that the server has for it`,
    );
  if (status === 408 || status === 504) return timedOut('the model did not answer in time');
  if (status === 503) return unavailable(NOT_AVAILABLE);
  if (status >= 500 || status < 400) return backendFailed('the model failed');
  const { message: said, param } = refused;
  const text = said === '' ? REFUSED : said;
  if (status === 413) return new InferenceError(413, 'request_too_large', text);
  if (status === 422) return new InferenceError(422, 'unprocessable', text);
  const isTooLong = /context.{0,20}(length|window|size)|maximum.{0,20}tokens/i.test(said);
  return (
    refusalSaid(isTooLong ? { ...refused, code: TOO_LONG } : refused) ??
    new InferenceError(400, 'invalid_request', text, param === undefined ? {} : { param })
  );
}

/** A refusal by its code alone, whatever the status; undefined: the code is none that callers act on. */
export function refusalSaid({ message, code, param }: Said): InferenceError | undefined {
  if (code !== TOO_LONG && code !== UNSUPPORTED) return undefined;
  const field = param ?? (code === TOO_LONG ? 'messages' : undefined);
  return new InferenceError(400, code, message === '' ? REFUSED : message, field === undefined ? {} : { param: field });
}

/** The words of a server about a failure. */
export interface Said {
  readonly message: string;
  readonly code?: unknown;
  readonly param?: string;
}

function saidIn(body: string): Said {
  try {
    const value: unknown = JSON.parse(body);
    return isRecord(value) ? saidOf(value) : { message: '' };
  } catch {
    return { message: '' };
  }
}

/** Fields in which servers tell of a failure. */
const WORDS = ['error_description', 'message', 'msg', 'error_message', 'error_msg'];
const firstOf = (value: unknown): unknown => (Array.isArray(value) ? (value as readonly unknown[])[0] : undefined);

export function saidOf(value: JsonObject): Said {
  const { error, errors, detail } = value;
  const told = [error, firstOf(errors), firstOf(detail)].find(isRecord) ?? value;
  const words = WORDS.map((name) => told[name]);
  const found = [...words, error, firstOf(errors), detail].find((one) => typeof one === 'string' && one !== '');
  const { code, param } = told;
  return {
    message: typeof found === 'string' ? found.slice(0, MOST_MESSAGE) : '',
    code,
    ...(typeof param === 'string' && param !== '' ? { param: param.slice(0, MOST_PARAM) } : {}),
  };
}

/** Whether another backend may be asked in this one's place. */
export const mayFallBack = ({ status, code }: InferenceError): boolean =>
  status >= 500 || (status === 429 && code === 'model_overloaded');
