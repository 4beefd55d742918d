// The origin of URLs given to a caller: the configured one, else the name that the caller used, else the address that
// the server listens on. The name of the console alone is never one: nothing else answers there.
import type { FastifyRequest } from 'fastify';
import { actorOf, bounded } from '../../workspaces/events/audit.ts';
import type { Actor, RequestFacts } from '../../workspaces/events/audit.ts';
import type { Caller } from '../../workspaces/identity/caller.ts';
import type { Origin } from '../operations/operation.ts';
import { isLoopback, tokenOf } from './auth.ts';

/** A host name or address with an optional port; any other value of `Host` is not repeated to a caller. */
const HOST = /^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?$/;

export function originReader(settings: {
  /** `LONGSHORE_EXTERNAL_URL` */
  readonly externalUrl: string | null;
  readonly listenUrl: () => string | null;
  readonly scheme: 'http' | 'https';
  readonly trustsLoopback: boolean;
  /** Whether a host is the console's alone. */
  readonly isConsole?: (request: FastifyRequest) => boolean;
}): (request: FastifyRequest) => Origin {
  const external = settings.externalUrl?.replace(/\/+$/, '') ?? null;
  return (request) => {
    const { host } = request.headers;
    const isNamed = host !== undefined && HOST.test(host) && settings.isConsole?.(request) !== true;
    const named = isNamed ? `${settings.scheme}://${host}` : null;
    return {
      baseUrl: external ?? named ?? settings.listenUrl() ?? 'http://127.0.0.1:1994',
      loopback: settings.trustsLoopback && isLoopback(request),
      bearer: tokenOf(request.headers.authorization),
      from: factsOf(request),
    };
  };
}

/** Where a request came from. The address is the proxy's word where `LONGSHORE_TRUSTED_PROXIES` names the proxy. */
export const factsOf = ({ ip, id, headers }: Pick<FastifyRequest, 'ip' | 'id' | 'headers'>): RequestFacts => ({
  remoteAddress: ip,
  userAgent: bounded(headers['user-agent'] ?? ''),
  requestId: id,
});

/** The sender of a request, for the audit trail. */
export const actorBehind = ({ caller, http }: { readonly caller: Caller; readonly http: FastifyRequest }): Actor =>
  actorOf(caller, factsOf(http));
