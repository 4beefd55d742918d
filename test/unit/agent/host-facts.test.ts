// The hardware of a host, read from trees of files as kernels show them.
import { hostMemory } from '../../../agent/telemetry/inventory.ts';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, expect, test as base, vi } from 'vitest';
import { inventoryFindings } from '../../../agent/preflight/inventory.ts';
import { readHostFacts, readOsName, virtualizationOf } from '../../../agent/telemetry/host-facts.ts';
import { listBlockDevices } from '../../../agent/telemetry/list-disks.ts';
import type { BlockDevice } from '../../../agent/telemetry/list-disks.ts';

const test = base.extend('root', async ({ task }, { onCleanup }): Promise<string> => {
  const root = mkdtempSync(join(tmpdir(), `ls-facts-${task.id}`));
  onCleanup(() => rmSync(root, { recursive: true }));
  return root;
});

function put(root: string, files: Readonly<Record<string, string>>): void {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
}

/** A host with two sockets, as a GPU server is. */
function aServer(root: string): void {
  put(root, {
    'sys/class/dmi/id/sys_vendor': 'Supermicro\n',
    'sys/class/dmi/id/product_name': 'SYS-821GE-TNHR\n',
    'proc/cpuinfo': 'processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8480+\nflags\t\t: fpu vme sse\n',
    'sys/class/net/lo/operstate': 'unknown\n',
    'sys/class/net/docker0/bridge/bridge_id': '1\n',
    'sys/class/net/veth1a2b/operstate': 'up\n',
    'sys/class/net/ens1f0/operstate': 'up\n',
    'sys/class/net/ens1f0/speed': '100000\n',
    'sys/class/net/ens1f0/address': '00:11:22:33:44:55\n',
    'sys/class/net/ens1f0/device/numa_node': '1\n',
    'sys/class/net/ens2/operstate': 'down\n',
    'sys/class/net/ens2/speed': '-1\n',
    'sys/class/net/ens2/device/numa_node': '-1\n',
    'sys/class/net/bond0/bonding/mode': '802.3ad 4\n',
    'sys/class/net/bond0/speed': '200000\n',
    'sys/class/net/bond0/operstate': 'up\n',
    'sys/devices/system/node/node0/cpulist': '0-55\n',
    'sys/devices/system/node/node0/meminfo': 'Node 0 MemTotal:       1056000000 kB\nNode 0 MemFree: 1 kB\n',
    'sys/devices/system/node/node1/cpulist': '56-111\n',
    'sys/devices/system/node/node1/meminfo': 'Node 1 MemTotal:       1056000000 kB\n',
    'sys/devices/system/node/node2/cpulist': '\n',
    'sys/devices/system/node/node2/meminfo': 'Node 2 MemTotal:       0 kB\n',
    'sys/devices/system/node/online': '0-2\n',
    'proc/self/mountinfo': [
      '22 1 259:2 / / rw - ext4 /dev/nvme0n1p2 rw',
      '30 22 259:5 / /var/lib/docker rw,noatime shared:4 - xfs /dev/md0 rw',
      '31 22 0:50 / /mnt/with\\040blank rw - nfs4 filer:/x rw',
    ].join('\n'),
  });
  mkdirSync(join(root, 'drivers/mlx5_core'), { recursive: true });
  symlinkSync(join(root, 'drivers/mlx5_core'), join(root, 'sys/class/net/ens1f0/device/driver'));
}

const aDevice = (name: string, more: Partial<BlockDevice> = {}): BlockDevice => ({
  name,
  type: 'disk',
  size: 3.84e12,
  physical: 'SSD',
  model: 'SAMSUNG MZQL23T8',
  protocol: 'nvme',
  ...more,
});

