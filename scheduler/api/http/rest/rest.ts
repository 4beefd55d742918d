// Puts the routes of the workspace REST API on HTTP, all of them in the same way. The binder finds the caller and the
// path's workspace, reads query and body by the route's schemas, and sends errors in one shape.
// Invariant: a token of another workspace never learns whether something
// exists. A body is read only when its sender may call the route.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { AppError } from '#shared/errors.ts';
import { stringifyExactly } from '#shared/json-text.ts';
import { withDeadline } from '#shared/backoff.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { confinementProblem } from '../../../workspaces/identity/confinement.ts';
import type { Senders } from '../auth.ts';
import { bodyParser, pathOf } from '../bind.ts';
import { admit } from '../bodies.ts';
import { DecodeError, compileDecoder } from '../decode.ts';
import { levelOf, problemOf, sendProblem } from '../error-map.ts';
import { closeUnread } from '../polite-close.ts';
import { compileQuery } from './query.ts';
import type { Query } from '../decode.ts';
import type { SseSource, SseStreams } from '../sse.ts';
import { grantsOf, mayCall } from './route.ts';
import type { RestRequest, RestRoute } from './route.ts';

export interface RestParts {
  readonly senders: Senders;
  /** Called first for every request. Absent: requests are not bounded. @throws AppError `rate_limited` */
  readonly mayAsk?: (caller: Caller, kind: 'rest' | 'state') => Promise<void>;
  /** @param isDeletedToo - whether workspaces that are being deleted, or are gone, count as well */
  readonly workspaceExists: (id: WorkspaceId, isDeletedToo: boolean) => Promise<boolean>;
  readonly streams: Pick<SseStreams, 'take' | 'leave' | 'begin'>;
  readonly log: Log;
}

export const REST_BASE = '/api/v1';
export const REST_BODY_LIMIT = 1024 * 1024;
const HANDLER_DEADLINE_MS = 30_000;
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const;

const tooLate = (withinMs: number): AppError => new AppError('deadline_exceeded', `no answer within ${withinMs} ms`);
const unauthorized = (): AppError => new AppError('unauthorized', 'Unauthorized');

/** Registers the routes below the base of `scope`. */
export function bindRest(scope: FastifyInstance, routes: readonly RestRoute[], parts: RestParts): void {
  scope.setErrorHandler((error, request, reply) => {
    const problem = problemOf(error);
    closeUnread(request, reply);
    if (problem.status >= 500 && problem.retryAfterSeconds === undefined) {
      parts.log[levelOf(problem)](
        { err: error, requestId: request.id, method: request.method, path: pathOf(request) },
        'request failed',
      );
    }
    return sendProblem(reply, request.id, problem);
  });
  scope.decorateRequest('checked', null);
  const taken = new Map<string, string[]>();
  for (const route of routes) {
    const { method } = route;
    const url = urlOf(route);
    taken.set(url, [...(taken.get(url) ?? []), method]);
    const read = readerOf(route);
    scope.route({
      method,
      url,
      config: { passage: route.byTokenOnly !== true },
      onRequest: async (request, reply) => {
        const checked = await check(request, route, parts);
        checkMediaType(request);
        request.checked = checked;
        admit(request, reply, { sender: 'known', payer: checked.caller.workspaceId, limitBytes: REST_BODY_LIMIT });
      },
      handler: async (request, reply) => {
        if (request.checked === null) throw unauthorized();
        if (route.stream !== undefined) return await beginStream(route.stream, read(request.checked), reply, parts);
        const { withinMs = HANDLER_DEADLINE_MS } = route;
        const body = await withDeadline(route.handle(read(request.checked)), withinMs, () => tooLate(withinMs));
        reply.code(route.status ?? 200).headers(Object.fromEntries(request.checked.answerHeaders));
        if (body === undefined) return reply.send();
        return reply.header('content-type', 'application/json').send(stringifyExactly(body));
      },
    });
  }
  for (const [url, methods] of taken) {
    scope.route({
      method: METHODS.filter((method) => !methods.includes(method)),
      url,
      config: { passage: true },
      handler: (request, reply) => {
        closeUnread(request, reply);
        return sendProblem(reply, request.id, {
          status: 405,
          code: 'method_not_allowed',
          message: 'Method Not Allowed',
        });
      },
    });
  }
}

/** Path as the router takes it: a tail is its wildcard. */
const urlOf = ({ path, tail = '' }: RestRoute): string =>
  path.replace(/\{(\w+)\}/g, (_, name: string) => (name === tail ? '*' : `:${name}`));

/** Parameters of the path by their names. */
function paramsOf(request: FastifyRequest, { tail }: RestRoute): Readonly<Record<string, string>> {
  const params = request.params as Readonly<Record<string, string>>;
  return tail === undefined ? params : { ...params, [tail]: params['*'] ?? '' };
}

