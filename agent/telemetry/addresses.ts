// This machine's addresses, which containers must not reach, and its name servers, which they need.
import { closeSync, openSync, readFileSync, readSync } from 'node:fs';
import { isIP } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { MachineAddresses } from '../containers/pause-containers.ts';

/** Files with name servers; the second has those behind a local resolver. */
const RESOLV_CONF = ['/etc/resolv.conf', '/run/systemd/resolve/resolv.conf'];
/** The kernel's routes, local addresses among them. A host with more routes than this holds reads its interfaces. */
const ROUTES = '/proc/net/fib_trie';
const ROUTES_BYTES = 2 * 1024 * 1024;
const ADDRESSES_6 = '/proc/net/if_inet6';

/**
 * Reads addresses and name servers anew, within a millisecond or two. Addresses of interfaces without a carrier are
 * among them, such as those of Docker networks without containers: this machine answers on them.
 */
export function machineAddresses(): MachineAddresses {
  return { own: ownAddresses(), nameServers: nameServers() };
}

/** Ranges of the engine's bridges: containers of this machine that are not Longshore's, too. */
export const bridgeRanges = (): readonly string[] =>
  Object.entries(networkInterfaces())
    .filter(([name]) => /^(?:docker\d|br-)/.test(name))
    .flatMap(([, list]) => (list ?? []).flatMap(({ cidr }) => cidr ?? []));

function ownAddresses(): string[] {
  const routes = textOf(ROUTES, ROUTES_BYTES);
  const v4 = routes === undefined ? ofInterfaces(4) : localAddresses4(routes);
  const listed = textOf(ADDRESSES_6, ROUTES_BYTES);
  const v6 = listed === undefined ? ofInterfaces(6) : localAddresses6(listed);
  return [...new Set([...v4, ...v6])].toSorted();
}

/** Addresses in the text of `/proc/net/fib_trie`; those of 127.0.0.0/8 cannot be reached from elsewhere. */
export function localAddresses4(routes: string): string[] {
  return [...routes.matchAll(/\|-- (\S+)\n(?:\s+\/\d+ .*\n)*?\s+\/32 host LOCAL$/gm)]
    .map((match) => match[1] ?? '')
    .filter((address) => !address.startsWith('127.'));
}

/** Addresses in the text of `/proc/net/if_inet6`, without those that are good on one link or on this host alone. */
export function localAddresses6(listed: string): string[] {
  return [...listed.matchAll(/^([0-9a-f]{32}) \S+ \S+ (\S+)/gm)]
    .filter((match) => match[2] !== '10' && match[2] !== '20')
    .map((match) => (match[1] ?? '').replace(/(.{4})(?=.)/g, '$1:'));
}

function ofInterfaces(version: 4 | 6): string[] {
  return Object.values(networkInterfaces())
    .flatMap((list) => list ?? [])
    .filter(({ internal, address }) => !internal && isIP(address) === version && !/^fe[89ab]/i.test(address))
    .map(({ address }) => address);
}

/** @returns the file's text; undefined where it cannot be read, or has more bytes */
function textOf(path: string, mostBytes: number): string | undefined {
  let file: number | undefined;
  try {
    file = openSync(path, 'r');
    const parts: Buffer[] = [];
    for (let bytes = 0; bytes <= mostBytes;) {
      const part = Buffer.allocUnsafe(64 * 1024);
      const read = readSync(file, part);
      if (read === 0) return Buffer.concat(parts).toString('latin1');
      parts.push(part.subarray(0, read));
      bytes += read;
    }
    return undefined;
  } catch {
    return undefined;
  } finally {
    if (file !== undefined) closeSync(file);
  }
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
