/**
 * Requests of machines for the managed registry. They come as plain HTTP over connections of the agents' link, and go
 * to the registry with back-pressure, never buffered whole. Must stay true: no request passes without a token that
 * this installation signed for that machine, that repository and that action; a machine that was deleted gets nothing.
 */
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Dispatcher } from 'undici';
import { sleep } from '#shared/backoff.ts';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { workspaceOfRepository } from '#shared/domain/built-images.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { SigningKeys } from '../../workspaces/identity/jwt.ts';
import type { RegistryClient } from './client.ts';
import type { RegistryMetrics } from './metrics.ts';
import { permits, readRequest } from './requests.ts';
import type { Wanted } from './requests.ts';
import { tokenIn, verifyToken } from './tokens.ts';
import type { RegistryToken } from './tokens.ts';

const MOST_CONNECTIONS = 2048;
const MOST_OF_MACHINE = 64;
/** The registry reads a large layer to its end before it answers for it. */
const IDLE_MS = 15 * 60_000;
const KEEP_ALIVE_MS = 90_000;
/** A manifest is a list of layers. */
const MOST_MANIFEST_BYTES = 4 * 1024 * 1024;
/** Pushes whose bytes are counted. */
const MOST_COUNTED = 4096;
/** A push waits for so long while the registry collects its layers, then its engine and its agent try again. */
const PUSH_WAIT_MS = 120_000;
const PUSH_LOOK_MS = 250;
/** A registry that is started anew on a port does not answer meanwhile. */
const AWAY_MS = 30_000;
const AWAY_CODES: ReadonlySet<unknown> = new Set(['ECONNREFUSED', 'ECONNRESET', 'ENOENT', 'EPIPE', 'UND_ERR_SOCKET']);
const COLLECTING = 'the registry of built images collects its layers, and takes pushes afterwards';
const CHALLENGE = { 'www-authenticate': 'Basic realm="longshore"' };
const VERSION = { 'docker-distribution-api-version': 'registry/2.0' };
const REQUEST_HEADERS = ['host', 'accept', 'content-type', 'content-length', 'content-range', 'range', 'user-agent'];
const RESPONSE_HEADERS = [
  'content-type',
  'content-length',
  'content-range',
  'accept-ranges',
  'docker-content-digest',
  'docker-distribution-api-version',
  'docker-upload-uuid',
  'etag',
  'location',
  'range',
];

type Passed = Exclude<Wanted, { kind: 'ping' }>;

export interface RegistryProxyParts {
  readonly client: RegistryClient;
  readonly keys: SigningKeys;
  /** Whether the machine exists. */
  readonly isMachine: (machineId: MachineId) => boolean;
  /** Called when the registry lacks something of an image that it should have. */
  readonly onMissing: (workspaceId: WorkspaceId, digest: string) => void;
  readonly nowMs: () => number;
  readonly metrics: RegistryMetrics;
  readonly log: Log;
}

export class RegistryProxy {
  readonly #parts: RegistryProxyParts;
  readonly #server: Server;
  readonly #machineOf = new Map<Socket, MachineId>();
  /** Bytes that came with each push. */
  readonly #sent = new Map<string, number>();

