// The host of a request with an absolute target, as for a proxy. Source: RFC 9112 §3.2.2: the target’s host counts, and
// the header `Host` is as if the target's host stood in it. So whoever reads the header, the platform or an application
// in a container, sees the one host by which the request was routed.
import type { IncomingMessage } from 'node:http';

/** A path that no route has. */
export const NOWHERE = '/~';

/** Replaces the host of a request. A second `Host` stays, and is refused where requests are passed on. */
export function hostIs(request: IncomingMessage, host: string): void {
  // Reads the headers before the raw ones change.
  request.headers.host = host;
  const at = request.rawHeaders.findIndex((name, index) => index % 2 === 0 && name.toLowerCase() === 'host');
  if (at < 0) request.rawHeaders.unshift('Host', host);
  else request.rawHeaders[at + 1] = host;
}
