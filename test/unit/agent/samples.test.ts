// Resource use of containers, read from trees of files as the kernel lays them out. The trees are control groups v1 (a
// tree for each controller) and v2 (one tree), by the cgroupfs and the systemd driver.
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test as base } from 'vitest';
import { createLog } from '#shared/log.ts';
import { HostUse } from '../../../agent/telemetry/host-use.ts';
import { Sampler } from '../../../agent/telemetry/samples.ts';
import { tempDirectory } from '../../helpers/programs.ts';

const net = (received: number, sent: number): string =>
  `Inter-|\n face |bytes\n    lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n  eth0: ${received} ${received / 50} 0 0 0 0 0 0 ${sent} ${sent / 50} 0 0 0 0 0 0\n`;

interface Tree {
  readonly root: string;
  readonly sampler: Sampler;
  readonly write: (path: string, text: string) => void;
  readonly remove: (path: string) => void;
}

// oxlint-disable-next-line no-empty-pattern -- vitest reads a fixture's needs from the pattern
const test = base.extend('tree', async ({}, { onCleanup }): Promise<Tree> => {
  const directory = tempDirectory('cgroup');
  const root = directory.path;
  const sampler = new Sampler(
    { pidOf: () => Promise.resolve(300) },
    createLog({ name: 'test', level: 'silent' }),
    root,
  );
  onCleanup(() => {
    sampler.close();
    directory.remove();
  });
  const write = (path: string, text: string): void => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  };
  write('proc/300/net/dev', net(100, 200));
  return { root, sampler, write, remove: (path) => rmSync(join(root, path), { recursive: true }) };
});

const ONE = [{ containerId: 'c1', dockerId: 'abc' }];
const CG = 'sys/fs/cgroup';

const LAYOUTS: readonly {
  readonly layout: string;
  readonly proc: string;
  readonly ids: string;
  readonly files: (cpuMicroseconds: number, diskBytes: number) => Readonly<Record<string, string>>;
}[] = [
  {
    layout: 'v1',
    proc: '12:memory:/docker/abc\n7:pids:/docker/abc\n5:cpu,cpuacct:/docker/abc\n4:blkio:/docker/abc\n0::/system.slice/docker.service\n',
    ids: 'memory/docker/abc/cgroup.procs',
    files: (cpu, disk) => ({
      'cpuacct/docker/abc/cpuacct.usage': `${cpu * 1000}\n`,
      'memory/docker/abc/memory.usage_in_bytes': '52428800\n',
      'memory/docker/abc/memory.stat': 'total_rss 1000\ntotal_swap 77\ntotal_inactive_file 12582912\n',
      'pids/docker/abc/pids.current': '7\n',
      'blkio/docker/abc/blkio.throttle.io_service_bytes': `8:0 Read ${disk}\n8:0 Write ${disk * 2}\nTotal 0\n`,
    }),
  },
  ...['system.slice/docker-abc.scope', 'docker/abc'].map((group) => ({
    layout: `v2, ${group}`,
    proc: `0::/${group}\n`,
    ids: `${group}/cgroup.procs`,
    files: (cpu: number, disk: number) => ({
      [`${group}/cpu.stat`]: `usage_usec ${cpu}\nuser_usec 1\nsystem_usec 1\n`,
      [`${group}/memory.current`]: '52428800\n',
      [`${group}/memory.stat`]: 'anon 900\nshmem 100\ninactive_file 12582912\n',
      [`${group}/memory.swap.current`]: '77\n',
      [`${group}/pids.current`]: '7\n',
      [`${group}/io.stat`]: `8:0 rbytes=${disk} wbytes=${disk * 2} rios=1 wios=1\n`,
    }),
  })),
];

const STAT = (bytes: number): string => `9 (python) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 ${bytes} 1\n`;

