// Output of containers that outlive their engine (`live-restore`):
// it is followed again when the engine is back, however that went.
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { describe, expect } from 'vitest';
import type { AgentWorld } from '../helpers/agent.ts';
import { agentWorld, zip } from '../helpers/agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import { until } from '../helpers/fake-scheduler.ts';
import type { SimulatedHost } from '../helpers/hosts/host.ts';
import { SimulatedNetwork, whyNoHosts } from '../helpers/hosts/network.ts';
import { docker, test as base } from '../helpers/services.ts';

const LINES_MS = 60_000;
/** Counts on the container's own output, past Python's. */
const COUNTING = `
import subprocess
subprocess.Popen(["sh", "-c", "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.05; done"])
def handler():
    return 1
`;

interface World {
  readonly host: SimulatedHost;
  readonly agent: AgentWorld;
}

const test = base.extend('world', { scope: 'file' }, async ({}, { onCleanup }): Promise<World> => {
  const { baseImage } = await docker();
  const network = await SimulatedNetwork.up(1, baseImage, () => ({ engine: { 'live-restore': true } }));
  const [host] = network.hosts;
  if (host === undefined) throw new Error('there is no host');
  const agent = await agentWorld({}, { DOCKER_HOST: `unix://${host.socket}` });
  onCleanup(async () => {
    await agent.end();
    await network.down();
  });
  await agent.agent.start();
  await agent.agent.connected;
  return { host, agent };
});

describe.skipIf(whyNoHosts !== undefined)('an engine that is started again under its containers', () => {
  test('what they print goes on to be told, and no line twice', async ({ world: { host, agent } }) => {
    const { scheduler } = agent;
    const assignment = anAssignment({ code: scheduler.addArchive(await zip({ 'app.py': COUNTING })) });
    scheduler.desire([assignment]);
    await scheduler.phase(assignment.containerId, 'running');
    const numbers = (): number[] =>
      scheduler.records
        .filter(({ containerId }) => containerId === assignment.containerId)
        .flatMap(({ line }) => Number(/^line (\d+)$/.exec(line)?.[1] ?? 0) || []);
    for (const end of [() => host.stopEngine(), () => host.killEngine()]) {
      const before = numbers().length;
      await until('lines before', () => numbers().length > before + 10, LINES_MS);
      await end();
      const told = numbers().length;
      await host.startEngine();
      await until('lines after', () => numbers().length > told + 10, LINES_MS);
    }
    const got = numbers();
    expect(got).toEqual([...new Set(got)].toSorted((a, b) => a - b));
  });
});
