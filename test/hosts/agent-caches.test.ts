// Cache volumes as a real agent mounts, counts, reports, evicts and removes them.
import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, readFile, readdir, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { ContainerSpec } from '#shared/protocol/generated/messages.ts';
import { agentWorld, zip } from '../helpers/agent.ts';
import type { AgentWorld } from '../helpers/agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import { test as base } from '../helpers/services.ts';

const MIB = 1024 * 1024;
const SOURCE = `
import os, pathlib
def fill(path, mib):
    with open(path, "wb") as file:
        file.write(os.urandom(mib << 20))
    return True
def handler(expression):
    return eval(expression)
`;

interface Caches {
  readonly root: string;
  readonly world: AgentWorld;
  readonly begin: (world: AgentWorld) => Promise<void>;
  readonly start: (volumeId: string, spec?: Partial<ContainerSpec>) => Promise<string>;
  readonly evaluate: (containerId: string, expression: string) => Promise<unknown>;
  readonly stop: (containerId: string) => Promise<void>;
  /** Cache volumes by the last report: mebibytes by their ids. */
  readonly told: () => Readonly<Record<string, number>> | undefined;
}

/** @param diskMib - size of a disk of its own for the volumes, which takes a mount */
const caches = (settings: Readonly<Record<string, string>>, diskMib?: number) =>
  base
    .extend('root', async ({ task: _task }, { onCleanup }): Promise<string> => {
      const disk = await mkdtemp(join(tmpdir(), 'ls-cache-'));
      if (diskMib !== undefined)
        execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${diskMib}m`, 'longshore-test', disk]);
      onCleanup(async () => {
        if (diskMib !== undefined) execFileSync('umount', ['-l', disk]);
        await rm(disk, { recursive: true, force: true });
      });
      const root = join(disk, 'cache');
      await mkdir(root);
      return root;
    })
    .extend('caches', async ({ docker, root }, { onCleanup }): Promise<Caches> => {
      const world = await agentWorld(docker.labels, { LONGSHORE_AGENT_CACHE_DIR: root, ...settings });
      const { scheduler } = world;
      onCleanup(() => world.end());
      const assignments = new Map<string, ReturnType<typeof anAssignment>>();
      let calls = 0;
      return {
        root,
        world,
        begin: async () => {
          await world.agent.start();
          await world.agent.connected;
        },
        start: async (volumeId, spec = {}) => {
          const code = scheduler.addArchive(await zip({ 'app.py': SOURCE }));
          const volumes = [{ volumeId, mountPath: '/models', driver: 'cache' }];
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
          if (result.outcome !== 'ok') throw new Error(`${expression}: ${result.whole.toString()}`);
          return JSON.parse(result.whole.toString()) as unknown;
        },
        stop: async (containerId) => {
          const assignment = assignments.get(containerId);
          if (assignment === undefined) throw new Error(`no ${containerId}`);
          assignments.delete(containerId);
          const stopped = { ...assignment, stop: true, graceMs: 1000, stopReason: 'scaled_in' };
          scheduler.desire([...assignments.values(), stopped]);
          await scheduler.phase(containerId, 'removed');
        },
        told: () => {
          const last = scheduler.heard.findLast(({ cacheUse }) => cacheUse)?.cacheUse;
          if (!last) return undefined;
          return Object.fromEntries(last.volumes.map((one) => [one.volumeId, Math.round(one.bytes / MIB)]));
        },
      };
    });

const test = caches({});

test('containers of one workspace share a copy that outlives them, another workspace has its own, and a deleted volume leaves', async ({
  caches: { root, world, begin, start, evaluate, stop, told },
}) => {
  await begin(world);
  expect(world.scheduler.hellos.at(-1)?.inventory?.volumeDrivers).toEqual(['cache']);
  const first = await start('v1');
  await evaluate(first, 'fill("/models/weights", 3)');
  await stop(first);
  const second = await start('v1');
  const foreign = await start('v1', { workspaceId: 'ws-2' });
  expect(await evaluate(second, 'os.listdir("/models")')).toEqual(['weights']);
  expect(await evaluate(foreign, 'os.listdir("/models")')).toEqual([]);
  expect((await stat(join(root, 'ws-1', 'v1', 'weights'))).size).toBe(3 * MIB);
  // No container can write where the time of use is.
  expect(await readdir(join(root, 'ws-1'))).toEqual(['.used-v1', 'v1']);
  await expect.poll(told, { timeout: 40_000 }).toEqual({ v1: 0 });
  const mine = world.scheduler.heard.findLast(({ cacheUse }) => cacheUse)?.cacheUse?.volumes ?? [];
  expect(mine.map(({ workspaceId, bytes }) => [workspaceId, Math.round(bytes / MIB)])).toEqual([
    ['ws-1', 3],
    ['ws-2', 0],
  ]);
  // A volume that a container mounts stays, whatever the scheduler says.
  world.scheduler.control?.write({ removeCaches: { volumeIds: ['v1'] } });
  expect(await evaluate(second, 'os.listdir("/models")')).toEqual(['weights']);
  await stop(second);
  await stop(foreign);
  world.scheduler.control?.write({ removeCaches: { volumeIds: ['v1'] } });
  await expect.poll(() => workspacesIn(root), { timeout: 20_000 }).toEqual([]);
  await expect.poll(told).toEqual({});
});

/** Directories of workspaces: the mark that says that the disk is there stays beside them. */
const workspacesIn = async (root: string): Promise<string[]> =>
  (await readdir(root)).filter((name) => name !== '.longshore-disk');

/** Makes a volume of an earlier run of the agent. */
async function left(root: string, name: string, mib: number, unusedHours: number): Promise<void> {
  const used = new Date(Date.now() - unusedHours * 3_600_000);
  await mkdir(join(root, 'ws-1', name), { recursive: true });
  await writeFile(join(root, 'ws-1', name, 'weights'), Buffer.alloc(mib * MIB, 1));
  await writeFile(join(root, 'ws-1', `.used-${name}`), '');
  await utimes(join(root, 'ws-1', `.used-${name}`), used, used);
}

const small = caches({ LONGSHORE_AGENT_CACHE_MIB: '20' });

small(
  'at the bound the longest unused volumes of earlier runs leave, then the containers of the one that grows end',
  async ({ caches: { root, world, begin, start, evaluate } }) => {
    await left(root, 'older', 12, 9);
    await left(root, 'newer', 12, 5);
    await left(root, 'cut-off', 12, 1);
    // A removal that was cut off, of a volume that was made anew since.
    await mkdir(join(root, 'ws-1', '.gone-older', 'rest'), { recursive: true });
    await begin(world);
    const page = await fetch(`http://${world.agent.metricsAddress}/metrics`).then((answer) => answer.text());
    expect(page).toContain('longshore_agent_cache_bytes');
    await expect.poll(() => readdir(join(root, 'ws-1')), { timeout: 30_000 }).toEqual(['.used-cut-off', 'cut-off']);
    const one = await start('mine');
    await evaluate(one, 'fill("/models/weights", 25)');
    const ended = await world.scheduler.phase(one, 'removed', 60_000);
    expect(ended.reason).toBe('disk_limit');
    expect(ended.message).toBe(
      'its cache volume at /models takes 26 MiB. Cache volumes of all workspaces take 26 MiB on this machine and may take 20 MiB (LONGSHORE_AGENT_CACHE_MIB of the machine). Keep less in it, or use a local volume',
    );
    await expect.poll(() => workspacesIn(root), { timeout: 30_000 }).toEqual([]);
    const again = await start('mine');
    expect(await evaluate(again, 'os.listdir("/models")')).toEqual([]);
    expect(await readFile(join(root, 'ws-1', '.used-mine'), 'utf8')).toBe('');
  },
);

