/**
 * Which registries a tenant's image may lead to. The engine pulls as root in the host's network, and tenants name the
 * images. Must stay true: an image of a tenant makes nobody ask an address of this machine, of its containers, of a
 * metadata service or of a range that the operator closed.
 */
import type { LookupAddress } from 'node:dns';
import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import { AddressRules } from '#shared/address-rules.ts';
import { withDeadline } from '#shared/backoff.ts';
import { DEFAULT_REGISTRY, registryOf } from '#shared/domain/image-reference.ts';
import { AppError } from '#shared/errors.ts';
import { closedToPulls } from '../containers/network-filter.ts';

const LOOKUP_MS = 5_000;

export interface RegistryGuardParts {
  /** Registries as names of images have them, and ranges of addresses, that the operator opened. */
  readonly opened: readonly string[];
  readonly closedRanges: readonly string[];
  /** Addresses of this machine. */
  readonly ownAddresses: () => readonly string[];
  /** Ranges of the engine's bridges, where containers are. */
  readonly bridgeRanges: () => Promise<readonly string[]>;
  /** Addresses of a name. */
  readonly addressesOf?: ((host: string) => Promise<readonly string[]>) | undefined;
}

export class RegistryGuard {
  readonly #parts: RegistryGuardParts;
  readonly #registries: ReadonlySet<string>;
  readonly #opened: AddressRules;

  constructor(parts: RegistryGuardParts) {
    this.#parts = parts;
    this.#registries = new Set(parts.opened.filter((one) => !one.includes('/')).map((one) => one.toLowerCase()));
    this.#opened = rulesOf(parts.opened.filter((one) => one.includes('/')));
  }

  /**
   * Whether no tenant controls what the registry answers: the operator named it, or it is Docker Hub, for which the
   * engine may have mirrors. A range opens addresses alone, because somebody else may serve one of them.
   */
  isOperators(reference: string): boolean {
    const registry = registryOf(reference);
    return registry === DEFAULT_REGISTRY || this.#registries.has(registry.toLowerCase());
  }

  /** @throws AppError `image_error` naming the registry and the setting, when nobody may ask it */
  async require(reference: string): Promise<void> {
    if (this.isOperators(reference)) return;
    const registry = registryOf(reference);
    // A name that is not known here may be known to the proxy of the engine, which dials no address then.
    await this.addressesOf(hostOf(registry), registry).catch((error: unknown) => {
      if (error instanceof AppError) throw error;
    });
  }

  /**
   * Addresses that may be dialled for a host.
   * @param registry - the registry that led there
   * @param ledBy - address of the server that named the host in a redirect or a challenge, empty where it is not known;
   * a server in the Internet leads to no private address
   * @throws AppError `image_error` when an address is closed; the resolver's error
   */
  async addressesOf(host: string, registry: string, ledBy?: string): Promise<readonly LookupAddress[]> {
    const { closedRanges, ownAddresses, bridgeRanges, addressesOf = resolve } = this.#parts;
    const addresses = isIP(host) === 0 ? await addressesOf(host) : [host];
    const closed = rulesOf(
      closedToPulls({ ownAddresses: ownAddresses(), bridgeRanges: await bridgeRanges(), closedRanges }),
    );
    const mustBePublic = ledBy !== undefined && (ledBy === '' || PUBLIC.permits(ledBy));
    const isOpen = (address: string): boolean =>
      this.#opened.names(address) || (!closed.names(address) && (!mustBePublic || PUBLIC.permits(address)));
    if (addresses.every(isOpen)) return addresses.map((address) => ({ address, family: isIP(address) }));
    throw new AppError('image_error', closedWords(registry, ledBy !== undefined));
  }
}

const closedWords = (registry: string, isLed: boolean): string =>
  `registry ${registry} is closed to images of workspaces: ${isLed ? 'it leads to an address' : 'its address is one'} of this machine, ${isLed ? 'of a private network, ' : ''}of a metadata service, or in LONGSHORE_AGENT_CLOSED_RANGES; the operator opens a registry by LONGSHORE_AGENT_REGISTRIES of the agent`;

export const hostOf = (registry: string): string => registry.replace(/:\d+$/, '').replace(/^\[(.*)\]$/, '$1');

async function resolve(host: string): Promise<readonly string[]> {
  const late = (): Error => Object.assign(new Error(`${host}: no such host`), { code: 'ETIMEDOUT' });
  const found = await withDeadline(lookup(host, { all: true }), LOOKUP_MS, late);
  return found.map(({ address }) => address);
}

/** Addresses of the Internet. */
const PUBLIC = rulesOf([]);

function rulesOf(ranges: readonly string[]): AddressRules {
  const rules = AddressRules.read(ranges.join(','));
  if (!(rules instanceof AddressRules)) throw new Error(`${rules.wrong} is not an address range`);
  return rules;
}
