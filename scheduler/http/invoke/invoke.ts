// The hot path: an invoke URL to a task and back. Finds caller and target in memory, checks that the body is a JSON object, hands its text to the task
// service, and sends the answer's bytes as they are. Must stay true: nothing here reads SQL when token and target are known, validates a schema,
// writes a body anew, or awaits what is already there.
import { isUtf8 } from 'node:buffer';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { isUuid } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Target } from '../../deployments/stub-config.ts';
import type { Targets } from '../../deployments/targets.ts';
import type { Caller } from '../../identity/caller.ts';
import type { Finished, Submission, TaskService } from '../../tasks/task-service.ts';
import { tokenOf } from '../auth.ts';
import type { Authenticator } from '../auth.ts';
import { problemOf } from '../error-map.ts';

export interface InvokeParts {
  readonly authenticator: Authenticator;
  readonly targets: Pick<Targets, 'byName' | 'byStub'>;
  readonly tasks: Pick<TaskService, 'submit'>;
  readonly log: Log;
  /** `LONGSHORE_MAX_INVOKE_BODY_BYTES` */
  readonly maxBodyBytes: number;
}

/** The kinds invoked with a JSON body and answered with JSON, and the methods they take. */
const KINDS = { endpoint: ['GET', 'POST'] } as const satisfies Record<string, readonly ('GET' | 'POST')[]>;

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const;

type Find = (caller: Caller | null, params: Readonly<Record<string, string>>) => Found | Promise<Found>;
type Found = Target | Refusal;
/** An answer instead of a task. `message`: the target could not be resolved; `error`: the call could not be made. */
class Refusal {
  readonly status: number;
  readonly body: string;
  constructor(status: number, field: 'message' | 'error', text: string) {
    this.status = status;
    this.body = JSON.stringify({ [field]: text });
  }
}
// Texts of gateway reference §8.6.
const UNAUTHORIZED = new Refusal(401, 'message', 'Unauthorized');
const OTHER_WORKSPACE = new Refusal(401, 'message', 'Invalid token');
const NO_DEPLOYMENT = new Refusal(400, 'message', 'Invalid deployment');
const NO_VERSION = new Refusal(400, 'message', 'Invalid deployment version');
const INACTIVE = new Refusal(400, 'message', 'Deployment is not active');
const NO_STUB = new Refusal(400, 'message', 'Invalid stub');
const NOT_PUBLIC = new Refusal(400, 'error', 'invalid stub id');
const BAD_PAYLOAD = new Refusal(400, 'error', 'invalid request payload');
const WRONG_METHOD = new Refusal(405, 'message', 'Method Not Allowed');
const INTERNAL = new Refusal(500, 'error', 'Internal server error');

/** Registers the path forms of every kind at the root of `scope` (a plugin of its own: its errors have their own shape). */
export function registerInvoke(scope: FastifyInstance, parts: InvokeParts): void {
  scope.setErrorHandler((error, _request, reply) => sendFailure(error, reply, parts));
  for (const [kind, methods] of Object.entries(KINDS)) {
    const byName =
      (versionOf: (params: Readonly<Record<string, string>>) => number | null | undefined): Find =>
      (caller, params) => {
        if (caller === null) return UNAUTHORIZED;
        const version = versionOf(params);
        if (version === undefined) return NO_VERSION;
        const found = parts.targets.byName(caller.workspaceId, kind, params['name'] ?? '', version);
        return found instanceof Promise ? found.then(deployed) : deployed(found);
      };
    const byStub =
      (choose: (caller: Caller | null, target: Target) => Found): Find =>
      (caller, params) => {
        const stubId = (params['stubId'] ?? '').toLowerCase();
        if (!isUuid(stubId)) return caller === null ? UNAUTHORIZED : NO_STUB;
        const pick = (target: Target | undefined): Found =>
          target === undefined || target.kind !== kind
            ? caller === null
              ? UNAUTHORIZED
              : NO_STUB
            : choose(caller, target);
        const found = parts.targets.byStub(stubId);
        return found instanceof Promise ? found.then(pick) : pick(found);
      };
    const add = (path: string, find: Find): void => {
      scope.route({
        method: [...methods],
        url: `/${kind}${path}`,
        bodyLimit: parts.maxBodyBytes,
        handler: handlerOf(find, parts),
      });
      const others = METHODS.filter((method) => !(methods as readonly string[]).includes(method));
      scope.route({
        method: others,
        url: `/${kind}${path}`,
        handler: (_request, reply) => sendRefusal(reply, WRONG_METHOD),
      });
    };
    add('/:name', byName(latest));
    add('/:name/latest', byName(latest));
    add('/:name/:version', byName(versionParam));
    add('/id/:stubId', byStub(ownOrPublic));
    add('/public/:stubId', byStub(publicOnly));
  }
}

const latest = (): null => null;

/** `v3`; undefined: not a version. */
function versionParam(params: Readonly<Record<string, string>>): number | undefined {
  const [, digits] = /^v([0-9]{1,9})$/.exec(params['version'] ?? '') ?? [];
  return digits === undefined ? undefined : Number(digits);
}

