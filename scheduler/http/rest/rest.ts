// What every route of the workspace REST API shares: who calls, whose workspace the path names, how a query parameter is read, and the error shape.
// Source: REST reference §1. Must stay true: a token of another workspace never learns whether something exists.
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { AppError } from '#shared/errors.ts';
import { withDeadline } from '#shared/backoff.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Caller } from '../../identity/caller.ts';
import { tokenOf } from '../auth.ts';
import type { Authenticator } from '../auth.ts';
import { pathOf } from '../bind.ts';
import { queryBoolean } from '../decode.ts';
import { problemOf, sendProblem } from '../error-map.ts';

export type Query = Readonly<Record<string, string | readonly string[] | undefined>>;

export interface RestRequest {
  readonly caller: Caller;
  /** Whose data the path names: the caller's, or any for the administrator. */
  readonly workspaceId: WorkspaceId;
  readonly params: Readonly<Record<string, string>>;
  readonly query: Query;
  readonly http: FastifyRequest;
}

export interface RestRoute {
  /** `GET /task/{ws}/{taskId}` */
  readonly http: string;
  /** A container's own token may call it; the handler decides what it shows. */
  readonly containers?: boolean;
  /** The answer's JSON. @throws AppError with a code that has a status */
  readonly handle: (request: RestRequest) => Promise<unknown>;
}

export interface RestParts {
  readonly authenticator: Authenticator;
  readonly workspaceExists: (id: WorkspaceId) => Promise<boolean>;
  readonly log: Log;
}

export const REST_BASE = '/api/v1';
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
      handler: async (request, reply) => {
        const checked = await check(request, route, parts);
        const body = await withDeadline(
          route.handle(checked),
          HANDLER_DEADLINE_MS,
          () => new AppError('deadline_exceeded', `no answer within ${HANDLER_DEADLINE_MS} ms`),
        );
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
  if (caller === null || (caller.type === 'container' && route.containers !== true)) throw unauthorized();
  const named = params['ws']?.toLowerCase();
  if (named !== undefined && named !== caller.workspaceId) {
    if (!caller.isAdmin) throw unauthorized();
    if (!(await parts.workspaceExists(named as WorkspaceId))) {
      throw new AppError('bad_request', 'there is no such workspace');
    }
  }
  const workspaceId = named === undefined ? caller.workspaceId : (named as WorkspaceId);
  return { caller, workspaceId, params, query, http: request };
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
