// Puts operations on HTTP under `/api/v1/gateway`, all of them in the same way. The
// binder reads path, query and body by the operation's schema, finds the caller,
// checks the scope, and writes the whole answer. Called once by surfaces.ts.
// Invariant: a body is read only for a good token. A request that cannot be read uses no
// one-use token up. An answer holds every field of its schema. A handler's exception
// reaches the outside as an RPC status, and its text only if the exception is an AppError.
import { Readable } from 'node:stream';
import { TextDecoder } from 'node:util';
import type { TObject, TSchema } from 'typebox';
import type { FastifyInstance, FastifyReply, FastifyRequest, HTTPMethods } from 'fastify';
import { ERROR_HEADER, FIELDS_HEADER, exactFields, isBeyondDocument } from '#shared/api/fields.ts';
import { AppError, messageOf } from '#shared/errors.ts';
import { JsonText, TooManyMembers, membersOf, stringifyExactly } from '#shared/json-text.ts';
import { isRecord } from '#shared/json.ts';
import { withDeadline } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { Caller } from '../../workspaces/identity/caller.ts';
import { isForSessions, refusalOf } from '../operations/operation.ts';
import type { Operation, Origin } from '../operations/operation.ts';
import { lookAt, tokenOf } from './auth.ts';
import type { Authenticator } from './auth.ts';
import { admit } from './bodies.ts';
import { compileDecoder, compileQueryReader, DecodeError, snakeOf } from './decode.ts';
import type { Query } from './decode.ts';
import { compileEncoder } from './encode.ts';
import { levelOf, problemOf, RPC_STATUS, rpcCodeOf, withRetryAfter } from './error-map.ts';
import type { RpcCode } from './error-map.ts';
import type { EndedCall, GatewayCalls } from './gateway-calls.ts';
import { whyNotObject } from './not-object.ts';
import { factsOf } from './origin.ts';
import { closeUnread } from './polite-close.ts';

export const GATEWAY_BASE = '/api/v1/gateway';
/** Most bytes of a message, in either direction. */
export const GATEWAY_BODY_LIMIT = 16 * 1024 * 1024;
/** Most bytes for an operation that is open to everybody. */
const OPEN_BODY_LIMIT = 64 * 1024;
/** Deadline of a handler when the caller does not set one (`Grpc-Timeout`). */
const HANDLER_DEADLINE_MS = 30_000;
const METHODS: readonly HTTPMethods[] = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];

/** The passage of the web console, whose calls have a session instead of a token. */
export interface CallPassage {
  readonly isThrough: (request: FastifyRequest) => boolean;
  /** The session's caller; null: none that counts. Refused sessions are counted. @throws AppError `rate_limited` */
  readonly find: (request: FastifyRequest) => Promise<Caller | null>;
  /** Called for each call. @throws AppError `rate_limited` */
  readonly mayAsk: (caller: Caller) => Promise<void>;
}

export interface BinderParts {
  readonly authenticator: Authenticator;
  /** Absent: no call has a session. */
  readonly passage?: CallPassage;
  readonly originOf: (request: FastifyRequest) => Origin;
  readonly log: Log;
  /** Tells of calls; absent: nobody is told. */
  readonly calls?: GatewayCalls;
}

/** A refusal in the gateway's own shape. */
class RpcError extends Error {
  readonly code: RpcCode;
  constructor(code: RpcCode, message: string) {
    super(message);
    this.name = 'RpcError';
    this.code = code;
  }
}

