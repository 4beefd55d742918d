// Recordings of a running placement, with a real database: replayed, they give the same decisions and reasons. The
// machine is played by the test.
import { readFile, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, onTestFinished } from 'vitest';
import { Recordings } from '#scheduler/control/placement/recordings.ts';
import { checkRecording } from '#scheduler/control/simulator/check.ts';
import { rejectionsOf } from '#scheduler/fleet/containers/container-entry.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import type { AgentReports } from '#scheduler/fleet/agent-reports.ts';
import { runCommand } from '../helpers/command-line.ts';
import type { Ended } from '../helpers/command-line.ts';
import { tempDirectory } from '../helpers/programs.ts';
import { waitFor } from '../helpers/services.ts';
import { test } from './deciding-fixture.ts';
import type { World } from './deciding-fixture.ts';
import { quiet } from './tasks-fixture.ts';

async function withGpus(world: World, count: number): Promise<void> {
  const { machineId } = world.link;
  const gpus = Array.from({ length: count }, (_none, index) => ({
    uuid: `GPU-${index}`,
    model: 'A10G',
    memoryBytes: 24e9,
    numaNode: index % 2,
    unhealthy: false,
  }));
  const inventory = { hostname: 'h', cpuMillicores: 16_000, memoryBytes: 64e9, gpus, images: ['registry.test/a:1'] };
  const hello = { machineId, bootId: 'b', instanceId: 'i', version: '0', protocol: 1, inventory, observed: [] };
  await world.agentReports.hello(machineId, 's2', hello as unknown as Parameters<AgentReports['hello']>[2]);
  await world.agentReports.setOrphans(machineId, 's2', []);
  world.agentReports.ready(machineId, 's2');
}

const wanting = (world: World, gpuCount: number): Promise<ContainerEntry> =>
  world.containers.create({
    ...world.target,
    config: { ...world.target.config, gpu: gpuCount === 0 ? [] : ['A10G'], gpuCount, cpuMillicores: 500 },
  });

const recordingsOf = (world: World, more: { maxBytes?: number; directory?: string } = {}): Recordings => {
  const folder = tempDirectory('recordings');
  onTestFinished(() => folder.remove());
  const recordings = new Recordings({
    directory: join(folder.path, 'made'),
    placer: world.placer,
    isLeader: () => world.leads,
    clock: world.clock,
    log: quiet,
    ...more,
  });
  onTestFinished(() => recordings.stop());
  return recordings;
};

/** Containers come, wait, end and are placed. */
async function comeAndGo(world: World, rounds: number): Promise<void> {
  const live: ContainerEntry[] = [];
  for (let round = 0; round < rounds; round += 1) {
    live.push(...(await Promise.all([1, 2, 0].map((gpuCount) => wanting(world, gpuCount)))));
    const ended = live.filter(({ row }) => row.state === 'ASSIGNED').slice(0, 2);
    for (const { row } of ended) await world.containers.transition(row.id, 'abandon');
    const created = await world.placer.create(world.target, 2);
    live.push(...created);
    world.placer.wake();
  }
  const last = live.at(-1);
  await waitFor(() => last?.row.state !== 'PENDING' || last.refusal?.isKnown === true, 'all were tried');
  for (const entry of live) rejectionsOf(entry);
}

const simulate = (path: string): Promise<Ended> =>
  runCommand(['simulate', path, '--check'], { LONGSHORE_CONTEXT_FILE: '/dev/null' });

const texts = async (path: string): Promise<string[]> => (await readFile(path, 'utf8')).trimEnd().split('\n');

