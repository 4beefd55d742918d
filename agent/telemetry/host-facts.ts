/**
 * The hardware of the host: network devices, disks, NUMA nodes, virtualisation. Read once when the agent starts and by
 * `longshore agent check`, never by a sample. Must stay true: each part has the deadline, and a failing part is left
 * out alone. No address and no serial number is read; every list has a bound.
 */
import { readFile, readdir, readlink, realpath } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { HostDisk, HostFacts, HostFileSystem, HostNic, NumaNode } from '#shared/protocol/generated/messages.ts';
import type { BlockDevice } from './list-disks.ts';
import { listBlockDevices } from './list-disks.ts';

const DEADLINE_MS = 3000;
const MOST = 64;
const MOST_LETTERS = 100;

export interface HostPlaces {
  /** Directories whose file systems are reported, by their content. */
  readonly holds: Readonly<Record<string, string>>;
  /** Root of /sys, /proc and /etc; tests name a tree of files. */
  readonly root?: string;
  /** Lists block devices; by default the library does. */
  readonly blockDevices?: () => Promise<readonly BlockDevice[]>;
  readonly deadlineMs?: number;
}

export async function readHostFacts({ holds, root = '/', ...given }: HostPlaces): Promise<HostFacts> {
  const { blockDevices = () => listBlockDevices(deadlineMs), deadlineMs = DEADLINE_MS } = given;
  const within = <T>(reading: Promise<T>, without: T): Promise<T> => inTime(reading, without, deadlineMs);
  const [machine, nics, disks, numaNodes, fileSystems] = await Promise.all([
    within(readMachine(root), {}),
    within(readNics(root), []),
    within(blockDevices().then(disksOf), []),
    within(readNumaNodes(root), []),
    within(readFileSystems(root, holds), []),
  ]);
  return { ...machine, nics, disks, numaNodes, fileSystems };
}

/** The value; or the substitute when the reading fails or misses the deadline. */
async function inTime<T>(reading: Promise<T>, without: T, deadlineMs: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<T>((resolve) => {
    timer = setTimeout(() => resolve(without), deadlineMs);
  });
  try {
    return await Promise.race([reading.catch(() => without), late]);
  } finally {
    clearTimeout(timer);
  }
}

/** `PRETTY_NAME` of the distribution, such as `Debian GNU/Linux 12 (bookworm)`; empty: not known. */
export async function readOsName(root = '/'): Promise<string> {
  for (const path of ['etc/os-release', 'usr/lib/os-release']) {
    const text = await readFile(join(root, path), 'utf8').catch(() => '');
    const name = /^PRETTY_NAME=(?:"([^"\n]*)"|'([^'\n]*)'|(.*))$/m.exec(text);
    if (name !== null) return short(name[1] ?? name[2] ?? name[3] ?? '');
  }
  return '';
}

const short = (text: string): string => text.trim().slice(0, MOST_LETTERS);
/** Content of a kernel file; empty: absent, or without a value now. */
const read = async (...path: readonly string[]): Promise<string> =>
  short(await readFile(join(...path), 'utf8').catch(() => ''));
const list = async (...path: readonly string[]): Promise<string[]> =>
  (await readdir(join(...path)).catch((): string[] => [])).toSorted((a, b) =>
    a.localeCompare(b, 'en', { numeric: true }),
  );

/** Disks with a device; those that the kernel makes of memory and files are left out. */
function disksOf(devices: readonly BlockDevice[]): HostDisk[] {
  return devices
    .filter(({ name, type, size }) => type === 'disk' && size > 0 && !/^(zram|ram|loop|zd|nbd|fd)[0-9]/.test(name))
    .slice(0, MOST)
    .map(({ name, size, physical, model, protocol }) => ({
      name: short(name),
      kind: protocol === 'nvme' || name.startsWith('nvme') ? 'nvme' : physical.toLowerCase(),
      bytes: size,
      model: short(model),
    }));
}

/**
 * Physical network devices. Purely virtual ones (bridges, pairs of containers) come and go with containers and say
 * nothing about the host.
 */
async function readNics(root: string): Promise<HostNic[]> {
  const at = join(root, 'sys/class/net');
  const nics = await Promise.all(
    (await list(at)).map(async (name): Promise<HostNic | undefined> => {
      const [inside, driver] = await Promise.all([
        list(at, name),
        readlink(join(at, name, 'device/driver')).catch(() => ''),
      ]);
      if (!inside.includes('device') && !inside.includes('bonding')) return undefined;
      const [speed, state, node] = await Promise.all([
        read(at, name, 'speed'),
        read(at, name, 'operstate'),
        read(at, name, 'device/numa_node'),
      ]);
      return {
        name: short(name),
        speedMbps: /^[0-9]{1,9}$/.test(speed) ? Number(speed) : 0,
        up: state === 'up',
        driver: driver === '' && inside.includes('bonding') ? 'bonding' : short(basename(driver)),
        numaNode: /^[0-9]{1,4}$/.test(node) ? Number(node) : -1,
      };
    }),
  );
  return nics.filter((nic) => nic !== undefined).slice(0, MOST);
}

