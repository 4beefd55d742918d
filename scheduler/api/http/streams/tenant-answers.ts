// Headers by which a tenant's answer may reach a browser. In the path form all applications share the scheduler's
// origin. So their answers are sandboxed there, and headers that a browser would apply to the whole origin stay behind.
// In the host form an application has an origin of its own, and only what reaches beyond that host stays behind. Pure.
// Invariant: heads, acceptances of upgrades and trailers all pass through here. Source: decision 0300.
import { isOwnCookie } from '../invoke/own-cookies.ts';
import type { HeaderList } from './head.ts';

/** Policy of every answer in the path form: the page has no origin, so no storage, no cookies and no workers. */
export const SANDBOX = 'sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads';

/** Headers that a browser keeps for an origin or a whole host, or that reach beyond the page that they come with. */
const OF_THE_ORIGIN: ReadonlySet<string> = new Set([
  'accept-ch',
  'accept-ch-lifetime',
  'activate-storage-access',
  'alt-svc',
  'clear-site-data',
  'critical-ch',
  // A browser takes a sandboxed page with another value than unsafe-none for a network error.
  'cross-origin-opener-policy',
  'expect-ct',
  'idp-signin-status',
  'nel',
  'observe-browsing-topics',
  'origin-agent-cluster',
  'origin-isolation',
  'origin-policy',
  'public-key-pins',
  'public-key-pins-report-only',
  'report-to',
  'reporting-endpoints',
  'sec-session-challenge',
  'sec-session-registration',
  'secure-session-challenge',
  'secure-session-registration',
  'service-worker-allowed',
  'set-login',
  'shared-storage-write',
  'speculation-rules',
  'strict-transport-security',
  'use-as-dictionary',
]);
/** Families of such headers. */
const FAMILIES = /^(?:attribution-reporting-|ad-auction-)/;

/**
 * Headers of an answer, or its trailers, as a browser may have them.
 * @param rootPath - the part of the path that names the application; empty: the host form
 */
export function withinReach(headers: HeaderList, rootPath: string): HeaderList {
  const isHost = rootPath === '';
  return headers.flatMap(([sent, value]): [string, string][] => {
    const name = sent.toLowerCase();
    if (name === 'set-cookie2') return [];
    if (name === 'set-cookie') {
      const cookie = cookieOfHost(value, isHost ? undefined : cookiePathOf(rootPath));
      return cookie === undefined ? [] : [[sent, cookie]];
    }
    if (!isHost) return OF_THE_ORIGIN.has(name) || FAMILIES.test(name) ? [] : [[sent, value]];
    if (name !== 'clear-site-data') return [[sent, value]];
    const cleared = withoutSharedData(value);
    return cleared === '' ? [] : [[sent, cleared]];
  });
}

/** The headers of an answer. In the path form the sandbox stands beside a policy of the application. */
export const answerHeaders = (headers: HeaderList, rootPath: string): HeaderList =>
  rootPath === ''
    ? withinReach(headers, rootPath)
    : [['content-security-policy', SANDBOX], ...withinReach(headers, rootPath)];

/**
 * A cookie that belongs to the host that was called, or to a path of it; undefined: it may not be set.
 * Source: RFC 6265bis §5.6, which names attributes without regard to case, and takes the last of each.
 * @param path - the only path of the cookie; undefined: any
 */
function cookieOfHost(text: string, path: string | undefined): string | undefined {
  const [pair = '', ...attributes] = text.split(';');
  const at = pair.indexOf('=');
  const name = (at < 0 ? '' : pair.slice(0, at)).trim();
  // A browser sends a cookie without a name as its value alone, which may read as another cookie's name.
  if (at >= 0 && (name === '' || isOwnCookie(name))) return undefined;
  const kept = attributes.filter((attribute) => {
    const word = (attribute.split('=', 1)[0] ?? '').trim().toLowerCase();
    return word !== 'domain' && (path === undefined || word !== 'path');
  });
  return [pair, ...kept, ...(path === undefined ? [] : [` Path=${path}`])].join(';');
}

/** A path as an attribute of a cookie: a semicolon would end the attribute. */
export const cookiePathOf = (path: string): string =>
  path.replace(/[^\w/%.~!$&'()*+,=:@-]/g, (character) => encodeURIComponent(character));

/** Clear-Site-Data without cookies: those of all hosts of the domain would go, too. */
function withoutSharedData(value: string): string {
  const types = value.split(',').map((type) => type.trim());
  const kept = types.flatMap((type) =>
    type === '"*"' ? ['"cache"', '"storage"'] : type === '"cookies"' ? [] : [type],
  );
  return [...new Set(kept)].filter((type) => type !== '').join(', ');
}
