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
import type { CodeTrust } from '../../../workspaces/deployments/code-trust.ts';
import type { QueueName } from '#shared/domain/ids.ts';
import type { Target } from '../../../domain/stub-config.ts';
import type { ContainerRow } from '../../../stores/store/queries/containers.ts';
import { isMadeByHand, isSupervised } from '../../../workspaces/deployments/kinds.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { putByOf, seesOwnTasksOnly } from '../../../workspaces/identity/confinement.ts';
import { calledBy } from '../../../tasks/admission/calls.ts';
import type { Call } from '../../../tasks/admission/calls.ts';
import type { Authenticator } from '../auth.ts';
import { admit } from '../bodies.ts';
import { problemOf, withRetryAfter } from '../error-map.ts';
import { closeUnread } from '../polite-close.ts';
import { splitTarget } from '../streams/head.ts';
import { sandboxCall } from '../streams/sandbox-call.ts';
import type { SandboxCallParts } from '../streams/sandbox-call.ts';
import { streamCall } from '../streams/stream-call.ts';
import type { StreamCallParts } from '../streams/stream-call.ts';
import { credentialOf, isForeign, isPage, redirectWithCookie } from './credential.ts';
import type { Credential } from './credential.ts';
import { EventStream } from './event-stream.ts';
import { HEALTHY, HEALTH_PATH, answerHealth, asksHealth, nameVersion } from './health.ts';
import type { HealthParts } from './health.ts';
import { HOST_BASE, readHostLabel } from './host-form.ts';
import { leadToOwnHost } from './own-host.ts';
import type { HostParts } from './own-host.ts';
import { namingParts, restOf } from './path-form.ts';
import { NO_CONTAINER, portInHost, portInPath, portsOf, readPort, unlisted } from './ports.ts';
import { flowHeadersOf } from './flow-headers.ts';
import { callKeyOf, KEY_PROBLEM, keyOf } from './idempotency-key.ts';
import { answer, answerRefused, textOf } from './answer.ts';
import type { Find, FindParts, Found, Invoked, Params } from './find-target.ts';
import {
  byContainer,
  byHost,
  byName,
  byPublicName,
  byPublicPath,
  byStub,
  latest,
  namesVersion,
  ownOrPublic,
  permitted,
  publicOnly,
  versionInPath,
  versionParam,
} from './find-target.ts';
import type { Input } from './input.ts';
import { inputOf, queryOf } from './input.ts';
import { inputsOf, isManyCalls, submitMany } from './many-calls.ts';
import type { InvokedKind, Method } from './kinds.ts';
import { isStreamed, KINDS, STREAMED_KINDS } from './kinds.ts';
import type { FailureParts } from './refusal.ts';
import {
  CALLBACK_OF_CONSOLE,
  CALLBACK_OF_NOBODY,
  CALLBACK_OUTSIDE,
  FOREIGN_ORIGIN,
  INTERNAL,
  MANY_CALLS_AWAITED,
  NOT_FOUND,
  NO_STUB,
  PICKLED_BY_OTHERS,
  Refusal,
  UNAUTHORIZED,
  WRONG_METHOD,
  badPayload,
  send,
  sendCoded,
  sendFailure,
  sendRefusal,
} from './refusal.ts';

export interface InvokeParts extends FindParts, FailureParts, HealthParts, StreamCallParts, SandboxCallParts {
  readonly hosts: HostParts;
  /** Takes calls in. */
  readonly submissions: StreamCallParts['submissions'];
  /** Whether containers of the queue run, or will. */
  readonly hasContainers: (queue: QueueName) => boolean;
  readonly authenticator: Authenticator;
  readonly containers: Pick<ContainerActions, 'warmUp'>;
  /** Why no callback can be sent to that URL; undefined: it may be tried. */
  readonly callbackProblem: (url: string) => string | undefined;
  /** Whether a container of the second stub may bring code into those of the first. */
  readonly mayTakeCode: CodeTrust;
  /** Stops counting a body's bytes, once the body has been handed on. */
  readonly release: (request: FastifyRequest) => void;
  /** Finds the caller by another credential than a token. Absent: by its token. @throws AppError */
  readonly callerOf?: (request: FastifyRequest) => Promise<Caller>;
}

