/**
 * Guard of the addresses that mounts of workspaces' buckets reach. The mount helper is in the host's network, so a
 * daemon of a bucket has no way out but this proxy: it resolves each name, and dials checked addresses alone. A name
 * that changes its address, and a redirect of a server, gain nothing. Must stay true: this machine, the scheduler's
 * host, metadata services and private networks are closed unless the operator named them.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto';
import { lookup } from 'node:dns/promises';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { connect, isIP } from 'node:net';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { networkInterfaces } from 'node:os';
import { AddressRules } from '#shared/address-rules.ts';
import { withDeadline } from '#shared/backoff.ts';

// Node's exports of HTTP, imported by name, would load its `fetch`.
const { Agent, createServer, request: sendRequest } = process.getBuiltinModule('node:http');
const LOOKUP_MS = 5_000;
const CONNECT_MS = 5_000;
/** A connection without a byte for so long ends. */
const IDLE_MS = 120_000;
const MOST_CONNECTIONS = 2_048;
/** Headers between a client and its proxy. */
const HOP = new Set([
  'proxy-authorization',
  'proxy-connection',
  'connection',
  'keep-alive',
  'te',
  'trailer',
  'upgrade',
]);

/** Error when no address of the host may be dialled. */
export class ClosedAddress extends Error {
  override readonly name = 'ClosedAddress';

  constructor(host: string) {
    super(
      `${host} is not an address that a bucket may have: private networks, this machine and the scheduler's host are closed unless LONGSHORE_BUCKET_ALLOW of the mount helper names them`,
    );
  }
}

export interface GuardParts {
  /** Networks that the operator opened. */
  readonly allowed: AddressRules;
  /** Networks that the operator closed. */
  readonly closed: AddressRules;
  /** Host of the scheduler. */
  readonly schedulerHost: string | undefined;
  /** Addresses of a name; absent: those of this machine's resolver. */
  readonly addressesOf?: ((host: string) => Promise<readonly string[]>) | undefined;
}

/** Where the guard listens, kept so that a helper that starts again has the same place. */
export interface GuardPlace {
  readonly port: number;
  readonly secret: string;
}

export class Guard {
  readonly #parts: GuardParts;
  readonly #server: Server;
  /** A connection for each request: some servers send a body after HEAD, which would be the next answer. */
  readonly #agent = new Agent({ keepAlive: false, maxSockets: 256 });
  readonly #open = new Set<Duplex>();
  #schedulers: readonly string[] = [];
  #place: GuardPlace = { port: 0, secret: randomBytes(24).toString('hex') };

