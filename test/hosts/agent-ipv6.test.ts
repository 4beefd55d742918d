// IPv6: the link, the metrics page, and the addresses that containers
// reach. An operator made the containers' network with IPv6.
import { randomBytes } from 'node:crypto';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { expect } from 'vitest';
import { checkMachine } from '../../agent/preflight/check.ts';
import type { AgentWorld } from '../helpers/agent.ts';
import { agentWorld, zip } from '../helpers/agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import { test as base } from '../helpers/services.ts';

/** Whether a port of an address answers from inside. */
const APP = `import errno, socket, time
def handler(host, port):
    while True:
        try:
            socket.create_connection((host, port), 3).close()
            return 'open'
        except OSError as error:
            # An address is not used until the kernel knows that nobody else has it.
            if error.errno != errno.EADDRNOTAVAIL:
                return error.strerror or str(error)
            time.sleep(0.05)
`;

/** A range of this test, and the engine's address in it. */
const PREFIX = `fd${randomBytes(1).toString('hex')}:${randomBytes(2).toString('hex')}:${randomBytes(2).toString('hex')}`;
const GATEWAY = `${PREFIX}::1`;
/** The kernel's words for a refusal by the filter over IPv6. */
const CLOSED = 'Permission denied';

interface World extends AgentWorld {
  /** Runs a container that tries. @returns what it found, by host */
  readonly reaches: (hosts: readonly string[], allowList?: readonly string[]) => Promise<Record<string, string>>;
}

/** Makes an agent with these settings, not started yet; one for each test. */
type Make = (settings?: Readonly<Record<string, string>>) => Promise<World>;

const test = base.extend('make', async ({ docker }, { onCleanup }): Promise<Make> => {
  const network = await docker.client.createNetwork({
    Name: `ls-test6-${randomBytes(4).toString('hex')}`,
    Driver: 'bridge',
    EnableIPv6: true,
    IPAM: { Config: [{ Subnet: `${PREFIX}::/64`, Gateway: GATEWAY }] },
    Options: { 'com.docker.network.bridge.enable_icc': 'false' },
    Labels: docker.labels,
  });
  const { Name: name } = (await network.inspect()) as { Name: string };
  const server = createServer((socket) => socket.end());
  await new Promise<void>((resolve) => server.listen(0, '::', resolve));
  const { port } = server.address() as AddressInfo;
  let world: World | undefined;
  onCleanup(async () => {
    server.close();
    // The agent removes its network.
    await world?.end();
  });
  return async (settings = {}) => {
    const own = { LONGSHORE_AGENT_NETWORK: name, LONGSHORE_AGENT_METRICS_ADDRESS: '[::1]:0' };
    const made = await agentWorld(docker.labels, { ...own, ...settings }, { schedulerHost: '[::1]' });
    world = Object.assign(made, { reaches: reaching(made, port) });
    return world;
  };
});

const reaching =
  ({ scheduler }: AgentWorld, port: number): World['reaches'] =>
  async (hosts, allowList = []) => {
    const code = scheduler.addArchive(await zip({ 'app.py': APP }));
    const assignment = anAssignment({ code, allowList: [...allowList] });
    scheduler.desire([assignment], { full: false });
    await scheduler.phase(assignment.containerId, 'running');
    const found: Record<string, string> = {};
    for (const host of hosts) {
      const taskId = `${assignment.containerId}-${host}`;
      scheduler.run(taskId, assignment.containerId, JSON.stringify({ host, port }));
      found[host] = JSON.parse((await scheduler.resultOf(taskId)).whole.toString()) as string;
    }
    return found;
  };

test('an agent joins at [::1], shows its page there, and its containers reach nothing of this machine by IPv6', async ({
  make,
}) => {
  const world = await make();
  const before = await checkMachine(world.env());
  expect(before.filter(({ level }) => level === 'failed')).toEqual([]);
  expect(before.find(({ check }) => check === 'scheduler')?.found).toMatch(/^\[::1\]:\d+ answers/);
  await world.agent.start();
  await world.agent.connected;
  expect(world.agent.metricsAddress).toMatch(/^\[::1\]:[1-9]\d*$/);
  expect((await fetch(`http://${world.agent.metricsAddress}/metrics`)).status).toBe(200);
  expect(await world.reaches([GATEWAY, `${PREFIX}::ffff`, '::1'])).toEqual({
    [GATEWAY]: CLOSED,
    [`${PREFIX}::ffff`]: CLOSED,
    // The container's own loopback has no listener.
    '::1': 'Connection refused',
  });
});

test('what an operator opens of this machine is reached by IPv6, but by lists without it', async ({ make }) => {
  const world = await make({ LONGSHORE_AGENT_OPEN_ADDRESSES: GATEWAY });
  await world.agent.start();
  await world.agent.connected;
  expect(await world.reaches([GATEWAY])).toEqual({ [GATEWAY]: 'open' });
  expect(await world.reaches([GATEWAY], [`${PREFIX}::/64`])).toEqual({ [GATEWAY]: 'open' });
  expect(await world.reaches([GATEWAY], ['2001:db8::/32'])).toEqual({ [GATEWAY]: CLOSED });
});
