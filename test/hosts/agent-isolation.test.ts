// A workload's view from inside its container. Each probe is made in a container of the agent. The same probe in a bare
// container of the same image, without the measure, must show the opposite.
import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { ContainerSpec } from '#shared/protocol/generated/messages.ts';
import { createLog } from '#shared/log.ts';
import { dockerRuntime } from '../../agent/containers/engine/docker.ts';
import { PauseContainers } from '../../agent/containers/pause-containers.ts';
import type { AgentWorld } from '../helpers/agent.ts';
import { agentWorld, zip } from '../helpers/agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import type { Probed } from '../helpers/probe.ts';
import { LISTENING_APP, PROBE_APP, probeProgram } from '../helpers/probe.ts';
import type { TestDocker } from '../helpers/services.ts';
import { routeHere } from '../helpers/routes.ts';
import { test as base } from '../helpers/services.ts';

/**
 * Addresses of this test: one of a metadata service, and two of a service elsewhere. Routes lead them to listeners of
 * this machine, which has none of them as its own.
 */
const OCTET = randomInt(1, 255);
const METADATA = `169.254.${OCTET}.7`;
const [NEAR, FAR] = [`198.18.${OCTET}.1`, `198.18.${OCTET}.2`];

interface World extends AgentWorld {
  readonly network: string;
  /** Port of a listener on every address of this machine. */
  readonly port: number;
  /** The machine's own address on the containers' network. */
  readonly gateway: string;
  run(
    spec?: Partial<ContainerSpec>,
    source?: string,
  ): Promise<{ readonly containerId: string; readonly address: string }>;
  probe(containerId: string, targets?: readonly string[]): Promise<Probed>;
}

const test = base.extend('world', async ({ docker }, { onCleanup }): Promise<World> => {
  const undo: (() => unknown)[] = [];
  onCleanup(async () => {
    for (const step of undo.toReversed()) await step();
  });
  const server = createServer((socket) => socket.end());
  await new Promise<void>((resolve) => server.listen(0, '0.0.0.0', resolve));
  undo.push(
    () => server.close(),
    () => routeHere(docker, 'del', [METADATA, NEAR, FAR]),
  );
  await routeHere(docker, 'add', [METADATA, NEAR, FAR]);
  const world = await agentWorld(docker.labels);
  undo.push(() => world.end());
  await world.agent.start();
  await world.agent.connected;
  const network = world.env()['LONGSHORE_AGENT_NETWORK'] ?? '';
  const { IPAM } = (await docker.client.getNetwork(network).inspect()) as { IPAM: { Config: { Gateway: string }[] } };
  const address = server.address();
  const { scheduler } = world;
  let calls = 0;
  return Object.assign(world, {
    network,
    port: typeof address === 'object' && address !== null ? address.port : 0,
    gateway: IPAM.Config[0]?.Gateway ?? '',
    run: async (spec: Partial<ContainerSpec> = {}, source = PROBE_APP) => {
      const code = scheduler.addArchive(await zip({ 'app.py': source }));
      const assignment = anAssignment({ code, ...spec });
      scheduler.desire([assignment], { full: false });
      await scheduler.phase(assignment.containerId, 'running');
      const { HostConfig } = await docker.client.getContainer(`c-${assignment.containerId}-1`).inspect();
      const pauseContainer = /^container:(.*)$/.exec(HostConfig.NetworkMode ?? '')?.[1];
      if (pauseContainer === undefined) return { containerId: assignment.containerId, address: '' };
      const { NetworkSettings } = await docker.client.getContainer(pauseContainer).inspect();
      return { containerId: assignment.containerId, address: NetworkSettings.Networks[network]?.IPAddress ?? '' };
    },
    probe: async (containerId: string, targets: readonly string[] = []) => {
      const taskId = `probe-${(calls += 1)}`;
      scheduler.run(taskId, containerId, JSON.stringify({ targets }));
      const result = await scheduler.resultOf(taskId);
      expect(result.outcome, result.whole.toString()).toBe('ok');
      return JSON.parse(result.whole.toString()) as Probed;
    },
  });
});

/** Runs the probe in a container without hardening. */
async function bare(docker: TestDocker, targets: readonly string[], host: object): Promise<Probed> {
  const container = await docker.run({
    Entrypoint: ['python3', '-c', probeProgram(targets)],
    Cmd: [],
    HostConfig: host,
  });
  await container.wait();
  const logs = await container.logs({ stdout: true, stderr: true });
  await container.remove({ force: true });
  const text = logs.toString('utf8');
  const json = /\{.*\}/.exec(text)?.[0];
  if (json === undefined) throw new Error(`the probe said ${text}`);
  return JSON.parse(json) as Probed;
}