/** The query parameter that says how inputs are written. The runner reads it, too: a body cannot forge it. */
const VALUES = 'longshore_values';
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
    if (!path.startsWith('/endpoint/')) return;
    const onRequest = resolving(find, parts);
    scope.route({ method: 'GET', url: `${path}${HEALTH_PATH}`, onRequest, handler: healthHandler(parts) });
  };
  for (const [kind, invoked] of Object.entries(KINDS)) {
    addBoth(`/${kind}/:name`, invoked, byName(parts, kind, latest));
    addBoth(`/${kind}/:name/latest`, invoked, byName(parts, kind, latest));
    addBoth(`/${kind}/:name/:version`, invoked, byName(parts, kind, versionParam));
    addBoth(`/${kind}/id/:stubId`, invoked, byStub(parts, kind, ownOrPublic));
    if (!invoked.mayBePublic) continue;
    const find = byStub(parts, kind, publicOnly);
    if (kind === 'endpoint') registerPublicHealth(scope, find, parts);
    add(`/${kind}/public/:stubId`, invoked.methods, find, invokeHandler(find, parts));
    const ofName = (path: string, named: Find): void =>
      add(`/${kind}/public/:workspace/:name${path}`, invoked.methods, named, invokeHandler(named, parts));
    ofName('', byPublicName(parts, kind, latest));
    ofName('/latest', byPublicName(parts, kind, latest));
    ofName('/:version', byPublicName(parts, kind, versionParam));
  }
  for (const [kind, streamed] of Object.entries(STREAMED_KINDS)) registerStreamed(scope, kind, streamed, parts);
  registerContainers(scope, parts);
  registerHosts(scope, parts);
}

/** Registers the calls of every kind that is answered with JSON, by name and by stub, and nothing else. */
export function registerJsonCalls(scope: FastifyInstance, parts: InvokeParts): void {
  scope.setErrorHandler((error, _request, reply) => sendFailure(error, reply, parts));
  scope.decorateRequest('invoked', null);
  for (const kind of Object.keys(KINDS)) {
    for (const [path, find] of [
      [':name', byName(parts, kind, latest)],
      [':name/:version', byName(parts, kind, versionParam)],
      ['id/:stubId', byStub(parts, kind, ownOrPublic)],
    ] as const) {
      const onRequest = resolving(find, parts);
      scope.route({ method: 'POST', url: `/${kind}/${path}`, onRequest, handler: invokeHandler(find, parts) });
    }
  }
}

/** Registers the health of public endpoints. The path may also be that of an endpoint whose name is `health`. */
function registerPublicHealth(scope: FastifyInstance, byId: Find, parts: InvokeParts): void {
  const ofName = byPublicName(parts, 'endpoint', latest);
  const find: Find = (caller, { workspace = '' }) => {
    const named = (found: Found): Found | Promise<Found> =>
      found === UNAUTHORIZED || found === NO_STUB ? ofName(caller, { workspace, name: 'health' }) : found;
    const found = byId(caller, { stubId: workspace });
    return found instanceof Promise ? found.then(named) : named(found);
  };
  const invoked = invokeHandler(find, parts);
  const health = healthHandler(parts);
  scope.route({
    method: 'GET',
    url: `/endpoint/public/:workspace${HEALTH_PATH}`,
    onRequest: resolving(find, parts),
    handler: (request, reply) => {
      const { workspace = '' } = request.params as Params;
      const isHealth = request.invoked?.target.stubId === workspace.toLowerCase();
      (isHealth ? health : invoked)(request, reply);
    },
  });
}

/** Registers ports of single containers, by their ids. */
function registerContainers(scope: FastifyInstance, parts: InvokeParts): void {
  const url = '/sandbox/container/:stubId/:containerId/:port';
  for (const path of [url, `${url}/*`]) {
    scope.route({
      method: ALL_METHODS,
      url: path,
      onRequest: resolving(byContainer(parts), parts, 'container'),
      handler: (_request, reply) => sendRefusal(reply, INTERNAL),
    });
  }
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
  if (mayBePublic) add(`/${kind}/public/:stubId`, byPublicPath(parts, kind));
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
  scope.route({ method: 'GET', url: `${base}${HEALTH_PATH}`, onRequest, handler: healthHandler(parts) });
  const handler: Handler = (_request, reply) => sendRefusal(reply, NOT_FOUND);
  scope.route({ method: ALL_METHODS, url: `${base}/*`, onRequest, handler });
}

