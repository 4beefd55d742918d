// The hot path: an invoke URL to a task and back. Kinds that stream leave it once caller and target are known
// (streams/stream-call.ts). The routes find caller and target in memory before the body is read
// (find-target.ts), and check that the body is a JSON object (input.ts). Then they hand the text to the task service,
// and send the answer's bytes as they are (answer.ts).
// Invariant: when token and target are known, nothing here reads SQL, validates
// a schema or writes a body anew. Nothing awaits a value that is already there.
import { METHODS as httpMethods } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { ContainerActions } from '../../../fleet/containers/actions.ts';
import { hasLimitedNetwork } from '../../../workspaces/deployments/container-stubs.ts';
import type { Target } from '../../../domain/stub-config.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import type { Call } from '../../../tasks/admission/calls.ts';
import type { Authenticator } from '../auth.ts';
import { admit } from '../bodies.ts';
import { problemOf, withRetryAfter } from '../error-map.ts';
import { closeUnread } from '../polite-close.ts';
import { streamCall } from '../streams/stream-call.ts';
import type { StreamCallParts } from '../streams/stream-call.ts';
import { credentialOf, isForeign, isPage, redirectWithCookie } from './credential.ts';
import type { Credential } from './credential.ts';
import { EventStream } from './event-stream.ts';
import { HOST_BASE } from './host-form.ts';
import { callKeyOf, KEY_PROBLEM, keyOf } from './idempotency-key.ts';
import { answer } from './answer.ts';
import type { Find, FindParts, Found, Params } from './find-target.ts';
import {
  byHost,
  byName,
  byStub,
  latest,
  namesVersion,
  ownOrPublic,
  publicOnly,
  versionInPath,
  versionParam,
} from './find-target.ts';
import type { Input } from './input.ts';
import { inputOf, queryOf } from './input.ts';
import type { InvokedKind, Method } from './kinds.ts';
import { isStreamed, KINDS, STREAMED_KINDS } from './kinds.ts';
import type { FailureParts } from './refusal.ts';
import {
  BAD_PAYLOAD,
  CALLBACK_OF_NOBODY,
  CALLBACK_OUTSIDE,
  FOREIGN_ORIGIN,
  INTERNAL,
  NOT_FOUND,
  Refusal,
  UNAUTHORIZED,
  WRONG_METHOD,
  send,
  sendCoded,
  sendFailure,
  sendRefusal,
} from './refusal.ts';

export interface InvokeParts extends FindParts, FailureParts, StreamCallParts {
  readonly authenticator: Authenticator;
  readonly containers: Pick<ContainerActions, 'warmUp'>;
  /** Why no callback can be sent to that URL; undefined: it may be tried. */
  readonly callbackProblem: (url: string) => string | undefined;
  /** Stops counting a body's bytes, once the body has been handed on. */
  readonly release: (request: FastifyRequest) => void;
}

/** Every method that a server can read; CONNECT asks for a tunnel, which nothing here is. */
const ALL_METHODS = httpMethods.filter((method) => method !== 'CONNECT');
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const;

/** Registers both forms of every kind at the root of `scope` (a plugin of its own: its errors have their own shape). */
export function registerInvoke(scope: FastifyInstance, parts: InvokeParts): void {
  scope.setErrorHandler((error, _request, reply) => sendFailure(error, reply, parts));
  scope.decorateRequest('invoked', null);
  for (const method of ALL_METHODS) {
    if (!scope.supportedMethods.includes(method)) scope.addHttpMethod(method, { hasBody: true });
  }
  const add = (url: string, methods: readonly Method[], find: Find, handler: Handler): void => {
    scope.route({ method: [...methods], url, onRequest: resolving(find, parts), handler });
    const others = METHODS.filter((method) => !(methods as readonly string[]).includes(method));
    scope.route({ method: others, url, handler: (_request, reply) => sendRefusal(reply, WRONG_METHOD) });
  };
  const addBoth = (path: string, { methods, warmsUp }: Omit<InvokedKind, 'mayBePublic'>, find: Find): void => {
    add(path, methods, find, invokeHandler(find, parts));
    if (warmsUp) add(`${path}/warmup`, ['POST'], find, warmUpHandler(parts));
  };
  for (const [kind, invoked] of Object.entries(KINDS)) {
    addBoth(`/${kind}/:name`, invoked, byName(parts, kind, latest));
    addBoth(`/${kind}/:name/latest`, invoked, byName(parts, kind, latest));
    addBoth(`/${kind}/:name/:version`, invoked, byName(parts, kind, versionParam));
    addBoth(`/${kind}/id/:stubId`, invoked, byStub(parts, kind, ownOrPublic));
    if (!invoked.mayBePublic) continue;
    const find = byStub(parts, kind, publicOnly);
    add(`/${kind}/public/:stubId`, invoked.methods, find, invokeHandler(find, parts));
  }
  for (const [kind, streamed] of Object.entries(STREAMED_KINDS)) registerStreamed(scope, kind, streamed, parts);
  registerHosts(scope, parts);
}