const OPEN = {
  CapAdd: ['SYS_ADMIN'],
  Ulimits: [{ Name: 'core', Soft: -1, Hard: -1 }],
  SecurityOpt: ['seccomp=unconfined'],
  Mounts: [{ Type: 'bind', Source: '/var/run', Target: '/var/run' }],
};

test('a workload has no capability, no way to one, no engine, and limits on everything', async ({ world, docker }) => {
  const { containerId } = await world.run({ memoryBytes: 96 * 1024 * 1024, cpuMillicores: 500 });
  const inside = await world.probe(containerId);
  const outside = await bare(docker, [], OPEN);
  const measures: Readonly<Record<string, (facts: Probed) => boolean>> = {
    'no capability': (facts) => BigInt(`0x${facts.capEff}`) === 0n,
    'no new privileges': (facts) => facts.noNewPrivs === 1,
    'system calls filtered': (facts) => facts.seccomp === 2,
    'no engine socket': (facts) => !facts.dockerSocket,
    'no raw sockets': (facts) => facts.rawSocket === 'EPERM',
    'no mounts': (facts) => facts.mount === 'EPERM',
    memory: (facts) => facts.memoryLimit === String(96 * 1024 * 1024),
    'no swap beside it': (facts) => facts.swapLimit === '0' || facts.swapLimit === facts.memoryLimit,
    processor: (facts) => facts.cpuLimit.startsWith('50000'),
    processes: (facts) => facts.pidsMax === '2049',
    'core dumps': (facts) => facts.coreLimit === 0,
    'core dumps cannot be had': (facts) => facts.coreRaised !== 'raised',
    'a crash leaves no memory behind': (facts) => !facts.coreDumped && facts.coreFiles.length === 0,
  };
  // On cgroup v1 without a swap controller neither container has a swap limit, so the bare one proves nothing.
  const provable = Object.entries(measures).filter(([name]) => name !== 'no swap beside it');
  for (const [name, holds] of Object.entries(measures)) expect(holds(inside), name).toBe(true);
  for (const [name, holds] of provable) expect(holds(outside), `${name}, without the measure`).toBe(false);
  expect(inside.openFiles).toBeLessThanOrEqual(65_536);
  expect(inside.devices).not.toContain('sda');
});

test('containers name their images by id, so that the engine looks up none of them in a listing', async ({
  world,
  docker,
}) => {
  const { containerId } = await world.run();
  const facts = await docker.client.getContainer(`c-${containerId}-1`).inspect();
  const pauseContainer = /^container:(.*)$/.exec(facts.HostConfig.NetworkMode ?? '')?.[1] ?? '';
  const pause = await docker.client.getContainer(pauseContainer).inspect();
  expect([facts.Config.Image, pause.Config.Image]).toEqual([facts.Image, pause.Image]);
  // People read the name.
  expect(facts.Config.Labels['io.longshore.image']).toBe(docker.baseImage);
});

test('a workload reaches the world, but neither metadata services nor this machine', async ({ world, docker }) => {
  const { port, gateway, network } = world;
  const targets = { world: `${NEAR}:${port}`, metadata: `${METADATA}:${port}`, machine: `${gateway}:${port}` };
  const { containerId } = await world.run();
  const { reached } = await world.probe(containerId, [...Object.values(targets), '169.254.169.254:80']);
  expect(reached).toEqual({
    [targets.world]: 'connected',
    [targets.metadata]: 'EHOSTUNREACH',
    [targets.machine]: 'EHOSTUNREACH',
    '169.254.169.254:80': 'EHOSTUNREACH',
  });
  // The same network without a pause container's filter reaches all targets.
  const outside = await bare(docker, Object.values(targets), { NetworkMode: network });
  expect(Object.values(outside.reached)).toEqual(['connected', 'connected', 'connected']);
});

