// Which host a machine's disk runs in: the platform's id of the instance, else the firmware's UUID, else the addresses
// of network cards. `/etc/machine-id` is a file of the disk and no part of it. Pure. Source: decision 0263.

export interface HostIdentity {
  /** Id that the platform gave the instance, with the platform's name: `aws:i-0abc`; empty: none. */
  readonly instanceId: string;
  /** UUID of the firmware (DMI), in lower case; empty: none, or not worth the name. */
  readonly uuid: string;
  /** Addresses of physical Ethernet cards, in lower case, sorted. */
  readonly macs: readonly string[];
}

export const MOST_MACS = 32;
const MOST_LETTERS = 200;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const MAC = /^([0-9a-f]{2}:){5}[0-9a-f]{2}$/;

/** UUIDs that manufacturers left in the firmware of many machines. */
const JUNK_UUIDS: ReadonlySet<string> = new Set([
  '03000200-0400-0500-0006-000700080009',
  '00020003-0004-0005-0006-000700080009',
  '12345678-1234-5678-90ab-cddeefaabbcc',
  '78563412-3412-7856-90ab-cddeefaabbcc',
  '01234567-89ab-cdef-0123-456789abcdef',
  'fefefefe-fefe-fefe-fefe-fefefefefefe',
]);

/** A UUID of the firmware; empty: none, or one that many machines have. */
export function uuidOf(text: string): string {
  const uuid = text.trim().toLowerCase();
  if (!UUID.test(uuid) || JUNK_UUIDS.has(uuid)) return '';
  // Zeros, ones, and the like: firmware that was never written.
  return new Set(uuid.replaceAll('-', '')).size < 3 ? '' : uuid;
}

const macOf = (text: string): string => {
  const mac = text.trim().toLowerCase();
  return MAC.test(mac) && mac !== '00:00:00:00:00:00' && mac !== 'ff:ff:ff:ff:ff:ff' ? mac : '';
};

/** An identity from texts of any origin, within bounds. */
export function identityFrom(said: Partial<HostIdentity>): HostIdentity {
  const macs = (said.macs ?? []).slice(0, 1000).map(macOf);
  const instanceId = (said.instanceId ?? '').trim();
  return {
    instanceId: /^[a-z0-9]{2,20}:[!-~]+$/.test(instanceId) && instanceId.length <= MOST_LETTERS ? instanceId : '',
    uuid: uuidOf(said.uuid ?? ''),
    macs: [...new Set(macs.filter((mac) => mac !== ''))].toSorted().slice(0, MOST_MACS),
  };
}

/** Nothing is known of the host: it differs from none. */
export const isNobody = ({ instanceId, uuid, macs }: HostIdentity): boolean =>
  instanceId === '' && uuid === '' && macs.length === 0;

/**
 * Whether both describe one host. What only one of them has decides nothing: a host whose cloud-init was removed is the
 * same host.
 * @param isShared - whether the UUID is known to belong to several hosts: then the cards decide
 */
export function isSameHost(known: HostIdentity, shown: HostIdentity, isShared: boolean): boolean {
  if (known.instanceId !== '' && shown.instanceId !== '') return known.instanceId === shown.instanceId;
  if (known.uuid !== '' && shown.uuid !== '') {
    if (!isSameUuid(known.uuid, shown.uuid)) return false;
    if (!isShared) return true;
  }
  if (known.macs.length === 0 || shown.macs.length === 0) return true;
  return shown.macs.some((mac) => known.macs.includes(mac));
}

/** Firmware and kernels disagree on the byte order of the first three groups, and an update may change it. */
export const isSameUuid = (a: string, b: string): boolean => a === b || swapped(a) === b;

function swapped(uuid: string): string {
  const [first = '', second = '', third = '', ...rest] = uuid.split('-');
  const turned = [first, second, third].map((group) => (group.match(/../g) ?? []).toReversed().join(''));
  return [...turned, ...rest].join('-');
}

/** Facts after a host has shown itself: newer ones win, and a fact that is not shown now is kept. */
export const merged = (known: HostIdentity | null, shown: HostIdentity): HostIdentity => ({
  instanceId: shown.instanceId || (known?.instanceId ?? ''),
  uuid: shown.uuid || (known?.uuid ?? ''),
  macs: shown.macs.length > 0 ? shown.macs : (known?.macs ?? []),
});

/** For people: the fact that decides first. */
export function inWords({ instanceId, uuid, macs }: HostIdentity): string {
  if (instanceId !== '') return `instance ${instanceId.slice(instanceId.indexOf(':') + 1)}`;
  if (uuid !== '') return `UUID ${uuid}`;
  return macs.length === 0 ? 'not known' : `MAC address ${macs[0]}`;
}
