// The guard before every address that a caller gave us to send to: a name is resolved when it is dialled, and only addresses that the rules permit are dialled, so that a name that changes its mind
// between a check and the connection gains nothing. A literal address is refused when it is given, too.
import { lookup } from 'node:dns';
import type { LookupAddress, LookupOptions } from 'node:dns';
import { isIP } from 'node:net';
import type { Socket } from 'node:net';
import { buildConnector } from 'undici';
import type { AddressRules } from './addresses.ts';
import { Places } from './places.ts';

/** No address of that host may be dialled. */
export class BlockedAddressError extends Error {
  constructor(host: string) {
    super(`${host} is not an address that messages may be sent to`);
    this.name = 'BlockedAddressError';
  }
}

const MAX_URL = 2048;
const CONNECT_MS = 10_000;
/** The system's resolver takes a thread of the process for as long as it waits, and there are four for everything: never all of them. */
const LOOKUPS_AT_ONCE = 2;

/** Why nothing can be sent to that URL, to be put behind the name of the field; undefined: it may be tried. */
export function urlProblem(text: string, rules: AddressRules): string | undefined {
  const url = text.length > MAX_URL ? null : URL.parse(text);
  if (text.length > MAX_URL) return `must have at most ${MAX_URL} characters`;
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:')) return 'must be an http or https URL';
  if (url.username !== '' || url.password !== '') return 'must not carry a user name or a password';
  const host = withoutBrackets(url.hostname);
  if (isIP(host) !== 0 && !rules.permits(host)) {
    return `must not name the address ${host}: loopback, private and reserved networks are refused unless LONGSHORE_WEBHOOK_ALLOW names them`;
  }
  return undefined;
}

/** Connects for undici, to permitted addresses alone. */
export function guardedConnector(rules: AddressRules): buildConnector.connector {
  const places = new Places(LOOKUPS_AT_ONCE);
  const connect = buildConnector({
    timeout: CONNECT_MS,
    allowH2: false,
    maxCachedSessions: 0,
    // `lookup` is passed on to net.connect.
    ...{ lookup: permittedLookup(rules, places) },
  });
  return (options, callback) => {
    const host = withoutBrackets(options.hostname);
    // A literal address is dialled without a look-up.
    if (isIP(host) !== 0 && !rules.permits(host)) return callback(new BlockedAddressError(host), null);
    connect(options, (...answer) => {
      // Its types say null where it leaves it out.
      const socket: Socket | null | undefined = answer[1];
      if (socket !== null && socket !== undefined && !rules.permits(socket.remoteAddress ?? '')) {
        socket.destroy();
        return callback(new BlockedAddressError(host), null);
      }
      return callback(...answer);
    });
  };
}

type Found = (error: Error | null, address: string | LookupAddress[], family?: number) => void;

function permittedLookup(rules: AddressRules, places: Places) {
  return (host: string, options: LookupOptions, found: Found): void => {
    places.take(CONNECT_MS).then(
      (leave) =>
        lookup(host, { ...options, all: true }, (error, addresses) => {
          leave();
          if (error !== null) return found(error, []);
          const permitted = addresses.filter(({ address }) => rules.permits(address));
          const [first] = permitted;
          if (first === undefined) return found(new BlockedAddressError(host), []);
          return options.all === true ? found(null, permitted) : found(null, first.address, first.family);
        }),
      (error: Error) => found(error, []),
    );
  };
}

const withoutBrackets = (host: string): string => host.replace(/^\[(.*)\]$/, '$1');