type Handler = (request: FastifyRequest, reply: FastifyReply) => void;

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
    const go = (found: Found): void => {
      const judged = permitted(caller, found);
      if (judged instanceof Refusal) sendRefusal(reply, judged);
      else invoke(judged.target, judged.caller, request, reply);
    };
    const found = find(caller, request.params as Params);
    if (found instanceof Promise) found.then(go, (error: unknown) => sendFailure(error, reply, parts));
    else go(found);
  };

  function invoke(target: Target, caller: Caller | null, request: FastifyRequest, reply: FastifyReply): void {
    // A URL by host has its method checked here; the router has done it for a URL by path.
    if (KINDS[target.kind]?.methods.includes(request.method as Method) !== true)
      return sendRefusal(reply, WRONG_METHOD);
    if (isManyCalls(request.headers['content-type'])) return invokeMany(target, caller, request, reply);
    const accept = (given: Input | string): void =>
      typeof given === 'string' ? sendRefusal(reply, badPayload(given)) : put(given, target, caller, request, reply);
    const given = inputOf(request.body);
    if (given instanceof Promise) given.then(accept, (error: unknown) => sendFailure(error, reply, parts));
    else accept(given);
  }

  /** Queues a call for each line of the body, and answers with the tasks' ids in the order of the lines. */
  function invokeMany(target: Target, caller: Caller | null, request: FastifyRequest, reply: FastifyReply): void {
    if (target.sync) return sendRefusal(reply, MANY_CALLS_AWAITED);
    many(target, caller, request, reply).catch((error: unknown) => sendFailure(error, reply, parts));
  }

  async function many(
    target: Target,
    caller: Caller | null,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<void> {
    const key = keyOf(request.headers['idempotency-key']);
    if (key === null) return sendCoded(reply, 400, 'invalid_idempotency_key', KEY_PROBLEM);
    const flow = flowHeadersOf(request.headers);
    if ('why' in flow) return sendCoded(reply, 400, flow.code, flow.why);
    const inputs = await inputsOf(request.body);
    if (typeof inputs === 'string') return sendRefusal(reply, new Refusal(400, 'error', inputs));
    const query = queryOf(request.query as Readonly<Record<string, string | string[]>>);
    if (query?.['callback_url'] !== undefined)
      return sendRefusal(reply, new Refusal(400, 'error', 'callback_url is for single calls'));
    if (!(await mayBePickled(target, caller, query))) return sendRefusal(reply, PICKLED_BY_OTHERS);
    const putBy = putByOf(caller);
    const asksNewest = !namesVersion(request.params as Params);
    const done = await submitMany(inputs.length, (at) => {
      const call: Call = {
        input: inputs[at]?.text ?? '',
        ...(query === undefined ? {} : { query }),
        ...(putBy === undefined ? {} : { putBy }),
        ...flow,
        ...calledBy(caller, target),
      };
      if (key === undefined) return parts.submissions.submit(target, call);
      // Each line is a call of its own, also when the request is sent again.
      const idempotency = callKeyOf(`${key}#${at}`, call, { target, caller, asksNewest });
      return parts.submissions.submit(target, { ...call, idempotency });
    });
    parts.release(request);
    if (done.kind === 'refused') return answerRefused(done.refused, reply);
    const body = { task_ids: done.taskIds, ...(done.refused === undefined ? {} : { refused: textOf(done.refused) }) };
    send(reply, 200, JSON.stringify(body));
  }

  /** Whether the call's inputs are not pickled, or this caller may send pickled ones. */
  function mayBePickled(target: Target, caller: Caller | null, query: Call['query']): boolean | Promise<boolean> {
    if (query?.[VALUES] === undefined || KINDS[target.kind]?.takesPickled !== true) return true;
    if (caller?.workspaceId !== target.workspaceId || caller.type === 'workspace_restricted') return false;
    if (caller.confined !== undefined) return false;
    return caller.container === undefined || parts.mayTakeCode(target.stubId, caller.container.stubId);
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
    const putBy = putByOf(caller);
    let call: Call = {
      input,
      ...(query === undefined ? {} : { query }),
      ...(putBy === undefined ? {} : { putBy }),
      ...calledBy(caller, target),
    };
    const key = keyOf(request.headers['idempotency-key']);
    if (key === null) return sendCoded(reply, 400, 'invalid_idempotency_key', KEY_PROBLEM);
    const flow = flowHeadersOf(request.headers);
    if ('why' in flow) return sendCoded(reply, 400, flow.code, flow.why);
    call = { ...call, ...flow };
    if (key !== undefined) {
      const asksNewest = !namesVersion(request.params as Params);
      call = { ...call, idempotency: callKeyOf(key, call, { target, caller, asksNewest }) };
    }
    if (query?.[VALUES] !== undefined && KINDS[target.kind]?.takesPickled === true) {
      // Pickled inputs bring no callback of their own: the scheduler does not read them.
      Promise.resolve(mayBePickled(target, caller, query)).then(
        (may) => (may ? submit({ target, caller }, call, reply, fail) : sendRefusal(reply, PICKLED_BY_OTHERS)),
        fail,
      );
      return;
    }
    const callbackUrl = query?.['callback_url']?.[0] ?? given.callbackUrl;
    if (callbackUrl === undefined || callbackUrl === null) return submit({ target, caller }, call, reply, fail);
    // A callback is signed in the workspace's name and sent to a
    // given address: only the workspace itself may ask for it.
    if (caller?.workspaceId !== target.workspaceId) return sendRefusal(reply, CALLBACK_OF_NOBODY);
    if (caller.console !== undefined) return sendRefusal(reply, CALLBACK_OF_CONSOLE);
    const problem = typeof callbackUrl === 'string' ? parts.callbackProblem(callbackUrl) : 'must be a text';
    if (problem !== undefined) return sendRefusal(reply, new Refusal(400, 'error', `callback_url ${problem}`));
    const told = (): void => submit({ target, caller }, { ...call, callbackUrl: callbackUrl as string }, reply, fail);
    const callerStubId = caller.container?.stubId;
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
    if (caller?.type === 'container' || (caller !== null && seesOwnTasksOnly(caller)))
      return sendRefusal(reply, UNAUTHORIZED);
    parts.containers.warmUp(target).then(
      () => void reply.code(200).send(),
      (error: unknown) => sendFailure(error, reply, parts),
    );
  };
}