/** Registers all operations below the base of `scope` (a plugin of its own, so that its error shape stays its own). */
export function bindOperations(scope: FastifyInstance, operations: readonly Operation[], parts: BinderParts): void {
  const { calls } = parts;
  scope.setErrorHandler((error, request, reply) => {
    calls?.failed(request, messageOf(error));
    return sendError(error, request, reply, parts.log);
  });
  if (calls !== undefined)
    scope.addHook('onResponse', (request, reply, done) => {
      calls.ended(request, () => endedCall(request, reply));
      done();
    });
  scope.setNotFoundHandler((_request, reply) => sendRpc(reply, 5, 'Not Found'));
  const taken = new Map<string, HTTPMethods[]>();
  for (const operation of operations) {
    const url = operation.path.replace(/\{(\w+)\}/g, ':$1');
    const onRequest = admission(parts, operation);
    const config = { passage: isForSessions(operation) };
    scope.route({ method: operation.method, url, config, onRequest, handler: handlerOf(operation, parts) });
    // Two operations may name the parameter at one place differently, so places are compared without names.
    const place = url.replace(/:\w+/g, ':');
    taken.set(place, [...(taken.get(place) ?? []), operation.method]);
  }
  const wrongMethod = (_request: FastifyRequest, reply: FastifyReply) => sendRpc(reply, 12, 'Method Not Allowed');
  for (const [place, methods] of taken) {
    const url = place.replace(/:/g, () => ':any');
    const rest = METHODS.filter((method) => !methods.includes(method));
    scope.route({ method: rest, url: uniqueParams(url), config: { passage: true }, handler: wrongMethod });
  }
}

const endedCall = (request: FastifyRequest, reply: FastifyReply): EndedCall => ({
  from: factsOf(request),
  method: request.method,
  path: pathOf(request),
  status: reply.statusCode,
  contentType: request.headers['content-type'] ?? '',
  accept: request.headers.accept ?? '',
});

/** Looks up the token before the body is read. Requests without a body go on: their handler checks the token. */
function admission(
  { authenticator, passage }: Pick<BinderParts, 'authenticator' | 'passage'>,
  { scope, mostBytes = GATEWAY_BODY_LIMIT }: Pick<Operation, 'scope' | 'mostBytes'>,
) {
  const isOpen = scope === 'open';
  return async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const { headers } = request;
    if (headers['content-length'] === undefined && headers['transfer-encoding'] === undefined) return;
    const isPassed = passage?.isThrough(request) === true;
    const token = isPassed ? null : tokenOf(headers.authorization);
    const caller = isPassed ? await passage.find(request) : token === null ? null : await lookAt(authenticator, token);
    if (caller !== null) {
      admit(request, reply, { sender: 'known', payer: caller.workspaceId, limitBytes: mostBytes });
    } else if (isOpen) {
      admit(request, reply, { sender: 'public', payer: '', limitBytes: OPEN_BODY_LIMIT });
    } else {
      if (token !== null) authenticator.refused?.(request.ip);
      throw new RpcError(16, 'invalid or missing token');
    }
  };
}

/** Makes parameter names unique, `/a/:any/b/:any` to `/a/:any1/b/:any2`: a router refuses a repeated name. */
function uniqueParams(url: string): string {
  let count = 0;
  return url.replace(/:any/g, () => `:any${++count}`);
}

function handlerOf(operation: Operation, parts: BinderParts) {
  const decode = compileDecoder(operation.request);
  const readQuery = compileQueryReader(operation.request);
  const parse = bodyParser(operation.request);
  const encoders = {
    all: compileEncoder(operation.response),
    documented: compileEncoder(operation.response, 'documented'),
  };
  const errorField = errorFieldOf(operation);
  const hidden = errorField?.isBeyond === true ? errorField.name : undefined;
  const refuse = (text: string) => (errorField === null ? { ok: false } : { ok: false, [errorField.name]: text });
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const deadlineMs = deadlineOf(request.headers['grpc-timeout'], operation.withinMs);
    const message = decode(merge(operation, request, readQuery, parse));
    const wantsAll = request.headers[FIELDS_HEADER] === '1';
    const encode = wantsAll ? encoders.all : encoders.documented;
    const { caller, origin } = await senderOf(request, parts);
    if (caller !== null) parts.calls?.began(request, caller);
    const isRefused = caller === null && origin.bearer !== null;
    if (caller === null && operation.scope !== 'open') {
      if (isRefused) parts.authenticator.refused?.(request.ip);
      throw new RpcError(16, 'invalid or missing token');
    }
    // An open operation may compare the bearer with an operator's secret.
    if (isRefused) parts.authenticator.mayGuess?.(operation.name, request.ip);
    const refusal = caller === null ? null : refusalOf(operation, caller);
    if (operation.stream !== undefined && refusal === null)
      return sendStream(reply, encode, (signal) => operation.stream?.(caller, message, signal) ?? [], parts.log);
    const answer =
      refusal === null ? await run(operation, caller, message, origin, deadlineMs, refuse) : refuse(refusal);
    parts.calls?.answered(request, answer);
    if (isRefused && (answer as { readonly ok?: unknown }).ok === false)
      parts.authenticator.guessed?.(operation.name, request.ip);
    if (hidden !== undefined && !wantsAll) tellError(reply, answer as Readonly<Record<string, unknown>>, hidden);
    return reply.header('content-type', 'application/json').send(stringifyExactly(encode(answer)));
  };
}

