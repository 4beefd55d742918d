// Pause containers, which own networks: made ahead, used once, and removed when they are not needed.
import { readFile } from 'node:fs/promises';
import { expect } from 'vitest';
import { createLog } from '#shared/log.ts';
import { dockerRuntime } from '../../agent/containers/engine/docker.ts';
import { PauseContainers } from '../../agent/containers/pause-containers.ts';
import { PAUSE_IMAGE } from '../../agent/containers/pause-image.ts';
import { LABELS } from '../../agent/containers/runtime.ts';
import type { AgentWorld } from '../helpers/agent.ts';
import { agentWorld, zip } from '../helpers/agent.ts';
import { gated } from '../helpers/gated-agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import type { TestDocker } from '../helpers/services.ts';
import { test as base, waitFor } from '../helpers/services.ts';

const withWorld = base.extend('world', async ({ docker }, { onCleanup }): Promise<AgentWorld> => {
  const world = await agentWorld(docker.labels, { LONGSHORE_AGENT_HOLDERS: '2' });
  onCleanup(() => world.end());
  await world.agent.start();
  await world.agent.connected;
  return world;
});

const test = withWorld.extend('bare', async ({ docker }, { onCleanup }): Promise<AgentWorld> => {
  const world = await agentWorld(docker.labels);
  onCleanup(() => world.end());
  await world.agent.start();
  await world.agent.connected;
  return world;
});

/** Ids of this test's pause containers, in any state. */
async function pauseContainers(docker: TestDocker): Promise<string[]> {
  const label = [
    `${LABELS.pauseContainer}=1`,
    ...Object.entries(docker.labels).map(([name, value]) => `${name}=${value}`),
  ];
  return (await docker.client.listContainers({ all: true, filters: { label } })).map((one) => one.Id).toSorted();
}

const have = (docker: TestDocker, count: number): Promise<string[]> =>
  waitFor(
    async () => {
      const ids = await pauseContainers(docker);
      return ids.length === count ? ids : undefined;
    },
    `${count} pause containers`,
    20_000,
  );

async function started(world: AgentWorld): Promise<ReturnType<typeof anAssignment>> {
  const code = world.scheduler.addArchive(await zip({ 'app.py': 'def handler():\n    return 1\n' }));
  const assignment = anAssignment({ code });
  world.scheduler.desire([assignment], { full: false });
  await world.scheduler.phase(assignment.containerId, 'running');
  return assignment;
}

async function pauseContainerOf(docker: TestDocker, containerId: string): Promise<string> {
  const { HostConfig } = await docker.client.getContainer(`c-${containerId}-1`).inspect();
  return (HostConfig.NetworkMode ?? '').replace('container:', '');
}

test('a container joins a pause container that waited, another takes its place, and both go with their container', async ({
  world,
  docker,
}) => {
  const ahead = await have(docker, 2);
  const assignment = await started(world);
  const used = await pauseContainerOf(docker, assignment.containerId);
  expect(ahead).toContain(used);
  await have(docker, 3);
  world.scheduler.desire([{ ...assignment, stop: true, graceMs: 1000 }]);
  await world.scheduler.phase(assignment.containerId, 'removed');
  expect(await have(docker, 2)).not.toContain(used);
});

test('a restart keeps the pause containers of containers that run, and only those', async ({ world, docker }) => {
  await have(docker, 2);
  const assignment = await started(world);
  const used = await pauseContainerOf(docker, assignment.containerId);
  const before = await have(docker, 3);
  await world.agent.stop();
  expect(await pauseContainers(docker)).toEqual([used]);
  // A crash leaves a waiting pause container behind.
  const left = await docker.run({
    Image: 'longshore-holder:2',
    Entrypoint: ['sleep', '600'],
    Cmd: [],
    Labels: { [LABELS.pauseContainer]: '1', [LABELS.managed]: '1', [LABELS.machine]: world.scheduler.machineId },
  });
  await world.restart();
  await expect.poll(() => pauseContainers(docker), { timeout: 10_000 }).not.toContain(left.id);
  const after = await have(docker, 3);
  expect(after.filter((id) => before.includes(id))).toEqual([used]);
  world.scheduler.desire([{ ...assignment, stop: true, graceMs: 1000 }]);
  await world.scheduler.phase(assignment.containerId, 'removed');
  expect(await have(docker, 2)).not.toContain(used);
});

