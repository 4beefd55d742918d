// The hardware of this host as lines of a check. Pure.
import type { HostFacts } from '#shared/protocol/generated/messages.ts';
import type { Finding } from './finding.ts';
import { ok, warning } from './finding.ts';

/** Remote file systems, which suit neither image layers nor state that must be durable before the next step. */
const REMOTE = /^(nfs|nfs4|cifs|smb3|ceph|glusterfs|lustre|9p|fuse\..*)$/;

export function inventoryFindings(facts: HostFacts): Finding[] {
  const { vendor = '', product = '', virtualization = '', cpuModel = '' } = facts;
  const nodes = facts.numaNodes?.length ?? 0;
  const kind = virtualization === 'none' ? 'no hypervisor' : virtualization;
  const nics = (facts.nics ?? []).map(({ name = '', up, speedMbps = 0, driver = '' }) =>
    [name, up === true ? '' : 'down', speedMbps === 0 ? '' : speedOf(speedMbps), driver]
      .filter((one) => one !== '')
      .join(' '),
  );
  const disks = (facts.disks ?? []).map(({ name, kind: type, bytes = 0 }) => `${name} ${type} ${gigabytes(bytes)}`);
  return [
    ok('host', listed([`${vendor} ${product}`.trim(), kind, cpuModel, nodes > 1 ? `${nodes} NUMA nodes` : ''])),
    ok('network', listed(nics)),
    ok('disks', listed(disks)),
    ...(facts.fileSystems ?? []).map(({ holds = '', type = '', device = '' }) =>
      REMOTE.test(type)
        ? warning(
            'file system',
            `${holds} lie on ${type} (${device})`,
            holds === 'images'
              ? 'give the engine a data-root on a disk of this host'
              : 'set LONGSHORE_DATA_DIR to a directory on a disk of this host',
          )
        : ok('file system', `${holds} on ${type} (${device})`),
    ),
  ];
}

const listed = (parts: readonly string[]): string => parts.filter((part) => part !== '').join(', ') || 'not known';
const speedOf = (mbps: number): string => (mbps < 1000 ? `${mbps} Mbit/s` : `${mbps / 1000} Gbit/s`);
/** Gigabytes of a large number, which has several forms in the messages' types. */
const gigabytes = (bytes: unknown): string => `${Math.round(Number(bytes) / 1e9)} GB`;