const deployed = (target: Target | undefined): Found =>
  target === undefined ? NO_DEPLOYMENT : target.active ? target : INACTIVE;

function ownOrPublic(caller: Caller | null, target: Target): Found {
  if (target.config.authorized) {
    if (caller === null) return UNAUTHORIZED;
    if (caller.workspaceId !== target.workspaceId) return OTHER_WORKSPACE;
  }
  return target.active ? target : INACTIVE;
}

function publicOnly(_caller: Caller | null, target: Target): Found {
  if (target.config.authorized) return NOT_PUBLIC;
  return target.active ? target : INACTIVE;
}

function handlerOf(find: Find, parts: InvokeParts) {
  return (request: FastifyRequest, reply: FastifyReply): void => {
    const fail = (error: unknown): void => sendFailure(error, reply, parts);
    const go = (found: Found): void => {
      if (found instanceof Refusal) return sendRefusal(reply, found);
      const input = inputOf(request.body);
      if (input === null) return sendRefusal(reply, BAD_PAYLOAD);
      const query = queryOf(request.query as Readonly<Record<string, string | string[]>>);
      const submitted = parts.tasks.submit(found, query === undefined ? { input } : { input, query });
      submitted.then((submission) => answer(submission, found, reply, fail), fail);
    };
    const resolve = (caller: Caller | null): void => {
      const found = find(caller, request.params as Readonly<Record<string, string>>);
      if (found instanceof Promise) found.then(go, fail);
      else go(found);
    };
    const token = tokenOf(request.headers.authorization, request.query as Readonly<Record<string, unknown>>);
    if (token === null) return resolve(null);
    const caller = parts.authenticator.authenticate(token);
    if (caller instanceof Promise) caller.then((known) => checked(known, reply, resolve), fail);
    else checked(caller, reply, resolve);
  };
}

/** A token that is presented must be good, even where none is needed. Source: REST reference §1.1. */
function checked(caller: Caller | null, reply: FastifyReply, resolve: (caller: Caller) => void): void {
  if (caller === null) sendRefusal(reply, UNAUTHORIZED);
  else resolve(caller);
}

function answer(submission: Submission, target: Target, reply: FastifyReply, fail: (error: unknown) => void): void {
  switch (submission.kind) {
    case 'accepted': {
      reply.header('x-task-id', submission.taskId).header('access-control-expose-headers', 'X-Task-Id');
      if (!target.sync) return send(reply, 200, JSON.stringify({ task_id: submission.taskId }));
      const { raw } = reply;
      const left = (): void => {
        if (!raw.writableEnded) submission.callerLeft();
      };
      raw.once('close', left);
      submission.finished.then(
        (finished: Finished) => {
          raw.off('close', left);
          send(reply, finished.httpStatus, finished.body);
        },
        (error: unknown) => {
          raw.off('close', left);
          fail(error);
        },
      );
      // Who hung up before this line will not send another event.
      if (raw.destroyed) left();
      return;
    }
    case 'queue_full':
      return send(reply, 429, JSON.stringify({ error: `exceeded max pending tasks: ${submission.maxPendingTasks}` }));
    case 'unavailable':
      return send(reply, 503, JSON.stringify({ error: submission.text }));
  }
}

function send(reply: FastifyReply, status: number, body: string): void {
  void reply.code(status).header('content-type', 'application/json').send(body);
}

const sendRefusal = (reply: FastifyReply, refusal: Refusal): void => send(reply, refusal.status, refusal.body);

/** The body's text when it is a JSON object or nothing at all; null otherwise. */
export function inputOf(body: unknown): string | null {
  if (!Buffer.isBuffer(body) || body.length === 0) return '';
  if (!isUtf8(body)) return null;
  const text = body.toString('utf8');
  const first = firstCharacter(text);
  if (first === '') return '';
  if (first !== '{') return null;
  try {
    // For the check only: the text goes on as it came. What begins with a brace and parses is an object.
    JSON.parse(text);
    return text;
  } catch {
    return null;
  }
}

function firstCharacter(text: string): string {
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return text.charAt(index);
  }
  return '';
}

function queryOf(
  query: Readonly<Record<string, string | string[]>>,
): Readonly<Record<string, readonly string[]>> | undefined {
  let out: Record<string, readonly string[]> | undefined;
  for (const name in query) {
    const value = query[name];
    if (value === undefined || name === 'auth_token') continue;
    out ??= Object.create(null) as Record<string, readonly string[]>;
    out[name] = typeof value === 'string' ? [value] : value;
  }
  return out;
}

function sendFailure(error: unknown, reply: FastifyReply, parts: InvokeParts): void {
  const problem = problemOf(error);
  if (problem.status === 413) {
    const text = `request body is larger than ${parts.maxBodyBytes} bytes`;
    return send(reply, 413, JSON.stringify({ error: text }));
  }
  if (problem.status < 500) return send(reply, problem.status, JSON.stringify({ error: problem.message }));
  parts.log.error({ err: error, requestId: reply.request.id }, 'invocation failed');
  if (problem.status === 500) return sendRefusal(reply, INTERNAL);
  send(reply, problem.status, JSON.stringify({ error: problem.message }));
}
