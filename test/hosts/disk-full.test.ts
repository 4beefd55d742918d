/** An engine whose disk is small: images leave when it fills up, the machine says so, and takes nothing new. */
import { execFileSync } from 'node:child_process';
import { readFileSync, statfsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect } from 'vitest';
import type { Assignment } from '#shared/protocol/generated/messages.ts';
import { pinnedTo } from '#shared/domain/image-reference.ts';
import type { AgentWorld } from '../helpers/agent.ts';
import { agentWorld } from '../helpers/agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import { until } from '../helpers/fake-scheduler.ts';
import { whyNoHosts } from '../helpers/hosts.ts';
import type { SimulatedHost } from '../helpers/hosts/host.ts';
import { SimulatedNetwork } from '../helpers/hosts/network.ts';
import { FakeRegistry } from '../helpers/registry.ts';
import { test } from '../helpers/services.ts';

const MB = 1_000_000;
const HOUR_MS = 3_600_000;
const registry = new FakeRegistry();
let network: SimulatedNetwork;
let host: SimulatedHost;
let world: AgentWorld;
const made: { readonly reference: string; readonly digest: string }[] = [];

beforeAll(async () => {
  if (whyNoHosts !== undefined) return;
  network = await SimulatedNetwork.up(1, undefined, () => ({
    engine: { 'insecure-registries': ['198.18.0.0/15'], 'max-download-attempts': 1 },
    diskMib: 120,
  }));
  [host] = network.hosts as [SimulatedHost];
  await registry.start(network.gateway);
  // The images are made before the agent connects, because that takes this process a while.
  made.push(registry.add('disk/a', 15 * MB), registry.add('disk/b', 15 * MB), registry.add('disk/big', 48 * MB));
  // The engine is in another network namespace, and does not reach the agent's loopback.
  world = await agentWorld({}, { DOCKER_HOST: `unix://${host.socket}`, LONGSHORE_AGENT_PULL_ADDRESS: 'off' });
  await world.agent.start();
  await world.agent.connected;
});
afterAll(async () => {
  await (world as AgentWorld | undefined)?.end();
  registry.stop();
  await (network as SimulatedNetwork | undefined)?.down();
});

const conditions = (): readonly string[] =>
  world.scheduler.heard.findLast((message) => message.heartbeat !== null && message.heartbeat !== undefined)?.heartbeat
    ?.conditions ?? [];
const has = (reference: string): Promise<boolean> =>
  host.docker
    .getImage(reference)
    .inspect()
    .then(
      () => true,
      () => false,
    );
const metrics = async (): Promise<string> => (await fetch(`http://${world.agent.metricsAddress}/metrics`)).text();

/** Runs a container of that image to the end of its start: the image has no Python. */
async function started(reference: string): Promise<{ reason: string; message: string; image: string }> {
  const assignment = anAssignment({ image: reference });
  world.scheduler.desire([assignment]);
  const { reason, message } = await world.scheduler.phase(assignment.containerId, 'removed', 30_000);
  return { reason, message, image: reference };
}

describe.skipIf(whyNoHosts !== undefined)('on a small disk', () => {
  test('Disk full: GC, condition, no creation; only images that it pulled, that are old and that nothing uses leave', async () => {
    const [a, b, big] = made.map((one) => ({ ...one, pinned: pinnedTo(one.reference, one.digest) }));
    if (a === undefined || b === undefined || big === undefined) throw new Error('no images');
    for (const { reference, digest, pinned } of [a, b]) {
      const assignment: Assignment & { containerId: string } = anAssignment({ image: reference, imageDigest: digest });
      world.scheduler.desire([assignment]);
      const end = await world.scheduler.phase(assignment.containerId, 'removed', 30_000);
      expect(end).toMatchObject({ reason: 'image_error' });
      expect(end.message).toMatch(/python3/);
      expect(world.scheduler.phases.get(assignment.containerId)).toContain('pulling');
      expect(await has(pinned)).toBe(true);
      const lines = () =>
        world.scheduler.records.filter((one) => one.containerId === assignment.containerId).map(({ line }) => line);
      await until('its log to say so', () => lines().some((line) => line === `longshore: pulling image ${pinned}`));
    }
    // A foreign image, the oldest of all.
    await host.docker.pull(registry.add('disk/foreign', MB).reference).then(
      (stream) =>
        new Promise((resolve) => {
          stream.on('data', () => undefined).on('end', resolve);
        }),
    );
    const foreign = (await host.docker.listImages())
      .flatMap((one) => one.RepoTags ?? [])
      .find((one) => /foreign/.test(one));
    expect(conditions()).toEqual([]);

    // There is no room, and both images are too young to leave.
    const full = await started(big.reference);
    expect(full).toMatchObject({ reason: 'disk_full' });
    expect(full.message).toMatch(/^cannot pull image .*the disk of images has no more room \(disk_full\); make room/);
    await until('the condition to be told', () => conditions().includes('DiskPressure'));
    const page = await metrics();
    expect(page).toContain('longshore_agent_condition{condition="DiskPressure"} 1');
    expect(page).toMatch(/longshore_agent_image_pulls_total\{result="disk_full"\} 1\n/);
    expect(page).toMatch(/longshore_agent_image_pulls_total\{result="ok"\} 2\n/);
    expect(page).toMatch(/longshore_agent_image_pull_bytes_total [1-9]\d{7}/);
    expect(page).toMatch(/longshore_agent_disk_free_bytes\{filesystem="images"\} \d+/);

    const refused = anAssignment({ image: a.reference });
    world.scheduler.desire([refused]);
    await until('the refusal', () =>
      world.scheduler.heard.some(
        ({ refuse }) => refuse?.containerId === refused.containerId && refuse.reason === 'disk_pressure',
      ),
    );
    expect(world.scheduler.phases.get(refused.containerId)).toBeUndefined();
    world.scheduler.desire([], { confirmEmpty: true });

    // The test plays the next hour: the disk fills up, and a container uses the image that was used least.
    await world.agent.stop();
    const ledger = join(world.dataDir, 'agent', 'images.json');
    const entries = JSON.parse(readFileSync(ledger, 'utf8')) as Record<
      string,
      { pulledAtMs: number; usedAtMs: number }
    >;
    expect(Object.keys(entries).toSorted()).toEqual([a.pinned, b.pinned].toSorted());
    const [atA, atB] = [Date.now() - 3 * HOUR_MS, Date.now() - 2 * HOUR_MS];
    Object.assign(entries[a.pinned] ?? {}, { pulledAtMs: atA, usedAtMs: atA });
    Object.assign(entries[b.pinned] ?? {}, { pulledAtMs: atB, usedAtMs: atB });
    writeFileSync(ledger, JSON.stringify(entries));
    const holding = await host.docker.createContainer({ Image: a.pinned, Cmd: ['/data'] });
    const root = join(host.directory, 'root');
    const { bsize, blocks, bfree, bavail } = statfsSync(root);
    const filler = Math.max(0, Math.floor((bsize * bavail - 0.13 * bsize * (blocks - bfree + bavail)) / MB));
    execFileSync('dd', ['if=/dev/zero', `of=${join(root, 'filler')}`, 'bs=1000000', `count=${filler}`, 'status=none']);
    await world.restart();
    expect(await has(b.pinned)).toBe(false);
    expect(await has(a.pinned)).toBe(true);
    expect(await has(foreign ?? '')).toBe(true);
    expect(world.scheduler.hellos.at(-1)?.conditions?.names).toEqual([]);
    expect(await metrics()).toMatch(/longshore_agent_image_gc_freed_bytes_total [1-9]\d{7}/);
    await holding.remove();
  });
});
