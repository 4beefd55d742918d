// The drivers of volumes by themselves: the mounts that they ask of
// the engine, and the deletion of files that containers' users own.
import { execFileSync } from 'node:child_process';
import { chmod, chown, lstat, mkdir, mkdtemp, readFile, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { dockerRuntime } from '#agent/containers/engine/docker.ts';
import { mountOptions } from '#agent/containers/engine/options.ts';
import { runWithMount } from '#agent/containers/helpers.ts';
import { DirectoryVolumes } from '#agent/volumes/directories.ts';
import { HomeMissing, VolumesHome } from '#agent/volumes/home.ts';
import { NfsVolumes, nfsExport } from '#agent/volumes/nfs.ts';
import { removeUnusedNfs } from '#agent/volumes/open.ts';
import { test as base } from '../helpers/services.ts';

const V1 = { workspaceId: 'ws-1', volumeId: 'v1' };
const repository = new URL('../../', import.meta.url).pathname;

const test = base.extend('root', async ({ task: _task }, { onCleanup }): Promise<string> => {
  const root = await mkdtemp(join(tmpdir(), 'ls-volumes-'));
  onCleanup(() => rm(root, { recursive: true, force: true }));
  return root;
});

test('what the engine is told of an nfs volume is what fstab would say, and always nosuid and nodev', () => {
  expect(nfsExport('nfs.example.com:/srv/longshore/', 'nfsvers=4,hard')).toEqual({
    type: 'nfs',
    device: ':/srv/longshore',
    o: 'addr=nfs.example.com,nfsvers=4,hard,nosuid,nodev',
  });
  expect(nfsExport('[fd00::1]:/x', '')).toEqual({ type: 'nfs', device: ':/x', o: 'addr=fd00::1,nosuid,nodev' });
});

test("a volume that the engine mounts: made by a one-shot container, seen by two containers, its files stay when the engine's volume goes", async ({
  docker,
  root,
}) => {
  const runtime = dockerRuntime(process.env['DOCKER_HOST']);
  const labels = { ...docker.labels };
  // A directory of this machine in the place of the server: the kernel may have no NFS.
  const driver = new NfsVolumes({
    export: { type: 'none', device: root, o: 'bind' },
    labels: () => labels,
    runWith: (mount, script, args, deadlineMs) => runWithMount(runtime, mount, script, args, labels, deadlineMs),
  });
  const source = await driver.mount(V1);
  if (source.kind !== 'engine') throw new Error('not mounted by the engine');
  expect((await lstat(join(root, 'ws-1', 'v1'))).mode & 0o777).toBe(0o777);
  const volume = { name: source.name, options: source.options, labels };
  const mount = mountOptions({ kind: 'volume', target: '/d', readOnly: false, source: '', volume });
  const run = async (script: string): Promise<number> => {
    const container = await docker.run({
      Cmd: ['sh', '-c', script],
      User: '4321',
      HostConfig: { Mounts: [mount], NetworkMode: 'none' },
    });
    return ((await container.wait()) as { StatusCode: number }).StatusCode;
  };
  expect(await run('echo one > /d/a')).toBe(0);
  expect(await run('test "$(cat /d/a)" = one')).toBe(0);
  expect(await readFile(join(root, 'ws-1', 'v1', 'a'), 'utf8')).toBe('one\n');
  await docker.removeOwn();
  await removeUnusedNfs(runtime, await runtime.listVolumes(labels));
  expect(await runtime.listVolumes(labels)).toEqual([]);
  expect(await readdir(join(root, 'ws-1', 'v1'))).toEqual(['a']);
  await driver.remove(V1);
  expect(await readdir(join(root, 'ws-1'))).toEqual([]);
  await removeUnusedNfs(runtime, await runtime.listVolumes(labels));
});

test("a process without any capability deletes a volume with files of containers' users, and follows no link out of it", async ({
  docker,
  root,
}) => {
  const volume = join(root, 'ws-1', 'v1');
  await mkdir(join(volume, 'closed'), { recursive: true });
  await writeFile(join(volume, 'closed', 'file'), 'x');
  await mkdir(join(root, 'outside'));
  await writeFile(join(root, 'outside', 'kept'), 'x');
  await symlink(join(root, 'outside'), join(volume, 'closed', 'out'));
  await symlink(join(root, 'outside'), join(volume, '.hidden'));
  await chown(join(volume, 'closed'), 4321, 4321);
  await chmod(join(volume, 'closed'), 0o700);
  const source = `
    import { dockerRuntime } from '${repository}agent/containers/engine/docker.ts';
    import { emptyByContainer } from '${repository}agent/containers/helpers.ts';
    import { DirectoryVolumes } from '${repository}agent/volumes/directories.ts';
    const calls = [];
    const volumes = new DirectoryVolumes({ name: 'local', root: ${JSON.stringify(root)}, emptyByContainer: async (path) => {
      calls.push(path);
      await emptyByContainer(dockerRuntime(process.env['DOCKER_HOST']), path, ${JSON.stringify(docker.labels)});
    } });
    await volumes.remove(${JSON.stringify(V1)});
    await volumes.remove(${JSON.stringify(V1)});
    process.stdout.write(JSON.stringify(calls), () => process.exit(0));`;
  const args = ['--bounding-set', '-all', '--inh-caps', '-all', process.execPath, '--input-type=module', '-e', source];
  const calls = JSON.parse(execFileSync('setpriv', args, { encoding: 'utf8', timeout: 60_000 })) as unknown;
  expect(calls).toEqual([join(root, 'ws-1', '.gone-v1')]);
  expect(await readdir(join(root, 'ws-1'))).toEqual([]);
  expect(await readdir(join(root, 'outside'))).toEqual(['kept']);
});

test('a link in the place of a volume, or of its workspace, is neither mounted nor deleted', async ({ root }) => {
  const volumes = new DirectoryVolumes({
    name: 'local',
    root,
    emptyByContainer: () => Promise.reject(new Error('not asked for')),
  });
  await mkdir(join(root, 'outside', 'v1'), { recursive: true });
  await writeFile(join(root, 'outside', 'v1', 'kept'), 'x');
  await mkdir(join(root, 'ws-1'));
  await symlink(join(root, 'outside', 'v1'), join(root, 'ws-1', 'v1'));
  await symlink(join(root, 'outside'), join(root, 'ws-2'));
  for (const one of [V1, { workspaceId: 'ws-2', volumeId: 'v1' }]) {
    await expect(volumes.mount(one)).rejects.toThrow('is a link or no directory');
    await expect(volumes.remove(one)).rejects.toThrow('is a link: not deleted');
  }
  expect(await readdir(join(root, 'outside', 'v1'))).toEqual(['kept']);
});

test('a disk that is not mounted is not replaced by the disk below, neither before nor under running volumes', async ({
  root,
}) => {
  const [disk, stateDir] = [join(root, 'scratch'), join(root, 'state')];
  for (const path of [disk, stateDir]) await mkdir(path);
  const mount = () => execFileSync('mount', ['-t', 'tmpfs', 'longshore-test', disk]);
  const umount = () => execFileSync('umount', [disk]);
  for (const home of [join(disk, 'longshore'), disk]) {
    // Another agent process each time, as after a boot.
    const volumes = (name: 'cache' | 'shared') =>
      new DirectoryVolumes({
        name,
        root: home,
        home: new VolumesHome({ name, root: home, stateDir }),
        emptyByContainer: async () => undefined,
      });
    mount();
    try {
      if (home !== disk) {
        // The first time: the agent says what to do, and does not make the directory.
        await expect(volumes('cache').mount(V1)).rejects.toThrow(`mkdir -m 700 ${home}`);
        await mkdir(home);
      }
      const running = volumes('cache');
      await running.probe();
      await volumes('shared').mount(V1);
      umount();
      for (const one of [running, volumes('cache'), volumes('shared')]) {
        await expect(one.mount(V1)).rejects.toThrow(HomeMissing);
        await expect(one.probe()).rejects.toThrow(HomeMissing);
      }
      expect(await readdir(disk)).toEqual([]);
      mount();
      if (home !== disk) await mkdir(home);
      // An empty new disk: the operator says so.
      await expect(running.mount(V1)).rejects.toThrow(`touch ${join(home, '.longshore-disk')}`);
      await writeFile(join(home, '.longshore-disk'), '');
      expect(await running.mount(V1)).toEqual({ kind: 'bind', path: join(home, 'ws-1', 'v1') });
    } finally {
      umount();
    }
  }
});
