/**
 * Requests of one pull: the registry, its token server, and where they redirect. Must stay true: every address is
 * checked, and the checked address is the one that is dialled; a redirect to another origin loses the credentials.
 */
import type { LookupAddress } from 'node:dns';
import type { Agent, IncomingMessage, RequestOptions } from 'node:http';
import { isIP } from 'node:net';
import type { Socket } from 'node:net';
import type { SecureContext } from 'node:tls';
import { connect as connectTls } from 'node:tls';
import { checkedLookup } from '#shared/checked-lookup.ts';
import { invalid, RegistryError, registryErrorOf } from './registry-error.ts';

// Node's exports of HTTP, imported by name, would load its `fetch`.
const { Agent: PlainAgent, request: requestPlain } = process.getBuiltinModule('node:http');
const { Agent: TlsAgent, request: requestTls } = process.getBuiltinModule('node:https');

/** Time from a request to the head of its answer. */
const HEAD_MS = 30_000;
const MOST_REDIRECTS = 5;
const MOST_HEADER_BYTES = 32 * 1024;
const AT_ONCE = 16;
const REDIRECTS: readonly number[] = [301, 302, 303, 307, 308];

export interface Target {
  readonly host: string;
  readonly port: number;
  readonly isTls: boolean;
}

/** How a host is reached. */
export interface Route {
  /** Checked addresses; none: the engine's proxy resolves the name. */
  readonly addresses: readonly LookupAddress[];
  /** Opens a connection through the engine's proxy; absent: the addresses are dialled. */
  readonly tunnel?: (() => Promise<Socket>) | undefined;
}

export interface RequestsParts {
  /** The registry, for errors. */
  readonly registry: string;
  /**
   * @param ledBy - address of the server whose redirect or challenge names the host, empty when a proxy hides that
   * address; undefined: the host is the registry's own
   * @throws AppError when an address of the host is closed
   */
  readonly routeTo: (to: Target, ledBy: string | undefined) => Promise<Route>;
  /** Authorities that the engine trusts for the registry, and its own certificate there. */
  readonly trust: SecureContext;
  /** Plain HTTP, and certificates of any authority: the engine's settings name the registry as insecure. */
  readonly isInsecure: boolean;
  /** A connection without a byte for so long ends. */
  readonly silenceMs: number;
  readonly signal: AbortSignal;
}

/** An answer's head, and who sent it. */
export interface Answered {
  readonly answer: IncomingMessage;
  /** Empty: a proxy hides the address. */
  readonly address: string;
  /** No redirect led to another origin than the one that was asked. */
  readonly isOwn: boolean;
}

export interface Asked {
  readonly method: 'GET' | 'HEAD' | 'POST';
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** Who leads to an address; nobody: it is the registry's own. */
export interface LedBy {
  /** For errors. */
  readonly who?: string;
  readonly ledBy?: string;
}

export class Requests {
  readonly #parts: RequestsParts;
  readonly #agents: readonly [Agent, Agent];

  constructor(parts: RequestsParts) {
    this.#parts = parts;
    const kept = { keepAlive: true, maxSockets: AT_ONCE, maxFreeSockets: AT_ONCE, timeout: parts.silenceMs };
    this.#agents = [new PlainAgent(kept), new TlsAgent({ ...kept, maxCachedSessions: 0 })];
  }

