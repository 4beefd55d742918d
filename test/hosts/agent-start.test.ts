import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { expect } from 'vitest';
import { BUILD_WORKSPACE_LABEL, builtImageName } from '#shared/domain/built-images.ts';
import { createLog } from '#shared/log.ts';
import type { ServiceManager } from '#shared/service-manager.ts';
import { createAgent } from '../../agent/main.ts';
import type { AgentWorld } from '../helpers/agent.ts';
import { agentConfig, agentWorld, failureOf, program, zip } from '../helpers/agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import { until } from '../helpers/fake-scheduler.ts';
import { test as base } from '../helpers/services.ts';

const test = base.extend('world', async ({ docker }, { onCleanup }): Promise<AgentWorld> => {
  const world = await agentWorld(docker.labels);
  onCleanup(() => world.end());
  return world;
});

test('joining swaps the token for a credential that later starts use', async ({ world }) => {
  const { scheduler } = world;
  await world.agent.start();
  await world.agent.connected;
  expect(scheduler.joins).toHaveLength(1);
  expect(scheduler.joins[0]).toMatchObject({ joinToken: scheduler.secret, protocol: 1 });
  expect(scheduler.hellos[0]).toMatchObject({ machineId: scheduler.machineId });
  const inventory = scheduler.hellos[0]?.inventory;
  expect(inventory?.cpuMillicores).toBeGreaterThan(0);
  expect(inventory?.memoryBytes).toBeGreaterThan(1 << 28);
  expect(inventory?.os).not.toBe('');
  expect(inventory?.host?.fileSystems).toMatchObject([{ holds: 'state' }, { holds: 'images' }]);
  expect(inventory?.images.some((image) => image.includes('python'))).toBe(true);
  await world.agent.stop();
  await world.restart();
  expect(scheduler.joins).toHaveLength(1);
  expect(scheduler.hellos).toHaveLength(2);
  expect(scheduler.hellos[0]?.bootId).toBe(scheduler.hellos[1]?.bootId);
  expect(scheduler.hellos[0]?.instanceId).not.toBe(scheduler.hellos[1]?.instanceId);
});

test('a token that is refused ends the start with the cure; the nonce of a try is kept for the next', async ({
  world,
}) => {
  world.scheduler.refuseJoin = true;
  const failure = await failureOf(world.env());
  // systemd starts no agent again that ended with this code.
  expect(failure).toMatchObject({ code: 'join_refused', exitCode: 78 });
  expect(failure.message).toMatch(/longshore machine create/);
  await failureOf(world.env());
  expect(world.scheduler.joins[0]?.nonce).toBe(world.scheduler.joins[1]?.nonce);
});

test('a host whose token is full waits for room, says so, and joins once there is some', async ({ world }) => {
  const { scheduler } = world;
  scheduler.fullJoins = 2;
  const said: string[] = [];
  const manager: ServiceManager = {
    ready: (status) => void said.push(status),
    status: (text) => void said.push(text),
    watch: () => undefined,
    stopping: () => Promise.resolve(),
  };
  const agent = createAgent(agentConfig(world.env()), createLog({ name: 'a', level: 'silent' }), { manager });
  await agent.start();
  try {
    await agent.connected;
    expect(scheduler.joins).toHaveLength(3);
    expect(new Set(scheduler.joins.map(({ nonce }) => nonce)).size).toBe(1);
    expect(said).toContain('joining: enrolment token t admits 1 machines, and 1 have joined');
  } finally {
    await agent.stop('stop');
  }
});

test('a joined machine with a new token that is full does not wait for it: its key proves it', async ({ world }) => {
  const { scheduler } = world;
  await world.agent.start();
  await world.agent.connected;
  await world.agent.stop();
  scheduler.credential = 'another';
  scheduler.fullJoins = Infinity;
  const agent = createAgent(
    agentConfig(
      world.env({ LONGSHORE_JOIN_TOKEN: scheduler.joinToken.replace(/[^.]+$/, 'a-new-secret-of-a-new-token') }),
    ),
    createLog({ name: 'a', level: 'silent' }),
  );
  await agent.start();
  try {
    await agent.connected;
    expect(scheduler.joins).toHaveLength(2);
    expect(scheduler.asked).toContain('proof');
  } finally {
    await agent.stop('stop');
  }
});

test('without a credential or a token the start says how to get one', async ({ world }) => {
  const failure = await failureOf(world.env({ LONGSHORE_JOIN_TOKEN: 'none' }));
  expect(failure).toMatchObject({ code: 'not_joined', exitCode: 78 });
  expect(failure.message).toMatch(/LONGSHORE_JOIN_TOKEN/);
});

