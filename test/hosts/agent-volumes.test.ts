// Volumes as a real agent mounts them into real containers.
import { lstat, mkdir, mkdtemp, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { ContainerSpec, ObservedContainer, VolumeMount } from '#shared/protocol/generated/messages.ts';
import { agentWorld, zip } from '../helpers/agent.ts';
import type { AgentWorld } from '../helpers/agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import { freezableDisk } from '../helpers/freezable-disk.ts';
import { test as base } from '../helpers/services.ts';

interface Volumes {
  readonly world: AgentWorld;
  /** Starts a container with these volumes and waits until it serves. */
  readonly start: (mounts: Readonly<Record<string, string>>, spec?: Partial<ContainerSpec>) => Promise<string>;
  /** Asks for a container with one volume that cannot be had. @returns how it ended */
  readonly failed: (volume: VolumeMount) => Promise<ObservedContainer>;
  /** Runs Python in it and gives its value. */
  readonly evaluate: (containerId: string, expression: string) => Promise<unknown>;
  readonly stop: (containerId: string) => Promise<void>;
  readonly directory: (volumeId: string) => string;
}

const SOURCE = `
import errno, fcntl, glob, os, pathlib, stat, subprocess
def write(path, text):
    pathlib.Path(path).write_text(text)
    return True
def read(path):
    return pathlib.Path(path).read_text()
def add(path, text):
    with open(path, "a") as file:
        file.write(text)
    return True
def put(path, at, text):
    with open(path, "r+") as file:
        file.seek(at)
        file.write(text)
    return True
held = []
def lock(path):
    file = open(path, "a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return errno.errorcode[error.errno]
    held.append(file)
    return "held"
def handler(expression):
    return eval(expression)
`;

const test = base
  .extend('shared', async ({ task: _task }, { onCleanup }): Promise<string> => {
    const dir = await mkdtemp(join(tmpdir(), 'ls-shared-'));
    onCleanup(() => rm(dir, { recursive: true, force: true }));
    return dir;
  })
  .extend('volumes', async ({ docker, shared }, { onCleanup }): Promise<Volumes> => {
    const world = await agentWorld(docker.labels, {
      LONGSHORE_SHARED_VOLUMES_DIR: shared,
      LONGSHORE_NFS_VOLUMES: '127.0.0.1:/export/longshore',
    });
    const { scheduler } = world;
    onCleanup(() => world.end());
    await world.agent.start();
    await world.agent.connected;
    const assignments = new Map<string, ReturnType<typeof anAssignment>>();
    let calls = 0;
    return {
      world,
      start: async (mounts, spec = {}) => {
        const code = scheduler.addArchive(await zip({ 'app.py': SOURCE, 'taken/inner.txt': 'code' }));
        // `shared:v1` is volume v1 of that driver.
        const volumes = Object.entries(mounts).map(([mountPath, text]) => {
          const [volumeId = '', driver = ''] = text.split(':').toReversed();
          return { volumeId, mountPath, driver };
        });
        const assignment = anAssignment({ code, volumes, ...spec });
        assignments.set(assignment.containerId, assignment);
        scheduler.desire([...assignments.values()]);
        await scheduler.phase(assignment.containerId, 'running');
        return assignment.containerId;
      },
      failed: async (volume) => {
        const code = scheduler.addArchive(await zip({ 'app.py': SOURCE }));
        const assignment = anAssignment({ code, volumes: [volume] });
        scheduler.desire([...assignments.values(), assignment]);
        return scheduler.phase(assignment.containerId, 'removed');
      },
      evaluate: async (containerId, expression) => {
        const taskId = `t${(calls += 1)}`;
        scheduler.run(taskId, containerId, JSON.stringify({ expression }));
        const result = await scheduler.resultOf(taskId);
        const text = result.whole.toString();
        if (result.outcome !== 'ok') throw new Error(`${expression}: ${text}`);
        return JSON.parse(text) as unknown;
      },
      stop: async (containerId) => {
        const assignment = assignments.get(containerId);
        if (assignment === undefined) throw new Error(`no ${containerId}`);
        assignments.delete(containerId);
        scheduler.desire([
          ...assignments.values(),
          { ...assignment, stop: true, graceMs: 5000, stopReason: 'scaled_in' },
        ]);
        await scheduler.phase(containerId, 'removed');
      },
      directory: (volumeId) => join(world.dataDir, 'volumes', 'ws-1', volumeId),
    };
  });

test('a volume is seen at its places, outlives its container, and holds what the next one reads', async ({
  volumes,
}) => {
  const first = await volumes.start({ 'models/large': 'v1', '/data': 'v2' });
  expect(await volumes.evaluate(first, 'write("models/large/a", "one") and write("/data/b", "two")')).toBe(true);
  expect(
    await volumes.evaluate(
      first,
      '[read("/volumes/models/large/a"), read("/mnt/code/models/large/a"), read("/volumes/data/b")]',
    ),
  ).toEqual(['one', 'one', 'two']);
  await volumes.stop(first);
  expect(await readFile(join(volumes.directory('v1'), 'a'), 'utf8')).toBe('one');
  const second = await volumes.start({ renamed: 'v1' });
  expect(await volumes.evaluate(second, 'read("renamed/a")')).toBe('one');
  expect(await volumes.evaluate(second, 'glob.glob("/volumes/*")')).toEqual(['/volumes/renamed']);
});

test('two containers see what the other writes, and an agent that is started again mounts the same', async ({
  volumes,
}) => {
  const [one, other] = await Promise.all([volumes.start({ shared: 'v1' }), volumes.start({ '/shared': 'v1' })]);
  await volumes.evaluate(one, 'write("shared/from-one", "1")');
  expect(await volumes.evaluate(other, 'read("/shared/from-one")')).toBe('1');
  await volumes.evaluate(other, 'write("/shared/from-other", "2")');
  expect(await volumes.evaluate(one, 'read("shared/from-other")')).toBe('2');
  await volumes.world.agent.stop();
  await volumes.world.restart();
  const third = await volumes.start({ shared: 'v1' });
  expect(await volumes.evaluate(third, 'read("shared/from-one") + read("shared/from-other")')).toBe('12');
});

test('a volume is an ordinary directory: append, write in the middle, rename, list, links inside, delete, locks between containers', async ({
  volumes,
}) => {
  const [one, other] = await Promise.all([volumes.start({ d: 'v1' }), volumes.start({ '/d': 'v1' })]);
  const steps: readonly (readonly [string, unknown])[] = [
    ['write("d/a", "0123456789") and add("d/a", "ab") and put("d/a", 3, "xyz") and read("d/a")', '012xyz6789ab'],
    ['os.rename("d/a", "d/b") or sorted(os.listdir("d"))', ['b']],
    ['os.makedirs("d/deep/er") or os.symlink("../../b", "d/deep/er/link") or read("d/deep/er/link")', '012xyz6789ab'],
    ['os.link("d/b", "d/hard") or os.stat("d/hard").st_nlink', 2],
    ['os.truncate("d/b", 3) or read("d/hard")', '012'],
    [
      'os.remove("d/hard") or os.remove("d/deep/er/link") or os.removedirs("d/deep/er") or sorted(os.listdir("d"))',
      ['b'],
    ],
    ['lock("d/lock")', 'held'],
  ];
  for (const [expression, value] of steps)
    expect([expression, await volumes.evaluate(one, expression)]).toEqual([expression, value]);
  // A lock of one container keeps the other out, until the first is gone.
  expect(await volumes.evaluate(other, 'lock("/d/lock")')).toBe('EAGAIN');
  await volumes.stop(one);
  expect(await volumes.evaluate(other, 'lock("/d/lock")')).toBe('held');
});

test('nothing in a volume leads out of it: no link to the machine, no device, no mount made later', async ({
  volumes,
}) => {
  await mkdir(join(volumes.world.dataDir, 'volumes', 'ws-1', 'v1'), { recursive: true });
  await writeFile(join(volumes.world.dataDir, 'beside'), 'of the machine');
  const container = await volumes.start({ d: 'v1' });
  await volumes.evaluate(container, `os.symlink(${JSON.stringify(join(volumes.world.dataDir, 'beside'))}, "d/out")`);
  await volumes.evaluate(container, 'os.symlink("../../beside", "d/up")');
  expect(await volumes.evaluate(container, '[os.path.exists("d/out"), os.path.exists("d/up")]')).toEqual([
    false,
    false,
  ]);
  await expect(
    volumes.evaluate(container, 'os.mknod("d/disk", 0o600 | stat.S_IFBLK, os.makedev(254, 0))'),
  ).rejects.toThrow('PermissionError');
  // A mount made on the machine later never shows in the container.
  const propagation = '[line for line in read("/proc/self/mountinfo").splitlines() if " /volumes/d " in line][0]';
  expect(await volumes.evaluate(container, propagation)).not.toMatch(/shared:|master:/);
});

test('a shared volume is a directory below the path that the operator mounted, beside the local ones', async ({
  volumes,
  shared,
}) => {
  const container = await volumes.start({ both: 'shared:v1', mine: 'v1' });
  await volumes.evaluate(container, 'write("both/a", "everywhere") and write("mine/a", "here")');
  expect(await readFile(join(shared, 'ws-1', 'v1', 'a'), 'utf8')).toBe('everywhere');
  expect(await readFile(join(volumes.directory('v1'), 'a'), 'utf8')).toBe('here');
  expect((await stat(join(shared, 'ws-1'))).mode & 0o777).toBe(0o700);
  const hello = volumes.world.scheduler.heard.find((message) => message.hello)?.hello;
  expect(hello?.inventory?.volumeDrivers).toEqual(['cache', 'shared', 'nfs']);
  // The mount is gone: nothing is written into the empty place that it leaves.
  await rm(shared, { recursive: true });
  await expect(volumes.failed({ volumeId: 'v2', mountPath: 'x', driver: 'shared' })).resolves.toMatchObject({
    reason: 'mount_error',
    message: expect.stringContaining(`cannot mount shared volume v2: `) as string,
  });
  await expect(lstat(shared)).rejects.toThrow('ENOENT');
});

test("an nfs volume that the engine cannot mount ends in the engine's own words", async ({ volumes }) => {
  const ended = await volumes.failed({ volumeId: 'v1', mountPath: 'x', driver: 'nfs' });
  expect(ended).toMatchObject({ reason: 'mount_error' });
  expect(ended.message).toMatch(
    /^cannot mount nfs volume v1: .*failed to mount local volume: mount :\/export\/longshore:/,
  );
  // MS_NOSUID | MS_NODEV
  expect(ended.message).toContain('flags: 0x6');
});

test('an image with a user of its own writes a volume, which stays closed to others on the machine', async ({
  volumes,
  docker,
}) => {
  const seed = await docker.run({ Image: docker.baseImage, Cmd: ['true'] });
  const image = 'longshore-test-volume-user';
  const tag = volumes.world.scheduler.machineId;
  await seed.commit({ repo: image, tag, changes: 'USER 4321:4321' });
  try {
    const container = await volumes.start({ mine: 'v1' }, { image: `${image}:${tag}` });
    expect(await volumes.evaluate(container, 'os.getuid()')).toBe(4321);
    expect(await volumes.evaluate(container, 'write("mine/a", "x") and os.makedirs("/volumes/mine/b/c") is None')).toBe(
      true,
    );
    expect((await stat(join(volumes.directory('v1'), 'a'))).uid).toBe(4321);
    // Root in another image reads the file, and another user's file stays that user's.
    const root = await volumes.start({ mine: 'v1' });
    expect(await volumes.evaluate(root, 'read("mine/a")')).toBe('x');
    // A program of root with set-user-id gives the other user no right.
    await volumes.evaluate(root, 'os.system("cp /usr/bin/id mine/id && chmod 4755 mine/id")');
    expect(await volumes.evaluate(container, 'os.stat("mine/id").st_mode & stat.S_ISUID != 0')).toBe(true);
    expect(
      await volumes.evaluate(container, 'subprocess.run(["mine/id", "-u"], capture_output=True, text=True).stdout'),
    ).toBe('4321\n');
    await volumes.stop(container);
    await volumes.stop(root);
  } finally {
    await docker.client.getImage(`${image}:${tag}`).remove({ force: true });
  }
  const mode = async (path: string): Promise<number> => (await stat(path)).mode & 0o7777;
  expect(await mode(volumes.directory('v1'))).toBe(0o777);
  expect(await mode(join(volumes.world.dataDir, 'volumes'))).toBe(0o700);
  expect(await mode(join(volumes.world.dataDir, 'volumes', 'ws-1'))).toBe(0o700);
  // Files of the container's user can only be removed by root here, and the tests may run as another user.
  await rm(volumes.directory('v1'), { recursive: true, force: true }).catch(() => undefined);
});

test('paths of the system, ids that are paths, and places taken twice are refused before anything is made', async ({
  volumes,
}) => {
  const { scheduler, dataDir } = volumes.world;
  const cases: readonly (readonly [Partial<ContainerSpec>, string])[] = [
    [{ volumes: [{ volumeId: 'v1', mountPath: '/etc' }] }, 'spec.volumes: mount_path "/etc" belongs to the system'],
    [{ volumes: [{ volumeId: 'v1', mountPath: '../x' }] }, 'may not hold ..'],
    [{ volumes: [{ volumeId: '../../x', mountPath: 'x' }] }, 'volume_id is not an id'],
    [{ volumes: [{ volumeId: '', mountPath: 'x' }] }, 'volume_id is not an id'],
    [{ workspaceId: '..', volumes: [{ volumeId: 'v1', mountPath: 'x' }] }, 'spec.workspace_id is not an id'],
    [{ volumes: ['a', './a'].map((mountPath) => ({ volumeId: 'v1', mountPath })) }, 'are the same place'],
  ];
  for (const [spec, sentence] of cases) {
    const assignment = anAssignment(spec);
    const from = scheduler.heard.length;
    scheduler.desire([assignment]);
    await expect
      .poll(
        () =>
          scheduler.heard.slice(from).find((message) => message.refuse?.assignmentId === assignment.assignmentId)
            ?.refuse,
      )
      .toMatchObject({ reason: 'invalid_spec', message: expect.stringContaining(sentence) as string });
  }
  await expect(lstat(join(dataDir, 'volumes', 'ws-1'))).rejects.toThrow('ENOENT');
});

test("a file of the code in the way is the author's error; a directory of that name is covered", async ({
  volumes,
}) => {
  const covered = await volumes.start({ taken: 'v1' });
  expect(await volumes.evaluate(covered, 'os.listdir("taken")')).toEqual([]);
  const { scheduler } = volumes.world;
  const assignment = anAssignment({
    code: scheduler.addArchive(await zip({ 'app.py': SOURCE, 'file.txt': 'code' })),
    volumes: [{ volumeId: 'v1', mountPath: 'file.txt' }],
  });
  scheduler.desire([assignment], { full: false });
  const failed = await scheduler.phase(assignment.containerId, 'removed');
  expect(failed).toMatchObject({
    reason: 'user_error',
    message: expect.stringContaining('volume at file.txt: the code has a file of that name (file.txt)') as string,
  });
});

test('a volume directory that became a link is not followed', async ({ volumes }) => {
  const outside = join(volumes.world.dataDir, 'outside');
  await mkdir(outside);
  await writeFile(join(outside, 'secret'), 's');
  await mkdir(join(volumes.world.dataDir, 'volumes', 'ws-1'), { recursive: true });
  await symlink(outside, volumes.directory('v1'));
  const { scheduler } = volumes.world;
  const assignment = anAssignment({
    code: scheduler.addArchive(await zip({ 'app.py': SOURCE })),
    volumes: [{ volumeId: 'v1', mountPath: 'x' }],
  });
  scheduler.desire([assignment]);
  const removed = await scheduler.phase(assignment.containerId, 'removed');
  expect(removed).toMatchObject({
    reason: 'mount_error',
    message: expect.stringContaining('is a link or no directory') as string,
  });
});

test('Volume hang: the child is killed, the machine says so at once, other containers go on, and it heals by itself', async ({
  docker,
}) => {
  const disk = await freezableDisk();
  const world = await agentWorld(docker.labels, { LONGSHORE_SHARED_VOLUMES_DIR: disk.dir });
  const { scheduler } = world;
  const conditions = (): readonly string[] =>
    scheduler.heard.findLast((message) => message.heartbeat)?.heartbeat?.conditions ?? [];
  try {
    await world.agent.start();
    await world.agent.connected;
    const code = scheduler.addArchive(await zip({ 'app.py': SOURCE }));
    disk.freeze();
    const [hung, plain] = [
      anAssignment({ code, volumes: [{ volumeId: 'v1', mountPath: 'x', driver: 'shared' }] }),
      anAssignment({ code, volumes: [{ volumeId: 'v2', mountPath: 'x' }] }),
    ];
    scheduler.desire([hung, plain]);
    await scheduler.phase(plain.containerId, 'running');
    const ended = await scheduler.phase(hung.containerId, 'removed', 20_000);
    expect(ended).toMatchObject({
      reason: 'mount_error',
      message: 'cannot mount shared volume v1: no answer within 5 s',
    });
    // The condition comes before the container's end, so that the scheduler knows it when it places the container anew.
    const at = (found: (message: (typeof scheduler.heard)[number]) => boolean): number =>
      scheduler.heard.findIndex(found);
    const said = at((message) => message.heartbeat?.conditions.includes('SharedVolumesDown') === true);
    expect(said).toBeGreaterThan(0);
    expect(said).toBeLessThan(
      at(
        ({ status }) =>
          status?.containers.some((one) => one.containerId === hung.containerId && one.phase === 'removed') === true,
      ),
    );
    // The next container does not wait for the driver again.
    const next = anAssignment({ code, volumes: [{ volumeId: 'v1', mountPath: 'x', driver: 'shared' }] });
    scheduler.desire([plain, next]);
    expect((await scheduler.phase(next.containerId, 'removed')).message).toContain('do not answer');
    disk.thaw();
    await expect.poll(conditions, { timeout: 20_000 }).toEqual([]);
    const healed = anAssignment({ code, volumes: [{ volumeId: 'v1', mountPath: 'x', driver: 'shared' }] });
    scheduler.desire([plain, healed]);
    await scheduler.phase(healed.containerId, 'running');
  } finally {
    disk.thaw();
    await world.end();
    await disk.close();
  }
});