/** Registers a kind that streams: any method, and any path below. */
function registerStreamed(
  scope: FastifyInstance,
  kind: string,
  { mayBePublic, warmsUp }: Omit<InvokedKind, 'methods'>,
  parts: InvokeParts,
): void {
  const add = (url: string, find: Find): void => {
    for (const path of [url, `${url}/*`]) {
      const onRequest = resolving(find, parts, 'path');
      scope.route({
        method: ALL_METHODS,
        url: path,
        onRequest,
        handler: (_request, reply) => sendRefusal(reply, INTERNAL),
      });
    }
  };
  const byId = byStub(parts, kind, ownOrPublic);
  add(`/${kind}/:name`, byName(parts, kind, versionInPath));
  add(`/${kind}/id/:stubId`, byId);
  if (mayBePublic) add(`/${kind}/public/:stubId`, byStub(parts, kind, publicOnly));
  if (!warmsUp) return;
  const addWarmUp = (url: string, find: Find): void =>
    void scope.route({
      method: 'POST',
      url,
      onRequest: resolving(find, parts, 'warmup'),
      handler: warmUpHandler(parts),
    });
  addWarmUp(`/${kind}/:name/warmup`, byName(parts, kind, latest));
  addWarmUp(`/${kind}/:name/latest/warmup`, byName(parts, kind, latest));
  // Any other part belongs to the application, as the path behind it does.
  addWarmUp(`/${kind}/:name/:version(^v[0-9]{1,9}$)/warmup`, byName(parts, kind, versionParam));
  addWarmUp(`/${kind}/id/:stubId/warmup`, byId);
}

/** Registers the host form. The kind of a host's deployment is known once the deployment is. */
function registerHosts(scope: FastifyInstance, parts: InvokeParts): void {
  const find = byHost(parts);
  const base = `${HOST_BASE}/:label`;
  const onRequest = resolving(find, parts, 'host');
  const others = ALL_METHODS.filter((method) => method !== 'GET' && method !== 'POST');
  scope.route({ method: ['GET', 'POST'], url: base, onRequest, handler: invokeHandler(find, parts) });
  scope.route({ method: others, url: base, onRequest, handler: (_request, reply) => sendRefusal(reply, WRONG_METHOD) });
  scope.route({ method: 'POST', url: `${base}/warmup`, onRequest, handler: warmUpHandler(parts) });
  const handler: Handler = (_request, reply) => sendRefusal(reply, NOT_FOUND);
  scope.route({ method: ALL_METHODS, url: `${base}/*`, onRequest, handler });
}

type Handler = (request: FastifyRequest, reply: FastifyReply) => void;

/** Caller and target of an invocation, known before the body is read. */
interface Invoked {
  readonly caller: Caller | null;
  readonly target: Target;
}

declare module 'fastify' {
  interface FastifyRequest {
    invoked: Invoked | null;
  }
}

