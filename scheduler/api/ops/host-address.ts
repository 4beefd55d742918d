// The address by which other machines reach this host, as far as the host itself can tell.
import { networkInterfaces } from 'node:os';

type Interfaces = ReturnType<typeof networkInterfaces>;

/** Bridges and tunnels of container engines and virtual machines, which are not reachable from outside. */
const INSIDE = /^(lo|docker|br-|veth|virbr|cni|flannel|cali|podman)/;

/**
 * An address of this host.
 * @returns an IPv4 address of a network interface, else an IPv6 address in brackets; undefined: there is loopback only
 */
export function hostAddress(interfaces: Interfaces = networkInterfaces()): string | undefined {
  const all = Object.entries(interfaces).flatMap(([name, addresses]) => (INSIDE.test(name) ? [] : (addresses ?? [])));
  const outside = all.filter(({ internal, address }) => !internal && !/^(169\.254\.|fe80:)/i.test(address));
  const ipv4 = outside.find(({ family }) => family === 'IPv4')?.address;
  if (ipv4 !== undefined) return ipv4;
  const ipv6 = outside.find(({ family }) => family === 'IPv6')?.address;
  return ipv6 === undefined ? undefined : `[${ipv6}]`;
}

/**
 * Address by which others reach a listening address; one that
 * stands for every interface is replaced by this host's own.
 */
export function reachableAt(address: string, own: string | undefined = hostAddress()): string {
  return address.replace(/^(?:0\.0\.0\.0|\[::\]):/, `${own ?? '127.0.0.1'}:`);
}
