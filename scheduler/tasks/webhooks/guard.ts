// Guard for addresses that a caller asks us to send to. A name is resolved before each
// message, and only a checked address is dialled. So a name that changes between check
// and connection gains nothing. A literal address is also refused when it is given.
import type { LookupAddress } from 'node:dns';
import { isIP } from 'node:net';
import type { Socket } from 'node:net';
import { buildConnector } from 'undici';
import { checkedLookup } from '#shared/checked-lookup.ts';
import type { DialRules } from './open-networks.ts';

/** Error when no address of the host may be dialled. */
export class BlockedAddressError extends Error {
  constructor(host: string) {
    super(`${host} is not an address that messages may be sent to`);
    this.name = 'BlockedAddressError';
  }
}

const MAX_URL = 2048;
const CONNECT_MS = 10_000;

/** Characters that URL.parse drops or rewrites: the stored URL would differ from the dialled one. */
// oxlint-disable-next-line no-control-regex
const NOT_IN_A_URL = /[\u0000-\u0020\u007f]/;

/** Reason why nothing can be sent to that URL, to follow the name of the field; undefined: it may be tried. */
export function urlProblem(text: string, rules: DialRules): string | undefined {
  const url = text.length > MAX_URL ? null : URL.parse(text);
  if (text.length > MAX_URL) return `must have at most ${MAX_URL} characters`;
  if (NOT_IN_A_URL.test(text) || !text.isWellFormed()) {
    return 'must not hold spaces, control characters or halves of surrogate pairs';
  }
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:')) return 'must be an http or https URL';
  if (url.username !== '' || url.password !== '') return 'must not carry a user name or a password';
  const host = withoutBrackets(url.hostname);
  if (isIP(host) === 0 || rules.permits(host, portOf(url))) return undefined;
  if (rules.closes?.(host, portOf(url)) === true)
    return `must not name port ${portOf(url)} of ${host}: Longshore's own services and stores stay closed`;
  return `must not name the address ${host}: loopback, private and reserved networks are refused unless the administrator allows them, by LONGSHORE_WEBHOOK_ALLOW or \`longshore settings set webhook_allow\``;
}

const portOf = ({ port, protocol }: URL): number => (port === '' ? (protocol === 'https:' ? 443 : 80) : Number(port));

/**
 * Addresses that may be dialled for the URL's host.
 * @param find - resolves a name
 * @throws BlockedAddressError; any error of `find`
 */
export async function permittedAddresses(
  url: string,
  rules: DialRules,
  find: (host: string) => Promise<readonly LookupAddress[]>,
): Promise<readonly LookupAddress[]> {
  const parsed = new URL(url);
  const host = withoutBrackets(parsed.hostname);
  // A literal address is dialled without a look-up.
  const family = isIP(host);
  const addresses = family === 0 ? await find(host) : [{ address: host, family }];
  const permitted = addresses.filter(({ address }) => rules.permits(address, portOf(parsed)));
  if (permitted.length === 0) throw new BlockedAddressError(host);
  return permitted;
}

/** Connector for undici that dials those addresses alone. */
export function guardedConnector(permitted: readonly LookupAddress[], rules: DialRules): buildConnector.connector {
  const connect = buildConnector({
    // The timeout starts here, because the look-up is over.
    timeout: CONNECT_MS,
    allowH2: false,
    maxCachedSessions: 0,
    // The connector passes `lookup` on to net.connect.
    ...{ lookup: checkedLookup(permitted, (host) => new BlockedAddressError(host)) },
  });
  return (options, callback) => {
    connect(options, (...answer) => {
      // Undici's types say null where it leaves the socket out.
      const socket: Socket | null | undefined = answer[1];
      if (
        socket !== null &&
        socket !== undefined &&
        !rules.permits(socket.remoteAddress ?? '', socket.remotePort ?? 0)
      ) {
        socket.destroy();
        return callback(new BlockedAddressError(options.hostname), null);
      }
      return callback(...answer);
    });
  };
}

const withoutBrackets = (host: string): string => host.replace(/^\[(.*)\]$/, '$1');
