// An engine that labels containers for SELinux, as far as its words and its calls go: the kernel here has no SELinux.
import { expect } from 'vitest';
import { agentWorld, zip } from '../helpers/agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import { cdiEngine } from '../helpers/cdi-engine.ts';
import { test, waitFor } from '../helpers/services.ts';

test('every container of an agent, its pause container too, is without a label of SELinux, and serves', async ({
  docker,
}) => {
  const engine = await cdiEngine();
  engine.info = { SecurityOptions: ['name=seccomp,profile=default', 'name=selinux'] };
  const world = await agentWorld(docker.labels, { DOCKER_HOST: engine.host });
  try {
    await world.agent.start();
    await world.agent.connected;
    const { scheduler } = world;
    const code = scheduler.addArchive(await zip({ 'app.py': 'def handler():\n    return 41\n' }));
    const assignment = anAssignment({ code });
    scheduler.desire([assignment]);
    await scheduler.phase(assignment.containerId, 'running');
    scheduler.run('t-1', assignment.containerId, '{}');
    expect((await scheduler.resultOf('t-1')).whole.toString()).toBe('41');
    const filters = { label: [`io.longshore.machine=${scheduler.machineId}`] };
    // Containers that help at a start are removed after it.
    const ours = await waitFor(async () => {
      const all = await docker.client.listContainers({ all: true, filters });
      return all.length === 2 && all;
    }, 'the container and its pause container are all that is there');
    const options = await Promise.all(
      ours.map(async ({ Id }) => (await docker.client.getContainer(Id).inspect()).HostConfig.SecurityOpt),
    );
    expect(options).toEqual([
      ['no-new-privileges', 'label=disable'],
      ['no-new-privileges', 'label=disable'],
    ]);
  } finally {
    await world.end();
    await engine.close();
  }
});
