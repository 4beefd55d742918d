// The target of a request as everything behind the server reads it: a path. Pure. Source: RFC 9112 §3.2.
// Invariant: the path that is checked is the path that is routed. The router reads `http://x/a` as `/a`, and does not
// look at the first character of any other target.

/** A path that no route has. */
export const NOWHERE = '/~';

/** A port that an authority may leave out. */
const DEFAULT_PORT = /:(?:80|443)?$/;

/**
 * The path and query of a target. An absolute target, as for a proxy, counts where it names the same host as `Host`.
 * @returns undefined: the target is no path, or two hosts are meant
 */
export function pathOfTarget(target: string, host: string | undefined): string | undefined {
  if (target.startsWith('/')) return target;
  const [, authority = '', rest = ''] = /^https?:\/\/([^/?#]*)([^]*)$/i.exec(target) ?? [];
  const same = (text: string): string => text.toLowerCase().replace(DEFAULT_PORT, '');
  if (authority === '' || same(authority) !== same(host ?? '')) return undefined;
  return rest.startsWith('/') ? rest : `/${rest}`;
}
