// The credential of an invocation: a header, a query parameter, or, in the host form, a cookie for browsers. A browser
// cannot send `Authorization` with a page, so `?auth_token=` on one becomes a cookie of that host alone.
// Invariant: a cookie is used for pages of its own origin only, and never for kinds with a JSON body. Source: decision
// 0136.
import type { FastifyReply, FastifyRequest } from 'fastify';
import { tokenOf } from '../auth.ts';
import { cookieOf, queryWithout, splitTarget } from '../streams/head.ts';
import { PLAIN_COOKIE, SEALED_COOKIE } from './own-cookies.ts';

/** Query parameter with a caller's token. */
export const TOKEN_QUERY = 'auth_token';

const cookieNameOf = ({ protocol }: FastifyRequest): string => (protocol === 'https' ? SEALED_COOKIE : PLAIN_COOKIE);

export interface Credential {
  readonly token: string | null;
  readonly from: 'header' | 'query' | 'cookie' | 'nowhere';
}

/** @param isHost - the URL is in the host form */
export function credentialOf(request: FastifyRequest, isHost: boolean): Credential {
  const inHeader = tokenOf(request.headers.authorization);
  if (inHeader !== null) return { token: inHeader, from: 'header' };
  const inQuery = tokenOf(undefined, request.query as Readonly<Record<string, unknown>>);
  if (inQuery !== null) return { token: inQuery, from: 'query' };
  const inCookie = isHost ? cookieOf(request.headers.cookie, cookieNameOf(request)) : undefined;
  if (inCookie !== undefined && inCookie !== '') return { token: inCookie, from: 'cookie' };
  return { token: null, from: 'nowhere' };
}

/**
 * Whether a page of another origin may have made the request. Other tenants' pages are on hosts of the same site, so
 * `SameSite` does not keep them out. Browsers tell the origin with HTTPS and on localhost only: elsewhere a request
 * that does not tell counts as foreign.
 */
export function isForeign({ headers, method, host, protocol }: FastifyRequest): boolean {
  const { origin } = headers;
  if (origin !== undefined) {
    const from = URL.parse(origin);
    // Anybody on the way can write a page in clear. A proxy that ends TLS may not say so, hence not the reverse.
    return from?.host !== host.toLowerCase() || (protocol === 'https' && from.protocol !== 'https:');
  }
  const site = headers['sec-fetch-site'];
  if (site === 'same-origin' || site === 'none') return false;
  // A link from elsewhere may lead here, but a page from elsewhere may not show this one in a frame.
  const isLink = headers['sec-fetch-mode'] === 'navigate' && headers['sec-fetch-dest'] === 'document';
  return !(isLink && (method === 'GET' || method === 'HEAD'));
}

/** Whether a browser asks for a page. */
export const isPage = ({ method, headers }: FastifyRequest): boolean =>
  (method === 'GET' || method === 'HEAD') &&
  headers.upgrade === undefined &&
  (headers.accept ?? '').toLowerCase().includes('text/html');

/** Keeps the token in a cookie, and leads the browser to the same page without it. */
export function redirectWithCookie(token: string, request: FastifyRequest, reply: FastifyReply): void {
  const { path, query } = splitTarget(request.originalUrl);
  const left = queryWithout(query, TOKEN_QUERY);
  const secure = request.protocol === 'https' ? '; Secure' : '';
  void reply
    .code(303)
    .header('set-cookie', `${cookieNameOf(request)}=${token}; Path=/; HttpOnly; SameSite=Lax${secure}`)
    .header('cache-control', 'no-store')
    .header('referrer-policy', 'no-referrer')
    // With two leading slashes it would name another host; browsers read a backslash as a slash.
    .header('location', `${path.replace(/^[/\\]+/, '/')}${left === '' ? '' : `?${left}`}`)
    .send();
}
