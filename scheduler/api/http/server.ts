// The HTTP server: one Fastify instance with the rules of every surface (request ids, limits, raw bodies, graceful
// stop). surfaces.ts registers the surfaces on it; main.ts starts and stops it.
// Invariant: every answer carries x-request-id. Bodies arrive as bytes, and each surface reads them by its own rules.
// Once stopping, answers ask the client to close, and running requests continue until the drain is over.
import { randomBytes } from 'node:crypto';
import type { IncomingMessage, Server } from 'node:http';
import { Socket, isIP } from 'node:net';
import type { AddressInfo } from 'node:net';
import type { Server as TlsServer } from 'node:tls';
import { fastify } from 'fastify';
import type { FastifyHttpOptions, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { AppError, StartupError, messageOf } from '#shared/errors.ts';
import { sleep } from '#shared/backoff.ts';
import { readTarget } from '#shared/domain/request-target.ts';
import type { Log } from '#shared/log.ts';
import { cutBegun } from './begun-answers.ts';
import { BODY_RULES, RequestBodies } from './bodies.ts';
import type { BodyRules } from './bodies.ts';
import { MIN_TLS } from './certificate.ts';
import type { CertificateWatch } from './certificate.ts';
import { NARROWED, listenPlace } from './listen-policy.ts';
import type { ListenWish } from './listen-policy.ts';
import { isThrough } from './console/passage.ts';
import { CrossOrigin } from './cross-origin.ts';
import { levelOf, problemOf, sendProblem as sendPlainly } from './error-map.ts';
import type { Problem } from './error-map.ts';
import { answerWorker } from './leaving-worker.ts';
import { closeUnread, dropLate } from './polite-close.ts';
import { NOWHERE, hostIs } from './target-host.ts';
import { isUpgraded, routeUpgrades } from './streams/upgrades.ts';

export interface HttpServerParts {
  readonly log: Log;
  /** Registers all routes. */
  readonly register: (app: FastifyInstance, server: ServerState) => void;
  /** The certificate; absent: HTTP in clear. */
  readonly certificate?: CertificateWatch;
  /** `LONGSHORE_HTTP_PLAINTEXT`; absent: clear text on loopback alone. */
  readonly plaintext?: ListenWish['plaintext'];
  /** Answers a request that no surface took. */
  readonly sendProblem?: (reply: FastifyReply, requestId: string, problem: Problem) => void;
  /** Bounds of bodies; absent: the defaults. */
  readonly bodyRules?: Partial<BodyRules>;
  /** The largest body that a surface admits, in bytes. */
  readonly largestBodyBytes?: number;
  /** Most connections: above it a new connection is closed at once. Absent: no bound. */
  readonly maxConnections?: number;
  /** Rewrites the URL for routing, given the Host header and the URL as sent. Absent: the URL stays as sent. */
  readonly rewriteUrl?: (host: string | undefined, url: string, request: IncomingMessage) => string;
  /** Called when the server begins to stop: connections that it does not know as requests are ended. */
  readonly onStop?: () => void;
  /** Called before connections are cut, with time for last answers. */
  readonly onLast?: () => void;
  /** Called right before connections are cut. */
  readonly onCut?: () => void;
  /** Origins whose web pages may call; absent: none. */
  readonly origins?: readonly string[];
  /** Addresses and ranges of proxies whose X-Forwarded-For is believed; empty: none. */
  readonly trustedProxies?: readonly string[];
}

/** Facts about the server that surfaces may read. */
export interface ServerState {
  readonly bodies: Pick<RequestBodies, 'release' | 'heldBytes'>;
  readonly isDraining: () => boolean;
  /** URL where the server listens, `http://127.0.0.1:1994`, once it does. */
  readonly listenUrl: () => string | null;
  readonly scheme: 'http' | 'https';
  /** Warnings for the operator about the server, one sentence each. */
  readonly warnings: () => readonly string[];
}

export interface HttpServer {
  /** The Fastify instance, for tests: `app.inject`. */
  readonly app: FastifyInstance;
  /**
   * Listens on `host:port`, `:port` or `[v6]:port`; port 0 picks a free one.
   * @returns the address it listens on, `127.0.0.1:1994`
   * @throws StartupError `port_in_use`, `bad_address`
   */
  start(address: string): Promise<string>;
  /**
   * Whether the server serves calls: false before it listens and after
   * `stop`. While it drains, calls of containers are still served.
   */
  readonly isOpen: boolean;
  /**
   * Answers new requests 503 with Retry-After, takes no connections after a moment, waits up to `graceMs` for requests
   * in progress, then cuts the rest. A second call waits for the first.
   */
  stop(graceMs?: number): Promise<void>;
  /** Bound address; empty before `start`. */
  readonly address: string;
  /** URL where it listens, `http://127.0.0.1:1994`; null before `start`. */
  readonly listenUrl: string | null;
}

/** @throws StartupError `bad_config` */
function proxies(trusted: readonly string[]): false | string[] {
  for (const range of trusted) {
    const [address = '', bits, more] = range.split('/');
    const version = isIP(address);
    // A range of all addresses is refused: any sender could then claim any address.
    const isRange =
      bits === undefined || (/^[0-9]{1,3}$/.test(bits) && isWithin(Number(bits), version === 4 ? 32 : 128));
    if (version !== 0 && isRange && more === undefined) continue;
    throw new StartupError(
      'bad_config',
      `LONGSHORE_TRUSTED_PROXIES: ${JSON.stringify(range)} is neither an address nor a range such as 10.0.0.0/8`,
    );
  }
  return trusted.length === 0 ? false : [...trusted];
}

const isWithin = (bits: number, most: number): boolean => bits >= 1 && bits <= most;

/**
 * No bound on the whole of a request: a streamed body may take any time. Every other body has its minimum rate
 * (bodies.ts), and uploads one of their own.
 */
const WHOLE_REQUEST_MS = 0;
/** A connection that is silent for so long is probed, so that a caller whose machine is gone does not stay. */
const KEEP_ALIVE_MS = 30_000;
const HEADERS_MS = 20_000;
const HANDSHAKE_MS = 10_000;
/** Time for last answers, within that of the drain. */
const LAST_ANSWERS_MS = 1_000;
const CLOSE_IDLE_EVERY_MS = 100;
/** Time in which requests are read that were on their way over an idle connection; closed, it would lose them. */
const ON_THE_WAY_MS = 500;
const LOOK_AT_CONNECTIONS_MS = 5_000;
const LARGEST_BODY_BYTES = 16 * 1024 * 1024;

export function createHttpServer(parts: HttpServerParts): HttpServer {
  let draining = false;
  let address = '';
  const prefix = randomBytes(6).toString('hex');
  let counter = 0;
  const { rewriteUrl, sendProblem = sendPlainly } = parts;
  const pathless = new WeakMap<IncomingMessage, 'server' | 'none'>();
  const crossOrigin = new CrossOrigin(parts.origins ?? []);
  const bodies = new RequestBodies({ ...BODY_RULES, ...parts.bodyRules }, parts.largestBodyBytes ?? LARGEST_BODY_BYTES);
  const app = fastify({
    logger: false,
    exposeHeadRoutes: false,
    requestTimeout: WHOLE_REQUEST_MS,
    ...serverOptions(parts.certificate),
    return503OnClosing: false,
    trustProxy: proxies(parts.trustedProxies ?? []),
    forceCloseConnections: 'idle',
    rewriteUrl: (request: IncomingMessage & { originalUrl?: string }) => {
      const target = readTarget(request.method, request.url ?? '/');
      // The library has kept the target as it was sent, and routes read it from here.
      request.originalUrl = target.kind === 'path' ? target.path : NOWHERE;
      if (target.kind !== 'path') {
        pathless.set(request, target.kind);
        return NOWHERE;
      }
      if (target.host !== undefined) hostIs(request, target.host);
      return rewriteUrl === undefined ? target.path : rewriteUrl(request.headers.host, target.path, request);
    },
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: 1024 },
    // The server always makes the id itself: callers could choose the same one.
    genReqId: () => `${prefix}-${(++counter).toString(36)}`,
    frameworkErrors: (error, request, reply: FastifyReply) => {
      reply.header('x-request-id', request.id);
      if (answerWorker(request, reply)) return;
      closeUnread(request, reply);
      sendProblem(reply, request.id, problemOf(error));
    },
  });
  if (parts.maxConnections !== undefined) app.server.maxConnections = parts.maxConnections;
  // `100 Continue` is sent only where a body will be read: bodies.ts and the uploads send it.
  app.server.on('checkContinue', (request, response) => void app.server.emit('request', request, response));
  // Ahead of Fastify, whose 400 would become a part of the answer.
  app.server.prependListener('clientError', (_error, socket) => cutBegun(socket));
  const upgrades = routeUpgrades(app);
  app.decorateRequest('admission', null);
  app.decorateRequest('sender', null);
  app.decorateRequest('heldBytes', 0);
  app.decorateRequest('isSlow', false);
  // Bodies stay bytes with any content type: the surfaces are lenient in what they accept and exact about bytes.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', bodies.parse);
  app.addHook('onRequest', (request, reply, done) => {
    // This request came behind one whose connection is closing: its answer would reach no client.
    if (request.raw.socket.writableEnded) return void request.raw.destroy();
    reply.header('x-request-id', request.id);
    if (answerWorker(request, reply)) return;
    // Pages of other origins have no business in the passage, whatever its address is rewritten to.
    if (!isThrough(request) && crossOrigin.take(request, reply)) return;
    if (draining) {
      reply.header('connection', 'close');
      if (!isServedLast(request)) {
        done(drainingError());
        return;
      }
    }
    if (request.method === 'GET') dropLate(request, reply);
    readType(request);
    done();
  });
  app.setErrorHandler((error, request, reply) => {
    closeUnread(request, reply);
    const problem = problemOf(error);
    if (problem.status >= 500) parts.log[levelOf(problem)]({ err: error, requestId: request.id }, 'request failed');
    sendProblem(reply, request.id, problem);
  });
  app.setNotFoundHandler((request, reply) => {
    closeUnread(request, reply);
    switch (pathless.get(request.raw)) {
      case 'server':
        return void reply.code(204).header('allow', METHODS).send();
      case 'none':
        return sendProblem(reply, request.id, BAD_TARGET);
      case undefined:
    }
    sendProblem(reply, request.id, { status: 404, code: 'not_found', message: 'Not Found' });
  });

  const { certificate } = parts;
  const scheme = certificate === undefined ? 'http' : 'https';
  let isNarrowed = false;
  const state: ServerState = {
    bodies,
    scheme,
    isDraining: () => draining,
    listenUrl: () => (address === '' ? null : `${scheme}://${reachable(address)}`),
    warnings: () => [
      ...(isNarrowed ? [NARROWED] : []),
      ...(typeof certificate?.problem === 'string' ? [CERTIFICATE_KEPT] : []),
    ],
  };
  parts.register(app, state);

  let isOpen = false;
  let stopped: Promise<void> | undefined;
  const close = async (graceMs: number): Promise<void> => {
    draining = true;
    parts.onStop?.();
    const abort = new AbortController();
    const cutAtEnd = async (): Promise<void> => {
      if (!(await sleep(Math.max(0, graceMs - LAST_ANSWERS_MS), abort.signal))) return;
      parts.onLast?.();
      if (!(await sleep(Math.min(graceMs, LAST_ANSWERS_MS), abort.signal))) return;
      parts.onCut?.();
      app.server.closeAllConnections();
      upgrades.destroyAll();
    };
    const cut = cutAtEnd();
    let idle: NodeJS.Timeout | undefined;
    try {
      await sleep(Math.min(ON_THE_WAY_MS, graceMs / 2));
      // A connection whose answer began before the drain is idle after it, and would stay.
      idle = setInterval(() => app.server.closeIdleConnections(), CLOSE_IDLE_EVERY_MS);
      await app.close();
    } finally {
      isOpen = false;
      clearInterval(idle);
      bodies.stop();
      certificate?.stop();
      abort.abort();
      await cut;
    }
  };
  return {
    app,
    get address() {
      return address;
    },
    get listenUrl() {
      return state.listenUrl();
    },
    async start(wanted) {
      const { host, port, ...place } = listenPlace({
        ...parseAddress(wanted),
        isSealed: certificate !== undefined,
        plaintext: parts.plaintext ?? 'loopback',
      });
      isNarrowed = place.isNarrowed;
      if (isNarrowed) parts.log.warn({ wanted, setting: 'LONGSHORE_HTTP_PLAINTEXT' }, NARROWED);
      await listen(app, host, port).catch((error: unknown) => {
        throw listenFailure(wanted, error);
      });
      const bound = app.server.address() as AddressInfo;
      address = `${bound.family === 'IPv6' ? `[${bound.address}]` : bound.address}:${bound.port}`;
      isOpen = true;
      parts.log.info({ address, scheme }, 'http listening');
      certificate?.onReplaced(({ cert, key }) => {
        (app.server as unknown as TlsServer).setSecureContext({ cert, key, minVersion: MIN_TLS });
      });
      certificate?.start();
      return address;
    },
    get isOpen() {
      return isOpen;
    },
    stop(graceMs = 10_000) {
      stopped ??= close(graceMs);
      return stopped;
    },
  };
}