test('addresses that this machine gets while a workload runs are closed to it, also while no agent runs', async ({
  world,
  docker,
}) => {
  const one = await world.run();
  const listed = await world.run({ allowList: ['0.0.0.0/0'] });
  const made: { remove: () => Promise<unknown> }[] = [];
  const newAddress = async (name: string): Promise<string> => {
    const network = await docker.client.createNetwork({ Name: `${world.network}-${name}`, Labels: docker.labels });
    made.push(network);
    const { IPAM } = (await network.inspect()) as { IPAM: { Config: { Gateway: string }[] } };
    return `${IPAM.Config[0]?.Gateway ?? ''}:${world.port}`;
  };
  const reach = async (containerId: string, target: string): Promise<string | undefined> =>
    (await world.probe(containerId, [target])).reached[target];
  try {
    const during = await newAddress('during');
    for (const { containerId } of [one, listed])
      await expect.poll(() => reach(containerId, during), { timeout: 10_000 }).toBe('EHOSTUNREACH');
    // The same address is reachable without a filter.
    expect((await bare(docker, [during], { NetworkMode: world.network })).reached[during]).toBe('connected');
    await world.agent.stop();
    const between = await newAddress('between');
    await world.restart();
    await expect.poll(() => world.scheduler.reports.length, { timeout: 10_000 }).toBe(2);
    for (const { containerId } of [one, listed]) {
      await expect.poll(() => reach(containerId, between), { timeout: 10_000 }).toBe('EHOSTUNREACH');
      expect(await reach(containerId, during)).toBe('EHOSTUNREACH');
      expect(await reach(containerId, `${NEAR}:${world.port}`)).toBe('connected');
    }
  } finally {
    for (const network of made) await network.remove();
  }
});

test('workloads do not reach each other, not even those of one deployment', async ({ world, docker }) => {
  const [one, other] = await Promise.all([world.run({}, LISTENING_APP), world.run()]);
  const target = `${one.address}:8123`;
  expect((await world.probe(one.containerId, [target])).reached[target]).toBe('connected');
  expect((await world.probe(other.containerId, [target])).reached[target]).not.toBe('connected');
  // On an ordinary network the same listener answers the same probe.
  const network = await docker.client.createNetwork({ Name: `${world.network}-open`, Labels: docker.labels });
  try {
    const listening = await docker.run({
      Entrypoint: ['python3', '-u', '-c', `${LISTENING_APP}\nimport time; time.sleep(600)`],
      Cmd: [],
      HostConfig: { NetworkMode: `${world.network}-open` },
    });
    const { NetworkSettings } = await listening.inspect();
    const open = `${NetworkSettings.Networks[`${world.network}-open`]?.IPAddress}:8123`;
    const answered = async (): Promise<string | undefined> =>
      (await bare(docker, [open], { NetworkMode: `${world.network}-open` })).reached[open];
    await expect.poll(answered, { timeout: 20_000 }).toBe('connected');
    await listening.remove({ force: true });
  } finally {
    await network.remove();
  }
});

test('a bridge whose own rule against neighbours is gone parts workspaces all the same', async ({ docker }) => {
  const name = `ls-test-icc-${docker.label.replace('.', '-')}`;
  const network = await docker.client.createNetwork({ Name: name, Labels: docker.labels });
  const { IPAM } = (await network.inspect()) as { IPAM: { Config: { Gateway: string; Subnet: string }[] } };
  const facts = {
    bridge: '',
    gateways: IPAM.Config.map(({ Gateway }) => Gateway),
    subnets: IPAM.Config.map(({ Subnet }) => Subnet),
  };
  const runtime = dockerRuntime(process.env['DOCKER_HOST']);
  // The agent refuses such a network at its start; a reloaded firewall can turn an ordinary one into it.
  runtime.ensureNetwork = () => Promise.resolve(facts);
  const pauseContainers = new PauseContainers({
    runtime,
    log: createLog({ name: 'test', level: 'silent' }),
    network: name,
    size: 0,
    labels: () => docker.labels,
    addresses: () => ({ own: [], nameServers: [] }),
    openAddresses: [],
    closedRanges: [`${NEAR}/32`],
  });
  await routeHere(docker, 'add', [METADATA, NEAR, FAR]);
  const server = createServer((socket) => socket.end());
  await new Promise<void>((resolve) => server.listen(0, '0.0.0.0', resolve));
  const bound = server.address();
  const port = typeof bound === 'object' && bound !== null ? bound.port : 0;
  try {
    await pauseContainers.open([]);
    const [victim, attacker] = await Promise.all([
      pauseContainers.take('c1', 1, { allowList: [] }),
      pauseContainers.take('c2', 1, { allowList: [] }),
    ]);
    const { NetworkSettings } = await docker.client.getContainer(victim.dockerId).inspect();
    const target = `${NetworkSettings.Networks[name]?.IPAddress}:8123`;
    const listening = await docker.run({
      Entrypoint: ['python3', '-u', '-c', `${LISTENING_APP}\nimport time; time.sleep(600)`],
      Cmd: [],
      HostConfig: { NetworkMode: victim.network },
    });
    // A container beside them, without a filter, shows that the bridge lets them talk.
    const beside = async (): Promise<string | undefined> =>
      (await bare(docker, [target], { NetworkMode: name })).reached[target];
    await expect.poll(beside, { timeout: 20_000 }).toBe('connected');
    const ways = { neighbour: target, world: `${FAR}:${port}`, closed: `${NEAR}:${port}` };
    const { reached } = await bare(docker, Object.values(ways), { NetworkMode: attacker.network });
    expect(reached).toEqual({
      [ways.neighbour]: 'EHOSTUNREACH',
      [ways.world]: 'connected',
      [ways.closed]: 'EHOSTUNREACH',
    });
    await listening.remove({ force: true });
  } finally {
    server.close();
    await routeHere(docker, 'del', [METADATA, NEAR, FAR]);
    await docker.removeOwn();
    for (const containerId of ['c1', 'c2']) pauseContainers.release(containerId, 1);
    await pauseContainers.close();
    await network.remove();
  }
});

