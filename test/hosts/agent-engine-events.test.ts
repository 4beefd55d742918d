// Ends of containers as an agent learns of them: its stream of the engine's events, and its lists.
import { readdir } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import type { Container } from 'dockerode';
import { expect } from 'vitest';
import { zip } from '../helpers/agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import { gatedBeforeStart } from '../helpers/gated-agent.ts';
import { until } from '../helpers/fake-scheduler.ts';
import { HELLO } from '../integration/agent-started.ts';

gatedBeforeStart(
  'memory that runs out is named also when the engine tells of it after the end',
  async ({ gate, world }) => {
    let hidden = 0;
    gate.change((piece) => {
      if (!piece.startsWith('GET /events?') || !piece.includes('%22oom%22%2C')) return piece;
      hidden += 1;
      // The request for events leaves out `oom`, yet the engine records it.
      return piece.replace('%22oom%22%2C', '');
    });
    await world.agent.start();
    await world.agent.connected;
    const source = `
import threading
kept = []
def handler():
    threading.Timer(0.1, lambda: kept.append(bytearray(400_000_000))).start()
`;
    const code = world.scheduler.addArchive(await zip({ 'app.py': source }));
    const assignment = anAssignment({ code, memoryBytes: 64 << 20 });
    world.scheduler.desire([assignment]);
    await world.scheduler.phase(assignment.containerId, 'running');
    world.scheduler.run('t1', assignment.containerId, '');
    await world.scheduler.resultOf('t1');
    expect(await world.scheduler.phase(assignment.containerId, 'removed')).toMatchObject({
      oomKilled: true,
      reason: 'oom',
      exitCode: 137,
    });
    expect(hidden).toBe(1);
  },
);

gatedBeforeStart(
  'an end between a listing of containers and the stream of events is seen when the stream opens',
  async ({ docker, gate, world }) => {
    const { scheduler } = world;
    gate.shut(/^GET \/events/, 'wait');
    await world.agent.start();
    await world.agent.connected;
    const code = scheduler.addArchive(await zip({ 'app.py': HELLO }));
    const assignment = anAssignment({ code });
    scheduler.desire([assignment]);
    await scheduler.phase(assignment.containerId, 'running');
    const label = [`io.longshore.container=${assignment.containerId}`];
    const [container] = await docker.client.listContainers({ filters: { label } });
    await docker.client.getContainer(container?.Id ?? '').kill();
    const fromMs = performance.now();
    gate.open();
    await scheduler.phase(assignment.containerId, 'removed');
    // The bound excludes the periodic listing, which comes 15 s after the agent's start.
    expect(performance.now() - fromMs).toBeLessThan(8000);
  },
);

gatedBeforeStart(
  'an agent that is started again listens to its containers while the engine still lists them, and what it does not list is gone',
  async ({ docker, gate, world }) => {
    const { scheduler } = world;
    await world.agent.start();
    await world.agent.connected;
    const code = scheduler.addArchive(await zip({ 'app.py': HELLO }));
    const [stays, goes] = [anAssignment({ code }), anAssignment({ code })];
    scheduler.desire([stays, goes]);
    for (const { containerId } of [stays, goes]) await scheduler.phase(containerId, 'running');
    await world.agent.stop();
    const label = [`io.longshore.container=${goes.containerId}`];
    const [container] = await docker.client.listContainers({ filters: { label } });
    await docker.client.getContainer(container?.Id ?? '').remove({ force: true });
    // The first three lists look for leftovers of a crash.
    let lists = 0;
    gate.change((piece) => {
      if (piece.startsWith('GET /containers/json')) lists += 1;
      if (lists === 3 && gate.met === 0) gate.shut(/^GET \/containers\/json/, 'wait');
      return piece;
    });
    const restarted = world.restart();
    await until('the engine to be asked', () => gate.met > 0);
    const folder = join(world.dataDir, 'agent', 's');
    const names = await readdir(folder);
    expect(names).toHaveLength(2);
    for (const path of names.flatMap((name) => [join(folder, name, 'agent.sock'), join(folder, name, 'gateway.sock')]))
      await expect.poll(() => isListening(path)).toBe(true);
    expect(scheduler.observed.get(goes.containerId)?.phase).toBe('running');
    gate.open();
    await restarted;
    scheduler.desire([stays, goes]);
    expect(await scheduler.phase(goes.containerId, 'removed')).toMatchObject({ reason: 'lost' });
    expect(await readdir(folder)).toHaveLength(1);
    await until('its attempts to be reported', () => scheduler.reports.length === 2);
    scheduler.run('t1', stays.containerId, '{"name":"Ada"}');
    expect(JSON.parse((await scheduler.resultOf('t1')).whole.toString())).toMatchObject({ hello: 'Ada' });
    expect(scheduler.phases.get(stays.containerId)).not.toContain('removed');
  },
);

gatedBeforeStart(
  'a container that somebody ends through the engine is no fault of its own, whatever its exit code; one that ends itself is',
  async ({ docker, world }) => {
    const { scheduler } = world;
    await world.agent.start();
    await world.agent.connected;
    const source = `
import os, time
def handler(how):
    if how == 'itself':
        os._exit(3)
    time.sleep(600)
`;
    const code = scheduler.addArchive(await zip({ 'app.py': source }));
    const run = async (taskId: string, end?: (container: Container) => Promise<unknown>) => {
      const assignment = anAssignment({ code });
      const { containerId } = assignment;
      scheduler.desire([assignment]);
      await scheduler.phase(containerId, 'running');
      scheduler.run(taskId, containerId, JSON.stringify({ how: end === undefined ? 'itself' : 'waits' }));
      if (end !== undefined) {
        await until(`${taskId} to begin`, () => scheduler.started.includes(taskId));
        const label = [`io.longshore.container=${containerId}`];
        const [container] = await docker.client.listContainers({ all: true, filters: { label } });
        await end(docker.client.getContainer(container?.Id ?? ''));
      }
      // A result that comes before the agent reports the start says that the task had begun.
      const { outcome, started } = await scheduler.resultOf(taskId);
      const { reason } = await scheduler.phase(containerId, 'removed');
      return { outcome, started, reason };
    };
    const killed = { outcome: 'lost', started: true, reason: 'killed' };
    expect(await run('t1', (container) => container.stop({ t: 1 }))).toEqual(killed);
    expect(await run('t2', (container) => container.kill())).toEqual(killed);
    expect(await run('t3')).toEqual({ outcome: 'exited', started: true, reason: 'user_error' });
  },
);

/** Whether a server accepts connections at the path. */
function isListening(path: string): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const socket = connect(path, () => resolve(true)).on('error', () => resolve(false));
  return promise.finally(() => socket.destroy());
}
