// Resource use of containers, read from trees of files as the kernel lays them out. The trees are control groups v1 (a
// tree for each controller) and v2 (one tree), by the cgroupfs and the systemd driver.
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test as base } from 'vitest';
import { createLog } from '#shared/log.ts';
import { Sampler } from '../../../agent/telemetry/samples.ts';
import { tempDirectory } from '../../helpers/programs.ts';

const NET =
  'Inter-|\n face |bytes\n    lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n  eth0: 100 1 0 0 0 0 0 0 200 1 0 0 0 0 0 0\n';

interface Tree {
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
  write('proc/300/net/dev', NET);
  return { sampler, write, remove: (path) => rmSync(join(root, path), { recursive: true }) };
});

const ONE = [{ containerId: 'c1', dockerId: 'abc' }];
const CG = 'sys/fs/cgroup';

const LAYOUTS: readonly {
  readonly layout: string;
  readonly proc: string;
  readonly files: (cpuMicroseconds: number) => Readonly<Record<string, string>>;
}[] = [
  {
    layout: 'v1',
    proc: '12:memory:/docker/abc\n7:pids:/docker/abc\n5:cpu,cpuacct:/docker/abc\n0::/system.slice/docker.service\n',
    files: (cpu) => ({
      'cpuacct/docker/abc/cpuacct.usage': `${cpu * 1000}\n`,
      'memory/docker/abc/memory.usage_in_bytes': '52428800\n',
      'memory/docker/abc/memory.stat': 'inactive_file 1\ntotal_inactive_file 12582912\n',
      'pids/docker/abc/pids.current': '7\n',
    }),
  },
  ...['system.slice/docker-abc.scope', 'docker/abc'].map((group) => ({
    layout: `v2, ${group}`,
    proc: `0::/${group}\n`,
    files: (cpu: number) => ({
      [`${group}/cpu.stat`]: `usage_usec ${cpu}\nuser_usec 1\nsystem_usec 1\n`,
      [`${group}/memory.current`]: '52428800\n',
      [`${group}/memory.stat`]: 'anon 100\ninactive_file 12582912\n',
      [`${group}/pids.current`]: '7\n',
    }),
  })),
];

test.for(LAYOUTS)(
  'a container is sampled on control groups $layout, and left out when it ends',
  async ({ proc, files }, { tree }) => {
    const put = (cpu: number): void => {
      for (const [name, text] of Object.entries(files(cpu))) tree.write(`${CG}/${name}`, text);
    };
    tree.write('proc/300/cgroup', proc);
    put(1_000_000);
    expect(await tree.sampler.round(ONE)).toEqual([
      {
        containerId: 'c1',
        cpuMillicores: 0,
        cpuMicroseconds: 1_000_000,
        memoryBytes: 39_845_888,
        processes: 7,
        receivedBytes: 100,
        sentBytes: 200,
      },
    ]);
    put(1_500_000);
    const [second] = await tree.sampler.round(ONE);
    expect(second?.cpuMicroseconds).toBe(1_500_000);
    expect(second?.cpuMillicores).toBeGreaterThan(0);
    tree.remove('proc/300');
    expect(await tree.sampler.round(ONE)).toEqual([]);
  },
);

test('a container without a control group of its own has no sample, and is looked for again', async ({ tree }) => {
  tree.write('proc/300/cgroup', '0::/\n');
  expect(await tree.sampler.round(ONE)).toEqual([]);
  const [v2] = LAYOUTS.slice(1);
  tree.write('proc/300/cgroup', v2?.proc ?? '');
  for (const [name, text] of Object.entries(v2?.files(1) ?? {})) tree.write(`${CG}/${name}`, text);
  for (let round = 0; round < 6; round += 1) expect(await tree.sampler.round(ONE)).toEqual([]);
  expect(await tree.sampler.round(ONE)).toHaveLength(1);
});