/** The limit of open files that the engine was asked for. */
async function openFilesOf(docker: TestDocker, containerId: string): Promise<unknown> {
  const label = [`io.longshore.container=${containerId}`];
  const [found] = await docker.client.listContainers({ filters: { label } });
  return (await docker.client.getContainer(found?.Id ?? '').inspect()).HostConfig.Ulimits;
}

test('an allow-list leaves its ranges and nothing else, and a blocked network nothing at all', async ({
  docker,
  world,
}) => {
  const [near, far] = [`${NEAR}:${world.port}`, `${FAR}:${world.port}`];
  const listed = await world.run({ allowList: [`${NEAR}/32`] });
  const blocked = await world.run({ blockNetwork: true });
  const limits = await Promise.all([listed, blocked].map(({ containerId }) => openFilesOf(docker, containerId)));
  expect(limits[1]).toEqual(limits[0]);
  expect(limits[0]).toContainEqual(expect.objectContaining({ Name: 'nofile' }));
  const targets = [near, far, `${METADATA}:${world.port}`, '127.0.0.11:53'];
  expect((await world.probe(listed.containerId, targets)).reached).toEqual({
    [near]: 'connected',
    [far]: 'EHOSTUNREACH',
    [`${METADATA}:${world.port}`]: 'EHOSTUNREACH',
    '127.0.0.11:53': 'EHOSTUNREACH',
  });
  expect((await world.probe(blocked.containerId, [near, far])).reached).toEqual({
    [near]: 'ENETUNREACH',
    [far]: 'ENETUNREACH',
  });
  // Without a list, both addresses are reachable.
  const free = await world.run();
  expect((await world.probe(free.containerId, [near, far])).reached).toEqual({
    [near]: 'connected',
    [far]: 'connected',
  });
});

test('a stub cannot open with its allow-list what is closed to everybody', async ({ world }) => {
  const { port, gateway } = world;
  const { containerId } = await world.run({ allowList: ['0.0.0.0/0'] });
  const targets = [`${NEAR}:${port}`, `${gateway}:${port}`, `${METADATA}:${port}`];
  const { reached } = await world.probe(containerId, targets);
  expect(Object.values(reached)).toEqual(['connected', 'EHOSTUNREACH', 'EHOSTUNREACH']);
});

test('a workload cannot undo its filter, and what holds it has no right left either', async ({ world, docker }) => {
  const { containerId } = await world.run();
  const { HostConfig } = await docker.client.getContainer(`c-${containerId}-1`).inspect();
  const pauseContainer = docker.client.getContainer((HostConfig.NetworkMode ?? '').replace('container:', ''));
  const facts = await pauseContainer.inspect();
  expect(facts.State.Running).toBe(true);
  const { Processes } = (await pauseContainer.top({ ps_args: '-o pid,uid,args' })) as { Processes: string[][] };
  expect(Processes.map(([, uid]) => uid)).toEqual(['65534']);
  const exec = await docker.client
    .getContainer(`c-${containerId}-1`)
    .exec({ Cmd: ['python3', '-c', FLUSH], AttachStdout: true, AttachStderr: true });
  const stream = await exec.start({});
  const said: Buffer[] = [];
  for await (const data of stream) said.push(data as Buffer);
  expect(Buffer.concat(said).toString()).toContain('EPERM');
  expect(join('/', facts.Config.User)).toBe('/');
});

/** Makes the kernel call of `ip link set eth0 down`. */
const FLUSH = `
import errno, fcntl, socket, struct
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    try:
        fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"eth0", 0))
        print("down")
    except OSError as error:
        print(errno.errorcode[error.errno])
`;
