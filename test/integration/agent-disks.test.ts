// Bytes that a container wrote, counted on a real disk by real programs.
// test/hosts/attacks-disk.test.ts shows which container ends for it.
import { execFileSync } from 'node:child_process';
import { chmod, mkdir, mkdtemp, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished } from 'vitest';
import { createLog } from '#shared/log.ts';
import { dockerRuntime } from '#agent/containers/engine/docker.ts';
import { countByContainer, countVolumesByContainer } from '#agent/containers/helpers.ts';
import { PAUSE_IMAGE } from '#agent/containers/pause-image.ts';
import type { DiskUse } from '#agent/telemetry/container-disks.ts';
import { ContainerDisks } from '#agent/telemetry/container-disks.ts';
import { countEachHere } from '#agent/telemetry/count-blocks.ts';
import { VolumeUse } from '#agent/volumes/use.ts';
import { runInChild } from '#agent/child.ts';
import { freezableDisk } from '../helpers/freezable-disk.ts';
import type { TestDocker } from '../helpers/services.ts';
import { test as base } from '../helpers/services.ts';

const MIB = 1024 ** 2;
const repository = new URL('../../', import.meta.url).pathname;
const test = base.extend('view', async ({ task: _task }, { onCleanup }): Promise<string> => {
  const view = await mkdtemp(join(tmpdir(), 'ls-view-'));
  onCleanup(() => rm(view, { recursive: true, force: true }));
  return view;
});

async function writer(docker: TestDocker, script: string, image = PAUSE_IMAGE): Promise<string> {
  const container = await docker.run({
    Image: image,
    Entrypoint: ['sh', '-c', `${script}; echo written; exec sleep 600`],
    HostConfig: { NetworkMode: 'none' },
  });
  const written = async (): Promise<string> => (await container.logs({ stdout: true })).toString();
  await expect.poll(written, { timeout: 20_000 }).toContain('written');
  return container.id;
}

/** Looks once, as an agent does after a quarter of the limit was taken. */
async function lookAt(docker: TestDocker, dockerId: string, view: string, limitBytes: number) {
  const over: DiskUse[] = [];
  let helped = 0;
  let freeBytes = 1000 * limitBytes;
  const disks = new ContainerDisks({
    runtime: dockerRuntime(process.env['DOCKER_HOST']),
    running: () => [{ containerId: 'c1', dockerId, shortId: 's1' }],
    viewOf: () => view,
    limitBytes,
    fileSystems: async () => [{ freeBytes: (freeBytes -= limitBytes / 4), low: false }],
    countByHelper: (paths) => {
      helped += 1;
      return countByContainer(dockerRuntime(process.env['DOCKER_HOST']), paths, docker.labels);
    },
    countVolumes: (folders) =>
      countVolumesByContainer(dockerRuntime(process.env['DOCKER_HOST']), folders, docker.labels),
    onLook: () => undefined,
    log: createLog({ name: 'test', level: 'silent' }),
  });
  disks.onOver((use) => over.push(use));
  await disks.round();
  await disks.round();
  return { used: disks.usedBy('c1'), over, helped };
}

test('root and view count together, by blocks, and what is over the limit is told once it is', async ({
  docker,
  view,
}) => {
  const dockerId = await writer(docker, 'head -c 3000000 /dev/urandom > /a');
  await writeFile(join(view, 'b'), Buffer.alloc(3 * MIB, 1));
  // A file with holes takes no room.
  await writeFile(join(view, 'holes'), '');
  await truncate(join(view, 'holes'), 100 * MIB);
  const below = await lookAt(docker, dockerId, view, 16 * MIB);
  expect(below.over).toEqual([]);
  expect(below.used).toBeGreaterThan(5.8 * MIB);
  expect(below.used).toBeLessThan(6.5 * MIB);
  const above = await lookAt(docker, dockerId, view, 5 * MIB);
  expect(above.over).toEqual([{ containerId: 'c1', usedBytes: above.used, isCounted: true }]);
  expect([below.helped, above.helped]).toEqual([0, 0]);
});

