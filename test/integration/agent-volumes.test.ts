// Volumes as a real agent mounts them into real containers.
import { lstat, mkdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { ContainerSpec } from '#shared/protocol/generated/messages.ts';
import { agentWorld, zip } from '../helpers/agent.ts';
import type { AgentWorld } from '../helpers/agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import { test as base } from '../helpers/services.ts';

interface Volumes {
  readonly world: AgentWorld;
  /** Starts a container with these volumes and waits until it serves. */
  readonly start: (mounts: Readonly<Record<string, string>>, spec?: Partial<ContainerSpec>) => Promise<string>;
  /** Runs Python in it and gives its value. */
  readonly evaluate: (containerId: string, expression: string) => Promise<unknown>;
  readonly stop: (containerId: string) => Promise<void>;
  readonly directory: (volumeId: string) => string;
}

const SOURCE = `
import glob, os, pathlib, stat
def write(path, text):
    pathlib.Path(path).write_text(text)
    return True
def read(path):
    return pathlib.Path(path).read_text()
def handler(expression):
    return eval(expression)
`;

const test = base.extend('volumes', async ({ docker }, { onCleanup }): Promise<Volumes> => {
  const world = await agentWorld(docker.labels);
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
      const volumes = Object.entries(mounts).map(([mountPath, volumeId]) => ({ volumeId, mountPath }));
      const assignment = anAssignment({ code, volumes, ...spec });
      assignments.set(assignment.containerId, assignment);
      scheduler.desire([...assignments.values()]);
      await scheduler.phase(assignment.containerId, 'running');
      return assignment.containerId;
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
    // Root in another image reads it, and a file of somebody else stays theirs.
    const root = await volumes.start({ mine: 'v1' });
    expect(await volumes.evaluate(root, 'read("mine/a")')).toBe('x');
    await volumes.stop(container);
    await volumes.stop(root);
  } finally {
    await docker.client.getImage(`${image}:${tag}`).remove({ force: true });
  }
  const mode = async (path: string): Promise<number> => (await stat(path)).mode & 0o7777;
  expect(await mode(volumes.directory('v1'))).toBe(0o777);
  expect(await mode(join(volumes.world.dataDir, 'volumes'))).toBe(0o700);
  expect(await mode(join(volumes.world.dataDir, 'volumes', 'ws-1'))).toBe(0o700);
  // What the container's user owns can only be removed by root here; a test machine may not be.
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