/** The caller, and where the request came from. A session presents no token, and its page is not this host itself. */
async function senderOf(request: FastifyRequest, { authenticator, originOf, passage }: BinderParts) {
  const origin = originOf(request);
  if (passage?.isThrough(request) !== true)
    return { origin, caller: origin.bearer === null ? null : await authenticator.authenticate(origin.bearer) };
  const caller = await passage.find(request);
  if (caller !== null) await passage.mayAsk(caller);
  return { origin: { ...origin, bearer: null, loopback: false }, caller };
}

/** Most characters of a refusal's text in a header. */
const MOST_HEADER = 4096;

/** The field that the operation's answer has for the text of a refusal; null: it has none. */
function errorFieldOf({ response }: Pick<Operation, 'response'>) {
  const properties = response.properties as Readonly<Record<string, TSchema>>;
  for (const name of ['errMsg', 'errorMsg', 'error']) {
    const field = properties[name];
    if (field !== undefined) return { name, isBeyond: isBeyondDocument(field) };
  }
  return null;
}

/** Gives the text of a refusal in a header: other characters than visible ASCII and spaces as `%` and two digits. */
function tellError(reply: FastifyReply, answer: Readonly<Record<string, unknown>>, field: string): void {
  const { ok, [field]: said } = answer;
  if (ok !== false || typeof said !== 'string' || said === '') return;
  const text = said.toWellFormed().replace(/[^ -$&-~]/gu, encodeURIComponent);
  reply.header(ERROR_HEADER, text.slice(0, MOST_HEADER));
}

/** Sends messages as they come, a line of JSON each. The deadline of ordinary answers does not count for them. */
function sendStream(
  reply: FastifyReply,
  encode: (answer: unknown) => unknown,
  open: (signal: AbortSignal) => AsyncIterable<unknown> | readonly unknown[],
  log: Log,
): FastifyReply {
  const gone = new AbortController();
  reply.raw.once('close', () => gone.abort());
  async function* lines(): AsyncGenerator<string> {
    try {
      for await (const message of open(gone.signal)) yield `${JSON.stringify(encode(message))}\n`;
    } catch (error) {
      log.error({ err: error, requestId: reply.request.id }, 'a streamed answer failed');
      const problem = problemOf(error);
      yield `${JSON.stringify({ error: { code: rpcCodeOf(problem), message: problem.message, details: [] } })}\n`;
    }
  }
  return reply.header('content-type', 'application/json').send(Readable.from(lines(), { objectMode: false }));
}

async function run(
  operation: Operation,
  caller: Caller | null,
  message: unknown,
  origin: Origin,
  deadlineMs: number,
  refuse: (text: string) => unknown,
): Promise<unknown> {
  try {
    return await withDeadline(
      operation.handle(caller, message, origin),
      deadlineMs,
      () => new RpcError(4, `${operation.name} took longer than ${deadlineMs} ms`),
    );
  } catch (error) {
    // An AppError with a status of 4xx is a refusal that the client must be able to read: 200 with ok false.
    if (error instanceof AppError) {
      const problem = problemOf(error);
      if (problem.status >= 400 && problem.status < 500) return refuse(problem.message);
    }
    throw error;
  }
}

