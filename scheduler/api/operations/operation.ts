// An operation: a name, its two messages, its permitted callers, and a handler that knows no transport. The HTTP binder
// (http/bind.ts) puts the whole list on `/api/v1/gateway`; grpc/rpcs.ts serves it to published clients.
// Invariant: a handler answers with the whole response, expected failures included (`ok: false` and a text). The
// handler throws only for failures that a caller cannot be expected to handle.
import type { Static, TObject } from 'typebox';
import type { RequestFacts } from '../../workspaces/events/audit.ts';
import type { Caller } from '../../workspaces/identity/caller.ts';
import { confinementProblem } from '../../workspaces/identity/confinement.ts';
import type { Grants } from '../../workspaces/identity/confinement.ts';

/**
 * any: every valid token · full: not restricted or container tokens · admin: the administrator · open: no token needed.
 */
export type Scope = 'any' | 'full' | 'admin' | 'open';

/** Facts about a request's origin that a few operations need; every transport fills them in. */
export interface Origin {
  /** Start of URLs handed to this caller, without a trailing slash. */
  readonly baseUrl: string;
  /** Whether the caller is this host itself, with no proxy and no web page in between. */
  readonly loopback: boolean;
  /** The credential as presented, valid or not. */
  readonly bearer: string | null;
  /** Where the request came from, as the audit trail tells it. */
  readonly from: RequestFacts;
  /** Id under which this caller repeats the request until it is answered; absent: it does not. */
  readonly repeatId?: string;
}

type CallerFor<S extends Scope> = S extends 'open' ? Caller | null : Caller;

export interface OperationDefinition<S extends Scope, Request extends TObject, Response extends TObject> {
  readonly name: string;
  /** Method and path below the gateway's base: `POST /deployments/{id}/scale`. */
  readonly http: string;
  readonly scope: S;
  /** Whether a container's own token may call it; true for few. */
  readonly containers?: boolean;
  /** Rights of limited tokens; absent: none. */
  readonly grants?: Grants;
  /** Refusal for callers outside the scope, where the usual text does not fit. */
  readonly refusal?: string;
  /** True: only a token may call it, and no session of the web console. */
  readonly byTokenOnly?: boolean;
  /** Time for an answer; absent: the transport's own. */
  readonly withinMs?: number;
  /** Most bytes of a request; absent: the transport's own. */
  readonly mostBytes?: number;
  readonly request: Request;
  readonly response: Response;
  readonly handle: (
    caller: CallerFor<S>,
    request: Static<Request>,
    origin: Origin,
  ) => Promise<Static<Response>> | Static<Response>;
  /** Answers with messages as they come; `handle` gives the last one alone. The signal ends it: the caller left. */
  readonly stream?: (
    caller: CallerFor<S>,
    request: Static<Request>,
    signal: AbortSignal,
  ) => AsyncIterable<Static<Response>>;
  /** Takes messages as they come, and answers with messages. */
  readonly duplex?: (
    caller: CallerFor<S>,
    requests: AsyncIterable<Static<Request>>,
    signal: AbortSignal,
  ) => AsyncIterable<Static<Response>>;
}

type UnroutedDefinition<S extends Scope, Request extends TObject, Response extends TObject> = Omit<
  OperationDefinition<S, Request, Response>,
  'http' | 'handle'
> &
  Partial<Pick<OperationDefinition<S, Request, Response>, 'handle'>>;

