// A machine that the scheduler does not answer, on the real engine:
// exclusive containers stop by themselves, all others run on.
import { expect } from 'vitest';
import type { AgentWorld } from '../helpers/agent.ts';
import { agentWorld, zip } from '../helpers/agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import { until } from '../helpers/fake-scheduler.ts';
import type { TestDocker } from '../helpers/services.ts';
import { test as base, waitFor } from '../helpers/services.ts';

const APP = { 'app.py': 'def handler():\n    return 1\n' };
const AFTER_MS = 3000;

const test = base.extend('world', async ({ docker }, { onCleanup }): Promise<AgentWorld> => {
  const world = await agentWorld(docker.labels);
  world.scheduler.remembers = true;
  world.scheduler.answersHeartbeats = true;
  onCleanup(() => world.end());
  return world;
});

/** Containers of one assignment that run. */
async function running(docker: TestDocker, containerId: string): Promise<number> {
  const label = Object.entries(docker.labels).map(([name, value]) => `${name}=${value}`);
  const found = await docker.client.listContainers({ filters: { label } });
  return found.filter(({ Labels }) => Object.values(Labels).includes(containerId)).length;
}

/** Starts an exclusive container and an ordinary one, and waits until both are ready. */
async function both(
  world: AgentWorld,
  stopAfterDisconnectMs: number,
): Promise<{ exclusive: string; ordinary: string }> {
  const { scheduler } = world;
  await world.agent.start();
  await world.agent.connected;
  const code = scheduler.addArchive(await zip(APP));
  const exclusive = anAssignment({ code, stopAfterDisconnectMs });
  const ordinary = anAssignment({ code });
  scheduler.desire([exclusive, ordinary]);
  await scheduler.phase(exclusive.containerId, 'running');
  await scheduler.phase(ordinary.containerId, 'running');
  return { exclusive: exclusive.containerId, ordinary: ordinary.containerId };
}

test('an exclusive container stops when no heartbeat is answered for its time, though the link stands; others run on', async ({
  world,
  docker,
}) => {
  const { scheduler } = world;
  const { exclusive, ordinary } = await both(world, AFTER_MS);
  // Answered heartbeats keep it for longer than its time.
  const heartbeats = (): number => scheduler.heard.filter(({ heartbeat }) => heartbeat).length;
  const before = heartbeats();
  await until('heartbeats for twice its time', () => heartbeats() >= before + (2 * AFTER_MS) / 500, 30_000);
  expect(scheduler.observed.get(exclusive)?.phase).toBe('running');

  scheduler.answersHeartbeats = false;
  const sinceMs = performance.now();
  const gone = await scheduler.phase(exclusive, 'removed');
  expect(gone.reason).toBe('disconnected');
  expect(gone.message).toMatch(/stopAfterDisconnect/);
  // The time counts from the last answered heartbeat, which was sent half a second ago at most.
  expect(performance.now() - sinceMs).toBeGreaterThan(AFTER_MS - 1500);
  expect([await running(docker, exclusive), await running(docker, ordinary)]).toEqual([0, 1]);
  expect(scheduler.hellos).toHaveLength(1);
});

test('it stops while the scheduler is away, also when another agent process must remember since when; and says so later', async ({
  world,
  docker,
}) => {
  const { scheduler } = world;
  const { exclusive, ordinary } = await both(world, 3 * AFTER_MS);
  // An agent that restarts, and is answered again, ends nothing.
  await world.agent.stop();
  await world.restart();
  expect(await running(docker, exclusive)).toBe(1);
  scheduler.down();
  await world.agent.stop();
  expect(await running(docker, exclusive)).toBe(1);
  const restarted = world.restart();
  await waitFor(async () => (await running(docker, exclusive)) === 0, 'the exclusive container stops', 30_000);
  expect(await running(docker, ordinary)).toBe(1);
  await scheduler.listen();
  await restarted;
  expect((await scheduler.phase(exclusive, 'removed')).reason).toBe('disconnected');
  expect(scheduler.observed.get(ordinary)?.phase).toBe('running');
});
