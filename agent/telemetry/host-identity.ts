/**
 * Which host this is, from files of the kernel and of this boot's cloud-init; no network is asked. Must stay true:
 * nothing is read from the disk that an image of it would carry along.
 */
import { readFile, readdir, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import type { HostIdentity } from '#shared/domain/host-identity.ts';
import { identityFrom } from '#shared/domain/host-identity.ts';
import { isRecord } from '#shared/json.ts';

/** Facts of the firmware and of the boot, as their files hold them; empty: not there. */
export interface IdentityFacts {
  readonly vendor: string;
  readonly boardAsset: string;
  readonly productSerial: string;
  readonly productUuid: string;
  /** `/run/cloud-init/instance-data.json`, written anew at each boot. */
  readonly cloudInit: string;
  readonly cards: readonly Card[];
}

export interface Card {
  /** ARPHRD of the kernel; 1: Ethernet. */
  readonly type: string;
  readonly address: string;
  /** Own address of a member of a bond, which shows the bond's otherwise; empty: no member. */
  readonly permanentAddress: string;
  /** 0: permanent, 1: made by chance, 2: taken from another, 3: set by somebody. */
  readonly addressKind: string;
  /** Path of the device; empty: purely virtual. */
  readonly device: string;
}

/**
 * Clouds whose instance id cloud-init tells. Others are left out: `nocloud` tells what the operator wrote, `azure` the
 * UUID in either byte order, and `gce` and `vultr` another id than the firmware.
 */
const CLOUDS: ReadonlySet<string> = new Set([
  'akamai',
  'aliyun',
  'aws',
  'digitalocean',
  'exoscale',
  'hetzner',
  'ibmcloud',
  'openstack',
  'oracle',
  'scaleway',
  'upcloud',
]);

/** Clouds that put the id into the firmware, by the texts there. */
const FIRMWARE: readonly {
  readonly cloud: string;
  readonly vendor: RegExp;
  readonly id: RegExp;
  readonly at: 'boardAsset' | 'productSerial';
}[] = [
  { cloud: 'aws', vendor: /^Amazon EC2/, at: 'boardAsset', id: /^i-[0-9a-f]{8,32}$/ },
  { cloud: 'gce', vendor: /^Google/, at: 'productSerial', id: /^GoogleCloud-[0-9A-F]{32}$/ },
  { cloud: 'digitalocean', vendor: /^DigitalOcean/, at: 'productSerial', id: /^[0-9]{1,20}$/ },
  { cloud: 'hetzner', vendor: /^Hetzner/, at: 'productSerial', id: /^[0-9]{1,20}$/ },
  { cloud: 'vultr', vendor: /^Vultr/, at: 'productSerial', id: /^[0-9a-f-]{6,40}$/ },
];

/** The identity that follows from the facts. Pure. */
export function hostIdentityOf(facts: IdentityFacts): HostIdentity {
  return identityFrom({
    instanceId: instanceIdOf(facts),
    uuid: facts.productUuid,
    macs: facts.cards.filter(isPhysical).map((card) => card.permanentAddress || card.address),
  });
}

function instanceIdOf(facts: IdentityFacts): string {
  const found = FIRMWARE.find(({ vendor, at, id }) => vendor.test(facts.vendor) && id.test(facts[at]));
  if (found !== undefined) return `${found.cloud}:${facts[found.at]}`;
  const said = parsed(facts.cloudInit)['v1'];
  if (!isRecord(said)) return '';
  const cloud = said['cloud_name'] ?? said['cloud-name'];
  const id = said['instance_id'] ?? said['instance-id'];
  return typeof cloud === 'string' && typeof id === 'string' && CLOUDS.has(cloud) && id !== '' ? `${cloud}:${id}` : '';
}

function parsed(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return isRecord(value) ? value : {};
  } catch {
    return {};
  }
}

/**
 * Whether a card is the host's own. Cards on USB are often those of management controllers, which have the same address
 * in every host.
 */
const isPhysical = ({ type, device, addressKind, permanentAddress }: Card): boolean =>
  type === '1' &&
  device !== '' &&
  !/\/usb[0-9]+\//.test(device) &&
  (permanentAddress !== '' || addressKind === '0' || addressKind === '3' || addressKind === '');

const MOST_CARDS = 256;

/** @param root - tests name a tree of files */
export async function readHostIdentity(root = '/'): Promise<HostIdentity> {
  const read = async (...path: readonly string[]): Promise<string> =>
    (await readFile(join(root, ...path), 'utf8').catch(() => '')).trim();
  const dmi = (name: string): Promise<string> => read('sys/class/dmi/id', name);
  const net = join(root, 'sys/class/net');
  const names = (await readdir(net).catch((): string[] => [])).slice(0, MOST_CARDS);
  const [vendor, boardAsset, productSerial, productUuid, cloudInit, ...cards] = await Promise.all([
    dmi('sys_vendor'),
    dmi('board_asset_tag'),
    dmi('product_serial'),
    dmi('product_uuid'),
    read('run/cloud-init/instance-data.json'),
    ...names.map(async (name): Promise<Card> => {
      const of = (file: string): Promise<string> => read('sys/class/net', name, file);
      const [type, address, permanentAddress, addressKind, device] = await Promise.all([
        of('type'),
        of('address'),
        of('bonding_slave/perm_hwaddr'),
        of('addr_assign_type'),
        realpath(join(net, name, 'device')).catch(() => ''),
      ]);
      return { type, address, permanentAddress, addressKind, device };
    }),
  ]);
  return hostIdentityOf({ vendor, boardAsset, productSerial, productUuid, cloudInit, cards });
}