  close(): void {
    for (const agent of this.#agents) agent.destroy();
  }

  /**
   * Sends a request, and follows redirects.
   * @returns the answer's head; nothing of its body is read
   * @throws RegistryError; AppError for a closed address
   */
  async send(url: URL, asked: Asked, first: LedBy = {}): Promise<Answered> {
    let to = url;
    let led = first;
    let { headers } = asked;
    let isOwn = true;
    for (let redirects = 0; ; redirects += 1) {
      const answered = await this.#once(to, { ...asked, headers }, led);
      const { statusCode = 0, headers: said } = answered.answer;
      if (!REDIRECTS.includes(statusCode) || said.location === undefined) return { ...answered, isOwn };
      answered.answer.destroy();
      if (asked.method === 'POST') throw invalid('its token server redirects');
      if (redirects === MOST_REDIRECTS) throw invalid(`it redirects more than ${MOST_REDIRECTS} times`);
      const next = URL.parse(said.location, to.href);
      if (next === null) throw invalid('it redirects to no address');
      // Credentials are for the host that asked for them.
      if (next.origin !== to.origin) {
        isOwn = false;
        const { authorization: _left, ...others } = headers as Record<string, string>;
        headers = others;
      }
      to = next;
      led = { who: 'a redirect', ledBy: answered.address };
    }
  }

  /** The whole body of an answer. @param why - the error's words about a larger one */
  async read(answer: IncomingMessage, mostBytes: number, why: string): Promise<Buffer> {
    const parts: Buffer[] = [];
    let bytes = 0;
    try {
      for await (const part of answer as AsyncIterable<Buffer>) {
        bytes += part.length;
        if (bytes > mostBytes) throw invalid(why);
        parts.push(part);
      }
    } catch (error) {
      throw registryErrorOf(error, this.#parts.registry);
    }
    return Buffer.concat(parts);
  }

  async #once(url: URL, { method, headers, body }: Asked, { who, ledBy }: LedBy): Promise<Omit<Answered, 'isOwn'>> {
    const { registry, isInsecure, routeTo, trust, silenceMs } = this.#parts;
    const isTls = url.protocol === 'https:';
    if (!isTls && !(url.protocol === 'http:' && isInsecure))
      throw invalid(`${who ?? 'it'} leads to an address that is not https`);
    if (url.username !== '' || url.password !== '') throw invalid(`${who ?? 'it'} leads to an address with a user`);
    const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
    const port = Number(url.port || (isTls ? 443 : 80));
    const shown = who ?? registry;
    const { addresses, tunnel } = await routeTo({ host, port, isTls }, ledBy).catch((error: unknown) => {
      throw registryErrorOf(error, shown);
    });
    const tls = isTls
      ? { secureContext: trust, rejectUnauthorized: !isInsecure, ...(isIP(host) === 0 ? { servername: host } : {}) }
      : {};
    const socket = await tunnel?.().catch((error: unknown) => {
      throw new RegistryError(`proxyconnect tcp: ${error instanceof Error ? error.message : ''}`, 502, {
        cause: error,
      });
    });
    const connection: RequestOptions =
      socket === undefined
        ? { agent: this.#agents[isTls ? 1 : 0], lookup: checkedLookup(addresses, noSuchHost) }
        : { createConnection: () => (isTls ? connectTls({ socket, ...tls, host }) : socket) };
    const options: RequestOptions = {
      host,
      port,
      method,
      path: `${url.pathname}${url.search}`,
      headers: {
        ...headers,
        'user-agent': 'longshore',
        ...(body === undefined ? {} : { 'content-length': Buffer.byteLength(body) }),
      },
      maxHeaderSize: MOST_HEADER_BYTES,
      timeout: silenceMs,
      ...tls,
      ...connection,
    };
    const answer = await this.#answerTo(options, isTls, body, shown);
    return { answer, address: socket === undefined ? (answer.socket.remoteAddress ?? '') : '' };
  }

  async #answerTo(
    options: RequestOptions,
    isTls: boolean,
    body: string | undefined,
    shown: string,
  ): Promise<IncomingMessage> {
    const { signal } = this.#parts;
    return await new Promise<IncomingMessage>((resolve, reject) => {
      const request = (isTls ? requestTls : requestPlain)(options);
      const end = (error: Error): void => {
        reject(registryErrorOf(error, shown));
        request.destroy(error);
      };
      const timeout = (): Error => Object.assign(new Error('late'), { code: 'ETIMEDOUT' });
      const onAbort = (): void => end(timeout());
      const late = setTimeout(onAbort, HEAD_MS);
      const settle = (): void => {
        clearTimeout(late);
        signal.removeEventListener('abort', onAbort);
      };
      request.on('timeout', onAbort);
      request.on('error', (error) => {
        settle();
        end(error);
      });
      request.on('close', settle);
      request.on('response', (answer) => {
        clearTimeout(late);
        // A body that is not read to its end may fail after its reader has gone.
        answer.on('error', () => undefined);
        resolve(answer);
      });
      signal.addEventListener('abort', onAbort, { once: true });
      if (signal.aborted) onAbort();
      else request.end(body);
    });
  }
}

const noSuchHost = (host: string): Error => Object.assign(new Error(`${host}: no such host`), { code: 'ENOTFOUND' });
