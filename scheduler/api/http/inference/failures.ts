// How a caller is told that a backend gave no answer, or an answer that is a refusal. Pure. Source: reference, §7.
import { outcomes } from '../invoke/outcomes.ts';
import { textOf } from '../invoke/answer.ts';
import type { NoAnswer } from '../streams/backend-call.ts';
import { InferenceError } from './errors.ts';
import { isRecord } from '#shared/json.ts';

const NO_RETRY = { 'x-should-retry': 'false' };
const SOON = { 'retry-after': '1' };
const LATER = { 'retry-after': '5' };
const MOST_MESSAGE = 1000;

const overloaded = (text: string): InferenceError =>
  new InferenceError(429, 'model_overloaded', text, { headers: SOON });
export const unavailable = (text: string): InferenceError =>
  new InferenceError(503, 'model_unavailable', text, { headers: LATER });
export const backendFailed = (text: string, cause?: unknown): InferenceError =>
  new InferenceError(502, 'backend_error', text, { cause });
export const timedOut = (text: string): InferenceError => new InferenceError(504, 'timeout', text);

/** @param isOwn - the caller is of the workspace that owns the model, and may read how a start failed */
export function failureOf(why: NoAnswer, isOwn: boolean): InferenceError {
  if (why.kind === 'broken') return backendFailed('the model broke off before it answered');
  if (why.kind === 'refused') {
    const { submission } = why;
    if (submission.kind === 'queue_full' || submission.kind === 'queue_bytes_reached')
      return overloaded('the model has as many requests as it may have: try again');
    if (submission.kind === 'rate_limited')
      return new InferenceError(429, 'rate_limit_exceeded', textOf(submission).error, {
        headers: { 'retry-after': String(submission.retryAfterSeconds) },
      });
    return unavailable(isOwn ? textOf(submission).error : 'the model is not available now');
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
      return unavailable(isOwn ? textIn(body) || 'the model is not available now' : 'the model is not available now');
    default:
      return backendFailed('the model broke off before it answered');
  }
}

function textIn(body: string): string {
  try {
    const value: unknown = JSON.parse(body);
    return isRecord(value) && typeof value['error'] === 'string' ? value['error'].trim() : '';
  } catch {
    return '';
  }
}

/** A backend's own refusal. Nothing of its body but the message reaches the caller. */
export function refusalOf(status: number, body: string): InferenceError {
  const said = messageIn(body);
  if (status === 429) return overloaded('the model has as many requests as it takes: try again');
  if (status === 401 || status === 403)
    return backendFailed('the server of this model refused the key of the platform');
  if (status === 404 || status === 405)
    return backendFailed('the server of this model does not have this route or model');
  if (status === 408 || status === 504) return timedOut('the model did not answer in time');
  if (status === 503) return unavailable('the model is not available now');
  if (status >= 500 || status < 400) return backendFailed('the model failed');
  const text = said === '' ? 'the model refused the request' : said;
  const isTooLong = /context.{0,20}(length|window|size)|maximum.{0,20}tokens/i.test(said);
  if (status === 413) return new InferenceError(413, 'request_too_large', text);
  if (status === 422) return new InferenceError(422, 'unprocessable', text);
  return new InferenceError(400, isTooLong ? 'context_length_exceeded' : 'invalid_request', text, {
    ...(isTooLong ? { param: 'messages' } : {}),
  });
}

function messageIn(body: string): string {
  try {
    const value: unknown = JSON.parse(body);
    if (!isRecord(value)) return '';
    const { error, message, detail } = value;
    const found = isRecord(error) ? error['message'] : (error ?? message ?? detail);
    return typeof found === 'string' ? found.slice(0, MOST_MESSAGE) : '';
  } catch {
    return '';
  }
}

/** Whether another backend may be asked in this one's place. */
export const mayFallBack = ({ status, code }: InferenceError): boolean =>
  status >= 500 || (status === 429 && code === 'model_overloaded');
