// Which addresses a message may be sent to: those of the public Internet, and what the operator named. Plain data in, an answer out; guard.ts asks it of every address before it is dialled.
import ipaddr from 'ipaddr.js';
import { isIP } from 'node:net';

type Address = ipaddr.IPv4 | ipaddr.IPv6;
type Network = readonly [Address, number];

/** Public by their number, and the metadata service of a cloud all the same. */
const PRIVATE_ALL_THE_SAME: readonly Network[] = [ipaddr.parseCIDR('168.63.129.16/32')];
/** Everything that is routed in IPv6 lies here. */
const GLOBAL_UNICAST: Network = ipaddr.parseCIDR('2000::/3');
/** Addresses of IPv4 behind a translator; the last four bytes are the address. */
const TRANSLATED: Network = ipaddr.parseCIDR('64:ff9b::/96');

export class AddressRules {
  readonly #allowed: readonly Network[];

  private constructor(allowed: readonly Network[]) {
    this.#allowed = allowed;
  }

  /** @param text - networks with commas between them: `127.0.0.0/8, fd00::/8`, or single addresses @returns the first that is none, as it was written */
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

  /** @param text - an address in any spelling; what is none is not permitted */
  permits(text: string): boolean {
    if (isIP(text) === 0) return false;
    const written = ipaddr.parse(text);
    // `::ffff:10.0.0.1` reaches 10.0.0.1.
    const address = ipaddr.process(text);
    return this.#isAllowed(written) || this.#isAllowed(address) || isPublic(address);
  }

  #isAllowed(address: Address): boolean {
    return this.#allowed.some((network) => isIn(address, network));
  }
}

function networkOf(text: string): Network | undefined {
  try {
    if (isIP(text) !== 0) return [ipaddr.parse(text), isIP(text) === 4 ? 32 : 128];
    // Four numbers, not `10/8`: what is not written out is easily meant otherwise.
    return isIP(text.split('/')[0] ?? '') === 0 ? undefined : ipaddr.parseCIDR(text);
  } catch {
    return undefined;
  }
}

function isPublic(address: Address): boolean {
  if (PRIVATE_ALL_THE_SAME.some((network) => isIn(address, network))) return false;
  if (address.kind() === 'ipv4') return address.range() === 'unicast';
  if (isIn(address, TRANSLATED)) return isPublic(ipaddr.fromByteArray(address.toByteArray().slice(12)));
  return address.range() === 'unicast' && isIn(address, GLOBAL_UNICAST);
}

const isIn = (address: Address, [network, bits]: Network): boolean =>
  address.kind() === network.kind() && address.match(network, bits);
