// The target of a request in each form of HTTP/1.1, as everything behind a server reads it. Pure.
// Source: RFC 9112 §3.2.
// Invariant: the path that is checked is the path that is routed. The scheduler's router reads `http://x/a` as `/a`,
// and does not look at the first character of any other target.

export type RequestTarget =
  /** `host`: that of an absolute target, which counts in place of `Host`; undefined: the target is a path. */
  | { readonly kind: 'path'; readonly path: string; readonly host?: string }
  /** `OPTIONS *` asks about the server, and not about anything on it. */
  | { readonly kind: 'server' }
  /** No target of a server that is no proxy. */
  | { readonly kind: 'none' };

const ABSOLUTE = /^https?:\/\/([^/?#]*)([^]*)$/i;
/** A host and a port. A name of a user before them is refused: RFC 9110 §4.2.4. */
const AUTHORITY = /^(?:\[[\da-f:.]+\]|[\w.~!$&'()*+,;=%-]+)(?::\d*)?$/i;

/** Reads a target. The paths of absolute ones keep their bytes. */
export function readTarget(method: string | undefined, target: string): RequestTarget {
  // A tunnel names a host and a port.
  if (method === 'CONNECT') return { kind: 'none' };
  if (target.startsWith('/')) return { kind: 'path', path: target };
  if (target === '*') return { kind: method === 'OPTIONS' ? 'server' : 'none' };
  const [, host = '', rest = ''] = ABSOLUTE.exec(target) ?? [];
  if (!AUTHORITY.test(host)) return { kind: 'none' };
  // A request for options of an absolute target without a path is one for `*`: RFC 9112 §3.2.4.
  if (method === 'OPTIONS' && rest === '') return { kind: 'server' };
  return { kind: 'path', path: rest.startsWith('/') ? rest : `/${rest}`, host };
}
