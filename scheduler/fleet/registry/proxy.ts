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
import { WriteRefused } from './allowance.ts';
import type { Allowance, RegistryWrite } from './allowance.ts';
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
/** The rest of a refused body is read so far, and for so long, so that its engine reads the refusal. */
const MOST_REST_BYTES = 256 * 1024 * 1024;
const REST_MS = 15_000;
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
  readonly allowance: Pick<Allowance, 'write'>;
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
    // An upload begins without a byte, so that each byte belongs to an upload with a name.
    if ((!wanted.isWrite || wanted.reference === '') && hasBody(request)) {
      refuse(response, 400, 'UNSUPPORTED', 'such a request has no body');
      return 'refused';
    }
    try {
      return await this.#pass(request, response, token, wanted);
    } catch (error) {
      if (!(error instanceof WriteRefused) || response.headersSent) throw error;
      refuse(response, error.status, 'DENIED', error.message);
      await readRest(request);
      return 'refused';
    }
  }

  async #pass(
    request: IncomingMessage,
    response: ServerResponse,
    token: RegistryToken,
    wanted: Passed,
  ): Promise<'ok' | 'missing' | 'failed'> {
    const { client, metrics, allowance } = this.#parts;
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    const headers = picked(request.headers, REQUEST_HEADERS);
    if (client.authorization !== undefined) headers['authorization'] = client.authorization;
    const { signal } = gone;
    if (wanted.isWrite && !(await this.#takesPushes(wanted.repository, signal))) {
      refuse(response, 409, 'UNAVAILABLE', COLLECTING);
      return 'failed';
    }
    const ask = (body: Readable | null, until?: AbortSignal): Promise<Dispatcher.ResponseData> =>
      client.pool.request({ method: request.method as 'GET', path: wanted.path, headers, body, signal: until ?? null });
    const isWrite = wanted.isWrite && request.method !== 'GET';
    const answer = isWrite
      ? await this.#write(request, wanted, allowance, ask, signal)
      : await onceThere(() => ask(null, signal), signal);
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

  /**
   * Passes a write on, with its bytes taken of the workspace's allowance before. The answer is waited for also where
   * the engine leaves, because it decides what the registry has.
   * @throws WriteRefused
   */
  async #write(
    request: IncomingMessage,
    wanted: Passed,
    allowance: Pick<Allowance, 'write'>,
    ask: (body: Readable | null, until?: AbortSignal) => Promise<Dispatcher.ResponseData>,
    gone: AbortSignal,
  ): Promise<Dispatcher.ResponseData> {
    const { kind, repository, reference } = wanted;
    const isUpload = kind === 'upload' && reference !== '';
    const write = allowance.write(
      workspaceOfRepository(repository) as WorkspaceId,
      isUpload ? reference : undefined,
      isUpload ? digestIn(wanted.path) : null,
    );
    const length = Number(request.headers['content-length'] ?? 0);
    if (kind === 'manifest' && length > MOST_MANIFEST_BYTES) throw tooLargeManifest();
    await write.claim(length);
    const hasBytes = hasBody(request);
    // The registry answers a body that ends, however early, with the state by which alone its upload can be deleted.
    const mayEndEarly = request.method === 'PATCH' && request.headers['content-length'] === undefined;
    let isWhole = !hasBytes;
    let failed: { readonly error: unknown } | undefined;
    const body = async function* (chunks: AsyncGenerator<Buffer>): AsyncGenerator<Buffer> {
      try {
        yield* write.taken(chunks);
        isWhole = true;
      } catch (error) {
        failed = { error };
        if (!mayEndEarly) throw error;
      }
    };
    let answer: Dispatcher.ResponseData;
    try {
      const most = kind === 'manifest' ? MOST_MANIFEST_BYTES : Infinity;
      answer = hasBytes
        ? await ask(Readable.from(body(this.#counted(request, most)), { objectMode: false }))
        : await onceThere(() => ask(null), gone);
    } catch (error) {
      await write.breakOff(isWhole ? digestIn(wanted.path) : null);
      throw failed?.error ?? error;
    }
    if (failed !== undefined) {
      await answer.body.dump();
      await this.#discard(write, answer);
      throw failed.error;
    }
    await this.#settle(write, wanted, request.method ?? '', answer);
    return answer;
  }

  /** Removes an upload whose body was refused or broke off, so that its bytes count no more. */
  async #discard(write: RegistryWrite, { statusCode, headers }: Dispatcher.ResponseData): Promise<void> {
    const { client } = this.#parts;
    const isGone = statusCode < 400 && (await client.removeUpload(String(headers['location'])).catch(() => false));
    await (isGone ? write.forget() : write.breakOff());
  }

  /** Ends a write by what the registry answered. */
  async #settle(
    write: RegistryWrite,
    wanted: Passed,
    method: string,
    { statusCode, headers }: Dispatcher.ResponseData,
  ): Promise<void> {
    const { kind, reference, path } = wanted;
    if (method === 'POST') {
      const [, upload] = LOCATION.exec(String(headers['location'])) ?? [];
      if (statusCode >= 400) await write.forget();
      else await write.end(upload === undefined ? undefined : `upload ${upload}`);
    } else if (method === 'DELETE') await (statusCode < 300 ? write.forget() : write.end());
    else if (kind === 'manifest') {
      const digest = String(headers['docker-content-digest'] ?? (reference.includes(':') ? reference : ''));
      if (statusCode >= 400) await write.forget();
      else await write.end(digest === '' ? undefined : `manifest ${digest}`);
    } else if (statusCode < 400) await write.end(digestIn(path) ?? undefined);
    // A PUT that was asked twice may have made a blob at the first time. A 404 may also be about the upload's state.
    else await write.breakOff(statusCode === 404 ? digestIn(path) : null);
  }

  /** The body of a write, counted. The request outlives it, so that it can be answered. */
  async *#counted(request: IncomingMessage, most: number): AsyncGenerator<Buffer> {
    let bytes = 0;
    for await (const part of request.iterator({ destroyOnReturn: false })) {
      const chunk = part as Buffer;
      bytes += chunk.length;
      if (bytes > most) throw tooLargeManifest();
      this.#parts.metrics.bytes.inc({ direction: 'in' }, chunk.length);
      yield chunk;
    }
  }
}

const LOCATION = /\/blobs\/uploads\/([A-Za-z0-9_-]{1,128})(?:\?|$)/;
/** The digest by which a PUT ends an upload. */
const digestIn = (path: string): string | null => new URLSearchParams(path.split('?', 2)[1]).get('digest');
const tooLargeManifest = (): WriteRefused => new WriteRefused(413, `a manifest may have ${MOST_MANIFEST_BYTES} bytes`);

/** Reads the rest of a refused body. An engine whose bytes nobody takes does not come to read the refusal. */
async function readRest(request: IncomingMessage): Promise<void> {
  if (request.complete || request.destroyed) return;
  const over = Promise.withResolvers<void>();
  const late = setTimeout(over.resolve, REST_MS);
  let bytes = 0;
  request
    .on('error', () => undefined)
    .once('end', over.resolve)
    .once('close', over.resolve);
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > MOST_REST_BYTES) over.resolve();
  });
  request.resume();
  await over.promise;
  clearTimeout(late);
  if (!request.complete) request.destroy();
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