function invokeHandler(find: Find, parts: InvokeParts): Handler {
  return (request, reply) => {
    const { invoked } = request;
    if (invoked === null) return sendRefusal(reply, INTERNAL);
    const { caller, target } = invoked;
    if (!request.isSlow) return invoke(target, caller, request, reply);
    // The deployment may have changed while the body came.
    const go = (found: Found): void =>
      found instanceof Refusal ? sendRefusal(reply, found) : invoke(found, caller, request, reply);
    const found = find(caller, request.params as Params);
    if (found instanceof Promise) found.then(go, (error: unknown) => sendFailure(error, reply, parts));
    else go(found);
  };

  function invoke(target: Target, caller: Caller | null, request: FastifyRequest, reply: FastifyReply): void {
    // A URL by host has its method checked here; the router has done it for a URL by path.
    if (KINDS[target.kind]?.methods.includes(request.method as Method) !== true)
      return sendRefusal(reply, WRONG_METHOD);
    const accept = (given: Input | null): void =>
      given === null ? sendRefusal(reply, BAD_PAYLOAD) : put(given, target, caller, request, reply);
    const given = inputOf(request.body);
    if (given instanceof Promise) given.then(accept, (error: unknown) => sendFailure(error, reply, parts));
    else accept(given);
  }

  function put(
    given: Input,
    target: Target,
    caller: Caller | null,
    request: FastifyRequest,
    reply: FastifyReply,
  ): void {
    const fail = (error: unknown): void => sendFailure(error, reply, parts);
    const input = given.text;
    const query = queryOf(request.query as Readonly<Record<string, string | string[]>>);
    const callerStubId = caller?.container?.stubId;
    let call: Call = {
      input,
      ...(query === undefined ? {} : { query }),
      ...(callerStubId === undefined ? {} : { callerStubId }),
    };
    const key = keyOf(request.headers['idempotency-key']);
    if (key === null) return sendCoded(reply, 400, 'invalid_idempotency_key', KEY_PROBLEM);
    if (key !== undefined) {
      const asksNewest = !namesVersion(request.params as Params);
      call = { ...call, idempotency: callKeyOf(key, call, { target, caller, asksNewest }) };
    }
    const callbackUrl = query?.['callback_url']?.[0] ?? given.callbackUrl;
    if (callbackUrl === undefined || callbackUrl === null) return submit({ target, caller }, call, reply, fail);
    // A callback is signed in the workspace's name and sent to a
    // given address: only the workspace itself may ask for it.
    if (caller?.workspaceId !== target.workspaceId) return sendRefusal(reply, CALLBACK_OF_NOBODY);
    const problem = typeof callbackUrl === 'string' ? parts.callbackProblem(callbackUrl) : 'must be a text';
    if (problem !== undefined) return sendRefusal(reply, new Refusal(400, 'error', `callback_url ${problem}`));
    const told = (): void => submit({ target, caller }, { ...call, callbackUrl: callbackUrl as string }, reply, fail);
    if (callerStubId === undefined) return told();
    // An address that a container may not reach must not be reached on its behalf either.
    const judge = (own: Target | undefined): void =>
      own === undefined || hasLimitedNetwork(own.config) ? sendRefusal(reply, CALLBACK_OUTSIDE) : told();
    const own = parts.targets.byStub(callerStubId);
    if (own instanceof Promise) own.then(judge, fail);
    else judge(own);
  }

  function submit({ target, caller }: Invoked, call: Call, reply: FastifyReply, fail: (error: unknown) => void): void {
    const events = new EventStream(reply);
    const submitted = parts.submissions.submit(target, {
      ...call,
      ...(target.sync ? { onItem: (taskId, event) => events.item(taskId, event) } : {}),
    });
    // An answer that has begun cannot become another one, so it is cut.
    const failed = (error: unknown): void => (events.hasBegun ? events.cut() : fail(error));
    submitted.then((submission) => {
      parts.release(reply.request);
      answer(submission, target, reply, events, failed, caller?.workspaceId === target.workspaceId);
    }, failed);
  }
}

/** Starts a container without a task; the answer is empty once the start is under way. */
function warmUpHandler(parts: InvokeParts): Handler {
  return ({ invoked }, reply) => {
    if (invoked === null) return sendRefusal(reply, INTERNAL);
    const { target, caller } = invoked;
    if ((KINDS[target.kind] ?? STREAMED_KINDS[target.kind])?.warmsUp !== true) return sendRefusal(reply, NOT_FOUND);
    // A container may submit tasks, but not decide which containers are kept warm.
    if (caller?.type === 'container') return sendRefusal(reply, UNAUTHORIZED);
    parts.containers.warmUp(target).then(
      () => void reply.code(200).send(),
      (error: unknown) => sendFailure(error, reply, parts),
    );
  };
}