/** NUMA nodes; those without memory and processors (of devices alone) are left out. */
async function readNumaNodes(root: string): Promise<NumaNode[]> {
  const at = join(root, 'sys/devices/system/node');
  const names = (await list(at)).filter((name) => /^node[0-9]{1,4}$/.test(name)).slice(0, MOST);
  const nodes = await Promise.all(
    names.map(async (name) => {
      const [cpus, memory] = await Promise.all([
        read(at, name, 'cpulist'),
        readFile(join(at, name, 'meminfo'), 'utf8').catch(() => ''),
      ]);
      const kib = /MemTotal:\s+([0-9]{1,12}) kB/.exec(memory)?.[1] ?? '0';
      return { id: Number(name.slice(4)), cpus, memoryBytes: Number(kib) * 1024 };
    }),
  );
  return nodes.filter(({ cpus, memoryBytes }) => cpus !== '' || memoryBytes > 0);
}

async function readMachine(root: string): Promise<HostFacts> {
  const [vendor, product, hypervisor, cpuInfo, tree] = await Promise.all([
    read(root, 'sys/class/dmi/id/sys_vendor'),
    read(root, 'sys/class/dmi/id/product_name'),
    read(root, 'sys/hypervisor/type'),
    readFile(join(root, 'proc/cpuinfo'), 'utf8').catch(() => ''),
    read(root, 'proc/device-tree/hypervisor/compatible'),
  ]);
  return {
    vendor,
    product,
    virtualization: virtualizationOf({ vendor, product, hypervisor: hypervisor || tree, cpuInfo }),
    cpuModel: short(/^(?:model name|Model)\s*:\s*(.*)$/m.exec(cpuInfo)?.[1] ?? ''),
  };
}

/** Firmware texts of hypervisors, in order of precedence: a cloud on KVM has its own name. */
const HYPERVISORS: readonly (readonly [RegExp, string])[] = [
  [/amazon ec2/i, 'amazon'],
  [/google/i, 'google'],
  [/alibaba/i, 'alibaba'],
  [/oraclecloud|oracle cloud/i, 'oracle'],
  [/digitalocean/i, 'digitalocean'],
  [/hetzner/i, 'hetzner'],
  [/vmware/i, 'vmware'],
  [/virtualbox|innotek/i, 'virtualbox'],
  [/microsoft corporation.*virtual machine/i, 'microsoft'],
  [/openstack/i, 'openstack'],
  [/parallels/i, 'parallels'],
  [/xen/i, 'xen'],
  [/qemu|kvm|bochs/i, 'kvm'],
];

/**
 * Names the hypervisor. On x86 the processor tells whether one exists; firmware texts alone do not, since a cloud's
 * bare machines have them too. On other processors the texts decide. Pure.
 * @returns `none`: no hypervisor; `other`: one with another name; empty: not known
 */
export function virtualizationOf(seen: {
  readonly vendor: string;
  readonly product: string;
  readonly hypervisor: string;
  readonly cpuInfo: string;
}): string {
  const flags = /^flags\s*:(.*)$/m.exec(seen.cpuInfo)?.[1];
  const words = `${seen.vendor} ${seen.product} ${seen.hypervisor}`;
  const named = HYPERVISORS.find(([pattern]) => pattern.test(words))?.[1];
  if (flags !== undefined) return / hypervisor( |$)/.test(flags) ? (named ?? 'other') : 'none';
  return named ?? '';
}

/** File systems of the directories, by the nearest mount above each. */
async function readFileSystems(root: string, holds: Readonly<Record<string, string>>): Promise<HostFileSystem[]> {
  const mounts = mountsIn(await readFile(join(root, 'proc/self/mountinfo'), 'utf8'));
  const found = await Promise.all(
    Object.entries(holds).map(async ([what, path]): Promise<HostFileSystem[]> => {
      const real = await realpath(path).catch(() => path);
      // Several mounts at one place hide each other: the last one counts.
      const mount = mounts
        .filter(({ at }) => real === at || real.startsWith(at === '/' ? '/' : `${at}/`))
        .toSorted((a, b) => a.at.length - b.at.length)
        .at(-1);
      return mount === undefined ? [] : [{ holds: what, type: short(mount.type), device: short(mount.device) }];
    }),
  );
  return found.flat();
}

interface Mount {
  readonly at: string;
  readonly type: string;
  readonly device: string;
}

function mountsIn(text: string): Mount[] {
  return text.split('\n').flatMap((line) => {
    const [before = '', after] = line.split(' - ');
    const at = before.split(' ')[4];
    const [type = '', device = ''] = after?.split(' ') ?? [];
    return at === undefined || type === '' ? [] : [{ at: unescaped(at), type, device: unescaped(device) }];
  });
}

/** Decodes octal codes, which the kernel writes for blanks. */
const unescaped = (text: string): string =>
  text.replaceAll(/\\([0-7]{3})/g, (_, code: string) => String.fromCodePoint(Number.parseInt(code, 8)));
