// Pods, sandboxes, and programs in containers of every kind: the agent's end, on a real engine. The image of pods has
// no Python.
import { randomBytes, randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import { expect } from 'vitest';
import type { ContainerSpec } from '#shared/protocol/generated/messages.ts';
import { PAUSE_IMAGE } from '../../agent/containers/pause-image.ts';
import type { AgentWorld } from '../helpers/agent.ts';
import { agentWorld, zip } from '../helpers/agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import { until } from '../helpers/fake-scheduler.ts';
import { routeHere } from '../helpers/routes.ts';
import { test as base } from '../helpers/services.ts';
import { PlayedStreams } from '../helpers/supervised.ts';

interface World extends AgentWorld {
  readonly streams: PlayedStreams;
  readonly pod: (spec?: Partial<ContainerSpec>) => ReturnType<typeof anAssignment>;
  /** Starts a sandbox. @returns its assignment */
  readonly sandbox: (spec?: Partial<ContainerSpec>) => Promise<ReturnType<typeof anAssignment>>;
  /** Orders a change. @returns the answer */
  readonly change: (containerId: string, change: object) => Promise<{ error: string; bytes: number }>;
}

/** Addresses of a service elsewhere. Routes lead them to listeners of this machine, whose own they are not. */
const OCTET = randomInt(1, 255);
const [NEAR, FAR] = [`198.18.${OCTET}.1`, `198.18.${OCTET}.2`];

const test = base.extend('world', async ({ docker }, { onCleanup }): Promise<World> => {
  const world = await agentWorld(docker.labels, {}, { linkSocket: true });
  const streams = new PlayedStreams(world.scheduler);
  onCleanup(async () => {
    streams.close();
    await world.end();
  });
  await streams.listen();
  await world.agent.start();
  await world.agent.connected;
  const { scheduler } = world;
  const pod = (spec: Partial<ContainerSpec> = {}): ReturnType<typeof anAssignment> =>
    anAssignment({
      stubType: 'pod/run',
      handler: '',
      image: PAUSE_IMAGE,
      concurrentRequests: 256,
      entrypoint: ['sh', '-c', 'while true; do printf "hello\\n" | busybox nc -l -p 8000; done'],
      ports: [8000],
      ...spec,
    });
  return Object.assign(world, {
    streams,
    pod,
    sandbox: async (spec: Partial<ContainerSpec> = {}) => {
      const assignment = pod({ stubType: 'sandbox', entrypoint: [], ports: [], ...spec });
      scheduler.desire([assignment], { full: false });
      await scheduler.phase(assignment.containerId, 'running', 60_000);
      return assignment;
    },
    change: async (containerId: string, change: object) => {
      const requestId = randomBytes(8).toString('hex');
      scheduler.control?.write({ changeContainer: { requestId, containerId, ...change } });
      return until(
        'the answer',
        () =>
          scheduler.heard.find((one) => one.containerChanged?.requestId === requestId)?.containerChanged ?? undefined,
        60_000,
      );
    },
  });
});

test('a pod of an image without Python becomes ready, and its port is reached', async ({ world, docker }) => {
  const { scheduler, streams } = world;
  const assignment = world.pod();
  const { containerId } = assignment;
  scheduler.desire([assignment]);
  expect(await scheduler.phase(containerId, 'running', 60_000)).toMatchObject({ slots: 256, mode: 'single' });
  const { stream, answer } = await streams.ask(containerId, { type: 'connect', port: 8000, waitMs: 5000 });
  expect(answer).toMatchObject({ ok: true });
  await until('the bytes', () => stream.text === 'hello\n');
  const { HostConfig } = await docker.client.getContainer(`c-${containerId}-1`).inspect();
  expect(HostConfig.CapAdd).toEqual(expect.arrayContaining(['CHOWN', 'SETUID']));
  scheduler.desire([{ ...assignment, stop: true, graceMs: 5000, stopReason: 'stopped' }]);
  await scheduler.phase(containerId, 'removed');
});

test('a program in a container of a handler is started on demand, by one supervisor', async ({ world }) => {
  const { scheduler, streams } = world;
  const code = scheduler.addArchive(await zip({ 'app.py': 'def handler():\n    return 1\n' }));
  const assignment = anAssignment({ code });
  const { containerId } = assignment;
  scheduler.desire([assignment]);
  await scheduler.phase(containerId, 'running', 60_000);
  const many = await Promise.all(Array.from({ length: 3 }, () => streams.run(containerId, ['pwd'])));
  expect(many).toEqual(Array.from({ length: 3 }, () => ({ exitCode: 0, output: '/mnt/code\n' })));
  await world.agent.stop();
  await world.restart();
  scheduler.desire([assignment]);
  await until('the second report', () => scheduler.reports[1]);
  expect(await streams.run(containerId, ['sh', '-c', 'echo again'])).toEqual({ exitCode: 0, output: 'again\n' });
  expect(await streams.ask('nothing-here', { type: 'processes' })).toMatchObject({
    answer: { ok: false, code: 'not_found' },
  });
});

test('the end of a pod is that of its program, and a program that cannot start says why', async ({ world }) => {
  const { scheduler, pod } = world;
  const ended = async (spec: Partial<ContainerSpec>): Promise<object> => {
    const assignment = pod(spec);
    scheduler.desire([assignment], { full: false });
    const { reason, exitCode, message } = await scheduler.phase(assignment.containerId, 'removed', 60_000);
    return { reason, exitCode, message };
  };
  expect(await ended({ entrypoint: ['sh', '-c', 'exit 0'], ports: [] })).toEqual({
    reason: 'completed',
    exitCode: 0,
    message: '',
  });
  expect(await ended({ entrypoint: ['sh', '-c', 'exit 5'] })).toMatchObject({ reason: 'user_error', exitCode: 5 });
  const absent = await ended({ entrypoint: ['/no/such/program'] });
  expect(absent).toMatchObject({
    reason: 'user_error',
    message: expect.stringContaining('/no/such/program') as string,
  });
  const hungry = ['sh', '-c', 'x=aaaaaaaaaaaaaaaa; while true; do x=$x$x; done'];
  expect(await ended({ entrypoint: hungry, memoryBytes: 96 * 1024 * 1024 })).toMatchObject({ reason: 'oom' });
});

test('a pod serves on while its agent is replaced, and programs in it live on', async ({ world }) => {
  const { scheduler, streams, pod } = world;
  const assignment = pod();
  const { containerId } = assignment;
  scheduler.desire([assignment]);
  await scheduler.phase(containerId, 'running', 60_000);
  const start = { type: 'start', command: ['sleep', '600'], cwd: '', env: {}, terminal: null, attach: false };
  const { answer } = await streams.ask(containerId, start);
  await world.agent.stop();
  await world.restart();
  scheduler.desire([assignment]);
  await until('the second report', () => scheduler.reports[1]);
  const { answer: processes } = await streams.ask(containerId, { type: 'processes' });
  expect(processes['processes']).toContainEqual(expect.objectContaining({ pid: answer['pid'], running: true }));
  const { stream } = await streams.ask(containerId, { type: 'connect', port: 8000, waitMs: 5000 });
  await until('the bytes', () => stream.text === 'hello\n');
});

/** Listens on every address. */
async function portOf(server: Server): Promise<string> {
  server.listen(0, '0.0.0.0');
  await once(server, 'listening');
  const bound = server.address();
  return String(typeof bound === 'object' && bound !== null ? bound.port : 0);
}

test('the network of a running sandbox changes: forbidden connections end, others stay, also under another agent', async ({
  world,
  docker,
}) => {
  const { streams, sandbox, change, scheduler } = world;
  const peers: { socket: Socket; bytes: number; address: string }[] = [];
  const server = createServer((socket) => {
    const peer = { socket, bytes: 0, address: socket.localAddress ?? '' };
    socket.on('data', (data: Buffer) => (peer.bytes += data.length));
    socket.on('error', () => undefined);
    peers.push(peer);
  });
  const port = await portOf(server);
  await routeHere(docker, 'add', [NEAR, FAR]);
  try {
    const assignment = await sandbox();
    const { containerId } = assignment;
    const reaches = async (address: string): Promise<boolean> =>
      (await streams.run(containerId, ['sh', '-c', `echo x | busybox nc -w 2 ${address} ${port}`])).exitCode === 0;
    const talk = async (address: string): Promise<{ runs: () => Promise<boolean>; bytes: () => number }> => {
      const script = `while echo x; do sleep 0.1; done | busybox nc ${address} ${port}`;
      const start = { type: 'start', command: ['sh', '-c', script], cwd: '', env: {}, terminal: null, attach: false };
      const { answer } = await streams.ask(containerId, start);
      const peer = await until('the connection', () => peers.find((one) => one.address === address && one.bytes > 0));
      const runs = async (): Promise<boolean> => {
        const all = (await streams.ask(containerId, { type: 'processes' })).answer['processes'] as readonly object[];
        return all.some((one) => Reflect.get(one, 'pid') === answer['pid'] && Reflect.get(one, 'running') === true);
      };
      return { runs, bytes: () => peer.bytes };
    };
    const [near, far] = [await talk(NEAR), await talk(FAR)];
    expect(await change(containerId, { network: { allowList: ['nonsense'] } })).toMatchObject({
      error: expect.stringContaining('allow_list') as string,
    });
    expect(await near.runs()).toBe(true);

    expect((await change(containerId, { network: { allowList: [`${FAR}/32`] } })).error).toBe('');
    const atChange = near.bytes();
    await expect.poll(near.runs, { timeout: 10_000 }).toBe(false);
    expect(near.bytes() - atChange).toBeLessThanOrEqual(2);
    const before = far.bytes();
    await until('bytes on the other connection', () => far.bytes() > before + 4);
    expect([await reaches(NEAR), await reaches(FAR)]).toEqual([false, true]);

    await world.agent.stop();
    await world.restart();
    scheduler.desire([assignment]);
    await until('the second report', () => scheduler.reports[1]);
    expect([await reaches(NEAR), await reaches(FAR)]).toEqual([false, true]);
    // An address that this machine gets later is closed to a list that has it.
    expect((await change(containerId, { network: { allowList: ['0.0.0.0/0'] } })).error).toBe('');
    expect(await reaches(NEAR)).toBe(true);
    const network = await docker.client.createNetwork({ Name: `ls-pods-${docker.label}`, Labels: docker.labels });
    try {
      const { IPAM } = (await network.inspect()) as { IPAM: { Config: { Gateway: string }[] } };
      const added = IPAM.Config[0]?.Gateway ?? '';
      await expect.poll(() => reaches(added), { timeout: 20_000 }).toBe(false);
      expect(await reaches(NEAR)).toBe(true);
    } finally {
      await network.remove();
    }

    expect((await change(containerId, { network: { blockNetwork: true, allowList: [] } })).error).toBe('');
    await expect.poll(far.runs, { timeout: 10_000 }).toBe(false);
    expect([await reaches(NEAR), await reaches(FAR)]).toEqual([false, false]);
  } finally {
    for (const { socket } of peers) socket.destroy();
    server.close();
    await routeHere(docker, 'del', [NEAR, FAR]);
  }
});

test('rules that an agent missed are set at its return, by its desired state; older ones never come back', async ({
  world,
  docker,
}) => {
  const { streams, sandbox, change, scheduler } = world;
  const server = createServer((socket) => socket.end());
  const port = await portOf(server);
  await routeHere(docker, 'add', [NEAR, FAR]);
  try {
    const assignment = await sandbox();
    const { containerId } = assignment;
    const reaches = async (...addresses: readonly string[]): Promise<readonly boolean[]> => {
      const found: boolean[] = [];
      for (const address of addresses) {
        const command = ['sh', '-c', `echo x | busybox nc -w 2 ${address} ${port}`];
        found.push((await streams.run(containerId, command)).exitCode === 0);
      }
      return found;
    };
    const desire = (networkVersion: number, allowList: string[], blockNetwork = false): void =>
      scheduler.desire([{ ...assignment, spec: { ...assignment.spec, networkVersion, allowList, blockNetwork } }]);
    const becomes = (expected: readonly boolean[]): Promise<void> =>
      expect.poll(() => reaches(NEAR, FAR), { timeout: 30_000 }).toEqual(expected);
    expect(await reaches(NEAR, FAR)).toEqual([true, true]);
    await world.agent.stop();
    await world.restart();
    await until('the second report', () => scheduler.reports[1]);
    // The rules of before are in force until the desired state comes.
    expect(await reaches(NEAR, FAR)).toEqual([true, true]);
    desire(1, [`${FAR}/32`]);
    await becomes([false, true]);
    // An order of before that comes late is done with.
    expect((await change(containerId, { network: { blockNetwork: false, allowList: [], version: 1 } })).error).toBe('');
    expect(await reaches(NEAR, FAR)).toEqual([false, true]);
    expect((await change(containerId, { network: { allowList: [`${NEAR}/32`], version: 2 } })).error).toBe('');
    expect(await reaches(NEAR, FAR)).toEqual([true, false]);
    // A snapshot of a scheduler that has not heard of them yet opens nothing, also for the next agent.
    desire(1, [`${FAR}/32`]);
    // This answer comes behind the snapshot.
    expect((await change(containerId, { snapshot: { image: 'elsewhere:1' } })).error).not.toBe('');
    expect(await reaches(NEAR, FAR)).toEqual([true, false]);
    await world.agent.stop();
    await world.restart();
    await until('the third report', () => scheduler.reports[2]);
    expect(await reaches(NEAR, FAR)).toEqual([true, false]);
    desire(3, [], true);
    await becomes([false, false]);
  } finally {
    server.close();
    await routeHere(docker, 'del', [NEAR, FAR]);
  }
});

test('a sandbox that begins without network reaches nothing, names included, until it may', async ({
  world,
  docker,
}) => {
  const { streams, sandbox, change } = world;
  const server = createServer((socket) => socket.end());
  const port = await portOf(server);
  await routeHere(docker, 'add', [NEAR]);
  try {
    const { containerId } = await sandbox({ blockNetwork: true });
    const reaches = async (address: string, at = port): Promise<boolean> =>
      (await streams.run(containerId, ['sh', '-c', `echo x | busybox nc -w 2 ${address} ${at}`])).exitCode === 0;
    expect([await reaches(NEAR), await reaches('127.0.0.11', '53')]).toEqual([false, false]);
    expect((await change(containerId, { network: { blockNetwork: false, allowList: [] } })).error).toBe('');
    expect(await reaches(NEAR)).toBe(true);
  } finally {
    server.close();
    await routeHere(docker, 'del', [NEAR]);
  }
});

test('only the network of a sandbox changes, and only of one that runs', async ({ world }) => {
  const { scheduler, pod, change } = world;
  const { containerId } = pod();
  expect((await change(containerId, { network: { allowList: [] } })).error).toMatch(/does not run on this machine/);
  const assignment = pod();
  scheduler.desire([assignment]);
  await scheduler.phase(assignment.containerId, 'running', 60_000);
  expect((await change(assignment.containerId, { network: { allowList: [] } })).error).toMatch(/only .* a sandbox/);
});

test('a snapshot has the files of a sandbox, and neither its secrets nor anything of ours', async ({
  world,
  docker,
}) => {
  const { scheduler, streams, sandbox, change } = world;
  scheduler.secrets = { API_KEY: 'very-secret-value' };
  const code = scheduler.addArchive(await zip({ 'app.py': 'x = 1\n' }));
  const { containerId } = await sandbox({ secretNames: ['API_KEY'], env: { MODE: 'own' }, code });
  expect(
    await streams.run(containerId, ['sh', '-c', 'echo kept >/kept; echo -n $API_KEY; rm $(command -v nft)']),
  ).toEqual({
    exitCode: 0,
    output: 'very-secret-value',
  });
  const image = `longshore.internal/${randomBytes(16).toString('hex')}`;
  expect((await change(containerId, { snapshot: { image: 'elsewhere:1' } })).error).toMatch(/no name of a built image/);
  const made = await change(containerId, { snapshot: { image } });
  try {
    expect(made).toMatchObject({ error: '', bytes: expect.any(Number) as number });
    expect(made.bytes).toBeGreaterThan(0);
    const facts = await docker.client.getImage(image).inspect();
    expect(JSON.stringify(facts)).not.toMatch(/very-secret|container-token|ld\.so/);
    expect(facts.Config.Labels).toMatchObject({
      'io.longshore.build': scheduler.machineId,
      'io.longshore.build.workspace': 'ws-1',
      'io.longshore.container': '',
    });
    // The sandbox goes on, and another one of its image has its files.
    expect((await streams.run(containerId, ['sh', '-c', 'cat /kept'])).output).toBe('kept\n');
    scheduler.secrets = {};
    const other = await sandbox({ image });
    const look = ['sh', '-c', 'cat /kept; command -v nft; ls /mnt/code; env'];
    const { output } = await streams.run(other.containerId, look);
    expect(output).toMatch(/^kept\n/);
    expect(output).not.toMatch(/app\.py|\/nft$|API_KEY|MODE|LONGSHORE_/m);
    expect((await change(containerId, { snapshot: { image } })).error).toMatch(/is there already/);
    scheduler.desire([], { confirmEmpty: true });
    for (const id of [containerId, other.containerId]) await scheduler.phase(id, 'removed');
  } finally {
    await docker.client.getImage(image).remove({ force: true });
  }
});

test('processes without number and a full disk of a container are bounded, and its supervisor answers behind them', async ({
  world,
}) => {
  const { streams, sandbox } = world;
  const { containerId } = await sandbox({ memoryBytes: 1024 * 1024 * 1024 });
  const bomb = 'n=0; while [ $n -lt 10000 ]; do sleep 600 & n=$((n+1)); done; wait';
  const start = { type: 'start', command: ['sh', '-c', bomb], cwd: '', env: {}, terminal: null, attach: true };
  const { stream, answer } = await streams.ask(containerId, start);
  await until('the last process', () => /fork/i.test(stream.text), 60_000);
  expect(await streams.ask(containerId, { type: 'processes' })).toMatchObject({ answer: { ok: true } });
  const kill = { type: 'kill', pid: answer['pid'], signal: 'KILL' };
  expect(await streams.ask(containerId, kill)).toMatchObject({ answer: { ok: true } });
  await expect
    .poll(() => streams.run(containerId, ['sh', '-c', 'echo alive']).catch(() => undefined), {
      timeout: 30_000,
      interval: 500,
    })
    .toMatchObject({ exitCode: 0, output: 'alive\n' });
  const full = await streams.run(containerId, ['sh', '-c', 'dd if=/dev/zero of=/dev/shm/full bs=1M count=200']);
  expect(full).toMatchObject({ exitCode: 1, output: expect.stringContaining('No space left') as string });
  expect(await streams.run(containerId, ['sh', '-c', 'echo alive'])).toEqual({ exitCode: 0, output: 'alive\n' });
});