test('a refused credential is replaced by joining with a new token, and the key stays', async ({ world }) => {
  const { scheduler } = world;
  await world.agent.start();
  await world.agent.connected;
  const key = scheduler.joins[0]?.publicKey;
  await world.agent.stop();
  scheduler.credential = 'another';
  const secret = 'a-new-secret-of-a-new-token';
  Object.assign(scheduler, { secret, joinToken: scheduler.joinToken.replace(/[^.]+$/, secret), machineId: 'feedbeef' });
  const agent = createAgent(
    agentConfig(world.env({ LONGSHORE_JOIN_TOKEN: scheduler.joinToken })),
    createLog({ name: 'a', level: 'silent' }),
  );
  await agent.start();
  await agent.connected;
  expect(scheduler.joins[1]).toMatchObject({ joinToken: secret, publicKey: key });
  expect(scheduler.hellos.at(-1)?.machineId).toBe('feedbeef');
  await agent.stop();
});

test('a second agent on the same state directory does not start', async ({ world }) => {
  await world.agent.start();
  const failure = await failureOf(world.env());
  expect(failure.code).toBe('state_in_use');
  expect(failure.message).toContain(world.dataDir);
});

test('no Docker, a taken port and a state that cannot be written each have their sentence', async ({ world }) => {
  const none = await failureOf(world.env({ DOCKER_HOST: 'unix:///nowhere/docker.sock' }));
  expect(none).toMatchObject({ code: 'no_docker', exitCode: 69 });
  expect(none.message).toMatch(/install and start Docker/);
  const file = join(world.dataDir, 'file');
  await writeFile(file, '');
  const state = await failureOf(world.env({ LONGSHORE_DATA_DIR: join(file, 'below') }));
  expect(state.code).toBe('state_not_writable');
  const long = await failureOf(world.env({ LONGSHORE_DATA_DIR: join(world.dataDir, 'x'.repeat(100)) }));
  expect(long.code).toBe('state_path_too_long');
  await world.agent.start();
  const other = join(world.dataDir, 'o');
  await mkdir(other);
  const taken = await failureOf(
    world.env({ LONGSHORE_DATA_DIR: other, LONGSHORE_AGENT_METRICS_ADDRESS: world.agent.metricsAddress }),
  );
  expect(taken.code).toBe('address_taken');
});

test('as a program it says ready over IPC, nothing on stdout, and ends on SIGTERM; wrong settings exit 78', async ({
  world,
}) => {
  const first = program(world.env());
  expect(await first.ready).toMatch(/^127\.0\.0\.1:\d+$/);
  first.child.kill('SIGTERM');
  expect(await first.exit).toBe(0);
  const second = program(world.env({ LONGSHORE_AGENT_CPU: 'lots' }));
  expect(await second.exit).toBe(78);
  expect(second.stderr()).toMatch(/LONGSHORE_AGENT_CPU/);
});

test('after kill -9 the next agent adopts the container, and a stop over IPC ends it', async ({ world, docker }) => {
  const { scheduler } = world;
  const first = program(world.env());
  await first.ready;
  const code = scheduler.addArchive(
    await zip({ 'app.py': 'CALLS = []\ndef handler():\n    CALLS.append(1)\n    return len(CALLS)\n' }),
  );
  const assignment = anAssignment({ code });
  scheduler.desire([assignment]);
  await scheduler.phase(assignment.containerId, 'running');
  scheduler.run('t1', assignment.containerId, '');
  await scheduler.resultOf('t1');
  first.child.kill('SIGKILL');
  await first.exit;
  const second = program(world.env());
  await second.ready;
  await until('the second task stream', () => scheduler.reports.length > 1);
  scheduler.desire([assignment]);
  scheduler.run('t2', assignment.containerId, '');
  expect((await scheduler.resultOf('t2')).whole.toString()).toBe('2');
  second.child.send({ kind: 'stop', containers: 'stop' });
  expect(await second.exit).toBe(0);
  const label = `io.longshore.container=${assignment.containerId}`;
  expect(await docker.client.listContainers({ all: true, filters: { label: [label] } })).toEqual([]);
});

test('a container whose journal is lost is adopted when it is wanted', async ({ world }) => {
  const { scheduler } = world;
  await world.agent.start();
  await world.agent.connected;
  const code = scheduler.addArchive(
    await zip({ 'app.py': 'CALLS = []\ndef handler():\n    CALLS.append(1)\n    return len(CALLS)\n' }),
  );
  const assignment = anAssignment({ code });
  scheduler.desire([assignment]);
  await scheduler.phase(assignment.containerId, 'running');
  await world.agent.stop();
  const journal = join(world.dataDir, 'agent', 'journal.json');
  expect(await readFile(journal, 'utf8')).toContain(assignment.containerId);
  await rm(journal);
  scheduler.observed.clear();
  await world.restart();
  scheduler.desire([assignment]);
  await scheduler.phase(assignment.containerId, 'running');
  await until('a task to be taken', () => {
    if (scheduler.results.length > 0) return true;
    if (scheduler.refused.length === 0 && scheduler.started.length > 0) return false;
    scheduler.refused.length = 0;
    scheduler.run('t1', assignment.containerId, '');
    return false;
  });
  expect(scheduler.results[0]?.outcome).toBe('ok');
});

