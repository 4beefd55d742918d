// What every route of the workspace REST API shares: who calls, whose workspace the path names, how a query parameter is read, and the error shape.
// Must stay true: a token of another workspace never learns whether something exists.
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { AppError } from '#shared/errors.ts';
import { withDeadline } from '#shared/backoff.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Caller } from '../../identity/caller.ts';
import { tokenOf } from '../auth.ts';
import type { Authenticator } from '../auth.ts';
import { parseBody, pathOf } from '../bind.ts';
import { DecodeError, queryBoolean } from '../decode.ts';
import { problemOf, sendProblem } from '../error-map.ts';

export type Query = Readonly<Record<string, string | readonly string[] | undefined>>;

export interface RestRequest {
  readonly caller: Caller;
  /** Whose data the path names: the caller's, or any for the administrator. */
  readonly workspaceId: WorkspaceId;
  readonly params: Readonly<Record<string, string>>;
  readonly query: Query;
  /** The JSON object that was sent; empty when nothing was. */
  readonly body: Readonly<Record<string, unknown>>;
  readonly http: FastifyRequest;
}

export interface RestRoute {
  /** `GET /task/{ws}/{taskId}` */
  readonly http: string;
  /** A container's own token may call it; the handler decides what it shows. */
  readonly containers?: boolean;
  /** full: not restricted tokens · admin: the administrator. Absent: any. */
  readonly scope?: 'full' | 'admin';
  /** Of the answer; 200 when absent. */
  readonly status?: number;
  /** The answer's JSON; undefined: an empty answer. @throws AppError with a code that has a status */
  readonly handle: (request: RestRequest) => Promise<unknown>;
}

export interface RestParts {
  readonly authenticator: Authenticator;
  /** Before anything is done for a caller. Absent: nobody asks too often. @throws AppError `rate_limited` */
  readonly mayAsk?: (caller: Caller) => Promise<void>;
  readonly workspaceExists: (id: WorkspaceId) => Promise<boolean>;
  readonly log: Log;
}

export const REST_BASE = '/api/v1';
export const REST_BODY_LIMIT = 1024 * 1024;
const HANDLER_DEADLINE_MS = 30_000;
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const;

const unauthorized = (): AppError => new AppError('unauthorized', 'Unauthorized');

/** Registers the routes below the base of `scope`. */
export function bindRest(scope: FastifyInstance, routes: readonly RestRoute[], parts: RestParts): void {
  scope.setErrorHandler((error, request, reply) => {
    const problem = problemOf(error);
    if (problem.status >= 500) {
      parts.log.error(
        { err: error, requestId: request.id, method: request.method, path: pathOf(request) },
        'request failed',
      );
    }
    return sendProblem(reply, request.id, problem);
  });
  const taken = new Map<string, string[]>();
  for (const route of routes) {
    const [method = 'GET', path = '/'] = route.http.split(' ');
    const url = path.replace(/\{(\w+)\}/g, ':$1');
    taken.set(url, [...(taken.get(url) ?? []), method]);
    scope.route({
      method,
      url,
      bodyLimit: REST_BODY_LIMIT,
      handler: async (request, reply) => {
        const checked = await check(request, route, parts);
        const body = await withDeadline(
          route.handle(checked),
          HANDLER_DEADLINE_MS,
          () => new AppError('deadline_exceeded', `no answer within ${HANDLER_DEADLINE_MS} ms`),
        );
        reply.code(route.status ?? 200);
        if (body === undefined) return reply.send();
        return reply.header('content-type', 'application/json').send(JSON.stringify(body));
      },
    });
  }
  for (const [url, methods] of taken) {
    scope.route({
      method: METHODS.filter((method) => !methods.includes(method)),
      url,
      handler: (request, reply) =>
        sendProblem(reply, request.id, { status: 405, code: 'method_not_allowed', message: 'Method Not Allowed' }),
    });
  }
}