test('a process without any capability counts what a container has closed to others, by a helper', async ({
  docker,
  view,
}) => {
  await mkdir(join(view, 'closed'));
  await writeFile(join(view, 'closed', 'big'), Buffer.alloc(6 * MIB, 1));
  await chmod(join(view, 'closed'), 0o000);
  const dockerId = await writer(docker, ':');
  const source = `
    import { dockerRuntime } from '${repository}agent/containers/engine/docker.ts';
    import { countByContainer } from '${repository}agent/containers/helpers.ts';
    import { ContainerDisks } from '${repository}agent/telemetry/container-disks.ts';
    const runtime = dockerRuntime(process.env['DOCKER_HOST']);
    const over = [];
    let freeBytes = 1e12;
    const disks = new ContainerDisks({
      runtime,
      running: () => [{ containerId: 'c1', dockerId: ${JSON.stringify(dockerId)}, shortId: 's1' }],
      viewOf: () => ${JSON.stringify(view)},
      limitBytes: ${5 * MIB},
      fileSystems: async () => [{ freeBytes: (freeBytes -= 1e9), low: false }],
      countByHelper: (paths) => countByContainer(runtime, paths, ${JSON.stringify(docker.labels)}),
      onLook: () => undefined,
      log: { warn: (what) => process.stderr.write(String(what.err.message)) },
    });
    disks.onOver((use) => over.push(use));
    await disks.round();
    await disks.round();
    process.stdout.write(JSON.stringify(over), () => process.exit(0));`;
  const args = ['--bounding-set', '-all', '--inh-caps', '-all', process.execPath, '--input-type=module', '-e', source];
  const over = JSON.parse(execFileSync('setpriv', args, { encoding: 'utf8', timeout: 60_000 })) as DiskUse[];
  await chmod(join(view, 'closed'), 0o700);
  expect(over).toHaveLength(1);
  expect(over[0]?.usedBytes).toBeGreaterThan(6 * MIB - 1);
});

test('volumes that an image brings count, and go with the container', async ({ docker, view }) => {
  const image = `ls-test-volumes-${docker.label.replace('.', '-')}`;
  const plain = docker.client.getContainer(await writer(docker, ':'));
  await plain.commit({ repo: image, changes: 'VOLUME ["/data", "/a b"]' });
  try {
    const script = 'head -c 4000000 /dev/urandom > /data/x; head -c 4000000 /dev/urandom > "/a b/x"; echo > /own';
    const dockerId = await writer(docker, script, image);
    const below = await lookAt(docker, dockerId, view, 64 * MIB);
    expect(below.over).toEqual([]);
    expect(below.used).toBeGreaterThan(7.6 * MIB);
    const above = await lookAt(docker, dockerId, view, 5 * MIB);
    expect(above.over).toEqual([{ containerId: 'c1', usedBytes: above.used, isCounted: true }]);
    const { Mounts } = await docker.client.getContainer(dockerId).inspect();
    const names = Mounts.map(({ Name = '' }) => Name);
    expect(names).toHaveLength(2);
    await dockerRuntime(process.env['DOCKER_HOST']).remove(dockerId);
    const { Volumes } = await docker.client.listVolumes();
    expect((Volumes ?? []).filter(({ Name }) => names.includes(Name))).toEqual([]);
  } finally {
    await docker.removeOwn();
    await docker.client.getImage(image).remove({ force: true });
  }
});