/** Answers with a stream. Refusals come before its head, as any other route's. */
async function beginStream(
  { kind, open }: NonNullable<RestRoute['stream']>,
  request: RestRequest,
  reply: FastifyReply,
  { streams, senders }: RestParts,
): Promise<FastifyReply> {
  const place = streams.take(kind, request.workspaceId);
  const opening = open(request);
  let source: SseSource;
  try {
    source = await withDeadline(opening, HANDLER_DEADLINE_MS, () => tooLate(HANDLER_DEADLINE_MS));
  } catch (error) {
    streams.leave(place);
    // A stream that is ready after the deadline has no caller.
    opening.then(
      (late) => late.closed(),
      () => undefined,
    );
    throw error;
  }
  const { http, caller } = request;
  await streams.begin(reply, place, { look: () => senders.look(http), caller }, source);
  return reply;
}

/** Facts about a request once its sender is known to be allowed. */
type Checked = Omit<RestRequest, 'query' | 'body'>;

declare module 'fastify' {
  interface FastifyRequest {
    checked: Checked | null;
  }
}

async function check(request: FastifyRequest, route: RestRoute, parts: RestParts): Promise<Checked> {
  const params = paramsOf(request, route);
  const caller = await parts.senders.find(request);
  if (caller === null || !mayCall(caller, route)) throw unauthorized();
  const problem = confinementProblem(caller, grantsOf(route));
  if (problem !== undefined) throw new AppError('unauthorized', `Unauthorized: ${problem}`);
  await parts.mayAsk?.(caller, route.rate ?? 'rest');
  // The database can neither store nor compare such a text.
  for (const [name, value] of Object.entries(params))
    if (value.includes('\0')) throw new AppError('bad_request', `${name} must be text without NUL`);
  const named = params['ws']?.toLowerCase();
  if (named !== undefined && named !== caller.workspaceId) {
    if (!caller.isAdmin) throw unauthorized();
    if (!(await parts.workspaceExists(named as WorkspaceId, route.ofDeleted === true))) {
      throw new AppError('bad_request', 'there is no such workspace');
    }
  }
  const workspaceId = named === undefined ? caller.workspaceId : (named as WorkspaceId);
  return { caller, workspaceId, params, http: request, answerHeaders: new Map() };
}

const NO_FIELDS = Type.Object({});

function readerOf({ query, body, readBody }: RestRoute): (checked: Checked) => RestRequest {
  const readQuery = query === undefined ? () => ({}) : compileQuery(query);
  const decode = readBody ?? (body === undefined ? () => ({}) : compileDecoder(body));
  const parse = bodyParser(body ?? NO_FIELDS);
  return (checked) => {
    const sent = bodyOf(checked.http, parse);
    return { ...checked, query: readQuery(checked.http.query as Query), body: decoded(decode, sent) };
  };
}

/** @throws AppError `invalid_body` */
function decoded(decode: (sent: Readonly<Record<string, unknown>>) => unknown, sent: Record<string, unknown>): unknown {
  try {
    return decode(sent);
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    // The sent value is left out, and so is the cause: it may be a secret.
    throw invalidBody(`${error.field} ${error.rule}`);
  }
}

/** Accepted content types: JSON, and the type that `curl -d` declares. */
const TAKEN = /^(?:application\/(?:[a-z0-9!#$&^_.+-]+\+)?json|text\/json|application\/x-www-form-urlencoded) *(?:;|$)/i;

/**
 * Checks the content type: a declared type other than JSON is refused; without a declaration the body is read as JSON.
 * @throws AppError `unsupported_media_type`
 */
function checkMediaType({ method, headers }: FastifyRequest): void {
  const { 'content-type': type, 'content-length': length = '0', 'transfer-encoding': encoding } = headers;
  if (type === undefined || type === '' || method === 'GET' || (length === '0' && encoding === undefined)) return;
  if (TAKEN.test(type.trim())) return;
  throw new AppError('unsupported_media_type', 'the body must be JSON: send Content-Type: application/json');
}

/**
 * Reads the body as JSON under any accepted content type: clients of every kind leave the type out.
 * @throws AppError `bad_request`, `invalid_body`
 */
function bodyOf(request: FastifyRequest, parse: (body: unknown) => unknown): Record<string, unknown> {
  // A published client sends bodies on GET, without a meaning.
  if (request.method === 'GET') return {};
  let value: unknown;
  try {
    value = parse(request.body);
  } catch (error) {
    if (error instanceof DecodeError) throw new AppError('bad_request', error.message, { cause: error });
    throw error;
  }
  if (value === undefined || value === null) return {};
  if (typeof value !== 'object' || Array.isArray(value)) throw invalidBody('the body must be a JSON object');
  return value as Record<string, unknown>;
}

const invalidBody = (text: string): AppError => new AppError('invalid_body', text);