async function check(request: FastifyRequest, route: RestRoute, parts: RestParts): Promise<RestRequest> {
  const query = request.query as Query;
  const params = request.params as Readonly<Record<string, string>>;
  const token = tokenOf(request.headers.authorization, query);
  const caller = token === null ? null : await parts.authenticator.authenticate(token);
  if (caller === null && token !== null) parts.authenticator.refused?.(request.ip);
  if (caller === null || !mayCall(caller, route)) throw unauthorized();
  await parts.mayAsk?.(caller);
  const named = params['ws']?.toLowerCase();
  if (named !== undefined && named !== caller.workspaceId) {
    if (!caller.isAdmin) throw unauthorized();
    if (!(await parts.workspaceExists(named as WorkspaceId))) {
      throw new AppError('bad_request', 'there is no such workspace');
    }
  }
  const workspaceId = named === undefined ? caller.workspaceId : (named as WorkspaceId);
  return { caller, workspaceId, params, query, body: bodyOf(request), http: request };
}

function mayCall(caller: Caller, route: RestRoute): boolean {
  if (caller.type === 'container') return route.containers === true;
  if (route.scope === 'admin') return caller.isAdmin;
  return route.scope === undefined || caller.type !== 'workspace_restricted';
}

/** JSON whatever the content type says: clients of every kind leave it out. @throws AppError `bad_request`, `invalid_body` */
function bodyOf(request: FastifyRequest): Readonly<Record<string, unknown>> {
  // A published client sends bodies on GET; they mean nothing.
  if (request.method === 'GET') return {};
  let value: unknown;
  try {
    value = parseBody(request.body);
  } catch (error) {
    if (error instanceof DecodeError) throw new AppError('bad_request', error.message, { cause: error });
    throw error;
  }
  if (value === undefined || value === null) return {};
  if (typeof value !== 'object' || Array.isArray(value)) throw invalidBody('the body must be a JSON object');
  return value as Record<string, unknown>;
}

const invalidBody = (text: string): AppError => new AppError('invalid_body', text);

/** A text of the body; absent and null: empty. */
export function textBody(body: Readonly<Record<string, unknown>>, name: string): string {
  const value = body[name] ?? '';
  if (typeof value !== 'string') throw invalidBody(`${name} must be a string`);
  if (value.includes('\0') || !value.isWellFormed()) throw invalidBody(`${name} must be well-formed text without NUL`);
  return value;
}

/** A list of texts of the body; undefined: not sent. */
export function textsBody(body: Readonly<Record<string, unknown>>, name: string): readonly string[] | undefined {
  const value = body[name] ?? undefined;
  if (value === undefined) return undefined;
  if (!Array.isArray(value) || !value.every((item) => typeof item === 'string')) {
    throw invalidBody(`${name} must be a list of strings`);
  }
  return value;
}

const badQuery = (name: string, what: string): AppError =>
  new AppError('invalid_query', `query parameter ${name} must be ${what}`);

/** A parameter given once; empty counts as absent. */
export function textQuery(query: Query, name: string): string | undefined {
  const value = query[name];
  if (value === undefined || value === '') return undefined;
  if (typeof value !== 'string') throw badQuery(name, 'given once');
  if (value.includes('\0')) throw badQuery(name, 'text without NUL');
  return value;
}

export function integerQuery(query: Query, name: string): number | undefined {
  const text = textQuery(query, name);
  if (text === undefined) return undefined;
  if (!/^[0-9]{1,15}$/.test(text)) throw badQuery(name, 'a number, 0 or more');
  return Number(text);
}

export function booleanQuery(query: Query, name: string): boolean | undefined {
  const text = textQuery(query, name);
  if (text === undefined) return undefined;
  const value = queryBoolean(text);
  if (value === undefined) throw badQuery(name, 'true or false');
  return value;
}

/** Values separated by commas. */
export function listQuery(query: Query, name: string): readonly string[] | undefined {
  const text = textQuery(query, name);
  return text
    ?.split(',')
    .map((value) => value.trim())
    .filter((value) => value !== '');
}

/** RFC 3339, as epoch milliseconds. */
export function timeQuery(query: Query, name: string): number | undefined {
  const text = textQuery(query, name);
  if (text === undefined) return undefined;
  // A plus sign that was not encoded arrives as a space.
  const written = text.replace(/ (?=[0-9]{2}:[0-9]{2}$)/, '+');
  const ms = TIME.test(written) ? Date.parse(written) : Number.NaN;
  if (Number.isNaN(ms)) throw badQuery(name, 'a time such as 2030-01-31T12:00:00Z');
  return ms;
}
const TIME =
  /^[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2}))?$/;