/** Answers for an endpoint; web applications are streamed to before. */
function healthHandler(parts: InvokeParts): Handler {
  return ({ invoked }, reply) => {
    if (invoked?.target.kind !== 'endpoint') return sendRefusal(reply, NOT_FOUND);
    answerHealth(invoked.target, reply, parts);
  };
}

type OnRequest = (request: FastifyRequest, reply: FastifyReply, next: () => void) => void;

/** Form of the URL: by path, by host, the warm-up of either, or by the path of a container. */
type Form = 'path' | 'host' | 'warmup' | 'container';

const NO_TOKEN: Credential = { token: null, from: 'nowhere' };

/** Finds caller and target, and admits the body or hands a streamed call on; refuses with the body unread. */
function resolving(find: Find, parts: InvokeParts, form: Form = 'path'): OnRequest {
  const { maxBodyBytes: limitBytes } = parts;
  const isHost = form === 'host';
  return (request, reply, next) => {
    const fail = (error: unknown): void => sendFailure(error, reply, parts);
    const credential = parts.callerOf === undefined ? credentialOf(request, isHost) : NO_TOKEN;
    /** @param isUnknown - the credential is no good token of the platform: it counts for nothing */
    const resolve = (caller: Caller | null, isUnknown = false): void => {
      const go = (found: Found): void => {
        const streams =
          form !== 'warmup' && !(found instanceof Refusal) && (isStreamed(found.kind) || isSupervised(found.kind));
        if (isUnknown && !streams) return refuseToken(request, reply, parts);
        const judged = permitted(caller, found);
        if (judged instanceof Refusal) return sendRefusal(reply, judged);
        if (streams) {
          const given = isUnknown ? NO_TOKEN : credential;
          return stream(judged.target, judged.caller, given, { form, request, reply, parts });
        }
        // A cookie is for pages, which these kinds do not have.
        if (credential.from === 'cookie') return sendRefusal(reply, UNAUTHORIZED);
        request.invoked = judged;
        admit(request, reply, {
          sender: judged.caller === null ? 'public' : 'known',
          payer: (judged.caller ?? judged.target).workspaceId,
          limitBytes,
        });
        next();
      };
      const found = find(caller, paramsOf(request));
      if (found instanceof Promise) found.then(go, fail);
      else go(found);
    };
    if (parts.callerOf !== undefined) {
      parts.callerOf(request).then((caller) => resolve(caller), fail);
      return;
    }
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
    readonly form: Form;
    readonly request: FastifyRequest;
    readonly reply: FastifyReply;
    readonly parts: InvokeParts;
  },
): void {
  const { form, request, reply, parts } = how;
  const isHost = form === 'host';
  if (from === 'cookie' && isForeign(request)) return sendRefusal(reply, FOREIGN_ORIGIN);
  if (isHost && from === 'query' && token !== null && isPage(request)) return redirectWithCookie(token, request, reply);
  if (isSupervised(target.kind)) return callPort(target, caller, from === 'header', how);
  const rootPath = isHost ? '' : rootPathOf(request.originalUrl, target);
  const tokenInHeader = from === 'header';
  if (asksHealth(request, rootPath)) {
    if (!parts.isServed(target.queue)) return answerHealth(target, reply, parts);
    // The application may have such a path itself.
    nameVersion(reply, target);
    return streamCall({ target, caller, rootPath, tokenInHeader, notFound: HEALTHY }, request, reply, parts);
  }
  if (!isHost && leadToOwnHost(target, { rootPath }, request, reply, parts.hosts)) return;
  streamCall({ target, caller, rootPath, tokenInHeader }, request, reply, parts);
}

