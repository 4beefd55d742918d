// The heads of streamed calls: what of a request reaches the container, and what of its response reaches the caller.
// Pure. Source: RFC 9110 §7.6 (headers of one connection), docs/runner-protocol.md.
import type { IncomingMessage } from 'node:http';
import { saysItIsOurs } from '../../../workspaces/identity/jwt.ts';
import { tokenOf } from '../auth.ts';

/** Names as they were sent: their case means nothing, and some clients and programs compare it all the same. */
export type HeaderList = readonly (readonly [name: string, value: string])[];

/** Headers of one connection, which a proxy keeps. */
const HOP_BY_HOP: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
]);

/** Headers that say where a request came from: the platform writes them itself. */
const FORWARDED: ReadonlySet<string> = new Set([
  'forwarded',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-port',
  'x-forwarded-prefix',
  'x-forwarded-proto',
  'x-real-ip',
]);

/** CGI and WSGI give an application the same name for `X_Forwarded_For` as for `X-Forwarded-For`. */
const isForwarded = (name: string): boolean => FORWARDED.has(name.includes('_') ? name.replaceAll('_', '-') : name);

/** Headers of a WebSocket's handshake: each side of the platform has its own. */
const HANDSHAKE: ReadonlySet<string> = new Set([
  'sec-websocket-accept',
  'sec-websocket-extensions',
  'sec-websocket-key',
  'sec-websocket-version',
]);

/** Names that `Connection` declares to belong to one connection. The length of a body never does: it was read by it. */
function declared(raw: readonly string[]): Set<string> {
  const names = new Set<string>();
  for (let at = 0; at + 1 < raw.length; at += 2) {
    if ((raw[at] ?? '').toLowerCase() !== 'connection') continue;
    for (const name of (raw[at + 1] ?? '').split(',')) names.add(name.trim().toLowerCase());
  }
  names.delete('content-length');
  return names;
}

export interface Forwarded {
  /** Addresses of the caller and of the proxies it came through. */
  readonly for: string;
  readonly host: string;
  readonly proto: string;
  /** Part of the path that names the deployment; empty in the host form. */
  readonly prefix: string;
}

export interface PlatformCredential {
  /** The request's `Authorization` is the platform's token. */
  readonly inHeader: boolean;
  /** Names of the platform's own cookies. */
  readonly cookies: readonly string[];
  /** Name of the query parameter that holds it. */
  readonly queryToken: string;
}

/**
 * Headers of a request for the container: without those of this connection, and without the platform's credential. A
 * public application gets the `Authorization` of its own users, but no token of the platform, be it valid or not.
 * @param keepsHandshake - the program answers the handshake of a WebSocket itself
 */
export function requestHeaders(
  raw: readonly string[],
  forwarded: Forwarded,
  { inHeader, cookies, queryToken }: PlatformCredential,
  keepsHandshake = false,
): HeaderList {
  const own = declared(raw);
  const passed: [string, string][] = [];
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const sent = raw[at] ?? '';
    const name = sent.toLowerCase();
    const value = raw[at + 1] ?? '';
    if (HOP_BY_HOP.has(name) || isForwarded(name) || name === 'expect' || own.has(name)) continue;
    if (HANDSHAKE.has(name) && !keepsHandshake) continue;
    if (name === 'authorization' && (inHeader || saysItIsOurs(tokenOf(value) ?? ''))) continue;
    if (name === 'referer') {
      passed.push([sent, refererWithout(value, queryToken)]);
      continue;
    }
    if (name === 'cookie') {
      const left = withoutCookies(value, cookies);
      if (left !== '') passed.push([sent, left]);
    } else passed.push([sent, value]);
  }
  passed.push(['x-forwarded-for', forwarded.for]);
  passed.push(['x-forwarded-host', forwarded.host]);
  passed.push(['x-forwarded-proto', forwarded.proto]);
  if (forwarded.prefix !== '') passed.push(['x-forwarded-prefix', forwarded.prefix]);
  return passed;
}

/** A `Cookie` header without some of its cookies. What is left keeps its bytes. */
function withoutCookies(header: string, names: readonly string[]): string {
  const parts = header.split(';');
  const kept = parts.filter((part) => {
    const text = part.trim();
    return !names.some((name) => text === name || text.startsWith(`${name}=`));
  });
  return kept.length === parts.length ? header : kept.join(';').trimStart();
}

/** The value of a cookie in a `Cookie` header; undefined: it has none. */
export function cookieOf(header: string | undefined, name: string): string | undefined {
  for (const part of (header ?? '').split(';')) {
    const text = part.trim();
    if (text.startsWith(`${name}=`)) return text.slice(name.length + 1);
  }
  return undefined;
}

/** The address of the page before, without a token in its query. */
function refererWithout(address: string, name: string): string {
  const { path, mark, query } = splitTarget(address);
  const left = queryWithout(query, name);
  return query === left ? address : `${path}${left === '' ? '' : `${mark}${left}`}`;
}

