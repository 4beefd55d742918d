/**
 * Requests of machines for the managed registry. They come as plain HTTP over connections of the agents' link, and go
 * to the registry with back-pressure, never buffered whole. Must stay true: no request passes without a token that
 * this installation signed for that machine, that repository and that action; a machine that was deleted gets nothing.
 */
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { pipeline } from 'node:stream/promises';
import { sleep } from '#shared/backoff.ts';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { workspaceOfRepository } from '#shared/domain/built-images.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { SigningKeys } from '../../workspaces/identity/jwt.ts';
import { WriteRefused } from './allowance.ts';
import type { Allowance } from './allowance.ts';
import { onceThere } from './client.ts';
import type { RegistryClient } from './client.ts';
import type { RegistryMetrics } from './metrics.ts';
import { permits, readRequest } from './requests.ts';
import { tokenIn, verifyToken } from './tokens.ts';
import type { RegistryToken } from './tokens.ts';
import { hasBody, isUploadOf, RegistryWrites } from './writes.ts';
import type { Ask, Passed } from './writes.ts';

const MOST_CONNECTIONS = 2048;
const MOST_OF_MACHINE = 64;
/** The registry reads a large layer to its end before it answers for it. */
const IDLE_MS = 15 * 60_000;
const KEEP_ALIVE_MS = 90_000;
/** The rest of a refused body is read so far, and for so long, so that its engine reads the refusal. */
const MOST_REST_BYTES = 256 * 1024 * 1024;
const REST_MS = 15_000;
/** A push waits for so long while the registry collects its layers, then its engine and its agent try again. */
const PUSH_WAIT_MS = 120_000;
const PUSH_LOOK_MS = 250;
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
  readonly #writes: RegistryWrites;
  readonly #server: Server;
  readonly #machineOf = new Map<Socket, MachineId>();

  constructor(parts: RegistryProxyParts) {
    this.#parts = parts;
    this.#writes = new RegistryWrites(parts);
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
    const { client, metrics } = this.#parts;
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    const headers = picked(request.headers, REQUEST_HEADERS);
    if (isUploadOf(wanted)) {
      // The registry would take the digest and the state out of a form before those of the address.
      headers['content-type'] = 'application/octet-stream';
      // A body of unknown length may end early: the registry answers, and keeps no bytes that nobody can delete.
      if (hasBody(request)) delete headers['content-length'];
    }
    if (client.authorization !== undefined) headers['authorization'] = client.authorization;
    const { signal } = gone;
    if (wanted.isWrite && !(await this.#takesPushes(wanted.repository, signal))) {
      refuse(response, 409, 'UNAVAILABLE', COLLECTING);
      return 'failed';
    }
    const method = request.method ?? '';
    const ask: Ask = (asked, until) => {
      const { body = null, ...to } = { method, path: wanted.path, ...asked };
      return client.pool.request({ ...to, headers, body, signal: until ?? null });
    };
    const isWrite = wanted.isWrite && method !== 'GET';
    const answer = isWrite
      ? await this.#writes.pass(request, wanted, ask, signal)
      : await onceThere(() => ask({}, signal), signal);
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
}

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
