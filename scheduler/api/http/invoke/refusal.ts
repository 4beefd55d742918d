// Answers in place of a task: refusals with the texts that clients compare, and failures.
import type { FastifyReply } from 'fastify';
import type { Log } from '#shared/log.ts';
import { levelOf, problemOf, withRetryAfter } from '../error-map.ts';
import type { Problem } from '../error-map.ts';
import { closeUnread } from '../polite-close.ts';

/**
 * An answer instead of a task: `{"error": text}`, with `detail` where there is more to say. `message`: the texts for
 * which the interface has that field alone. Source: interface, errors of invocations; decision 0373.
 */
export class Refusal {
  readonly status: number;
  readonly body: string;
  constructor(status: number, field: 'message' | 'error', text: string, detail?: string) {
    this.status = status;
    this.body = JSON.stringify({ [field]: text, detail });
  }
}

// Texts of the interface, which clients compare.
export const UNAUTHORIZED = new Refusal(401, 'message', 'Unauthorized');
export const OTHER_WORKSPACE = new Refusal(401, 'message', 'Invalid token');
export const NO_DEPLOYMENT = new Refusal(400, 'message', 'Invalid deployment');
export const NO_VERSION = new Refusal(400, 'message', 'Invalid deployment version');
export const INACTIVE = new Refusal(400, 'message', 'Deployment is not active');
export const NO_STUB = new Refusal(400, 'message', 'Invalid stub');
export const NOT_PUBLIC = new Refusal(400, 'error', 'invalid stub id');
export const badPayload = (why: string): Refusal => new Refusal(400, 'error', 'invalid request payload', why);
export const CALLBACK_OF_NOBODY = new Refusal(401, 'error', 'callback_url needs a token of the workspace');
export const CALLBACK_OF_CONSOLE = new Refusal(
  403,
  'error',
  'callback_url is not for calls from the console: use the command line or a token',
);
export const CALLBACK_OUTSIDE = new Refusal(
  403,
  'error',
  'callback_url is not for a container whose network is limited',
);
export const PICKLED_BY_OTHERS = new Refusal(
  403,
  'error',
  'pickled inputs are code: they need an unrestricted token of the workspace, or a container of the same app with at least the same rights; send JSON',
);
export const MANY_CALLS_AWAITED = new Refusal(
  400,
  'error',
  'many calls in one request are for kinds that answer with task ids',
);
export const WRONG_METHOD = new Refusal(405, 'error', 'Method Not Allowed');
export const NOT_FOUND = new Refusal(404, 'error', 'Not Found');
export const BAD_GATEWAY = new Refusal(502, 'error', 'Backend route unavailable');
export const NO_ROOM = new Refusal(503, 'error', 'too many streamed calls are under way: wait until some have ended');
export const FOREIGN_ORIGIN = new Refusal(
  403,
  'error',
  'only a page of this host may use its cookie, and a browser says so with HTTPS or on localhost only',
);
export const INTERNAL = new Refusal(500, 'error', 'Internal server error');

export function send(reply: FastifyReply, status: number, body: string): void {
  void reply.code(status).header('content-type', 'application/json').send(body);
}

/** Sends a refusal that programs recognise by its code. */
export const sendCoded = (reply: FastifyReply, status: number, code: string, error: string): void =>
  send(reply, status, JSON.stringify({ error, code }));

export function sendRefusal(reply: FastifyReply, refusal: Refusal): void {
  closeUnread(reply.request, reply);
  send(reply, refusal.status, refusal.body);
}

export interface FailureParts {
  readonly log: Log;
  /** `LONGSHORE_MAX_INVOKE_BODY_BYTES` */
  readonly maxBodyBytes: number;
}

export function sendFailure(error: unknown, reply: FastifyReply, parts: FailureParts): void {
  const problem = problemOf(error);
  closeUnread(reply.request, reply);
  if (problem.status === 413) {
    return sendCoded(reply, 413, problem.code, `request body is larger than ${parts.maxBodyBytes} bytes`);
  }
  withRetryAfter(reply, problem);
  if (problem.status < 500 || problem.retryAfterSeconds !== undefined) return sendProblem(reply, problem);
  parts.log[levelOf(problem)]({ err: error, requestId: reply.request.id }, 'invocation failed');
  if (problem.status === 500) return sendRefusal(reply, INTERNAL);
  sendProblem(reply, problem);
}

/** Sends what another part than a call's own refused, such as the server or the token. */
export const sendProblem = (reply: FastifyReply, { status, code, message }: Problem): void =>
  sendCoded(reply, status, code, message);