/** Passes a call to a port: of any container of a pod, or of a single container. */
function callPort(
  target: Target,
  caller: Caller | null,
  tokenInHeader: boolean,
  {
    form,
    request,
    reply,
    parts,
  }: {
    readonly form: Form;
    readonly request: FastifyRequest;
    readonly reply: FastifyReply;
    readonly parts: InvokeParts;
  },
): void {
  const { path } = splitTarget(request.originalUrl);
  const params = request.params as Params;
  const label = form === 'host' ? readHostLabel(params['label'] ?? '') : undefined;
  const isContainer = form === 'container' || label?.kind === 'container';
  if (isContainer) {
    const port = label === undefined ? readPort(params['port'] ?? '') : label.port;
    if (port === undefined || port === null) return sendRefusal(reply, NOT_FOUND);
    const { workspaceId, stubId } = target;
    const containerId = label?.kind === 'container' ? label.containerId : (params['containerId'] ?? '').toLowerCase();
    const rootPath = form === 'container' ? path.split('/').slice(0, 6).join('/') : '';
    const refuses = ({ exposedPorts }: ContainerRow): Refusal | undefined => {
      const ports = [...new Set([...portsOf(target), ...exposedPorts])];
      return ports.includes(port) ? undefined : unlisted(port, ports);
    };
    if (label === undefined && leadToOwnHost(target, { rootPath, port, containerId }, request, reply, parts.hosts))
      return;
    const to = { containerId, stubId, workspaceId, port, refuses, rootPath, tokenInHeader };
    return sandboxCall(to, request, reply, parts);
  }
  const chosen = label === undefined ? portInPath(path, target) : portInHost(label.port, target);
  if (chosen instanceof Refusal) return sendRefusal(reply, chosen);
  if (label === undefined && leadToOwnHost(target, chosen, request, reply, parts.hosts)) return;
  if (isMadeByHand(target.config.stubType) && !parts.hasContainers(target.queue))
    return sendRefusal(reply, NO_CONTAINER);
  streamCall({ target, caller, ...chosen, tokenInHeader }, request, reply, parts);
}

/** The part of a URL's path that names the deployment: `/asgi/name`, `/asgi/name/v3`, `/asgi/id/…`. */
function rootPathOf(url: string, { stubId }: Target): string {
  const segments = splitTarget(url).path.split('/');
  return segments.slice(0, namingParts(segments, stubId)).join('/');
}

/** Parameters of the route, with the rest of the path as it was sent. */
function paramsOf({ params, originalUrl }: FastifyRequest): Params {
  const read = params as Params;
  if (read['*'] === undefined || !originalUrl.includes('%')) return read;
  return { ...read, '*': restOf(splitTarget(originalUrl).path, read['stubId'] !== undefined) };
}

/** Refuses a token: 401, or 429 where too many were refused. */
function refuseToken(request: FastifyRequest, reply: FastifyReply, parts: InvokeParts): void {
  try {
    parts.authenticator.refused?.(request.ip);
  } catch (error) {
    const problem = problemOf(error);
    closeUnread(request, reply);
    return sendCoded(withRetryAfter(reply, problem), problem.status, problem.code, problem.message);
  }
  sendRefusal(reply, UNAUTHORIZED);
}