describe('a recording of a running installation', () => {
  test('begins in its middle, and is replayed with the same decisions and reasons', async ({ world }) => {
    await withGpus(world, 4);
    world.placer.start();
    await comeAndGo(world, 2);
    const recordings = recordingsOf(world);
    const { path, ended } = await recordings.begin(60);
    expect(ended).toBeUndefined();
    await comeAndGo(world, 6);
    expect((await recordings.list()).map((one) => [one.path, one.ended])).toEqual([[path, undefined]]);
    expect(await recordings.end()).toMatchObject({ path, ended: 'stopped', bytes: (await readFile(path)).length });
    const lines = await texts(path);
    const got = (what: string): string[] => lines.filter((line) => line.startsWith(`{"do":"${what}"`));
    expect(lines.filter((line) => line.includes('"chosen"')).length).toBeGreaterThan(5);
    expect(lines.filter((line) => line.includes('"refused"')).length).toBeGreaterThan(0);
    expect(got('refusalsOf').length).toBeGreaterThan(0);
    expect(got('chooseNew').length + got('classOf').length).toBeGreaterThan(0);
    const checked = await checkRecording(path);
    expect(checked).toMatchObject({ lines: lines.length, ended: 'stopped' });
    expect(checked.different).toBeUndefined();
    expect(checked.compared).toBeGreaterThan(50);
    // Nothing that people named is in the file.
    const text = lines.join('\n');
    for (const name of [world.target.workspaceId, 'registry.test/a:1']) expect(text).not.toContain(name);
    expect(await simulate(path)).toMatchObject({ code: 0, stdout: expect.stringContaining('are equal') as string });
    // A second recording begins anew.
    const again = await recordings.begin(60);
    await comeAndGo(world, 1);
    await recordings.end();
    expect((await checkRecording(again.path)).different).toBeUndefined();
  });

  test('with another decision ends the command with 1, and with changed lines is refused', async ({ world }) => {
    await withGpus(world, 4);
    world.placer.start();
    const recordings = recordingsOf(world);
    const { path } = await recordings.begin(60);
    await comeAndGo(world, 2);
    await recordings.end();
    const lines = await texts(path);
    const at = lines.findIndex((line) => line.includes('"chosen"'));
    const write = (changed: string[]): Promise<void> => writeFile(path, `${changed.join('\n')}\n`);
    await write(lines.with(at, (lines[at] ?? '').replace('"gpus":[', '"gpus":["GPU-9",')));
    expect((await checkRecording(path)).different).toMatchObject({ line: at + 1 });
    expect(await simulate(path)).toMatchObject({
      code: 1,
      stdout: expect.stringContaining(`line ${at + 1} has`) as string,
    });
    const told = lines.findIndex((line) => line.startsWith('{"do":"at"') || line.startsWith('{"do":"release"'));
    await write(lines.toSpliced(told === -1 ? 1 : told, 0, '{"do":"at","ms":1}'));
    await expect(checkRecording(path)).rejects.toThrow('their sha256 is not that of the end');
    await write(lines.toSpliced(at, 0, '{"do":"jump"}'));
    await expect(checkRecording(path)).rejects.toThrow(`line ${at + 1} cannot be replayed: "jump"`);
    await write(lines.with(0, '{"do":"begin","version":9,"longshore":"9.0.0","atMs":1}'));
    await expect(checkRecording(path)).rejects.toThrow('format 9');
    await write([...lines.slice(0, at), (lines[at] ?? '').slice(0, 12)]);
    expect(await checkRecording(path)).toMatchObject({ ended: 'cut' });
    await write([]);
    await expect(checkRecording(path)).rejects.toThrow('the file is no recording');
  });

  test('ends at its bound in bytes, at its time, and with the leadership', async ({ world }) => {
    await withGpus(world, 4);
    world.placer.start();
    const small = recordingsOf(world, { maxBytes: 6000 });
    const { path } = await small.begin(60);
    await comeAndGo(world, 4);
    await waitFor(async () => (await small.list())[0]?.ended === 'bytes', 'it is full');
    expect((await readFile(path)).length).toBeLessThanOrEqual(6000);
    expect(await checkRecording(path)).toMatchObject({ ended: 'bytes' });
    const recordings = recordingsOf(world);
    await recordings.begin(1);
    await waitFor(async () => (await recordings.list())[0]?.ended === 'time', 'its time is over');
    world.clock.aheadMs += 10;
    await recordings.begin(60);
    await recordings.leads(false);
    expect((await recordings.list())[0]).toMatchObject({ ended: 'leadership' });
    await comeAndGo(world, 1);
    for (const one of await recordings.list()) expect((await checkRecording(one.path)).different).toBeUndefined();
  });

  test('is one at a time, and of the leader; the oldest files go', async ({ world }) => {
    const recordings = recordingsOf(world);
    await expect(recordings.end()).rejects.toMatchObject({ code: 'recording_not_found' });
    const [first, second] = await Promise.allSettled([recordings.begin(60), recordings.begin(60)]);
    expect(first.status).toBe('fulfilled');
    expect(second).toMatchObject({ status: 'rejected', reason: { code: 'recording_under_way' } });
    const { path } = await recordings.end();
    for (let count = 0; count < 9; count += 1) {
      world.clock.aheadMs += 1;
      await recordings.begin(60);
      await recordings.end();
    }
    const names = await readdir(join(path, '..'));
    expect(names).toHaveLength(8);
    expect(names).not.toContain(path.split('/').at(-1));
    world.leads = false;
    await expect(recordings.begin(60)).rejects.toMatchObject({ code: 'not_leading' });
    world.leads = true;
    const [kept = ''] = names;
    const nowhere = recordingsOf(world, { directory: join(path, '..', kept, 'below-a-file') });
    await expect(nowhere.begin(60)).rejects.toMatchObject({ code: 'recording_failed' });
    await expect(nowhere.end()).rejects.toMatchObject({ code: 'recording_not_found' });
  });
});
