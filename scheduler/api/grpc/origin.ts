// The origin of a call: where URLs that it is told begin, its credential, and where it came from.
import { bounded } from '../../workspaces/events/audit.ts';
import type { Origin } from '../operations/operation.ts';
import { isProxied, tokenOf } from '../http/auth.ts';
import { isLoopbackHost } from '../http/listen-policy.ts';
import type { CallFacts } from './wire.ts';

/** Host of an authority, without the port; an authority of another form is not repeated to a caller. */
const AUTHORITY = /^([A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?$/;
/** Clients dial these to reach their own host. */
const WILDCARDS: ReadonlySet<string> = new Set(['0.0.0.0', '[::]']);

export function callOriginReader(settings: {
  /** `LONGSHORE_EXTERNAL_URL` */
  readonly externalUrl: string | null;
  /** URL where HTTP listens, once it does. */
  readonly listenUrl: () => string | null;
  readonly trustsLoopback: boolean;
  /** A new id of a request. */
  readonly newId: () => string;
}): (facts: CallFacts) => Origin {
  const external = settings.externalUrl?.replace(/\/+$/, '') ?? null;
  // Calls of a connection dial one name, and making a URL costs more than all else here.
  let last = { listen: '', host: '', url: '' };
  const baseUrlFor = (host: string): string => {
    const listen = settings.listenUrl() ?? 'http://127.0.0.1:1994';
    if (last.host !== host || last.listen !== listen) last = { listen, host, url: httpUrl(listen, host) };
    return last.url;
  };
  return ({ host, remoteAddress, headers }) => {
    const agent = [headers['x-beta9-caller'], headers['user-agent']].filter(Boolean).join(' ');
    return {
      baseUrl: external ?? baseUrlFor(host),
      loopback: settings.trustsLoopback && isLoopbackHost(remoteAddress) && !isProxied({ headers }),
      bearer: tokenOf(headers['authorization']),
      from: { remoteAddress, userAgent: bounded(agent), requestId: settings.newId() },
    };
  };
}

/** The URL of HTTP, by the name that the caller dialled. */
function httpUrl(listenUrl: string, host: string): string {
  const name = AUTHORITY.exec(host)?.[1];
  if (name === undefined || WILDCARDS.has(name)) return listenUrl;
  const url = new URL(listenUrl);
  url.hostname = name;
  return url.origin;
}
