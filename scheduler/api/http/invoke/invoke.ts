// The hot path: an invoke URL to a task and back. This file finds caller and target in
// memory before the body is read, and checks that the body is a JSON object. Then the
// code hands the text to the task service, and sends the answer's bytes as they are.
// Invariant: when token and target are known, nothing here reads SQL, validates
// a schema or writes a body anew. Nothing awaits a value that is already there.
import { isUtf8 } from 'node:buffer';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { isEventStream } from '#shared/domain/event-stream.ts';
import { isUuid } from '#shared/domain/ids.ts';
import { isRecord } from '#shared/json.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerActions } from '../../../fleet/containers/actions.ts';
import { hasLimitedNetwork } from '../../../workspaces/deployments/container-stubs.ts';
import type { Target } from '../../../domain/stub-config.ts';
import type { Targets } from '../../../workspaces/deployments/targets.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import type { Call, Submission } from '../../../tasks/admission/calls.ts';
import type { Submissions } from '../../../tasks/admission/submissions.ts';
import type { Finished } from '../../../tasks/dispatch/replies.ts';
import { tokenOf } from '../auth.ts';
import type { Authenticator } from '../auth.ts';
import { admit } from '../bodies.ts';
import { problemOf, withRetryAfter } from '../error-map.ts';
import { closeUnread } from '../polite-close.ts';
import { EVENT_STREAM, EventStream, cutWhenUnread, headersOf } from './event-stream.ts';
import { HOST_BASE, readHostLabel } from './host-form.ts';
import { callKeyOf, KEY_PROBLEM, KEY_REUSED, keyOf } from './idempotency-key.ts';
import { scanObject } from './json-object.ts';
import { outcomes, UNAVAILABLE, UNAVAILABLE_STATUS } from './outcomes.ts';

export interface InvokeParts {
  readonly authenticator: Authenticator;
  readonly targets: Pick<Targets, 'byName' | 'byStub' | 'bySubdomain'>;
  readonly submissions: Pick<Submissions, 'submit'>;
  readonly containers: Pick<ContainerActions, 'warmUp'>;
  /** Why no callback can be sent to that URL; undefined: it may be tried. */
  readonly callbackProblem: (url: string) => string | undefined;
  readonly log: Log;
  /** `LONGSHORE_MAX_INVOKE_BODY_BYTES` */
  readonly maxBodyBytes: number;
  /** Stops counting a body's bytes, once the body has been handed on. */
  readonly release: (request: FastifyRequest) => void;
}

type Method = 'GET' | 'POST';
interface InvokedKind {
  readonly methods: readonly Method[];
  /** Whether calls without a token are possible, where the stub allows them. */
  readonly mayBePublic: boolean;
  /** Whether a container can be requested without a task. */
  readonly warmsUp: boolean;
}
/** A kind with a container for each call: there is nothing to keep warm. */
const PER_CALL: InvokedKind = { methods: ['POST'], mayBePublic: false, warmsUp: false };
/** The kinds invoked with a JSON body and answered with JSON (an asynchronous one with its task's id). */
const KINDS: Readonly<Record<string, InvokedKind>> = {
  endpoint: { methods: ['GET', 'POST'], mayBePublic: true, warmsUp: true },
  taskqueue: { methods: ['POST'], mayBePublic: true, warmsUp: true },
  function: PER_CALL,
  schedule: PER_CALL,
};

/** Largest answer that is not watched: so much lies in the socket's own buffer, read or not. */
const MOST_UNWATCHED = 64 * 1024;

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const;

type Find = (caller: Caller | null, params: Params) => Found | Promise<Found>;
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
// Texts of the interface, which clients compare.
const UNAUTHORIZED = new Refusal(401, 'message', 'Unauthorized');
const OTHER_WORKSPACE = new Refusal(401, 'message', 'Invalid token');
const NO_DEPLOYMENT = new Refusal(400, 'message', 'Invalid deployment');
const NO_VERSION = new Refusal(400, 'message', 'Invalid deployment version');
const INACTIVE = new Refusal(400, 'message', 'Deployment is not active');
const NO_STUB = new Refusal(400, 'message', 'Invalid stub');
const NOT_PUBLIC = new Refusal(400, 'error', 'invalid stub id');
const BAD_PAYLOAD = new Refusal(400, 'error', 'invalid request payload');
const CALLBACK_OF_NOBODY = new Refusal(401, 'error', 'callback_url needs a token of the workspace');
const CALLBACK_OUTSIDE = new Refusal(403, 'error', 'callback_url is not for a container whose network is limited');
const WRONG_METHOD = new Refusal(405, 'message', 'Method Not Allowed');
const NOT_FOUND = new Refusal(404, 'message', 'Not Found');
const INTERNAL = new Refusal(500, 'error', 'Internal server error');

