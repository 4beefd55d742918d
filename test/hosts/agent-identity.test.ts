// A machine's identity to its scheduler, as the agent keeps it: renewal, recovery by its key, and the one word that
// ends it. The scheduler is the protocol's other end alone; the engine is real.
import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createServer } from 'node:tls';
import type { TLSSocket } from 'node:tls';
import type { AddressInfo } from 'node:net';
import { describe, expect } from 'vitest';
import type { Identity } from '../../agent/upstream/identity.ts';
import { issueServerCertificate, makeCertificateAuthority } from '../../scheduler/workspaces/identity/certificates.ts';
import type { AgentWorld } from '../helpers/agent.ts';
import { agentConfig, agentWorld, failureOf, program, zip } from '../helpers/agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import { FakeScheduler, until } from '../helpers/fake-scheduler.ts';
import { test as base } from '../helpers/services.ts';

const test = base.extend('world', async ({ docker }, { onCleanup }): Promise<AgentWorld> => {
  const world = await agentWorld(docker.labels);
  onCleanup(() => world.end());
  return world;
});

const identityPath = (world: AgentWorld): string => join(world.dataDir, 'agent', 'machine.json');
const identityOf = async (world: AgentWorld): Promise<Identity> =>
  JSON.parse(await readFile(identityPath(world), 'utf8')) as Identity;
const connected = async (world: AgentWorld): Promise<void> => {
  await world.agent.start();
  await world.agent.connected;
};

/** Starts a container, and waits until it runs. */
async function running(world: AgentWorld): Promise<string> {
  const code = world.scheduler.addArchive(await zip({ 'app.py': 'def handler():\n    return 1\n' }));
  const assignment = anAssignment({ code });
  world.scheduler.desire([assignment]);
  await world.scheduler.phase(assignment.containerId, 'running');
  return assignment.containerId;
}

describe('an impostor', () => {
  /** A TLS server that keeps every byte it can read. */
  async function impostor(chainPem: string, keyPem: string) {
    const heard: Buffer[] = [];
    const sockets = new Set<TLSSocket>();
    let connections = 0;
    const server = createServer({ cert: chainPem, key: keyPem, ALPNProtocols: ['h2'] }, (socket) => {
      sockets.add(socket);
      socket.on('data', (data) => heard.push(data));
      socket.on('error', () => undefined);
    });
    server.on('connection', () => void (connections += 1));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return {
      address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
      heard: () => Buffer.concat(heard),
      connections: () => connections,
      close: () => {
        for (const socket of sockets) socket.destroy();
        server.close();
      },
    };
  }

  test('with another CA, or with ours shown beside a key of its own, never sees the secret', async ({ world }) => {
    const ca = await makeCertificateAuthority(Date.now());
    const own = await issueServerCertificate(ca, Date.now());
    const leaf = own.chainPem.slice(0, own.chainPem.indexOf('-----END CERTIFICATE-----') + 26);
    for (const chainPem of [own.chainPem, `${leaf}${world.scheduler.caPem}`]) {
      const other = await impostor(chainPem, own.keyPem);
      try {
        const failure = await failureOf(world.env({ LONGSHORE_SCHEDULER_ADDRESS: other.address }));
        expect(failure.code).toBe('wrong_scheduler');
        expect(other.connections()).toBeGreaterThan(0);
        expect(other.heard().length).toBe(0);
      } finally {
        other.close();
      }
    }
    expect(world.scheduler.joins).toEqual([]);
  });
});

describe('a join token', () => {
  test('comes from the service manager’s credential when it is not set, and `none` there is none', async ({
    world,
  }) => {
    const { LONGSHORE_JOIN_TOKEN: token = '', ...env } = world.env();
    await writeFile(join(world.dataDir, 'join-token'), `${token}\n`);
    const given = agentConfig({ ...env, CREDENTIALS_DIRECTORY: world.dataDir });
    expect(given.LONGSHORE_JOIN_TOKEN).toBe(token);
    await writeFile(join(world.dataDir, 'join-token'), 'none');
    expect(agentConfig({ ...env, CREDENTIALS_DIRECTORY: world.dataDir }).LONGSHORE_JOIN_TOKEN).toBeUndefined();
  });

  test('of the same scheduler changes nothing while the identity counts; of another one the machine moves there', async ({
    world,
  }) => {
    await connected(world);
    await world.agent.stop();
    const { joinToken, machineId } = world.scheduler;
    world.scheduler.joinToken = joinToken.replace(/[^.]+$/, 'another-secret-of-this-one');
    await world.restart();
    expect(world.scheduler.joins).toHaveLength(1);
    await world.agent.stop();
    const other = new FakeScheduler();
    await other.start();
    try {
      const env = world.env({ LONGSHORE_SCHEDULER_ADDRESS: other.address, LONGSHORE_JOIN_TOKEN: other.joinToken });
      const moved = program(env);
      await moved.ready;
      expect(other.hellos.at(-1)?.machineId).toBe(other.machineId);
      expect(await identityOf(world)).toMatchObject({ machineId: other.machineId, formerMachineIds: [machineId] });
      moved.child.kill('SIGTERM');
      expect(await moved.exit).toBe(0);
    } finally {
      other.down();
    }
  });
});