describe('the facts of a host', () => {
  test('are its devices, without what belongs to containers, and without addresses', async ({ root }) => {
    aServer(root);
    const facts = await readHostFacts({
      root,
      holds: { state: '/var/lib/longshore-agent', images: '/var/lib/docker', other: '/mnt/with blank/x' },
      blockDevices: async () => [
        aDevice('nvme0n1'),
        aDevice('sda', { protocol: 'sata', physical: 'HDD', size: 8e12 }),
        aDevice('nvme0n1p2', { type: 'part' }),
        aDevice('zram0'),
        aDevice('sdb', { size: 0 }),
      ],
    });
    expect(facts).toEqual({
      vendor: 'Supermicro',
      product: 'SYS-821GE-TNHR',
      virtualization: 'none',
      cpuModel: 'Intel(R) Xeon(R) Platinum 8480+',
      nics: [
        { name: 'bond0', speedMbps: 200_000, up: true, driver: 'bonding', numaNode: -1 },
        { name: 'ens1f0', speedMbps: 100_000, up: true, driver: 'mlx5_core', numaNode: 1 },
        { name: 'ens2', speedMbps: 0, up: false, driver: '', numaNode: -1 },
      ],
      disks: [
        { name: 'nvme0n1', kind: 'nvme', bytes: 3.84e12, model: 'SAMSUNG MZQL23T8' },
        { name: 'sda', kind: 'hdd', bytes: 8e12, model: 'SAMSUNG MZQL23T8' },
      ],
      numaNodes: [
        { id: 0, cpus: '0-55', memoryBytes: 1_056_000_000 * 1024 },
        { id: 1, cpus: '56-111', memoryBytes: 1_056_000_000 * 1024 },
      ],
      fileSystems: [
        { holds: 'state', type: 'ext4', device: '/dev/nvme0n1p2' },
        { holds: 'images', type: 'xfs', device: '/dev/md0' },
        { holds: 'other', type: 'nfs4', device: 'filer:/x' },
      ],
    });
    expect(JSON.stringify(facts)).not.toContain('00:11:22');
  });

  test('a part that fails, and one that does not answer, leave the others', async ({ root }) => {
    aServer(root);
    rmSync(join(root, 'proc/self/mountinfo'));
    const never = await readHostFacts({
      root,
      holds: { state: '/' },
      blockDevices: () => new Promise(() => undefined),
      deadlineMs: 500,
    });
    expect(never).toMatchObject({ vendor: 'Supermicro', disks: [], fileSystems: [], nics: [{}, {}, {}] });
    const failing = { root: join(root, 'nothing'), holds: {}, blockDevices: () => Promise.reject(new Error('lsblk')) };
    expect(await readHostFacts(failing)).toMatchObject({ virtualization: '', nics: [], disks: [], numaNodes: [] });
  });

  test('have bounds: of hundreds of devices 64, of a text 100 letters', async ({ root }) => {
    put(root, { 'sys/class/dmi/id/sys_vendor': 'x'.repeat(5000) });
    const blockDevices = async () =>
      Array.from({ length: 300 }, (_, at) => aDevice(`sd${at}`, { model: 'y'.repeat(999) }));
    const { vendor, disks } = await readHostFacts({ root, holds: {}, blockDevices });
    expect(vendor).toHaveLength(100);
    expect(disks).toHaveLength(64);
    expect(disks?.[0]?.model).toHaveLength(100);
  });

  test('hold nothing up when mdadm waits for an array that does not answer, and leave no program behind', async ({
    root,
  }) => {
    const bin = join(root, 'bin');
    const raid = 'NAME="md0" TYPE="raid1" SIZE="1" FSTYPE="" MOUNTPOINT="" UUID="" ROTA="0" RO="0" RM="0"';
    put(root, {
      'bin/lsblk': `#!/bin/sh\necho '${raid}'\n`,
      'bin/mdadm': `#!/bin/sh\necho $$ > '${join(root, 'pid')}'\nexec sleep 30\n`,
    });
    for (const name of ['lsblk', 'mdadm']) chmodSync(join(bin, name), 0o755);
    const listed = listBlockDevices(2000, `${bin}:/usr/bin:/bin`);
    // Command line of mdadm; empty: the process is gone, or dead and not collected yet.
    const commandOfMdadm = (): string => {
      try {
        return readFileSync(`/proc/${readFileSync(join(root, 'pid'), 'utf8').trim()}/cmdline`, 'utf8');
      } catch {
        return '';
      }
    };
    // A program that this process waited for would have ended, or been killed, by now.
    await vi.waitFor(() => expect(commandOfMdadm()).toContain('sleep'), 2000);
    await expect(listed).rejects.toThrow('no answer within 2 s');
    await vi.waitFor(() => expect(commandOfMdadm()).toBe(''));
  });

  test('of this machine are read within the deadline', async () => {
    const facts = await readHostFacts({ holds: { state: '/' } });
    expect(facts.numaNodes?.length).toBeGreaterThan(0);
    expect(facts.fileSystems).toMatchObject([{ holds: 'state' }]);
  });
});