gated('leftovers that the engine does not remove hold up no start', async ({ gate, world, docker }) => {
  const assignment = await started(world);
  await world.agent.stop();
  const own = { [LABELS.managed]: '1', [LABELS.machine]: world.scheduler.machineId };
  const volume = `ls-count-${world.scheduler.machineId}-0`;
  await docker.client.createVolume({ Name: volume, Labels: { ...docker.labels, ...own } });
  const command = { Image: PAUSE_IMAGE, Entrypoint: ['sleep', '600'], Cmd: [] };
  const helper = await docker.run({ ...command, Labels: own, HostConfig: { Binds: [`${volume}:/v`] } });
  await docker.run({ ...command, Labels: { ...own, [LABELS.pauseContainer]: '1' } });
  gate.shut(/^DELETE \S*\/containers\//, 'wait');
  await world.restart();
  expect(gate.met).toBe(2);
  const [found] = world.scheduler.hellos.at(-1)?.observed ?? [];
  gate.open();
  expect(found).toMatchObject({ containerId: assignment.containerId, phase: 'running' });
  await have(docker, 1);
  for (const gone of [docker.client.getContainer(helper.id), docker.client.getVolume(volume)])
    await expect.poll(() => gone.inspect().catch(String), { timeout: 10_000 }).toMatch(/no such/i);
});

test('an agent that ends with its containers takes along what the engine was still making for a killed one, and the network', async ({
  bare: world,
  docker,
}) => {
  const network = world.env()['LONGSHORE_AGENT_NETWORK'] ?? '';
  // An order from before the kill may be carried out after the next agent's look.
  await docker.run({
    Image: 'longshore-holder:2',
    Entrypoint: ['sleep', '600'],
    Cmd: [],
    Labels: { [LABELS.pauseContainer]: '1', [LABELS.managed]: '1', [LABELS.machine]: world.scheduler.machineId },
    HostConfig: { NetworkMode: network, Init: true },
  });
  await world.agent.stop('stop');
  expect(await pauseContainers(docker)).toEqual([]);
  const networks = await docker.client.listNetworks({ filters: { name: [network] } });
  expect(networks).toEqual([]);
});

test('pause containers that somebody removed are made anew when a container needs one', async ({ world, docker }) => {
  for (const id of await have(docker, 2)) await docker.client.getContainer(id).remove({ force: true });
  const assignment = await started(world);
  expect((await world.scheduler.phase(assignment.containerId, 'running')).phase).toBe('running');
});

test('containers that need no pause container have their limit of open files where no pause container was ever made', async ({
  bare: world,
  docker,
}) => {
  const code = world.scheduler.addArchive(await zip({ 'app.py': 'def handler():\n    return 1\n' }));
  const both = [anAssignment({ code, blockNetwork: true }), anAssignment({ code, blockNetwork: true })];
  world.scheduler.desire(both, { full: false });
  for (const { containerId } of both) {
    await world.scheduler.phase(containerId, 'running');
    const { HostConfig } = await docker.client.getContainer(`c-${containerId}-1`).inspect();
    const limit = HostConfig.Ulimits?.find(({ Name }) => Name === 'nofile') as
      | { Soft: number; Hard: number }
      | undefined;
    expect(limit?.Soft).toBe(limit?.Hard);
    expect(limit?.Soft).toBeGreaterThan(1024);
  }
  expect(await pauseContainers(docker)).toEqual([]);
});

test('a network that somebody removed is made anew', async ({ bare: world, docker }) => {
  await docker.client.getNetwork(world.env()['LONGSHORE_AGENT_NETWORK'] ?? '').remove();
  await started(world);
});

test('a container whose pause container ends is ended too, as lost: it has no network any more', async ({
  bare,
  docker,
}) => {
  const world = bare;
  const assignment = await started(world);
  await docker.client.getContainer(await pauseContainerOf(docker, assignment.containerId)).remove({ force: true });
  const removed = await world.scheduler.phase(assignment.containerId, 'removed');
  expect(removed.reason).toBe('lost');
});

test('a filter that cannot be set fails the start with the words of the tool, and nobody joins', async ({ docker }) => {
  const runtime = dockerRuntime(process.env['DOCKER_HOST']);
  const network = `ls-test-${docker.label.replace('.', '-')}`;
  const made = new PauseContainers({
    runtime,
    log: createLog({ name: 'test', level: 'silent' }),
    network,
    size: 0,
    labels: () => docker.labels,
    addresses: () => ({ own: [], nameServers: [] }),
    rules: () => 'table inet longshore { chain no such thing }',
    openAddresses: [],
    closedRanges: [],
  });
  await made.open([]);
  try {
    await expect(made.take('c1', 1, { allowList: [] })).rejects.toThrow(
      /cannot prepare the container's network: .*syntax error/s,
    );
  } finally {
    await made.close();
    await runtime.removeNetwork(network);
  }
  expect(await pauseContainers(docker)).toEqual([]);
});

test('a new address of this machine is closed to a build, in both filters, and to nobody twice', async ({ docker }) => {
  const calls: string[] = [];
  const runtime = dockerRuntime(process.env['DOCKER_HOST'], (operation) => calls.push(operation));
  const network = `ls-test-address-${docker.label.replace('.', '-')}`;
  const own = ['192.0.2.7'];
  const made = new PauseContainers({
    runtime,
    log: createLog({ name: 'test', level: 'silent' }),
    network,
    size: 0,
    labels: () => docker.labels,
    addresses: () => ({ own: [...own], nameServers: [] }),
    openAddresses: [],
    closedRanges: [],
  });
  await made.open([]);
  made.start();
  const other = `${network}-other`;
  const closedOf = async (dockerId: string, table: string): Promise<string> =>
    (await runtime.exec(dockerId, ['nft', 'list', 'set', table, 'longshore', 'closed4'], 5000)).output;
  try {
    const { dockerId } = await made.takeForBuild('b1');
    expect(await closedOf(dockerId, 'netdev')).toContain('192.0.2.7');
    own.splice(0, 1, '198.51.100.9');
    // Any network that is made tells of it.
    await docker.client.createNetwork({ Name: other, Labels: docker.labels });
    await expect.poll(() => closedOf(dockerId, 'netdev'), { timeout: 10_000 }).toContain('198.51.100.9');
    expect(await closedOf(dockerId, 'inet')).toContain('198.51.100.9');
    // An address that left is no longer this machine's.
    expect(await closedOf(dockerId, 'inet')).not.toContain('192.0.2.7');
    expect(await closedOf(dockerId, 'inet')).toContain('169.254.0.0/16');
    const before = calls.filter((operation) => operation === 'exec').length;
    await docker.client.getNetwork(other).remove();
    await docker.client.createNetwork({ Name: other, Labels: docker.labels });
    const container = await made.take('c1', 1, { allowList: [] });
    expect(await closedOf(container.dockerId, 'inet')).toContain('198.51.100.9');
    expect(calls.filter((operation) => operation === 'exec')).toHaveLength(before + 1);
  } finally {
    await made.close();
    made.release('b1', 0);
    made.release('c1', 1);
    await made.close();
    await docker.client.getNetwork(other).remove();
    await runtime.removeNetwork(network);
  }
});

test('a listing from before takes a pause container that is being removed for no stray', async ({ docker }) => {
  const calls: string[] = [];
  const runtime = dockerRuntime(process.env['DOCKER_HOST'], (operation) => calls.push(operation));
  const network = `ls-test-leaving-${docker.label.replace('.', '-')}`;
  const made = new PauseContainers({
    runtime,
    log: createLog({ name: 'test', level: 'silent' }),
    network,
    size: 0,
    labels: () => docker.labels,
    addresses: () => ({ own: [], nameServers: [] }),
    openAddresses: [],
    closedRanges: [],
  });
  await made.open([]);
  try {
    await made.take('c1', 1, { allowList: [] });
    const listed = await runtime.list(docker.labels);
    expect(listed).toHaveLength(1);
    made.release('c1', 1);
    made.tidy(listed);
  } finally {
    await made.close();
    await runtime.removeNetwork(network);
  }
  expect(calls.filter((operation) => operation === 'remove')).toHaveLength(1);
});

test('a network of that name that lets containers talk is refused at the start, with the cure', async ({ docker }) => {
  const name = `ls-test-open-${docker.label.replace('.', '-')}`;
  const network = await docker.client.createNetwork({ Name: name, Labels: docker.labels });
  try {
    await expect(dockerRuntime(process.env['DOCKER_HOST']).ensureNetwork(name)).rejects.toThrow(
      `docker network rm ${name}`,
    );
  } finally {
    await network.remove();
  }
});

test('the image and the set-up that builds it are of one version', async () => {
  const [agent, setup] = await Promise.all(
    ['../../agent/containers/pause-image.ts', '../../scripts/setup/pause-image.mjs'].map((path) =>
      readFile(new URL(path, import.meta.url), 'utf8'),
    ),
  );
  const version = /PAUSE_IMAGE = '(.*)'/;
  expect(version.exec(agent ?? '')?.[1]).toBe(version.exec(setup ?? '')?.[1]);
});