/**
 * Merges the parts of a request: path wins over body, body over
 * query. A body on GET is ignored (a published client sends one).
 */
function merge(
  operation: Operation,
  request: FastifyRequest,
  readQuery: (query: Query) => Record<string, unknown>,
  parse: (body: unknown) => unknown,
): unknown {
  const body = operation.method === 'GET' ? undefined : parse(request.body);
  const query = readQuery(request.query as Query);
  const params = request.params as Readonly<Record<string, string>>;
  if (body === undefined || body === null) return { ...query, ...params };
  if (typeof body !== 'object' || Array.isArray(body)) throw new DecodeError('', 'the body must be a JSON object');
  return { ...query, ...body, ...params };
}

const utf8 = new TextDecoder('utf-8', { fatal: true });

/** A reader of bodies of that message: the JSON of a body, in which some fields stay text; undefined: it is empty. */
export function bodyParser(message: TObject): (body: unknown) => unknown {
  const names = new Set(exactFields(message).flatMap((name) => [name, snakeOf(name)]));
  return (body) => parseBody(body, names);
}

function parseBody(body: unknown, exact: ReadonlySet<string>): unknown {
  if (!Buffer.isBuffer(body) || body.length === 0) return undefined;
  let text: string;
  try {
    text = utf8.decode(body);
  } catch {
    throw invalid(body);
  }
  if (text.trim() === '') return undefined;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw invalid(body);
  }
  if (isRecord(value) && Object.keys(value).some((name) => exact.has(name))) return withTexts(value, text, exact);
  return value;
}

const invalid = (body: Buffer): DecodeError => new DecodeError('', `the body is not valid JSON: ${whyNotObject(body)}`);

/** The fields of the body, some of them as they were written. null stays null. */
function withTexts(value: Readonly<Record<string, unknown>>, text: string, names: ReadonlySet<string>): unknown {
  const body = { ...value };
  try {
    for (const { name, valueFrom, to } of membersOf(text))
      if (names.has(name) && value[name] !== null) body[name] = new JsonText(text.slice(valueFrom, to));
    return body;
  } catch (error) {
    if (error instanceof TooManyMembers) throw new DecodeError('', 'the body has too many fields');
    throw error;
  }
}

const UNIT_MS: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1_000, m: 1, u: 0.001, n: 0.000_001 };

function deadlineOf(header: string | readonly string[] | undefined, mostMs = HANDLER_DEADLINE_MS): number {
  if (header === undefined) return mostMs;
  const [, digits, unit] = typeof header === 'string' ? (/^([0-9]{1,8})([HMSmun])$/.exec(header) ?? []) : [];
  const unitMs = unit === undefined ? undefined : UNIT_MS[unit];
  if (digits === undefined || unitMs === undefined) throw new DecodeError('Grpc-Timeout', 'must be digits and a unit');
  return Math.max(1, Math.min(Math.ceil(Number(digits) * unitMs), mostMs));
}

function sendError(error: unknown, request: FastifyRequest, reply: FastifyReply, log: Log): FastifyReply {
  if (error instanceof RpcError) return sendRpc(reply, error.code, error.message);
  if (error instanceof DecodeError) return sendRpc(reply, 3, error.message);
  const problem = problemOf(error);
  if (problem.status >= 500) {
    log[levelOf(problem)](
      { err: error, requestId: request.id, method: request.method, path: pathOf(request) },
      'request failed',
    );
  }
  return sendRpc(withRetryAfter(reply, problem), rpcCodeOf(problem), problem.message);
}

export function sendRpc(reply: FastifyReply, code: RpcCode, message: string): FastifyReply {
  closeUnread(reply.request, reply);
  if (code === 16) reply.header('www-authenticate', message);
  return reply
    .code(RPC_STATUS[code])
    .header('content-type', 'application/json')
    .send(JSON.stringify({ code, message, details: [] }));
}

/** The path without the query, which may carry a token. */
export const pathOf = (request: FastifyRequest): string => request.url.split('?', 1)[0] ?? '';