test('the name of the system is that of its distribution', async ({ root }) => {
  expect(await readOsName(root)).toBe('');
  put(root, { 'usr/lib/os-release': "PRETTY_NAME='Fedora Linux 40'\n" });
  expect(await readOsName(root)).toBe('Fedora Linux 40');
  put(root, { 'etc/os-release': 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.1 LTS"\n' });
  expect(await readOsName(root)).toBe('Ubuntu 24.04.1 LTS');
});

test.for([
  ['Amazon EC2', 'p5.48xlarge', 'fpu hypervisor sse', '', 'amazon'],
  ['Amazon EC2', 'p4d.metal', 'fpu sse', '', 'none'],
  ['Google', 'Google Compute Engine', 'hypervisor', '', 'google'],
  ['Microsoft Corporation', 'Virtual Machine', 'hypervisor', '', 'microsoft'],
  ['Microsoft Corporation', 'Surface', 'fpu', '', 'none'],
  ['VMware, Inc.', 'VMware Virtual Platform', 'hypervisor', '', 'vmware'],
  ['QEMU', 'Standard PC (Q35 + ICH9, 2009)', 'hypervisor', '', 'kvm'],
  ['Xen', 'HVM domU', 'hypervisor', 'xen', 'xen'],
  ['', '', 'hypervisor', '', 'other'],
  ['NVIDIA', 'GH200', undefined, '', ''],
  ['QEMU', 'KVM Virtual Machine', undefined, '', 'kvm'],
] as const)('%s %s with the flags %s and the type "%s": %s', ([vendor, product, flags, hypervisor, expected]) => {
  const cpuInfo = flags === undefined ? 'CPU part : 0xd4f\n' : `flags\t\t: ${flags}\n`;
  expect(virtualizationOf({ vendor, product, hypervisor, cpuInfo })).toBe(expected);
});

test('a check lists them, and warns of images and state on file systems of other hosts', () => {
  const findings = inventoryFindings({
    vendor: 'A',
    product: 'B',
    virtualization: 'none',
    nics: [{ name: 'ens1', up: true, speedMbps: 100_000, driver: 'mlx5_core' }, { name: 'ens2' }],
    disks: [{ name: 'sda', kind: 'ssd', bytes: 5e11 }],
    numaNodes: [{ id: 0 }, { id: 1 }],
    fileSystems: [
      { holds: 'state', type: 'ext4', device: '/dev/sda1' },
      { holds: 'images', type: 'nfs4', device: 'filer:/x' },
    ],
  });
  expect(findings.map(({ check, level, found }) => [check, level, found])).toEqual([
    ['host', 'ok', 'A B, no hypervisor, 2 NUMA nodes'],
    ['network', 'ok', 'ens1 100 Gbit/s mlx5_core, ens2 down'],
    ['disks', 'ok', 'sda ssd 500 GB'],
    ['file system', 'ok', 'state on ext4 (/dev/sda1)'],
    ['file system', 'warning', 'images lie on nfs4 (filer:/x)'],
  ]);
  expect(inventoryFindings({}).map(({ found }) => found)).toEqual(['not known', 'not known', 'not known']);
});

test("memory of GPUs that comes online as nodes without processors is none of the host's", () => {
  const node = (id: number, cpus: string, gib: number) => ({ id, cpus, memoryBytes: gib * 2 ** 30 });
  const total = 576 * 2 ** 30;
  // A GH200: one node with processors and 480 GiB, one of HBM, and empty ones for slices.
  const superchip = [node(0, '0-71', 480), node(1, '', 96), node(2, '', 0)];
  expect(hostMemory(total, superchip)).toBe(480 * 2 ** 30);
  // Ordinary hosts, with the kernel's own count.
  expect(hostMemory(total, [node(0, '0-31', 288), node(1, '32-63', 288)])).toBe(total);
  expect(hostMemory(total, [node(0, '0-31', 576), node(1, '', 0)])).toBe(total);
  expect(hostMemory(total, [])).toBe(total);
  expect(hostMemory(2 ** 30, superchip)).toBe(2 ** 30);
});
