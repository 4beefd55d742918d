// Routes into containers: WebSockets for programs, terminals, output and ports, and files as streams. They are for
// containers of every kind, live or being started.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { Value } from 'typebox/value';
import { AppError } from '#shared/errors.ts';
import { isRecord } from '#shared/json.ts';
import type { Log } from '#shared/log.ts';
import type { Access, ReachedContainer } from '../../../fleet/inside/access.ts';
import type { Inside } from '../../../fleet/inside/inside.ts';
import { ReloadAsked } from '../../../fleet/inside/messages.ts';
import type { LogReads } from '../../../fleet/logs/log-service.ts';
import type { WebSocket } from 'ws';
import type { Authenticator } from '../auth.ts';
import { levelOf, problemOf, sendProblem } from '../error-map.ts';
import { whyNotObject } from '../not-object.ts';
import { closeUnread } from '../polite-close.ts';
import { sayNotFound, serveAttach } from './attach-socket.ts';
import { fileQueryOf, sendFile, takeFile } from './files.ts';
import { servePort } from './port-socket.ts';
import { programRequestOf, shellRequestOf } from './program-request.ts';
import type { ProgramRequest } from './program-request.ts';
import { serveProgram } from './program-socket.ts';
import { refuse } from './sockets.ts';
import type { ContainerSockets } from './sockets.ts';
import { visitorOf } from './visitors.ts';
import type { Visitor } from './visitors.ts';

export interface ContainerRouteParts {
  readonly authenticator: Authenticator;
  readonly access: Access;
  readonly inside: Inside;
  readonly logs: LogReads;
  readonly sockets: ContainerSockets;
  readonly log: Log;
}

/** Time for a container to run. */
const RUNNING_WITHIN_MS = 60_000;
/** Time for the container to say whether a port takes a connection. */
const PORT_WITHIN_MS = 25_000;
/** Time for the first message of a WebSocket that needs one. */
const FIRST_MESSAGE_MS = 30_000;
/** Longer than the container waits for its app to load, before it says that it still does. */
const RELOAD_WITHIN_MS = 25_000;
/** Bound on the names of changed files. */
const MOST_RELOAD_BYTES = 64 * 1024;
const MOST_PORT = 65_535;

export const CONTAINERS_BASE = '/api/v1/gateway/containers/:containerId';
export const SHELL_PATH = '/shell/id/:stubId/:containerId';

/** `scope`: a plugin of its own, since only its bodies are not read before the handler. */
export function registerContainers(scope: FastifyInstance, parts: ContainerRouteParts): void {
  scope.removeAllContentTypeParsers();
  scope.addContentTypeParser('*', (_request, payload, done) => done(null, payload));
  scope.setErrorHandler((error, request, reply) => {
    const problem = problemOf(error);
    if (problem.status >= 500)
      parts.log[levelOf(problem)]({ err: error, requestId: request.id }, 'a request into a container failed');
    closeUnread(request, reply);
    return sendProblem(reply, request.id, problem);
  });

  socketRoute(scope, parts, `${CONTAINERS_BASE}/exec`, async ({ open, container }) => {
    open((webSocket, ended) => {
      const late = setTimeout(() => {
        refuse(webSocket, new AppError('bad_request', 'no first message came'));
      }, FIRST_MESSAGE_MS);
      late.unref();
      webSocket.once('close', () => clearTimeout(late));
      webSocket.once('message', (data: Buffer, isBinary: boolean) => {
        clearTimeout(late);
        ended(serve(webSocket, () => requestOf(data, isBinary), container, parts, true));
      });
    });
  });

  socketRoute(scope, parts, SHELL_PATH, async ({ open, container, request }) => {
    const asked = shellRequestOf(request.query as Readonly<Record<string, unknown>>);
    open((webSocket, ended) => ended(serve(webSocket, () => asked, container, parts, false)));
  });

  socketRoute(scope, parts, `${CONTAINERS_BASE}/ports/:port`, async ({ open, container, request, left }) => {
    const { port: text = '' } = request.params as { readonly port?: string };
    const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
    if (port < 1 || port > MOST_PORT) throw new AppError('bad_request', `port must be from 1 to ${MOST_PORT}`);
    const signal = AbortSignal.any([left, AbortSignal.timeout(PORT_WITHIN_MS)]);
    const opened = await parts.inside.open(container, 'connect', { port, waitMs: 0 }, signal);
    const over = (): void => opened.close();
    signal.addEventListener('abort', over, { once: true });
    await opened.answer();
    signal.removeEventListener('abort', over);
    left.addEventListener('abort', over, { once: true });
    open((webSocket) => servePort(webSocket, opened));
  });

  attachRoute(scope, parts);
  fileRoutes(scope, parts);
  // In a scope of its own, since its body alone is read before the handler.
  void scope.register((own, _options, done) => {
    reloadRoute(own, parts);
    done();
  });
}