/** Splits a request's target as the router does: a number sign begins a query, too. */
export function splitTarget(target: string): {
  readonly path: string;
  /** The sign between both; empty: there is no query. */
  readonly mark: string;
  readonly query: string;
} {
  const at = target.search(/[#?]/);
  if (at < 0) return { path: target, mark: '', query: '' };
  return { path: target.slice(0, at), mark: target.charAt(at), query: target.slice(at + 1) };
}

/** A query without some of its parameters, otherwise as it was sent. */
export function queryWithout(query: string, name: string): string {
  // A name may be escaped.
  if (!query.includes(name) && !query.includes('%')) return query;
  return query
    .split('&')
    .filter((pair) => decoded(pair.split('=', 1)[0] ?? '') !== name)
    .join('&');
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return text;
  }
}

export interface ResponseHead {
  readonly status: number;
  readonly headers: HeaderList;
  readonly trailers: boolean;
  /** Content-Length; undefined: none. */
  readonly length: number | undefined;
}

/** The acceptance of a WebSocket. */
export interface Acceptance {
  readonly accept: true;
  readonly subprotocol: string | null;
  readonly headers: HeaderList;
}

const TOKEN = /^[\w!#$%&'*+.^`|~-]+$/;
/** Characters that a header's value may not have: those that end it, and those that no client reads. */
// oxlint-disable-next-line no-control-regex
const BAD_VALUE = /[^\t\x20-\x7e\x80-\xff]/;

/** Reads the head of a response. @returns undefined: the container sent none that can be passed on */
export function responseHead(body: Uint8Array): ResponseHead | Acceptance | undefined {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString('utf8'));
  } catch {
    return undefined;
  }
  if (typeof value !== 'object' || value === null) return undefined;
  const head = value as Readonly<Record<string, unknown>>;
  const headers = headerList(head['headers']);
  if (headers === undefined) return undefined;
  if (head['accept'] === true) {
    const { subprotocol } = head;
    const chosen = typeof subprotocol === 'string' ? subprotocol : null;
    if (chosen !== null && !TOKEN.test(chosen)) return undefined;
    return { accept: true, subprotocol: chosen, headers: headers.filter(isOfAcceptance) };
  }
  const { status } = head;
  if (typeof status !== 'number' || !Number.isInteger(status) || status < 200 || status > 999) return undefined;
  const lengths = new Set(headers.filter(isLength).map(([, text]) => text.trim()));
  const [text] = lengths;
  if (lengths.size > 1 || (text !== undefined && !/^[0-9]{1,15}$/.test(text))) return undefined;
  return {
    status,
    // 204 has none. Source: RFC 9110 §8.6.
    headers: headers.filter(
      (header, at) => !isLength(header) || (status !== 204 && headers.findIndex(isLength) === at),
    ),
    trailers: head['trailers'] === true,
    length: text === undefined ? undefined : Number(text),
  };
}

/** 101 has no length. Source: RFC 9110 §8.6. */
const isOfAcceptance = (header: HeaderList[number]): boolean =>
  !HANDSHAKE.has(header[0].toLowerCase()) && !isLength(header);

const isLength = ([name]: HeaderList[number]): boolean => name.toLowerCase() === 'content-length';

/** Reads a list of headers without those of one connection; undefined: not such a list. */
export function headerList(value: unknown): HeaderList | undefined {
  if (!Array.isArray(value)) return undefined;
  const passed: [string, string][] = [];
  const own = new Set<string>();
  for (const pair of value as readonly unknown[]) {
    if (!Array.isArray(pair) || typeof pair[0] !== 'string' || typeof pair[1] !== 'string') return undefined;
    const [sent, text] = [pair[0], pair[1]];
    const name = sent.toLowerCase();
    if (!TOKEN.test(name) || BAD_VALUE.test(text)) return undefined;
    if (name === 'connection') for (const one of text.split(',')) own.add(one.trim().toLowerCase());
    if (!HOP_BY_HOP.has(name)) passed.push([sent, text]);
  }
  return passed.filter(([name]) => !own.has(name.toLowerCase()));
}

/** Whether the request has a body, or may have one. */
export const hasBody = ({ headers }: Pick<IncomingMessage, 'headers'>): boolean =>
  headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0';

/** Whether the body is coded otherwise than in chunks: only the chunks are read here. */
export const isCoded = ({ headers }: Pick<IncomingMessage, 'headers'>): boolean => {
  const coding = headers['transfer-encoding'];
  return coding !== undefined && coding.trim().toLowerCase() !== 'chunked';
};

/** Whether the caller sends its body only after `100 Continue`. */
export const waitsForContinue = (request: Pick<IncomingMessage, 'headers'>): boolean =>
  request.headers.expect !== undefined && hasBody(request);
