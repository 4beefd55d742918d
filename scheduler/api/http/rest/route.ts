// A route of the workspace REST API: its line, its messages, its permitted callers, its refusals, and a handler. The
// binder (rest.ts) reads and checks by it, and openapi.json is made of it.
import type { FastifyRequest } from 'fastify';
import type { Static, TObject, TSchema, TUndefined } from 'typebox';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { SseKind, SseSource } from '../sse.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import type { Grants } from '../../../workspaces/identity/confinement.ts';

export interface RestRequest<Query = unknown, Body = unknown> {
  readonly caller: Caller;
  /** The workspace that the path names: the caller's, or any for the administrator. */
  readonly workspaceId: WorkspaceId;
  readonly params: Readonly<Record<string, string>>;
  readonly query: Query;
  readonly body: Body;
  readonly http: FastifyRequest;
  /** Headers that the handler adds to its answer. */
  readonly answerHeaders: Map<string, string>;
}

export interface RestDefinition<Query extends TObject, Body extends TObject, Answer extends TSchema> {
  /** Method and path, `GET /task/{ws}/{taskId}`. */
  readonly http: string;
  /** A line for people. */
  readonly summary: string;
  /** Group in the description; workspace when absent. */
  readonly tag?: 'workspace' | 'installation';
  /** Whether a container's own token may call it; the handler decides what to show. */
  readonly containers?: boolean;
  /** Rights of limited tokens; absent: none. A test holds every GET to say so itself. */
  readonly grants?: Grants;
  /** Rate that counts the requests: those of the REST API when absent. */
  readonly rate?: 'state';
  /** Permitted callers. full: not restricted tokens · admin: the administrator. Absent: any. */
  readonly scope?: 'full' | 'admin';
  /** True: the administrator reads what is kept of workspaces that were deleted. */
  readonly ofDeleted?: boolean;
  /** Time for the answer; 30 s when absent. */
  readonly withinMs?: number;
  /** True: the route is bound below the root of the server, too, where published clients call it. */
  readonly atRoot?: boolean;
  /** True: only a token may call it, and no session of the web console. */
  readonly byTokenOnly?: boolean;
  /** Name of the path's last parameter where it takes the rest of the path, with its slashes. */
  readonly tail?: string;
  /** Status of the answer; 200 when absent. */
  readonly status?: number;
  /** Schema of the query; absent: the query is ignored. */
  readonly query?: Query;
  /** Schema of the body; absent: the body is ignored. */
  readonly body?: Body;
  /** Reads a body that needs more checks than its schema has. @throws AppError `invalid_body` */
  readonly readBody?: (sent: Readonly<Record<string, unknown>>) => Static<Body>;
  /** Schema of the answer; absent: an empty answer. */
  readonly answer?: Answer;
  /** Codes of the handler's own refusals, beside those of every route. */
  readonly errors?: readonly string[];
  /**
   * Handles a request.
   * @returns the answer's JSON; undefined: an empty answer
   * @throws AppError with a code that has a status
   */
  readonly handle: (request: RestRequest<Static<Query>, Static<Body>>) => Promise<Static<Answer>>;
}

/** A route whose answer is a stream of server-sent events. */
export interface StreamDefinition<Query extends TObject> extends Pick<
  RestDefinition<Query, TObject, TSchema>,
  'http' | 'summary' | 'tag' | 'containers' | 'grants' | 'query' | 'errors'
> {
  readonly kind: SseKind;
  /** Frames as a sentence, and the schema of their data. */
  readonly frames: { readonly description: string; readonly data: TSchema };
  /**
   * Prepares a stream. Refusals are thrown here, before the head is out.
   * @throws AppError with a code that has a status
   */
  readonly open: (request: RestRequest<Static<Query>>) => Promise<SseSource>;
}

/** A route with its types erased, as the binder and the description hold it. */
export interface RestRoute extends Omit<RestDefinition<TObject, TObject, TSchema>, 'http' | 'handle' | 'readBody'> {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** Path with parameters in braces, `/task/{ws}/{taskId}`. */
  readonly path: string;
  readonly readBody?: (sent: Readonly<Record<string, unknown>>) => unknown;
  readonly handle: (request: RestRequest) => Promise<unknown>;
  /** Present: the answer is a stream, and `handle` is not called. */
  readonly stream?: Pick<StreamDefinition<TObject>, 'kind' | 'frames'> & {
    readonly open: (request: RestRequest) => Promise<SseSource>;
  };
}

/** Whether the route is bound below the root of the server, too. */
export const isAtRoot = ({ atRoot = false }: Pick<RestRoute, 'atRoot'>): boolean => atRoot;

const HTTP = /^(GET|POST|PUT|PATCH|DELETE) (\/\S*)$/;

/** Rights of limited tokens on routes that tell of a whole workspace: the scope read, unless its token has one app. */
export const READERS_OF_ALL: Grants = { scopes: ['read'] };
/** Rights on routes that lead to bytes, credentials or settings of a workspace: no limited token may call them. */
export const NOT_LIMITED: Grants = {};

/** Rights of limited tokens on a route. */
export const grantsOf = ({ grants }: Pick<RestRoute, 'grants'>): Grants => grants ?? NOT_LIMITED;

/** Whether callers of that type may call the route; limited tokens are judged by its grants, too. */
export function mayCall(caller: Caller, route: Pick<RestRoute, 'containers' | 'scope'>): boolean {
  if (caller.type === 'container') return route.containers === true;
  if (route.scope === 'admin') return caller.isAdmin;
  return route.scope === undefined || caller.type !== 'workspace_restricted';
}

type Nothing = TObject<Record<never, never>>;

/** Describes one route; the result is handed to the binder. */
export function restRoute<
  Query extends TObject = Nothing,
  Body extends TObject = Nothing,
  Answer extends TSchema = TUndefined,
>(definition: RestDefinition<Query, Body, Answer>): RestRoute {
  const { http, handle, ...rest } = definition;
  const [, method, path] = HTTP.exec(http) ?? [];
  if (method === undefined || path === undefined) throw new Error(`route ${http}: not a method and a path`);
  return {
    ...rest,
    method: method as RestRoute['method'],
    path,
    // The binder has checked query and body by these same schemas.
    handle: handle as RestRoute['handle'],
  };
}

/** Describes a route that answers with a stream. */
export function streamRoute<Query extends TObject = Nothing>(definition: StreamDefinition<Query>): RestRoute {
  const { kind, frames, open, errors = [], ...rest } = definition;
  const route = restRoute({
    ...rest,
    errors: [...errors, 'too_many_streams', 'streams_full'],
    handle: () => Promise.reject(new Error('a stream has no other answer')),
  });
  return { ...route, stream: { kind, frames, open: open as (request: RestRequest) => Promise<SseSource> } };
}