function requestOf(data: Buffer, isBinary: boolean): ProgramRequest {
  if (isBinary) throw new AppError('bad_request', 'the first message must be a text: what to run');
  return programRequestOf(data.toString('utf8'));
}

async function serve(
  webSocket: WebSocket,
  requested: () => ProgramRequest,
  container: ReachedContainer,
  { inside }: ContainerRouteParts,
  hasStreamByte: boolean,
): Promise<void> {
  let request: ProgramRequest;
  try {
    request = requested();
  } catch (error) {
    if (error instanceof AppError) return refuse(webSocket, error);
    throw error;
  }
  await serveProgram(request, { webSocket, inside, container, hasStreamByte });
}

interface SocketRequest {
  readonly request: FastifyRequest;
  readonly container: ReachedContainer;
  /** The caller left before the handshake was answered. */
  readonly left: AbortSignal;
  /** Answers the handshake. `ended` watches what goes on behind it. */
  readonly open: (then: (webSocket: WebSocket, ended: (work: Promise<void>) => void) => void) => void;
}

/** A route for a WebSocket into a container that runs. */
function socketRoute(
  scope: FastifyInstance,
  parts: ContainerRouteParts,
  url: string,
  serveSocket: (asked: SocketRequest) => Promise<void>,
): void {
  scope.get(url, async (request, reply) => {
    const visitor = await visitorAt(request, parts, true);
    const left = leaving(reply);
    const { containerId = '', stubId = '' } = request.params as {
      readonly containerId?: string;
      readonly stubId?: string;
    };
    const reaching = { workspaceId: visitor.workspaceId, stubId, withinMs: RUNNING_WITHIN_MS, signal: left.signal };
    const giveBack = parts.sockets.place(visitor.caller.workspaceId);
    try {
      const container = await parts.access.reach(containerId, reaching);
      await serveSocket({
        request,
        container,
        left: left.signal,
        open: (then) => accept(request, reply, visitor, parts, left, giveBack, then),
      });
    } catch (error) {
      giveBack();
      throw error;
    }
    return reply;
  });
}

/** Published clients read of an unknown container in a message, so the handshake is answered first. */
function attachRoute(scope: FastifyInstance, parts: ContainerRouteParts): void {
  const { access, inside, logs, sockets } = parts;
  scope.get(`${CONTAINERS_BASE}/attach`, async (request, reply) => {
    const visitor = await visitorAt(request, parts, true);
    const left = leaving(reply);
    const { containerId = '' } = request.params as { readonly containerId?: string };
    const { workspaceId } = visitor;
    const giveBack = sockets.place(visitor.caller.workspaceId);
    accept(request, reply, visitor, parts, left, giveBack, (webSocket, ended) => {
      const attached = async (): Promise<void> => {
        const gone = new AbortController();
        webSocket.once('close', () => gone.abort());
        try {
          const reaching = { workspaceId, withinMs: RUNNING_WITHIN_MS, signal: gone.signal };
          const container = await access.reach(containerId, reaching);
          await serveAttach({ webSocket, inside, access, logs, container });
        } catch (error) {
          if (!(error instanceof AppError)) throw error;
          if (error.code === 'container_not_found') sayNotFound(webSocket);
          else refuse(webSocket, error);
        }
      };
      ended(attached());
    });
    return reply;
  });
}