/** Methods of the server as a whole. */
const METHODS = 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS';
const BAD_TARGET = {
  status: 400,
  code: 'bad_request',
  message: 'the target of the request is neither a path nor an http URL: this server is no proxy',
} as const;

const MEDIA_TYPE = /^[\w!#$%&'*+.^`|~-]+\/[\w!#$%&'*+.^`|~-]+\s*(?:;|$)/;

/**
 * Removes or replaces a content type that the library cannot read, for which it
 * would refuse the body: each surface decides which types it takes.
 */
function readType({ raw: { headers } }: FastifyRequest): void {
  const type = headers['content-type'];
  if (type === undefined || type === 'application/json' || MEDIA_TYPE.test(type)) return;
  if (type === '') delete headers['content-type'];
  else headers['content-type'] = 'application/octet-stream';
}

const RETRY_AFTER_SECONDS = 5;
const drainingError = (): AppError =>
  new AppError('draining', 'this scheduler is stopping and takes nothing new', {
    details: { retryAfterSeconds: RETRY_AFTER_SECONDS },
  });

/**
 * Whether the request is still served during a drain: probes, metrics,
 * and calls of containers, which a running call may need to end.
 */
const isServedLast = ({ raw, url }: FastifyRequest): boolean =>
  !(raw.socket instanceof Socket) || url.startsWith('/api/v1/health') || url.startsWith('/metrics');

const CERTIFICATE_KEPT =
  'the files of LONGSHORE_HTTP_TLS_CERT and LONGSHORE_HTTP_TLS_KEY cannot be used: the certificate of before goes on; the log says why';

type HttpOptions = Pick<FastifyHttpOptions<Server>, 'http'>;

/** Options of the server; the bounds are the same with and without a certificate. */
function serverOptions(certificate: CertificateWatch | undefined): HttpOptions {
  const bounds = {
    headersTimeout: HEADERS_MS,
    connectionsCheckingInterval: LOOK_AT_CONNECTIONS_MS,
    keepAlive: true,
    keepAliveInitialDelay: KEEP_ALIVE_MS,
    shouldUpgradeCallback: isUpgraded,
  };
  if (certificate === undefined) return { http: bounds };
  const { cert, key } = certificate.current;
  const https = { ...bounds, cert, key, minVersion: MIN_TLS, handshakeTimeout: HANDSHAKE_MS };
  // The library's types separate the two kinds of servers; all code here works with either.
  return { https } as unknown as HttpOptions;
}

async function listen(app: FastifyInstance, host: string, port: number): Promise<void> {
  try {
    await app.listen({ host, port });
  } catch (error) {
    // The host means every interface, and this machine lacks IPv6.
    const noV6 = error instanceof Error && 'code' in error && error.code === 'EAFNOSUPPORT' && host === '::';
    if (!noV6) throw error;
    await app.listen({ host: '0.0.0.0', port });
  }
}

/** The address to dial: one that stands for every interface cannot be dialled, so this host's own replaces it. */
const reachable = (address: string): string => address.replace(/^(?:0\.0\.0\.0|\[::\]):/, '127.0.0.1:');

/** @throws StartupError `bad_address` */
export function parseAddress(
  address: string,
  setting = 'LONGSHORE_HTTP_ADDRESS',
): { readonly host: string; readonly port: number } {
  const [, bracketed, plain, digits] = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]]*)):([0-9]{1,5})$/.exec(address) ?? [];
  const port = Number(digits);
  if (digits === undefined || port > 65_535) {
    throw new StartupError(
      'bad_address',
      `${setting}: ${JSON.stringify(address)} is not host:port (for example 127.0.0.1:1994 or :1994)`,
    );
  }
  const host = bracketed ?? plain ?? '';
  return { host: host === '' ? '::' : host, port };
}

/** Why a server cannot listen, with the cure. */
export function listenFailure(address: string, cause: unknown, setting = 'LONGSHORE_HTTP_ADDRESS'): StartupError {
  const code = cause instanceof Error && 'code' in cause ? cause.code : undefined;
  if (code === 'EADDRINUSE') {
    return new StartupError(
      'port_in_use',
      `cannot listen on ${address}: another program has that port; stop it or set ${setting} to a free one (port 0 picks one)`,
      { cause },
    );
  }
  if (code === 'EACCES') {
    return new StartupError(
      'port_not_allowed',
      `cannot listen on ${address}: this user may not open that port; set ${setting} to one above 1023`,
      { cause },
    );
  }
  return new StartupError('bad_address', `cannot listen on ${address} (${setting}): ${messageOf(cause)}`, {
    cause,
  });
}
