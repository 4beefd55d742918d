// The hardware of a host, read from trees of files as kernels show them.
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, expect, onTestFinished, test as base, vi } from 'vitest';
import { inventoryFindings } from '../../../agent/preflight/inventory.ts';
import { readHostFacts, readOsName, virtualizationOf } from '../../../agent/telemetry/host-facts.ts';

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
  aDisk(root, 'nvme0n1', { 'device/model': 'SAMSUNG MZQL23T8HCLS-00A07              \n', dev: '259:0\n' });
  aDisk(root, 'nvme0c1n1', { 'device/model': 'another path to it\n', hidden: '1\n' });
  // The kernel cuts models of SATA disks.
  const sata = { 'device/type': '0\n', 'queue/rotational': '1\n', size: '15628053168\n' };
  aDisk(root, 'sda', { ...sata, 'device/model': 'ST8000NM000A-2KE\n', dev: '8:0\n' });
  const udev =
    'S:disk/by-id/x\nE:ID_MODEL=ST8000NM000A-2KE101\nE:ID_MODEL_ENC=ST8000NM000A-2KE101\\x20\\x20\nE:ID_SERIAL=x\n';
  put(root, { 'run/udev/data/b8:0': udev });
  aDisk(root, 'sdb', { 'device/type': '0\n', 'device/model': 'SAMSUNG MZ7LH3T8\n', dev: '8:16\n' });
  aDisk(root, 'sdc', { 'device/type': '0\n', size: '0\n' });
  aDisk(root, 'sr0', { 'device/type': '5\n' });
  aDisk(root, 'vda', { 'device/vendor': '0x1af4\n', 'queue/rotational': '1\n' });
  aDisk(root, 'fd0', { 'device/modalias': 'platform:floppy\n', size: '8\n' });
  for (const name of ['md0', 'dm-0', 'loop0', 'zram0']) aDisk(root, name, {});
  mkdirSync(join(root, 'drivers/mlx5_core'), { recursive: true });
  symlinkSync(join(root, 'drivers/mlx5_core'), join(root, 'sys/class/net/ens1f0/device/driver'));
}

/** A block device; one with a `device` folder is hardware. */
function aDisk(root: string, name: string, files: Readonly<Record<string, string>>): void {
  const all = { size: '7501476528\n', 'queue/rotational': '0\n', ...files };
  put(root, Object.fromEntries(Object.entries(all).map(([path, text]) => [`sys/block/${name}/${path}`, text])));
}

describe('the facts of a host', () => {
  test('are its devices, without what belongs to containers, and without addresses', async ({ root }) => {
    aServer(root);
    const facts = await readHostFacts({
      root,
      holds: { state: '/var/lib/longshore-agent', images: '/var/lib/docker', other: '/mnt/with blank/x' },
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
        { name: 'nvme0n1', kind: 'nvme', bytes: 7_501_476_528 * 512, model: 'SAMSUNG MZQL23T8HCLS-00A07' },
        { name: 'sda', kind: 'hdd', bytes: 15_628_053_168 * 512, model: 'ST8000NM000A-2KE101' },
        { name: 'sdb', kind: 'ssd', bytes: 7_501_476_528 * 512, model: 'SAMSUNG MZ7LH3T8' },
        { name: 'vda', kind: 'hdd', bytes: 7_501_476_528 * 512, model: '' },
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
    const size = join(root, 'sys/block/sda/size');
    rmSync(size);
    // Whoever opens it waits for a writer.
    execFileSync('mkfifo', [size]);
    const never = await readHostFacts({ root, holds: { state: '/' }, deadlineMs: 500 });
    writeFileSync(size, '');
    expect(never).toMatchObject({ vendor: 'Supermicro', disks: [], fileSystems: [], nics: [{}, {}, {}] });
    const failing = { root: join(root, 'nothing'), holds: {} };
    expect(await readHostFacts(failing)).toMatchObject({ virtualization: '', nics: [], disks: [], numaNodes: [] });
  });

  test('have bounds: of hundreds of devices 64, of a text 100 letters', async ({ root }) => {
    put(root, { 'sys/class/dmi/id/sys_vendor': 'x'.repeat(5000) });
    for (let at = 0; at < 70; at += 1) aDisk(root, `sd${at}`, { 'device/model': 'y'.repeat(999) });
    const { vendor, disks } = await readHostFacts({ root, holds: {} });
    expect(vendor).toHaveLength(100);
    expect(disks).toHaveLength(64);
    expect(disks?.[0]?.model).toHaveLength(100);
  });

  test('are read without any program: mdadm, which waits for an array that does not answer, holds nothing up', async ({
    root,
  }) => {
    for (const [name, script] of [
      ['lsblk', `echo 'NAME="md0" TYPE="raid1" SIZE="1" FSTYPE="" MOUNTPOINT="" UUID="" ROTA="0" RO="0" RM="0"'`],
      ['mdadm', 'exec sleep 2'],
    ]) {
      put(root, { [`bin/${name}`]: `#!/bin/sh\necho ${name} >> ${join(root, 'ran')}\n${script}\n` });
      chmodSync(join(root, 'bin', String(name)), 0o755);
    }
    put(root, { ran: '' });
    vi.stubEnv('PATH', `${join(root, 'bin')}:${process.env['PATH']}`);
    onTestFinished(() => void vi.unstubAllEnvs());
    await readHostFacts({ holds: {} });
    expect(readFileSync(join(root, 'ran'), 'utf8')).toBe('');
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