/** Registers both forms of every kind at the root of `scope` (a plugin of its own: its errors have their own shape). */
export function registerInvoke(scope: FastifyInstance, parts: InvokeParts): void {
  scope.setErrorHandler((error, _request, reply) => sendFailure(error, reply, parts));
  scope.decorateRequest('invoked', null);
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
  // The kind of a host's deployment is known once the deployment is, so both methods are bound.
  addBoth(`${HOST_BASE}/:label`, { methods: ['GET', 'POST'], warmsUp: true }, byHost(parts));
  scope.all(`${HOST_BASE}/:label/*`, (_request, reply) => sendRefusal(reply, NOT_FOUND));
}

type Params = Readonly<Record<string, string>>;

function byName(parts: InvokeParts, kind: string, versionOf: (params: Params) => number | null | undefined): Find {
  return (caller, params) => {
    if (caller === null) return UNAUTHORIZED;
    const version = versionOf(params);
    if (version === undefined) return NO_VERSION;
    const { name = '' } = params;
    // The database can neither store nor compare such a text.
    if (name.includes('\0')) return NO_DEPLOYMENT;
    const found = parts.targets.byName(caller.workspaceId, kind, name, version);
    return found instanceof Promise ? found.then(deployed) : deployed(found);
  };
}

/** Finds a stub's target. @param kind - null: any that is invoked in this way */
function byStub(
  parts: InvokeParts,
  kind: string | null,
  choose: (caller: Caller | null, target: Target) => Found,
): Find {
  return (caller, params) => {
    const unknown = caller === null ? UNAUTHORIZED : NO_STUB;
    const stubId = (params['stubId'] ?? '').toLowerCase();
    if (!isUuid(stubId)) return unknown;
    const pick = (target: Target | undefined): Found =>
      target === undefined || !(kind === null ? Object.hasOwn(KINDS, target.kind) : target.kind === kind)
        ? unknown
        : choose(caller, target);
    const found = parts.targets.byStub(stubId);
    return found instanceof Promise ? found.then(pick) : pick(found);
  };
}

function byHost(parts: InvokeParts): Find {
  const ofStub = byStub(parts, null, ownOrPublic);
  return (caller, params) => {
    const unknown = caller === null ? UNAUTHORIZED : NO_DEPLOYMENT;
    const label = readHostLabel(params['label'] ?? '');
    if (label === undefined) return unknown;
    if (label.kind === 'stub') return ofStub(caller, { stubId: label.stubId });
    const pick = (target: Target | undefined): Found =>
      target === undefined || !Object.hasOwn(KINDS, target.kind) ? unknown : ownOrPublic(caller, target);
    const found = parts.targets.bySubdomain(label.subdomain, label.version);
    return found instanceof Promise ? found.then(pick) : pick(found);
  };
}

const latest = (): null => null;

/** Whether a URL of any form names its version. */
const namesVersion = (params: Params): boolean => {
  const host = readHostLabel(params['label'] ?? '');
  return params['version'] !== undefined || (host?.kind === 'deployment' && host.version !== null);
};