  constructor(parts: RegistryProxyParts) {
    this.#parts = parts;
    this.#server = createServer(
      { requestTimeout: 0, keepAliveTimeout: KEEP_ALIVE_MS, noDelay: true },
      (request, response) => void this.#serve(request, response),
    );
    this.#server.timeout = IDLE_MS;
  }

  /** Takes a connection of a machine's agent. */
  accept(machineId: MachineId, socket: Socket): void {
    const own = [...this.#machineOf.values()].filter((one) => one === machineId).length;
    if (own >= MOST_OF_MACHINE || this.#machineOf.size >= MOST_CONNECTIONS) return void socket.destroy();
    this.#machineOf.set(socket, machineId);
    this.#parts.metrics.connections.set(this.#machineOf.size);
    socket.once('close', () => {
      this.#machineOf.delete(socket);
      this.#parts.metrics.connections.set(this.#machineOf.size);
    });
    this.#server.emit('connection', socket);
    // A request that came with the line before it is in the socket's buffer, which the server does not set flowing.
    socket.resume();
  }

  close(): void {
    for (const socket of this.#machineOf.keys()) socket.destroy();
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { metrics, log } = this.#parts;
    let action: RegistryToken['action'] | 'none' = 'none';
    try {
      const token = await this.#tokenOf(request);
      action = token?.action ?? 'none';
      const result = await this.#answer(request, response, token);
      metrics.requests.inc({ action, result });
    } catch (error) {
      metrics.requests.inc({ action, result: 'failed' });
      const machineId = this.#machineOf.get(request.socket);
      // An engine that leaves in the middle is no failure of the registry's.
      if (!response.destroyed)
        log.warn({ err: error, machineId, method: request.method }, 'a request for the registry failed');
      if (response.headersSent) response.destroy();
      else refuse(response, 503, 'UNAVAILABLE', `the registry of built images does not answer: ${messageOf(error)}`);
    } finally {
      // The rest of a refused upload would hold the connection.
      if (!request.complete) response.shouldKeepAlive = false;
    }
  }

  /** The token of a request, good for the machine whose connection it is. */
  async #tokenOf({ headers, socket }: IncomingMessage): Promise<RegistryToken | null> {
    const { keys, nowMs, isMachine } = this.#parts;
    const machineId = this.#machineOf.get(socket);
    const text = tokenIn(headers.authorization);
    if (machineId === undefined || text === '') return null;
    const token = await verifyToken(keys, text, nowMs());
    return token?.machineId === machineId && isMachine(machineId) ? token : null;
  }

  async #answer(
    request: IncomingMessage,
    response: ServerResponse,
    token: RegistryToken | null,
  ): Promise<'ok' | 'refused' | 'missing' | 'failed'> {
    if (token === null) {
      refuse(response, 401, 'UNAUTHORIZED', 'a token of this installation, for this machine, is needed', CHALLENGE);
      return 'refused';
    }
    const wanted = readRequest(request.method ?? '', request.url ?? '');
    if (wanted?.kind === 'ping') {
      response.writeHead(200, { ...VERSION, 'content-type': 'application/json' }).end('{}');
      return 'ok';
    }
    if (wanted === undefined || !permits(token, wanted)) {
      refuse(response, 403, 'DENIED', `the token is for a ${token.action} of ${token.repository} alone`);
      return 'refused';
    }
    const most = wanted.kind === 'manifest' ? MOST_MANIFEST_BYTES : token.mostBytes - (this.#sent.get(token.id) ?? 0);
    if (!wanted.isWrite && hasBody(request)) {
      refuse(response, 400, 'UNSUPPORTED', 'such a request has no body');
      return 'refused';
    }
    if (wanted.isWrite && Number(request.headers['content-length'] ?? 0) > most) {
      refuse(response, 413, 'DENIED', 'the images of the workspace take more bytes than it may have');
      return 'refused';
    }
    return this.#pass(request, response, token, wanted, most);
  }

  async #pass(
    request: IncomingMessage,
    response: ServerResponse,
    token: RegistryToken,
    wanted: Passed,
    most: number,
  ): Promise<'ok' | 'missing' | 'failed'> {
    const { client, metrics } = this.#parts;
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    const headers = picked(request.headers, REQUEST_HEADERS);
    if (client.authorization !== undefined) headers['authorization'] = client.authorization;
    const { signal } = gone;
    const hasBytes = hasBody(request);
    if (wanted.isWrite && !(await this.#takesPushes(wanted.repository, signal))) {
      refuse(response, 409, 'UNAVAILABLE', COLLECTING);
      return 'failed';
    }
    const pass = (): Promise<Dispatcher.ResponseData> =>
      client.pool.request({
        method: request.method as 'GET',
        path: wanted.path,
        headers,
        body: hasBytes ? Readable.from(this.#counted(request, token.id, most), { objectMode: false }) : null,
        signal,
      });
    const answer = await (hasBytes ? pass() : onceThere(pass, signal));
    const { statusCode } = answer;
    response.writeHead(statusCode, { ...VERSION, ...picked(answer.headers, RESPONSE_HEADERS) });
    answer.body.on('data', (chunk: Buffer) => metrics.bytes.inc({ direction: 'out' }, chunk.length));
    await pipeline(answer.body, response);
    if (statusCode < 400) return 'ok';
    if (statusCode !== 404) return 'failed';
    if (token.action === 'pull' && request.method === 'GET') this.#missing(token);
    return 'missing';
  }

  /** Waits while the registry collects its layers, before a byte of the push is read. @returns false: it still does */
  async #takesPushes(repository: string, signal: AbortSignal): Promise<boolean> {
    const untilMs = performance.now() + PUSH_WAIT_MS;
    for (;;) {
      if (await onceThere(() => this.#parts.client.takesPushes(repository, signal), signal)) return true;
      if (performance.now() >= untilMs || !(await sleep(PUSH_LOOK_MS, signal))) return false;
    }
  }

  #missing({ repository, reference }: RegistryToken): void {
    const workspaceId = workspaceOfRepository(repository);
    this.#parts.onMissing(workspaceId as WorkspaceId, reference);
  }

  /** The body of an upload, up to the bytes that it may have. */
  async *#counted(request: IncomingMessage, tokenId: string, most: number): AsyncGenerator<Buffer> {
    let bytes = 0;
    for await (const part of request) {
      const chunk = part as Buffer;
      bytes += chunk.length;
      if (bytes > most) throw new Error('the images of the workspace take more bytes than it may have');
      this.#count(tokenId, chunk.length);
      yield chunk;
    }
  }

  #count(tokenId: string, bytes: number): void {
    this.#parts.metrics.bytes.inc({ direction: 'in' }, bytes);
    const before = this.#sent.get(tokenId) ?? 0;
    this.#sent.delete(tokenId);
    this.#sent.set(tokenId, before + bytes);
    const [oldest] = this.#sent.keys();
    if (this.#sent.size > MOST_COUNTED && oldest !== undefined) this.#sent.delete(oldest);
  }
}

/** Asks again while the registry is being started anew. @throws Error: it does not answer in time */
async function onceThere<T>(ask: () => Promise<T>, signal: AbortSignal): Promise<T> {
  const untilMs = performance.now() + AWAY_MS;
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      const isAway = AWAY_CODES.has((error as { readonly code?: unknown } | null)?.code);
      if (!isAway || performance.now() >= untilMs || !(await sleep(PUSH_LOOK_MS, signal))) throw error;
    }
  }
}

const hasBody = ({ headers }: IncomingMessage): boolean =>
  headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;

function picked(
  headers: Readonly<Record<string, string | string[] | undefined>>,
  names: readonly string[],
): Record<string, string> {
  const found = names.flatMap((name) => {
    const value = headers[name];
    return typeof value === 'string' ? [[name, value] as const] : [];
  });
  return Object.fromEntries(found);
}

/** Answers as registries do: engines show the message. */
function refuse(
  response: ServerResponse,
  status: number,
  code: string,
  message: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  response.writeHead(status, { ...VERSION, ...headers, 'content-type': 'application/json' });
  response.end(JSON.stringify({ errors: [{ code, message }] }));
}