/** An operation with its types erased, as binders hold it. */
export interface Operation {
  readonly name: string;
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** Path with parameters in braces, `/deployments/{id}/scale`. */
  readonly path: string;
  readonly scope: Scope;
  readonly containers: boolean;
  readonly grants: Grants;
  readonly refusal: string;
  readonly byTokenOnly: boolean;
  /** Time for an answer; absent: the transport's own. */
  readonly withinMs?: number;
  /** Most bytes of a request; absent: the transport's own. */
  readonly mostBytes?: number;
  readonly request: TObject;
  readonly response: TObject;
  readonly handle: (caller: Caller | null, request: unknown, origin: Origin) => Promise<unknown>;
  /** Messages of an answer that comes bit by bit; absent: the answer is one message. */
  readonly stream?: (caller: Caller | null, request: unknown, signal: AbortSignal) => AsyncIterable<unknown>;
  /** Messages of an answer to messages; absent: the request is one message. */
  readonly duplex?: (
    caller: Caller | null,
    requests: AsyncIterable<unknown>,
    signal: AbortSignal,
  ) => AsyncIterable<unknown>;
}

/** An operation that no route of HTTP serves: what it does has another form there. */
export type UnroutedOperation = Omit<Operation, 'method' | 'path'>;

export const UNAUTHORIZED_ACCESS = 'Unauthorized Access';
const HTTP = /^(GET|POST|PUT|PATCH|DELETE) (\/\S*)$/;

/** Describes one operation; the result is handed to the binders. */
export function operation<S extends Scope, Request extends TObject, Response extends TObject>(
  definition: OperationDefinition<S, Request, Response>,
): Operation {
  const [, method, path] = HTTP.exec(definition.http) ?? [];
  if (method === undefined || path === undefined) throw new Error(`operation ${definition.name}: bad http line`);
  return { ...unrouted(definition), method: method as Operation['method'], path };
}

/** Describes an operation that no route of HTTP serves. One without a handler answers with a stream alone. */
export function unrouted<S extends Scope, Request extends TObject, Response extends TObject>(
  definition: UnroutedDefinition<S, Request, Response>,
): UnroutedOperation {
  const { stream, duplex, handle, withinMs, mostBytes } = definition;
  return {
    name: definition.name,
    scope: definition.scope,
    containers: definition.containers ?? false,
    grants: definition.grants ?? {},
    refusal: definition.refusal ?? UNAUTHORIZED_ACCESS,
    byTokenOnly: definition.byTokenOnly ?? false,
    ...(withinMs === undefined ? {} : { withinMs }),
    ...(mostBytes === undefined ? {} : { mostBytes }),
    request: definition.request,
    response: definition.response,
    // The binder has decoded the request by this same schema and refused callers outside the scope.
    handle: async (caller, request, origin) => {
      if (handle === undefined) throw new Error(`${definition.name} answers with a stream`);
      return handle(caller as CallerFor<S>, request as Static<Request>, origin);
    },
    ...(stream === undefined
      ? {}
      : {
          stream: (caller: Caller | null, request: unknown, signal: AbortSignal) =>
            stream(caller as CallerFor<S>, request as Static<Request>, signal),
        }),
    ...(duplex === undefined
      ? {}
      : {
          duplex: (caller: Caller | null, requests: AsyncIterable<unknown>, signal: AbortSignal) =>
            duplex(caller as CallerFor<S>, requests as AsyncIterable<Static<Request>>, signal),
        }),
  };
}

/** Whether sessions of the web console may call it. What is open to everybody is for programs that begin. */
export const isForSessions = ({ scope, byTokenOnly }: Pick<Operation, 'scope' | 'byTokenOnly'>): boolean =>
  scope !== 'open' && !byTokenOnly;

/** The refusal's text, or null when the caller may go on. */
export function refusalOf(
  operation: Pick<Operation, 'scope' | 'containers' | 'grants' | 'refusal'>,
  caller: Pick<Caller, 'type' | 'isAdmin' | 'confined'>,
): string | null {
  if (confinementProblem(caller, operation.grants) !== undefined) return operation.refusal;
  if (caller.type === 'container') return operation.containers ? null : operation.refusal;
  switch (operation.scope) {
    case 'open':
    case 'any':
      return null;
    case 'full':
      return caller.type === 'workspace_restricted' ? operation.refusal : null;
    case 'admin':
      return caller.isAdmin ? null : operation.refusal;
  }
}