test.for(LAYOUTS)(
  'a container is sampled on control groups $layout, and left out when it ends',
  async ({ proc, files, ids }, { tree }) => {
    const put = (cpu: number, disk: number): void => {
      for (const [name, text] of Object.entries(files(cpu, disk))) tree.write(`${CG}/${name}`, text);
    };
    tree.write('proc/300/cgroup', proc);
    tree.write(`${CG}/${ids}`, '300\n301\n302\n');
    tree.write('proc/300/stat', STAT(5_000));
    tree.write('proc/301/stat', STAT(700));
    put(1_000_000, 4_096);
    expect(await tree.sampler.round(ONE)).toEqual([
      {
        containerId: 'c1',
        cpuMillicores: 0,
        cpuMicroseconds: 1_000_000,
        memoryBytes: 39_845_888,
        memoryRssBytes: 1_000,
        memoryVmsBytes: 5_700,
        memorySwapBytes: 77,
        processes: 7,
        receivedBytes: 100,
        sentBytes: 200,
        since: null,
      },
    ]);
    put(1_500_000, 8_192);
    tree.write('proc/300/net/dev', net(1_100, 150));
    const [second] = await tree.sampler.round(ONE);
    expect(second?.cpuMicroseconds).toBe(1_500_000);
    expect(second?.cpuMillicores).toBeGreaterThan(0);
    // Fewer sent bytes than before: an interface is gone.
    expect(second?.since).toEqual({
      intervalMs: expect.any(Number),
      cpuMicroseconds: 500_000,
      diskReadBytes: 4_096,
      diskWriteBytes: 8_192,
      receivedBytes: 1_000,
      receivedPackets: 20,
      sentBytes: 0,
      sentPackets: 0,
    });
    expect(second?.since?.intervalMs).toBeGreaterThan(0);
    tree.remove('proc/300');
    expect(await tree.sampler.round(ONE)).toEqual([]);
  },
);

test('the address space is counted every sixth time; a kernel without disk counters and swap tells neither', async ({
  tree,
}) => {
  const [v2] = LAYOUTS.slice(1);
  tree.write('proc/300/cgroup', v2?.proc ?? '');
  for (const [name, text] of Object.entries(v2?.files(1, 1) ?? {}))
    if (!/swap|io\.stat/.test(name)) tree.write(`${CG}/${name}`, text);
  tree.write(`${CG}/${v2?.ids}`, '300\n');
  const space: (number | string | undefined)[] = [];
  for (let round = 0; round < 13; round += 1) {
    tree.write('proc/300/stat', STAT(1_000 + round));
    const [sample] = await tree.sampler.round(ONE);
    space.push(Number(sample?.memoryVmsBytes));
    if (round > 0) expect(sample?.since).toMatchObject({ diskReadBytes: 0, diskWriteBytes: 0 });
    expect(sample?.memorySwapBytes).toBe(0);
  }
  expect(new Set(space)).toEqual(new Set([1_000, 1_001, 1_007]));
});

test('the use of the machine is a mean since the sample before; the disk is the one of images', ({ tree }) => {
  const use = new HostUse(tree.root, 4);
  const disk = { freeBytes: 30, usableBytes: 100, totalBytes: 120, freeInodesRatio: 1 };
  tree.write('proc/meminfo', 'MemTotal: 8000 kB\nMemAvailable: 6000 kB\n');
  tree.write('proc/stat', 'cpu  100 0 0 900 0 0 0 0 0 0\n');
  expect(use.sample(disk, 1_000)).toBeNull();
  tree.write('proc/stat', 'cpu  125 0 0 975 0 0 0 0 0 0\n');
  expect(use.sample(disk, 6_000)).toEqual({
    intervalMs: 5_000,
    cpuMillicores: 1_000,
    cpuCores: 4,
    memoryUsedBytes: 2000 * 1024,
    memoryTotalBytes: 8000 * 1024,
    diskUsedBytes: 70,
    diskTotalBytes: 100,
  });
  tree.remove('proc/meminfo');
  expect(use.sample(undefined, 11_000)).toBeNull();
});

test('a container without a control group of its own has no sample, and is looked for again', async ({ tree }) => {
  tree.write('proc/300/cgroup', '0::/\n');
  expect(await tree.sampler.round(ONE)).toEqual([]);
  const [v2] = LAYOUTS.slice(1);
  tree.write('proc/300/cgroup', v2?.proc ?? '');
  for (const [name, text] of Object.entries(v2?.files(1, 1) ?? {})) tree.write(`${CG}/${name}`, text);
  tree.write(`${CG}/${v2?.ids}`, '300\n');
  for (let round = 0; round < 6; round += 1) expect(await tree.sampler.round(ONE)).toEqual([]);
  expect(await tree.sampler.round(ONE)).toHaveLength(1);
});
