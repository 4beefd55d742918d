// Advice where nothing answers at an address: what a person can look at depends on whose host it is, and on whether a
// service runs the scheduler there.
import { existsSync } from 'node:fs';
import { networkInterfaces } from 'node:os';

/** Places of the scheduler's unit: of an administrator, and of a package. */
const UNITS = ['/etc/systemd/system', '/usr/lib/systemd/system', '/lib/systemd/system'].map(
  (folder) => `${folder}/longshore-scheduler.service`,
);

export interface ThisHost {
  /** Whether systemd runs a scheduler here. */
  readonly hasUnit: boolean;
  /** Addresses of its network interfaces. */
  readonly addresses: readonly string[];
}

export const thisHost = (): ThisHost => ({
  hasUnit: UNITS.some((path) => existsSync(path)),
  addresses: Object.values(networkInterfaces()).flatMap((all) => (all ?? []).map(({ address }) => address)),
});

/** @param url - that nothing answers at */
export function startAdvice(url: string, host: ThisHost): string {
  if (!isHere(url, host))
    return 'check the address, and whether a firewall lets this host reach it; where the scheduler is a service, `systemctl status longshore-scheduler` on its host says how it is';
  return host.hasUnit
    ? 'is the scheduler running? on this host it is a service: see `systemctl status longshore-scheduler`, and `journalctl -u longshore-scheduler` for its log'
    : 'is the scheduler running? start it with `longshore up` (in a checkout: `npm start`)';
}

function isHere(url: string, { addresses }: ThisHost): boolean {
  const name = (URL.parse(url)?.hostname ?? '').replace(/^\[(.*)\]$/, '$1').toLowerCase();
  return (
    name === 'localhost' ||
    name.endsWith('.localhost') ||
    /^(127(\.\d+){3}|::1)$/.test(name) ||
    addresses.includes(name)
  );
}
