// This machine's addresses, which containers must not reach, and its name servers, which they need.
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { MachineAddresses } from '../containers/pause-containers.ts';

/** Age of the reading: interfaces change with networks of containers, but not within moments. */
const KEPT_MS = 10_000;
/** Files with name servers; the second has those behind a local resolver. */
const RESOLV_CONF = ['/etc/resolv.conf', '/run/systemd/resolve/resolv.conf'];

/**
 * Reads addresses and name servers at most every ten seconds. Loopback and link-local addresses are left out: they
 * cannot be reached from elsewhere.
 */
export class AddressBook {
  #read: MachineAddresses | undefined;
  #readAtMs = 0;

  get current(): MachineAddresses {
    const now = performance.now();
    if (this.#read === undefined || now - this.#readAtMs > KEPT_MS) {
      this.#read = { own: ownAddresses(), nameServers: nameServers() };
      this.#readAtMs = now;
    }
    return this.#read;
  }
}

function ownAddresses(): string[] {
  const found = Object.values(networkInterfaces())
    .flatMap((list) => list ?? [])
    .filter(({ internal, address }) => !internal && !/^fe[89ab]/i.test(address))
    .map(({ address }) => address);
  return [...new Set(found)].toSorted();
}

function nameServers(): string[] {
  const found = RESOLV_CONF.flatMap((path) => {
    try {
      return [...readFileSync(path, 'utf8').matchAll(/^\s*nameserver\s+(\S+)/gm)].map((match) => match[1] ?? '');
    } catch {
      return [];
    }
  });
  return [...new Set(found)].filter((address) => isIP(address) !== 0 && !/^(127\.|::1$)/.test(address)).toSorted();
}
