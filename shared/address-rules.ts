// Addresses that a workspace may have dialled, by a webhook, a mount of a bucket, or a pull of an image: those of the
// public Internet, and those that the operator named. Plain data in, an answer out; every address is checked before it
// is dialled.
import ipaddr from 'ipaddr.js';
import { isIP } from 'node:net';

type Address = ipaddr.IPv4 | ipaddr.IPv6;
type Network = readonly [Address, number];

/** Addresses that are public by number, but belong to a cloud's metadata service. */
const PRIVATE_ALL_THE_SAME: readonly Network[] = [ipaddr.parseCIDR('168.63.129.16/32')];
/** Network of all addresses that IPv6 routes globally. */
const GLOBAL_UNICAST: Network = ipaddr.parseCIDR('2000::/3');
/** IPv4 addresses behind a translator. */
const TRANSLATED: Network = ipaddr.parseCIDR('64:ff9b::/96');
const LAST = [12, 13, 14, 15] as const;
/** IPv6 networks whose addresses may reach an IPv4 address, by a translator or a tunnel, and the bytes that it has. */
const EMBEDDING: readonly (readonly [Network, readonly number[]])[] = [
  [TRANSLATED, LAST],
  [ipaddr.parseCIDR('::/96'), LAST],
  [ipaddr.parseCIDR('::ffff:0:0:0/96'), LAST],
  [ipaddr.parseCIDR('2002::/16'), [2, 3, 4, 5]],
  // A translator of one's own chooses among the forms of RFC 6052.
  ...[LAST, [6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12]].map(
    (bytes) => [ipaddr.parseCIDR('64:ff9b:1::/48'), bytes] as const,
  ),
];

export class AddressRules {
  readonly #allowed: readonly Network[];

  private constructor(allowed: readonly Network[]) {
    this.#allowed = allowed;
  }

  /**
   * Reads the operator's networks.
   * @param text - networks with commas between them: `127.0.0.0/8, fd00::/8`, or single addresses
   * @returns the rules, or the first item that is no network, as written
   */
  static read(text: string): AddressRules | { readonly wrong: string } {
    const allowed: Network[] = [];
    for (const part of text.split(',').map((one) => one.trim())) {
      if (part === '') continue;
      const network = networkOf(part);
      if (network === undefined) return { wrong: part };
      allowed.push(network);
    }
    return new AddressRules(allowed);
  }

  /**
   * Whether a message may be sent to the address.
   * @param text - an address in any spelling; any other text is not permitted
   */
  permits(text: string): boolean {
    if (isIP(text) === 0) return false;
    const written = ipaddr.parse(text);
    // The address `::ffff:10.0.0.1` reaches 10.0.0.1.
    const address = ipaddr.process(text);
    return this.#isAllowed(written) || this.#isAllowed(address) || isPublic(address);
  }

  /** Whether one of the operator's networks has the address, in any spelling, or an IPv4 address inside it. */
  names(text: string): boolean {
    if (isIP(text) === 0) return false;
    const [written, address] = [ipaddr.parse(text), ipaddr.process(text)];
    return [written, address, ...embeddedIn(written)].some((one) => this.#isAllowed(one));
  }

  #isAllowed(address: Address): boolean {
    return this.#allowed.some((network) => isIn(address, network));
  }
}

function networkOf(text: string): Network | undefined {
  try {
    if (isIP(text) !== 0) return [ipaddr.parse(text), isIP(text) === 4 ? 32 : 128];
    // All four numbers are required, since `10/8` is easily misunderstood.
    return isIP(text.split('/')[0] ?? '') === 0 ? undefined : ipaddr.parseCIDR(text);
  } catch {
    return undefined;
  }
}

function isPublic(address: Address): boolean {
  if (PRIVATE_ALL_THE_SAME.some((network) => isIn(address, network))) return false;
  if (address.kind() === 'ipv4') return address.range() === 'unicast';
  if (isIn(address, TRANSLATED)) return embeddedIn(address).every(isPublic);
  return address.range() === 'unicast' && isIn(address, GLOBAL_UNICAST);
}

/** IPv4 addresses that the address may reach beside itself. */
function embeddedIn(address: Address): readonly Address[] {
  const bytes = address.toByteArray();
  return EMBEDDING.filter(([network]) => isIn(address, network)).map(([, places]) =>
    ipaddr.fromByteArray(places.map((at) => bytes[at] ?? 0)),
  );
}

const isIn = (address: Address, [network, bits]: Network): boolean =>
  address.kind() === network.kind() && address.match(network, bits);