describe('a credential', () => {
  test('past half of its life is renewed at once, and is on disk, for its owner alone, before it is used', async ({
    world,
  }) => {
    const { scheduler } = world;
    await connected(world);
    const before = await identityOf(world);
    await world.agent.stop();
    await writeFile(identityPath(world), JSON.stringify({ ...before, credentialSinceMs: Date.now() - 7_200_000 }));
    await world.restart();
    await until('the renewal', () => scheduler.credential !== before.credential);
    await until('it on disk', () => scheduler.asked.includes('renew'));
    scheduler.control?.end();
    await until('a session with the new one', () => scheduler.hellos.length === 3);
    const after = await identityOf(world);
    expect(after.credential).toBe(scheduler.credential);
    expect((await stat(identityPath(world))).mode & 0o777).toBe(0o600);
  });

  test('that is refused is replaced by the machine’s key, and what runs runs on', async ({ world }) => {
    const { scheduler } = world;
    await connected(world);
    const containerId = await running(world);
    scheduler.credential = 'another one, as after a long absence';
    scheduler.control?.end();
    await until('the next session', () => scheduler.hellos.length === 2);
    expect(scheduler.asked).toEqual(['renew', 'challenge', 'proof']);
    expect(scheduler.joins).toHaveLength(1);
    expect((await identityOf(world)).credential).toBe(scheduler.credential);
    expect(scheduler.hellos.at(-1)?.observed).toMatchObject([{ containerId, phase: 'running' }]);
  });

  test('that is refused for good ends nothing: a bare status is no order', async ({ world, docker }) => {
    const { scheduler } = world;
    await connected(world);
    const containerId = await running(world);
    Object.assign(scheduler, { refuseCredentials: true, proofs: 'refuse' });
    scheduler.control?.end();
    await until('the proof that is refused', () => scheduler.asked.includes('proof'));
    const label = `io.longshore.container=${containerId}`;
    expect(await docker.client.listContainers({ filters: { label: [label] } })).toHaveLength(1);
    expect((await identityOf(world)).machineId).toBe(scheduler.machineId);
    // The agent waits a minute now; that did not keep it from stopping when told to.
    await world.agent.stop();
    expect(await docker.client.listContainers({ filters: { label: [label] } })).toHaveLength(1);
    Object.assign(scheduler, { refuseCredentials: false });
    await world.restart();
  });
});

describe('a machine that was deleted', () => {
  const gone = async (path: string): Promise<boolean> =>
    stat(path).then(
      () => false,
      () => true,
    );

  test('ends its containers, forgets itself and exits 78 on the signed word, and on no other', async ({
    world,
    docker,
  }) => {
    const { scheduler } = world;
    const agent = program(world.env());
    await agent.ready;
    const containerId = await running(world);
    const impostor = new FakeScheduler();
    scheduler.revoke(scheduler.machineId, await scheduler.statement(scheduler.machineId, impostor));
    scheduler.revoke(scheduler.machineId, await scheduler.statement('ffffffff'));
    scheduler.revoke(scheduler.machineId, scheduler.credential);
    // The link still works, in order, so the earlier revocations were not obeyed.
    scheduler.run('t1', containerId, '');
    expect((await scheduler.resultOf('t1')).outcome).toBe('ok');
    scheduler.revoke(scheduler.machineId, await scheduler.statement(scheduler.machineId));
    expect(await agent.exit).toBe(78);
    expect(agent.stderr()).toMatch(/was deleted from its installation.*create a machine/);
    const label = `io.longshore.machine=${scheduler.machineId}`;
    expect(await docker.client.listContainers({ all: true, filters: { label: [label] } })).toEqual([]);
    expect(await gone(join(world.dataDir, 'agent'))).toBe(true);
  });

  test('hears it after a long absence by its key; with a new join token its host joins anew instead', async ({
    world,
  }) => {
    const { scheduler } = world;
    await connected(world);
    await world.agent.stop();
    Object.assign(scheduler, { refuseCredentials: true, proofs: 'revoke' });
    const back = program(world.env());
    expect(await back.exit).toBe(78);
    expect(await gone(identityPath(world))).toBe(true);

    Object.assign(scheduler, { refuseCredentials: false, proofs: 'accept' });
    await world.restart();
    const secret = 'a-new-secret-of-a-new-token';
    const joinToken = scheduler.joinToken.replace(/[^.]+$/, secret);
    await world.agent.stop();
    await world.restart();
    const statement = await scheduler.statement(scheduler.machineId);
    await world.agent.stop();
    const old = scheduler.machineId;
    Object.assign(scheduler, { secret, joinToken });
    await world.restart();
    Object.assign(scheduler, { machineId: 'feedbeef' });
    scheduler.revoke(old, statement);
    await until('it joins', () => scheduler.hellos.at(-1)?.machineId === 'feedbeef');
  });
});