/** Reads `v3`; undefined: not a version. */
function versionParam(params: Params): number | undefined {
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
    if (callbackUrl === undefined || callbackUrl === null) return submit(target, call, reply, fail);
    // A callback is signed in the workspace's name and sent to a
    // given address: only the workspace itself may ask for it.
    if (caller?.workspaceId !== target.workspaceId) return sendRefusal(reply, CALLBACK_OF_NOBODY);
    const problem = typeof callbackUrl === 'string' ? parts.callbackProblem(callbackUrl) : 'must be a text';
    if (problem !== undefined) return sendRefusal(reply, new Refusal(400, 'error', `callback_url ${problem}`));
    const told = (): void => submit(target, { ...call, callbackUrl: callbackUrl as string }, reply, fail);
    if (callerStubId === undefined) return told();
    // An address that a container may not reach must not be reached on its behalf either.
    const judge = (own: Target | undefined): void =>
      own === undefined || hasLimitedNetwork(own.config) ? sendRefusal(reply, CALLBACK_OUTSIDE) : told();
    const own = parts.targets.byStub(callerStubId);
    if (own instanceof Promise) own.then(judge, fail);
    else judge(own);
  }

  function submit(target: Target, call: Call, reply: FastifyReply, fail: (error: unknown) => void): void {
    const events = new EventStream(reply);
    const submitted = parts.submissions.submit(target, {
      ...call,
      ...(target.sync ? { onItem: (taskId, event) => events.item(taskId, event) } : {}),
    });
    // An answer that has begun cannot become another one, so it is cut.
    const failed = (error: unknown): void => (events.hasBegun ? events.cut() : fail(error));
    submitted.then((submission) => {
      parts.release(reply.request);
      answer(submission, target, reply, events, failed);
    }, failed);
  }
}

/** Starts a container without a task; the answer is empty once the start is under way. */
function warmUpHandler(parts: InvokeParts): Handler {
  return ({ invoked }, reply) => {
    if (invoked === null) return sendRefusal(reply, INTERNAL);
    const { target, caller } = invoked;
    if (KINDS[target.kind]?.warmsUp !== true) return sendRefusal(reply, NOT_FOUND);
    // A container may submit tasks, but not decide which containers are kept warm.
    if (caller?.type === 'container') return sendRefusal(reply, UNAUTHORIZED);
    parts.containers.warmUp(target).then(
      () => void reply.code(200).send(),
      (error: unknown) => sendFailure(error, reply, parts),
    );
  };
}

type OnRequest = (request: FastifyRequest, reply: FastifyReply, next: () => void) => void;