/** Answers the handshake, and watches what goes on behind it. */
function accept(
  request: FastifyRequest,
  reply: FastifyReply,
  visitor: Visitor,
  { sockets, log }: ContainerRouteParts,
  left: AbortController,
  giveBack: () => void,
  then: (webSocket: WebSocket, ended: (work: Promise<void>) => void) => void,
): void {
  let isOpen = false;
  sockets.accept(request, reply, visitor, (webSocket) => {
    isOpen = true;
    webSocket.once('close', giveBack);
    then(webSocket, (work) => {
      work.catch((error: unknown) => {
        log.error({ err: error, requestId: request.id }, 'a WebSocket into a container failed');
        webSocket.close(1011, 'internal');
      });
    });
  });
  if (isOpen) return;
  giveBack();
  left.abort();
}

function fileRoutes(scope: FastifyInstance, parts: ContainerRouteParts): void {
  const { access, inside, sockets } = parts;
  scope.route({
    method: ['GET', 'PUT', 'DELETE'],
    url: `${CONTAINERS_BASE}/files`,
    handler: async (request, reply) => {
      const visitor = await visitorAt(request, parts, false);
      const query = fileQueryOf(request.query as Readonly<Record<string, unknown>>);
      const { containerId = '' } = request.params as { readonly containerId?: string };
      const { signal: left } = leaving(reply);
      sockets.watchToken(visitor, reply.raw, () => reply.raw.destroy());
      const reaching = { workspaceId: visitor.workspaceId, withinMs: RUNNING_WITHIN_MS, signal: left };
      const container = await access.reach(containerId, reaching);
      const passing = { inside, container, left };
      if (request.method === 'GET') {
        await sendFile(reply, query, passing);
        return reply;
      }
      if (request.method === 'PUT') return takeFile(request, reply, query, passing);
      await inside.ask(container, 'remove', { path: query.path, recursive: query.isRecursive }, { signal: left });
      return {};
    },
  });
}

/** Has a development server load its app anew, where the changed files are of it; answers with the outcome. */
function reloadRoute(scope: FastifyInstance, parts: ContainerRouteParts): void {
  const { access, inside } = parts;
  scope.addContentTypeParser(
    'application/json',
    { parseAs: 'string', bodyLimit: MOST_RELOAD_BYTES },
    (_request, text, done) => done(null, text),
  );
  scope.post(`${CONTAINERS_BASE}/reload`, async (request, reply) => {
    const visitor = await visitorAt(request, parts, false);
    const { containerId = '' } = request.params as { readonly containerId?: string };
    const { signal: left } = leaving(reply);
    const { paths } = reloadOf(request);
    const reaching = { workspaceId: visitor.workspaceId, withinMs: RUNNING_WITHIN_MS, signal: left };
    const container = await access.reach(containerId, reaching);
    const asked = paths === undefined ? {} : { paths };
    return inside.ask(container, 'reload', asked, { withinMs: RELOAD_WITHIN_MS, signal: left });
  });
}

/** @throws AppError `bad_request`. Without a JSON body any file may have changed. */
function reloadOf({ body, raw }: FastifyRequest): { readonly paths?: readonly string[] } {
  if (typeof body !== 'string' || body === '') {
    raw.resume();
    return {};
  }
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch {
    throw new AppError('bad_request', `the body must be JSON: ${whyNotObject(Buffer.from(body))}`);
  }
  if (isRecord(value) && !('paths' in value)) return {};
  if (!Value.Check(ReloadAsked, value))
    throw new AppError('bad_request', 'paths must be a list of at most 1000 texts: the changed files');
  return value;
}

async function visitorAt(
  request: FastifyRequest,
  { authenticator, sockets }: ContainerRouteParts,
  isSocket: boolean,
): Promise<Visitor> {
  const visitor = await visitorOf(request, authenticator, { takesQuery: isSocket });
  if (isSocket) sockets.check(request);
  return visitor;
}

/** Aborted once the caller has left without an answer. */
function leaving({ raw }: FastifyReply): AbortController {
  const left = new AbortController();
  raw.once('close', () => {
    if (!raw.writableFinished) left.abort();
  });
  return left;
}