type OnRequest = (request: FastifyRequest, reply: FastifyReply, next: () => void) => void;

/** Form of the URL: by path, by host, or the warm-up of either. */
type Form = 'path' | 'host' | 'warmup';

/** Finds caller and target, and admits the body or hands a streamed call on; refuses with the body unread. */
function resolving(find: Find, parts: InvokeParts, form: Form = 'path'): OnRequest {
  const { maxBodyBytes: limitBytes } = parts;
  const isHost = form === 'host';
  return (request, reply, next) => {
    const fail = (error: unknown): void => sendFailure(error, reply, parts);
    const credential = credentialOf(request, isHost);
    /** @param isUnknown - the credential is no good token of the platform: it counts for nothing */
    const resolve = (caller: Caller | null, isUnknown = false): void => {
      const go = (found: Found): void => {
        const streams = form !== 'warmup' && !(found instanceof Refusal) && isStreamed(found.kind);
        if (isUnknown && !streams) return refuseToken(request, reply, parts);
        if (found instanceof Refusal) return sendRefusal(reply, found);
        if (streams) {
          const given: Credential = isUnknown ? { token: null, from: 'nowhere' } : credential;
          return stream(found, caller, given, { isHost, request, reply, parts });
        }
        // A cookie is for pages, which these kinds do not have.
        if (credential.from === 'cookie') return sendRefusal(reply, UNAUTHORIZED);
        request.invoked = { caller, target: found };
        admit(request, reply, {
          sender: caller === null ? 'public' : 'known',
          payer: (caller ?? found).workspaceId,
          limitBytes,
        });
        next();
      };
      const found = find(caller, request.params as Params);
      if (found instanceof Promise) found.then(go, fail);
      else go(found);
    };
    const { token } = credential;
    if (token === null) return resolve(null);
    const caller = parts.authenticator.authenticate(token);
    const authenticated = (known: Caller | null): void => {
      if (known !== null) return resolve(known);
      // A token that is presented must be good, even where none is needed. A header may have another meaning, since a
      // public application has credentials of its own; a browser presents its cookie unasked.
      if (credential.from === 'query') refuseToken(request, reply, parts);
      else resolve(null, true);
    };
    if (caller instanceof Promise) caller.then(authenticated, fail);
    else authenticated(caller);
  };
}

function stream(
  target: Target,
  caller: Caller | null,
  { token, from }: Credential,
  how: {
    readonly isHost: boolean;
    readonly request: FastifyRequest;
    readonly reply: FastifyReply;
    readonly parts: InvokeParts;
  },
): void {
  const { isHost, request, reply, parts } = how;
  if (from === 'cookie' && isForeign(request)) return sendRefusal(reply, FOREIGN_ORIGIN);
  if (isHost && from === 'query' && token !== null && isPage(request)) return redirectWithCookie(token, request, reply);
  const rootPath = isHost ? '' : rootPathOf(request.originalUrl, target);
  streamCall({ target, caller, rootPath, tokenInHeader: from === 'header' }, request, reply, parts);
}

/** The part of a URL's path that names the deployment: `/asgi/name`, `/asgi/name/v3`, `/asgi/id/…`. */
function rootPathOf(url: string, { kind }: Target): string {
  const [path = ''] = url.split('?', 1);
  const [, , second = '', third = ''] = path.split('/');
  const isNamed = second !== 'id' && second !== 'public';
  const length = isNamed && third !== 'latest' && versionParam({ version: third }) === undefined ? 2 : 3;
  return `/${[kind, second, third].slice(0, length).join('/')}`;
}

/** Refuses a token: 401, or 429 where too many were refused. */
function refuseToken(request: FastifyRequest, reply: FastifyReply, parts: InvokeParts): void {
  try {
    parts.authenticator.refused?.(request.ip);
  } catch (error) {
    const problem = problemOf(error);
    closeUnread(request, reply);
    return send(withRetryAfter(reply, problem), problem.status, JSON.stringify({ message: problem.message }));
  }
  sendRefusal(reply, UNAUTHORIZED);
}