test('several are counted by one child, each for itself: whole, gone, closed, or too slow', async ({ view }) => {
  const folder = async (name: string, mib: number): Promise<string> => {
    const path = join(view, name);
    await mkdir(path);
    await writeFile(join(path, 'file'), Buffer.alloc(mib * MIB, 1));
    return path;
  };
  const [one, two, three] = [await folder('one', 1), await folder('with a space', 2), await folder('three', 4)];
  const before = process.getActiveResourcesInfo().filter((kind) => kind === 'ProcessWrap').length;
  const counting = countEachHere([[one, two], [join(view, 'gone')], [three]]);
  expect(process.getActiveResourcesInfo().filter((kind) => kind === 'ProcessWrap').length).toBe(before + 1);
  const inMib = (await counting).map((bytes) => (bytes === undefined ? undefined : Math.round(bytes / MIB)));
  expect(inMib).toEqual([3, 0, 4]);
  // No walk through a whole system takes only 20 ms.
  const [system] = await countEachHere([['/usr']], { walkMs: 20 });
  expect(system).toBeUndefined();
});

test('of processes that a kill does not end there are 16 at most, also where their shell has ended', async ({
  view,
}) => {
  const disk = await freezableDisk();
  onTestFinished(() => disk.close());
  const du = join(view, 'du');
  await writeFile(du, `#!/bin/sh\necho x > ${disk.dir}/file\n`, { mode: 0o755 });
  const write = () => runInChild('(echo x > "$1/file"); true', [disk.dir], 500).then(String, String);
  try {
    disk.freeze();
    const late = 'NoAnswer: no answer within 0.5 s';
    const hang = async (many: number) => new Set(await Promise.all(Array.from({ length: many }, write)));
    expect(await hang(7)).toEqual(new Set([late]));
    // Walking programs count towards the same bound, and leave half of it to volumes.
    expect(await countEachHere([[disk.dir]], { walkMs: 800, marginMs: 700, du })).toEqual([undefined]);
    expect(await countEachHere([[view], [view]])).toEqual([undefined, undefined]);
    expect(await hang(8)).toEqual(new Set([late]));
    expect(await write()).toBe('NoAnswer: 16 processes already wait for file systems that do not answer');
  } finally {
    disk.thaw();
  }
  await expect.poll(async () => (await countEachHere([[view]]))[0]).toBeGreaterThan(0);
  expect(await write()).toBe('');
});

test('an engine whose storage cannot limit roots says so, and makes nothing', async ({ docker }) => {
  const runtime = dockerRuntime(process.env['DOCKER_HOST']);
  expect(await runtime.canLimitRoots(PAUSE_IMAGE, docker.labels)).toBe(false);
  expect(await runtime.list(docker.labels)).toEqual([]);
});

test('volumes are counted by workspace, and nothing else in that folder', async ({ docker, view }) => {
  for (const [workspace, mib] of [
    ['ws-1', 2],
    ['ws-2', 5],
  ] as const) {
    await mkdir(join(view, workspace, 'v1'), { recursive: true });
    await writeFile(join(view, workspace, 'v1', 'file'), Buffer.alloc(mib * MIB, 1));
  }
  await mkdir(join(view, '.probe-1'));
  const told: Readonly<Record<string, number>>[] = [];
  const use = new VolumeUse({
    root: view,
    countByHelper: (paths) => countByContainer(dockerRuntime(process.env['DOCKER_HOST']), paths, docker.labels),
    tell: (bytes) => told.push(bytes),
    log: createLog({ name: 'test', level: 'silent' }),
  });
  await use.round();
  expect(Object.keys(told[0] ?? {})).toEqual(['ws-2', 'ws-1']);
  const [second, first] = Object.values(told[0] ?? {});
  expect(first).toBeGreaterThanOrEqual(2 * MIB);
  expect(second).toBeGreaterThanOrEqual(5 * MIB);
  expect(second).toBeLessThan(5.5 * MIB);

  for (const workspace of ['ws-1', 'ws-2', 'ws-3']) {
    await mkdir(join(view, workspace), { recursive: true });
    await writeFile(join(view, workspace, 'more'), Buffer.alloc(10 * MIB, 1));
  }
  await use.round(new Set(['ws-1']));
  expect(Object.keys(told[1] ?? {})).toEqual(['ws-1', 'ws-2']);
  expect(told[1]?.['ws-1']).toBeGreaterThanOrEqual(12 * MIB);
  expect(told[1]?.['ws-2']).toBe(second);
});
