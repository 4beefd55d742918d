/**
 * Guard of the registries that the engine dials. The engine pulls as root in the host's network, and tenants name the
 * images, so a name is checked before the engine gets it. Must stay true: an image of a tenant makes the engine ask no
 * address of this machine, of its containers, of a metadata service or of a range that the operator closed. Redirects
 * of a registry, its token server, and a name that changes its address afterwards are not seen here.
 */
import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import { AddressRules } from '#shared/address-rules.ts';
import { withDeadline } from '#shared/backoff.ts';
import { DEFAULT_REGISTRY, registryOf } from '#shared/domain/image-reference.ts';
import { AppError } from '#shared/errors.ts';
import { closedToPulls } from '../containers/network-filter.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';

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

  /** @throws AppError `image_error` naming the registry and the setting, when the engine must not ask it */
  async require(reference: string): Promise<void> {
    const registry = registryOf(reference);
    // The engine has an address of its own for Docker Hub.
    if (registry === DEFAULT_REGISTRY || this.#registries.has(registry.toLowerCase())) return;
    const { closedRanges, ownAddresses, bridgeRanges, addressesOf = resolve } = this.#parts;
    const host = hostOf(registry);
    // A name that is not known here may be known to the proxy of the engine, which dials no address then.
    const addresses = isIP(host) === 0 ? await addressesOf(host).catch(() => []) : [host];
    const closed = rulesOf(
      closedToPulls({ ownAddresses: ownAddresses(), bridgeRanges: await bridgeRanges(), closedRanges }),
    );
    if (addresses.every((address) => this.#opened.names(address) || !closed.names(address))) return;
    throw new AppError(
      'image_error',
      `registry ${registry} is closed to images of workspaces: its address is one of this machine, of a metadata service, or in LONGSHORE_AGENT_CLOSED_RANGES; the operator opens a registry by LONGSHORE_AGENT_REGISTRIES of the agent`,
    );
  }
}

/** The engine's calls, of which those that ask a registry for a tenant pass the guard first. */
export function withRegistryGuard<Runtime extends Pick<ContainerRuntime, 'pull' | 'registryDigest'>>(
  runtime: Runtime,
  guard: Pick<RegistryGuard, 'require'>,
): Runtime {
  return {
    ...runtime,
    async pull(reference, options) {
      // A mirror and the port of built images are the operator's.
      if (options.isOperators !== true) await guard.require(reference);
      return await runtime.pull(reference, options);
    },
    async registryDigest(reference, auth, deadlineMs) {
      await guard.require(reference);
      return await runtime.registryDigest(reference, auth, deadlineMs);
    },
  };
}

const hostOf = (registry: string): string => registry.replace(/:\d+$/, '').replace(/^\[(.*)\]$/, '$1');

async function resolve(host: string): Promise<readonly string[]> {
  const found = await withDeadline(lookup(host, { all: true }), LOOKUP_MS, () => new Error(`${host}: no such host`));
  return found.map(({ address }) => address);
}

function rulesOf(ranges: readonly string[]): AddressRules {
  const rules = AddressRules.read(ranges.join(','));
  if (!(rules instanceof AddressRules)) throw new Error(`${rules.wrong} is not an address range`);
  return rules;
}
