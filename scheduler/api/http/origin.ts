// The origin of URLs given to a caller: the configured one, else the name
// that the caller used, else the address that the server listens on.
import type { FastifyRequest } from 'fastify';
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
}): (request: FastifyRequest) => Origin {
  const external = settings.externalUrl?.replace(/\/+$/, '') ?? null;
  return (request) => {
    const { host } = request.headers;
    const named = host !== undefined && HOST.test(host) ? `${settings.scheme}://${host}` : null;
    return {
      baseUrl: external ?? named ?? settings.listenUrl() ?? 'http://127.0.0.1:1994',
      loopback: settings.trustsLoopback && isLoopback(request),
      bearer: tokenOf(request.headers.authorization),
    };
  };
}