test('a session goes by the socket of the scheduler on this machine where only this user can listen, else by its address', async ({
  world,
}) => {
  const { scheduler, dataDir } = world;
  const path = join(dataDir, 'link', 'agent.sock');
  const isLocal = (): boolean => !(scheduler.peers.at(-1) ?? '').includes('127.0.0.1');
  const sessions = async (count: number): Promise<void> => {
    await until(`session ${count}`, () => scheduler.peers.length >= count || undefined, 20_000);
  };
  scheduler.down();
  scheduler.socketPath = path;
  await scheduler.listen();
  const agent = createAgent(
    agentConfig(world.env({ LONGSHORE_LINK_SOCKET: path })),
    createLog({ name: 'a', level: 'silent' }),
  );
  await agent.start();
  try {
    // The agent joined at the address, where the fingerprint is checked, and links through the socket.
    await agent.connected;
    expect(scheduler.joins).toHaveLength(1);
    expect(isLocal()).toBe(true);

    // A kill leaves such a socket without a listener.
    scheduler.down();
    scheduler.socketPath = undefined;
    const stale = spawn(process.execPath, [
      '-e',
      `require('net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`,
    ]);
    await new Promise((resolve) => stale.once('exit', resolve));
    expect((await stat(path)).isSocket()).toBe(true);
    await scheduler.listen();
    await sessions(2);
    expect(isLocal()).toBe(false);

    // Others may enter the socket's directory, so another program may be listening there.
    scheduler.down();
    await chmod(join(dataDir, 'link'), 0o755);
    await rm(path);
    const meddler = createServer((socket) => void socket.destroy()).listen(path);
    await once(meddler, 'listening');
    await scheduler.listen();
    await sessions(3);
    expect(isLocal()).toBe(false);

    scheduler.down();
    meddler.close();
    await chmod(join(dataDir, 'link'), 0o700);
    scheduler.socketPath = path;
    await scheduler.listen();
    await sessions(4);
    expect(isLocal()).toBe(true);
  } finally {
    await agent.stop('stop');
  }
});

test('an image that was pulled with credentials starts for the workspace that has a right to it, and for no other', async ({
  world,
  docker,
}) => {
  const { scheduler } = world;
  // The registry does not answer, so the stored rights decide.
  const [repo, tag] = ['127.0.0.1:9/longshore/private', scheduler.machineId] as const;
  const image = `${repo}:${tag}`;
  const base = docker.client.getImage(docker.baseImage);
  await base.tag({ repo, tag });
  try {
    const { Id: imageId } = await base.inspect();
    const atMs = Date.now();
    const entry = { pulledAtMs: atMs, usedAtMs: atMs, private: true, imageId, allowed: { 'ws-1': atMs } };
    await mkdir(join(world.dataDir, 'agent'), { recursive: true, mode: 0o700 });
    await writeFile(join(world.dataDir, 'agent', 'images.json'), JSON.stringify({ [image]: entry }));
    await world.agent.start();
    await world.agent.connected;
    const code = scheduler.addArchive(await zip({ 'app.py': 'def handler():\n    return {}\n' }));
    const own = anAssignment({ image, code });
    const others = anAssignment({ image, code, workspaceId: 'ws-2' });
    scheduler.desire([own, others]);
    await scheduler.phase(own.containerId, 'running');
    const removed = await scheduler.phase(others.containerId, 'removed', 30_000);
    expect(removed).toMatchObject({
      reason: 'registry_unreachable',
      message: expect.stringContaining('its registry does not give it to this workspace') as string,
    });
  } finally {
    await docker.client.getImage(image).remove({ force: false });
  }
});

test('an image that was built for a workspace starts for no other, and by its id for nobody', async ({
  world,
  docker,
}) => {
  const { scheduler } = world;
  const made = await docker.run({ Entrypoint: ['true'], Cmd: [] });
  const { Id: id } = (await made.commit({ changes: [`LABEL ${BUILD_WORKSPACE_LABEL}=ws-1`] })) as { Id: string };
  const image = builtImageName(id.replace('sha256:', ''));
  try {
    await docker.client.getImage(id).tag({ repo: image, tag: 'latest' });
    await made.remove({ force: true });
    await world.agent.start();
    await world.agent.connected;
    const code = scheduler.addArchive(await zip({ 'app.py': 'def handler():\n    return {}\n' }));
    const own = anAssignment({ image, code });
    const others = anAssignment({ image, code, workspaceId: 'ws-2' });
    const byId = anAssignment({ image: id.replace('sha256:', '').slice(0, 20), code });
    scheduler.desire([own, others, byId]);
    await scheduler.phase(own.containerId, 'running');
    for (const [{ containerId }, message] of [
      [others, 'another workspace'],
      [byId, 'could be an id'],
    ] as const)
      expect(await scheduler.phase(containerId, 'removed', 30_000)).toMatchObject({
        reason: 'image_error',
        message: expect.stringContaining(message) as string,
      });
    scheduler.desire([{ ...own, stop: true, graceMs: 1000 }]);
    await scheduler.phase(own.containerId, 'removed', 30_000);
  } finally {
    await docker.client.getImage(id).remove({ force: true });
  }
});
