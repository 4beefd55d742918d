// The journal cut at every step. An agent that dies at any of its writes, or finds a damaged journal, has each
// container once, reported and served, and leaves nothing behind.
import { readFile, readdir, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { JournalEntry } from '../../agent/reconcile/journal.ts';
import type { AgentWorld } from '../helpers/agent.ts';
import { agentWorld, program, zip } from '../helpers/agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import { until } from '../helpers/fake-scheduler.ts';
import { test as base, waitFor } from '../helpers/services.ts';

const test = base.extend('world', async ({ docker }, { onCleanup }): Promise<AgentWorld> => {
  const world = await agentWorld(docker.labels);
  onCleanup(() => world.end());
  return world;
});
const CUT = ['--import', fileURLToPath(new URL('../helpers/cut-at-write.mjs', import.meta.url))];
const APP = { 'app.py': 'CALLS = []\ndef handler():\n    CALLS.append(1)\n    return len(CALLS)\n' };

test(
  'killed before and after each write of a container’s life, the next agent goes on from there',
  { timeout: 480_000 },
  async ({ world, docker }) => {
    const { scheduler } = world;
    scheduler.remembers = true;
    const code = scheduler.addArchive(await zip(APP));
    const stateOf = async (): Promise<readonly JournalEntry[]> =>
      (JSON.parse(await readFile(join(world.dataDir, 'agent', 'journal.json'), 'utf8')) as { entries: JournalEntry[] })
        .entries;
    let agent = {} as ReturnType<typeof program>;
    let dead = false;
    /** Task streams before the living agent's. */
    let reports = 0;
    let answers = 0;
    const begin = async (): Promise<void> => {
      reports = scheduler.reports.length;
      dead = false;
      agent = program(world.env(), CUT);
      const { child, exit } = agent;
      child.on('message', (message: { kind: string }) => (answers += message.kind === 'left' ? 1 : 0));
      void exit.then(() => (dead = agent.child === child));
      await agent.ready;
    };
    await begin();
    /** Waits for a phase; when the agent dies on the way another one takes its place. @returns whether it died */
    const reach = async (containerId: string, phase: string): Promise<boolean> => {
      for (let cut = false; ; cut = true) {
        await until(
          `${containerId} ${phase} or a cut (${JSON.stringify(scheduler.phases.get(containerId))})`,
          () => dead || scheduler.observed.get(containerId)?.phase === phase,
          60_000,
        );
        if (!dead) return cut;
        await begin();
      }
    };
    /**
     * Has a task served. An agent reports a container as running while it still writes that down, so it may die with
     * the task in hand. Then the next agent's report says whether the task had reached the runner.
     * @returns whether an agent died
     */
    const serve = async (taskId: string, containerId: string): Promise<boolean> => {
      const isDone = (): boolean => scheduler.results.some((result) => result.taskId === taskId);
      const isRefused = (): boolean => scheduler.refused.some((one) => one.taskId === taskId);
      let cut = false;
      while (!isDone()) {
        if (dead) {
          cut = true;
          await begin();
        }
        await until('the task stream of the living agent', () => dead || scheduler.reports.length > reports, 60_000);
        if (dead) continue;
        const { running = [], finished = [] } = scheduler.reports.at(-1) ?? {};
        if (![...running, ...finished].some((one) => one.taskId === taskId)) {
          scheduler.refused.length = 0;
          scheduler.run(taskId, containerId, '');
        }
        await until(`the result of ${taskId}`, () => dead || isDone() || isRefused(), 60_000);
      }
      return cut;
    };
    /**
     * Waits until the journal is empty, or the agent dead. The death of
     * an agent just after its last write may not have been noticed yet.
     */
    const emptied = async (): Promise<void> => {
      await waitFor(async () => dead || (await stateOf()).length === 0, 'the journal is empty', 60_000);
      const before = answers;
      agent.child.send({ kind: 'left?' }, () => undefined);
      await until('an answer, or the end of the agent', () => dead || answers > before, 60_000);
    };
    const stagesCut: string[] = [];
    for (let at = 1; ; at += 1) {
      let wasCut = false;
      for (const when of ['before', 'after']) {
        const assignment = anAssignment({ code });
        const { containerId } = assignment;
        const label = `io.longshore.container=${containerId}`;
        const containers = () => docker.client.listContainers({ all: true, filters: { label: [label] } });
        agent.child.send({ kind: 'cut', at, when });
        scheduler.desire([assignment]);
        wasCut = await reach(containerId, 'running');
        expect(await containers(), `cut ${when} write ${at}`).toHaveLength(1);
        const taskId = `t-${at}-${when}`;
        wasCut = (await serve(taskId, containerId)) || wasCut;
        expect((await scheduler.resultOf(taskId)).whole.toString()).toBe('1');
        scheduler.desire([{ ...assignment, stop: true, graceMs: 2000, stopReason: 'scaled_in' }]);
        wasCut = (await reach(containerId, 'removed')) || wasCut;
        scheduler.desire([], { confirmEmpty: true });
        await emptied();
        if (dead) {
          wasCut = true;
          await begin();
          await emptied();
        }
        expect(await containers()).toEqual([]);
        expect(await readdir(join(world.dataDir, 'agent', 's'))).toEqual([]);
        if (wasCut) stagesCut.push(`${when} ${at}`);
      }
      if (!wasCut) break;
    }
    // The writes are: accepted, creating, created, ready, exited, gone, forgotten.
    expect(stagesCut.length).toBeGreaterThanOrEqual(12);
    agent.child.send({ kind: 'stop', containers: 'stop' });
    await agent.exit;
  },
);

test('one that is damaged is set aside, and what runs is reported with what it holds, adopted and served', async ({
  world,
  docker,
}) => {
  const { scheduler } = world;
  await world.agent.start();
  await world.agent.connected;
  const assignment = anAssignment({ code: scheduler.addArchive(await zip(APP)), workers: 1 });
  scheduler.desire([assignment]);
  await scheduler.phase(assignment.containerId, 'running');
  await world.agent.stop();
  const path = join(world.dataDir, 'agent', 'journal.json');
  const whole = await readFile(path, 'utf8');
  await writeFile(path, whole.slice(0, whole.length / 2));
  await world.restart();
  expect(scheduler.hellos.at(-1)?.observed).toMatchObject([
    {
      containerId: assignment.containerId,
      assignmentId: assignment.assignmentId,
      epoch: 1,
      cpuMillicores: 1000,
      memoryBytes: 256 * 1024 * 1024,
    },
  ]);
  expect(await readFile(`${path}.damaged`, 'utf8')).toBe(whole.slice(0, whole.length / 2));
  scheduler.desire([assignment]);
  await until('the second task stream', () => scheduler.reports.length > 1);
  await until('a task to be taken', () => {
    if (scheduler.results.length > 0) return true;
    if (scheduler.refused.length === 0 && scheduler.started.length > 0) return false;
    scheduler.refused.length = 0;
    scheduler.run('t1', assignment.containerId, '');
    return false;
  });
  const label = `io.longshore.container=${assignment.containerId}`;
  expect(await docker.client.listContainers({ all: true, filters: { label: [label] } })).toHaveLength(1);
});