  constructor(parts: GuardParts) {
    this.#parts = parts;
    this.#server = createServer((request, response) => void this.#forward(request, response));
    this.#server.on('connect', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      this.#track(socket);
      void this.#tunnel(request, socket, head);
    });
    this.#server.on('connection', (socket) => this.#track(socket));
    this.#server.maxConnections = MOST_CONNECTIONS;
    this.#server.requestTimeout = 0;
  }

  /** Listens, at the place of an earlier helper if there was one. @returns its place */
  async start(before: GuardPlace | undefined): Promise<GuardPlace> {
    if (before !== undefined) this.#place = before;
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(this.#place.port, '127.0.0.1', resolve);
    });
    const address = this.#server.address();
    this.#place = { ...this.#place, port: typeof address === 'object' && address !== null ? address.port : 0 };
    return this.#place;
  }

  async stop(): Promise<void> {
    for (const socket of this.#open) socket.destroy();
    this.#agent.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  /** Proxy URL for a daemon. */
  get url(): string {
    return `http://mount:${this.#place.secret}@127.0.0.1:${this.#place.port}`;
  }

  /**
   * The first address of the host that may be dialled.
   * @throws ClosedAddress; Error when the name has no address
   */
  async addressOf(host: string): Promise<string> {
    const bare = host.replace(/^\[(.*)\]$/, '$1');
    const found = isIP(bare) === 0 ? await this.#resolved(bare) : [bare];
    const closed = await this.#closedHere();
    const open = found.find((address) => this.#permits(address, closed));
    if (open === undefined) throw new ClosedAddress(bare);
    return open;
  }

  async #resolved(host: string): Promise<readonly string[]> {
    const { addressesOf = resolve } = this.#parts;
    return await addressesOf(host);
  }

  #permits(address: string, closedHere: AddressRules): boolean {
    const { allowed, closed } = this.#parts;
    if (allowed.names(address)) return true;
    return allowed.permits(address) && !closed.names(address) && !closedHere.names(address);
  }

  /** Addresses of this machine and of the scheduler's host, which may be public ones. */
  async #closedHere(): Promise<AddressRules> {
    const own = Object.values(networkInterfaces()).flatMap((list) => (list ?? []).map(({ address }) => address));
    const { schedulerHost } = this.#parts;
    // While the resolver is away, the addresses that it gave before stay closed.
    if (schedulerHost !== undefined)
      this.#schedulers = await this.#resolved(schedulerHost).catch(() => this.#schedulers);
    const rules = AddressRules.read([...own, ...this.#schedulers].join(','));
    if ('wrong' in rules) throw new Error(`${rules.wrong} is no address`);
    return rules;
  }

  #track(socket: Duplex): void {
    this.#open.add(socket);
    socket.once('close', () => this.#open.delete(socket));
    socket.on('error', () => socket.destroy());
  }

  #isOurs(request: IncomingMessage): boolean {
    const expected = Buffer.from(`Basic ${Buffer.from(`mount:${this.#place.secret}`).toString('base64')}`);
    const given = Buffer.from(request.headers['proxy-authorization'] ?? '');
    return given.length === expected.length && timingSafeEqual(given, expected);
  }

  /** HTTPS: bytes pass unread. */
  async #tunnel(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    const refuse = (status: string): void => void socket.end(`HTTP/1.1 ${status}\r\nconnection: close\r\n\r\n`);
    if (!this.#isOurs(request)) return refuse('407 Proxy Authentication Required');
    const url = URL.parse(`https://${request.url ?? ''}`);
    if (url === null) return refuse('400 Bad Request');
    let upstream: Socket;
    try {
      upstream = await dial(await this.addressOf(url.hostname), Number(url.port || 443));
    } catch (error) {
      return refuse(error instanceof ClosedAddress ? '403 Forbidden' : '502 Bad Gateway');
    }
    this.#track(upstream);
    socket.once('close', () => upstream.destroy());
    upstream.once('close', () => socket.destroy());
    upstream.setTimeout(IDLE_MS, () => upstream.destroy());
    socket.write('HTTP/1.1 200 Connection Established\r\n\r\n');
    upstream.write(head);
    upstream.pipe(socket).pipe(upstream);
  }

  /** Plain HTTP: the request names the whole URL. */
  async #forward(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const refuse = (status: number): void => {
      if (response.headersSent) return void response.destroy();
      response.writeHead(status, { connection: 'close' }).end();
    };
    if (!this.#isOurs(request)) return refuse(407);
    const url = URL.parse(request.url ?? '');
    if (url?.protocol !== 'http:') return refuse(400);
    // The path goes on as it was signed: a parsed one may be spelled differently.
    const path = (request.url ?? '').replace(/^http:\/\/[^/?#]*/i, '') || '/';
    try {
      const host = await this.addressOf(url.hostname);
      const passed = request.rawHeaders.flatMap((name, at, all) =>
        at % 2 === 1 || HOP.has(name.toLowerCase()) ? [] : [[name, all[at + 1] ?? ''] as const],
      );
      const upstream = sendRequest({
        host,
        port: Number(url.port || 80),
        method: request.method,
        path,
        headers: Object.fromEntries(passed),
        setHost: false,
        agent: this.#agent,
        timeout: IDLE_MS,
      });
      upstream.on('timeout', () => upstream.destroy(new Error('no answer')));
      let isAnswered = false;
      upstream.on('error', () => {
        if (!isAnswered) refuse(502);
      });
      response.on('close', () => upstream.destroy());
      upstream.on('response', (answer) => {
        isAnswered = true;
        answer.on('error', () => response.destroy());
        const headers = answer.rawHeaders.flatMap((name, at, all) =>
          at % 2 === 1 || HOP.has(name.toLowerCase()) ? [] : [name, all[at + 1] ?? ''],
        );
        response.writeHead(answer.statusCode ?? 502, headers);
        if (request.method === 'HEAD') response.end();
        else answer.pipe(response);
      });
      request.pipe(upstream);
    } catch (error) {
      refuse(error instanceof ClosedAddress ? 403 : 502);
    }
  }
}

async function resolve(host: string): Promise<readonly string[]> {
  const late = (): Error => new Error(`${host} was not resolved in time`);
  return (await withDeadline(lookup(host, { all: true }), LOOKUP_MS, late)).map(({ address }) => address);
}

function dial(host: string, port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, timeout: CONNECT_MS });
    const fail = (error: Error): void => {
      socket.destroy();
      reject(error);
    };
    socket.once('error', fail);
    socket.once('timeout', () => fail(new Error('no connection')));
    socket.once('connect', () => {
      socket.removeListener('error', fail);
      socket.setTimeout(0);
      resolve(socket);
    });
  });
}
