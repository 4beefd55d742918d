// Errors of the /v1 surface: the body and the codes that OpenAI clients read. Source: reference, inference API, §7.
import type { FastifyReply } from 'fastify';
import { TooManyMembers } from '#shared/json-text.ts';
import { AppError } from '#shared/errors.ts';
import { INTERNAL, problemOf } from '../error-map.ts';
import type { Problem } from '../error-map.ts';

export interface ErrorFacts {
  /** Name of the field of the request, or a JSON pointer into it. */
  readonly param?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly type?: string;
  /** No backend had the request: it may be sent again. */
  readonly isUnserved?: boolean;
  readonly cause?: unknown;
}

/** A refusal or failure as its caller reads it. The message never holds an address or a trace of a backend. */
export class InferenceError extends Error {
  readonly status: number;
  readonly code: string;
  readonly type: string;
  readonly param: string | null;
  readonly headers: Readonly<Record<string, string>>;
  readonly isUnserved: boolean;

  constructor(status: number, code: string, message: string, facts: ErrorFacts = {}) {
    super(message, facts.cause === undefined ? {} : { cause: facts.cause });
    this.name = 'InferenceError';
    this.status = status;
    this.code = code;
    this.type = facts.type ?? typeOf(status, code);
    this.param = facts.param ?? null;
    this.headers = facts.headers ?? {};
    this.isUnserved = facts.isUnserved ?? false;
  }
}

function typeOf(status: number, code: string): string {
  if (status === 402) return 'insufficient_quota';
  if (status === 403) return 'permission_error';
  if (code === 'model_overloaded') return 'server_overloaded';
  if (status === 429) return 'requests';
  return status >= 500 ? 'server_error' : 'invalid_request_error';
}

export const badRequest = (message: string, param?: string, code = 'invalid_request'): InferenceError =>
  new InferenceError(400, code, message, param === undefined ? {} : { param });

export const unknownModel = (id: string): InferenceError =>
  new InferenceError(
    404,
    'model_not_found',
    `there is no model ${JSON.stringify(id.slice(0, 200))} that you may call`,
    {
      param: 'model',
    },
  );

/** Codes of other surfaces, where /v1 has a name of its own. */
const CODES: Readonly<Record<string, string>> = {
  body_too_large: 'request_too_large',
  rate_limited: 'rate_limit_exceeded',
  unauthorized: 'invalid_api_key',
  bad_request: 'invalid_request',
  not_found: 'unknown_url',
};

/** Any thrown value as an error of this surface. */
export function inferenceError(error: unknown): InferenceError {
  if (error instanceof InferenceError) return error;
  // A request with so many is refused where it is read.
  if (error instanceof TooManyMembers)
    return new InferenceError(502, 'backend_error', 'the model answered with an object of too many fields');
  const problem = problemOf(error);
  if (problem === INTERNAL) return new InferenceError(500, 'internal_error', 'internal error', { cause: error });
  return ofProblem(problem, error instanceof AppError ? error : undefined);
}

/** A problem of the platform as an error of this surface. */
export function ofProblem({ status, code, message, retryAfterSeconds }: Problem, cause?: AppError): InferenceError {
  return new InferenceError(status, CODES[code] ?? code, message, {
    ...(retryAfterSeconds === undefined ? {} : { headers: { 'retry-after': String(retryAfterSeconds) } }),
    cause,
  });
}

/** The value of `error` in a body or in a frame. */
export const errorObject = (error: InferenceError, requestId: string): object => ({
  message: error.message,
  type: error.type,
  param: error.param,
  code: error.code,
  request_id: requestId,
});

export function sendError(reply: FastifyReply, error: InferenceError, requestId: string): void {
  void reply
    .code(error.status)
    .headers({ ...error.headers, 'content-type': 'application/json; charset=utf-8' })
    .send(JSON.stringify({ error: errorObject(error, requestId) }));
}