const full = caches({ LONGSHORE_AGENT_CACHE_MIB: '1000', LONGSHORE_MIN_FREE_DISK_PERCENT: '15' }, 100);

full.skipIf(process.getuid?.() !== 0)(
  'on a disk that others fill the longest unused volumes leave, as many as it takes, and a mounted one never',
  { timeout: 120_000 },
  async ({ caches: { root, world, begin, start, evaluate, told } }) => {
    await left(root, 'older', 20, 9);
    await left(root, 'newer', 15, 5);
    await begin(world);
    const mine = await start('mine');
    await evaluate(mine, 'fill("/models/weights", 20)');
    await expect.poll(told, { timeout: 40_000 }).toEqual({ older: 20, newer: 15, mine: 20 });

    // 10 % are free: one volume makes room.
    const ballast = join(root, '..', 'ballast');
    await writeFile(ballast, Buffer.alloc(35 * MIB, 1));
    await expect.poll(told, { timeout: 40_000 }).toEqual({ newer: 15, mine: 20 });
    expect((await readdir(join(root, 'ws-1'))).toSorted()).toEqual(['.used-mine', '.used-newer', 'mine', 'newer']);

    await writeFile(ballast, Buffer.alloc(70 * MIB, 1)).catch(() => undefined);
    await expect.poll(told, { timeout: 40_000 }).toEqual({ mine: 20 });
    // The disk is too full still, and nothing else may leave.
    expect(await evaluate(mine, 'os.path.getsize("/models/weights")')).toBe(20 * MIB);
    const page = await fetch(`http://${world.agent.metricsAddress}/metrics`).then((answer) => answer.text());
    expect(page).toContain('longshore_agent_cache_evictions_total{reason="disk"} 2');
    expect(page).not.toMatch(/cache_evictions_total\{reason="(?:machine|workspace|bound)"\} [1-9]/);
  },
);