/** Finds caller and target, and admits the body; refuses with the body unread. */
function resolving(find: Find, parts: InvokeParts): OnRequest {
  const { maxBodyBytes: limitBytes } = parts;
  return (request, reply, next) => {
    const fail = (error: unknown): void => sendFailure(error, reply, parts);
    const resolve = (caller: Caller | null): void => {
      const go = (found: Found): void => {
        if (found instanceof Refusal) return sendRefusal(reply, found);
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
    const token = tokenOf(request.headers.authorization, request.query as Readonly<Record<string, unknown>>);
    if (token === null) return resolve(null);
    const caller = parts.authenticator.authenticate(token);
    const authenticated = (known: Caller | null): void => {
      // A token that is presented must be good, even where none is needed.
      if (known === null) refuseToken(request, reply, parts);
      else resolve(known);
    };
    if (caller instanceof Promise) caller.then(authenticated, fail);
    else authenticated(caller);
  };
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

function answer(
  submission: Submission,
  target: Target,
  reply: FastifyReply,
  events: EventStream,
  fail: (error: unknown) => void,
): void {
  // The add to the queue seemed to fail, yet a container got the task and its events went out.
  if (submission.kind !== 'accepted' && events.hasBegun) return events.cut();
  switch (submission.kind) {
    case 'accepted': {
      reply.headers(headersOf(submission.taskId));
      if (submission.isReplay === true) reply.header('idempotency-replayed', 'true');
      if (!target.sync) return send(reply, 200, JSON.stringify({ task_id: submission.taskId }));
      const { raw } = reply;
      const left = (): void => {
        if (!raw.writableEnded) submission.callerLeft();
      };
      raw.once('close', left);
      submission.finished.then(
        (finished: Finished) => {
          raw.off('close', left);
          if (events.hasBegun) events.end(finished);
          else if (finished.status === 'COMPLETE' && isEventStream(finished.body))
            void reply.code(200).headers(EVENT_STREAM).send(finished.body);
          else send(reply, outcomes.httpStatusOf(finished.status, finished.reason), finished.body);
          if (finished.body.length > MOST_UNWATCHED) cutWhenUnread(raw);
        },
        (error: unknown) => {
          raw.off('close', left);
          fail(error);
        },
      );
      // A caller who hung up before this line causes no further `close` event.
      if (raw.destroyed) left();
      return;
    }
    case 'queue_full':
      return send(reply, 429, JSON.stringify({ error: `exceeded max pending tasks: ${submission.maxPendingTasks}` }));
    case 'queue_bytes_reached':
      return send(
        reply,
        429,
        JSON.stringify({
          error: `the inputs of this workspace's tasks take the ${submission.limit} bytes that its limit bytes.queue allows: wait until tasks have ended, or have an administrator raise it`,
          code: 'queue_bytes_reached',
        }),
      );
    case 'rate_limited': {
      const seconds = submission.retryAfterSeconds;
      void reply.header('retry-after', String(seconds));
      return send(
        reply,
        429,
        JSON.stringify({ error: `this workspace calls more often than it may: wait ${seconds} s` }),
      );
    }
    case 'key_reused':
      return sendCoded(reply, 422, 'idempotency_key_reused', KEY_REUSED);
    case 'keys_exhausted':
      return sendCoded(
        reply,
        429,
        'too_many_idempotency_keys',
        `this workspace has ${submission.most} idempotency keys of the last 24 hours, and may have no more`,
      );
    case 'unavailable': {
      const { text, code } = UNAVAILABLE[submission.reason];
      if (submission.retryAfterSeconds !== undefined) {
        void reply.header('retry-after', String(submission.retryAfterSeconds));
      }
      return send(reply, UNAVAILABLE_STATUS, JSON.stringify({ error: submission.detail ?? text, code }));
    }
  }
}

function send(reply: FastifyReply, status: number, body: string): void {
  void reply.code(status).header('content-type', 'application/json').send(body);
}

/** Sends a refusal that programs recognise by its code. */
const sendCoded = (reply: FastifyReply, status: number, code: string, error: string): void =>
  send(reply, status, JSON.stringify({ error, code }));

function sendRefusal(reply: FastifyReply, refusal: Refusal): void {
  closeUnread(reply.request, reply);
  send(reply, refusal.status, refusal.body);
}

export interface Input {
  /** The body's text, as it came. */
  readonly text: string;
  /** The input of that name, of any type: the address that is told of the task's end. */
  readonly callbackUrl?: unknown;
}
const NO_INPUT: Input = { text: '' };

/** Largest body that is parsed at once; larger ones are scanned in slices. */
const PARSED_BYTES = 256 * 1024;

/** Reads the body: a JSON object, or nothing at all; null otherwise. Synchronous unless the body is large. */
export function inputOf(body: unknown): Input | null | Promise<Input | null> {
  if (!Buffer.isBuffer(body) || body.length === 0) return NO_INPUT;
  if (!isUtf8(body)) return null;
  if (body.length > PARSED_BYTES) return largeInputOf(body);
  const text = body.toString('utf8');
  const first = firstCharacter(text);
  if (first === '') return NO_INPUT;
  if (first !== '{') return null;
  try {
    // Parsed for this look only: the text goes on as it came. A text that begins with a brace and parses is an object.
    const given = JSON.parse(text) as { readonly kwargs?: unknown; readonly callback_url?: unknown };
    const { kwargs } = given;
    // An object named `kwargs` holds the keywords.
    return { text, callbackUrl: (isRecord(kwargs) ? kwargs : given)['callback_url'] };
  } catch {
    return null;
  }
}

async function largeInputOf(body: Buffer): Promise<Input | null> {
  const found = await scanObject(body);
  if (found === 'empty') return NO_INPUT;
  return found === null ? null : { text: body.toString('utf8'), callbackUrl: found.callbackUrl };
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
  closeUnread(reply.request, reply);
  if (problem.status === 413) {
    return sendCoded(reply, 413, problem.code, `request body is larger than ${parts.maxBodyBytes} bytes`);
  }
  withRetryAfter(reply, problem);
  if (problem.status < 500 || problem.retryAfterSeconds !== undefined)
    return send(reply, problem.status, JSON.stringify({ error: problem.message }));
  parts.log.error({ err: error, requestId: reply.request.id }, 'invocation failed');
  if (problem.status === 500) return sendRefusal(reply, INTERNAL);
  send(reply, problem.status, JSON.stringify({ error: problem.message }));
}
