/** Images across the fleet, over the real link and a real Redis: places among those who pull, and who is given credentials. */
import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { ControlToAgent__Output } from '#shared/protocol/generated/messages.ts';
import { PullPlaces } from '#scheduler/images/places.ts';
import { parseDockerConfig } from '#scheduler/images/credentials.ts';
import { waitFor } from '../helpers/services.ts';
import type { Agent } from './fleet-fixture.ts';
import { test } from './fleet-fixture.ts';
import { aTarget } from './tasks-fixture.ts';

test('so many machines pull one image at once; a place is given back, or runs out', async ({ fleet }) => {
  const { client, keys } = fleet.process;
  const places = new PullPlaces(client, keys);
  const image = randomUUID();
  const take = (machine: string, holdMs = 60_000): Promise<boolean> =>
    places.take(image, machine as MachineId, 2, holdMs);
  expect([await take('a'), await take('b', 300), await take('c')]).toEqual([true, true, false]);
  // Who has one keeps it by asking again.
  expect(await take('a')).toBe(true);
  await places.give(image, 'a' as MachineId);
  expect([await take('c'), await take('a')]).toEqual([true, false]);
  await waitFor(() => take('a'), 'the place that was not renewed is free');
  // Another image has places of its own.
  expect(await places.take(randomUUID(), 'd' as MachineId, 2, 60_000)).toBe(true);
});

test('credentials go to a machine that has a container of the image, and to no other', async ({ fleet, agents }) => {
  const [one, other] = [await agents.joined(), await agents.joined()];
  await Promise.all([one.connect(), other.connect()]);
  const image = 'registry.test/app:1';
  fleet.registryAuth = { serverAddress: 'registry.test', username: 'u', password: 'p', identityToken: '' };
  expect(await one.pullImage(image)).toMatchObject({ waitMs: 0, auth: null });
  await fleet.assigned(await fleet.target({ config: { ...aTarget().config, imageId: image } }), one.machineId);
  expect(await one.pullImage(image)).toMatchObject({ waitMs: 0, auth: { username: 'u', password: 'p' } });
  expect(await other.pullImage(image)).toMatchObject({ auth: null });
  expect(await one.pullImage('registry.test/other:1')).toMatchObject({ auth: null });
  other.credential = 'nothing';
  await expect(other.pullImage(image)).rejects.toMatchObject({ code: 16 });
});

test('a machine of a workspace’s own pool is not given the operator’s credentials', async ({ fleet, agents }) => {
  const target = await fleet.target({ config: { ...aTarget().config, imageId: 'registry.test/app:1' } });
  const own = await agents.joined({ workspaceId: target.workspaceId });
  await own.connect();
  fleet.registryAuth = { serverAddress: 'registry.test', username: 'u', password: 'p', identityToken: '' };
  await fleet.assigned(target, own.machineId);
  expect(await own.pullImage('registry.test/app:1')).toMatchObject({ waitMs: 0, auth: null });
});

async function machinesWith(
  agents: { joined(owner?: { readonly workspaceId: WorkspaceId | null }): Promise<Agent> },
  count: number,
  owner?: { readonly workspaceId: WorkspaceId },
): Promise<readonly Agent[]> {
  const made = [];
  for (let at = 0; at < count; at += 1) {
    const agent = await agents.joined(owner);
    await agent.connect();
    made.push(agent);
  }
  return made;
}

test('the ninth machine waits until one of the eight has the image', async ({ fleet, agents }) => {
  const image = `registry.test/${randomUUID()}:1`;
  const target = await fleet.target({ config: { ...aTarget().config, imageId: image } });
  const machines = await machinesWith(agents, 9);
  for (const { machineId } of machines) await fleet.assigned(target, machineId);
  const waits = await Promise.all(machines.map(async (agent) => (await agent.pullImage(image)).waitMs > 0));
  expect(waits.filter(Boolean)).toHaveLength(1);
  const last = machines[waits.indexOf(true)];
  const first = machines[waits.indexOf(false)];
  await first?.pullImage(image, true);
  expect((await last?.pullImage(image))?.waitMs).toBe(0);
  expect(fleet.machines.get(last?.machineId ?? ('' as MachineId))).toBeDefined();
});

test('machines that nobody wants the image on, and those of other owners, take no places of it', async ({
  fleet,
  agents,
}) => {
  const image = `registry.test/${randomUUID()}:1`;
  const target = await fleet.target({ config: { ...aTarget().config, imageId: image } });
  const [strangers, own, [shared]] = [
    await machinesWith(agents, 8),
    await machinesWith(agents, 8, { workspaceId: target.workspaceId }),
    await machinesWith(agents, 1),
  ];
  for (const { machineId } of own) await fleet.assigned(target, machineId);
  for (const agent of [...strangers, ...own]) expect((await agent.pullImage(image)).waitMs).toBe(0);
  await fleet.assigned(target, shared?.machineId ?? ('' as MachineId));
  expect((await shared?.pullImage(image))?.waitMs).toBe(0);
});

test('whoever deploys an image that nobody could be asked about is told so; one that its registry refuses is refused', async ({
  fleet,
  agents,
}) => {
  const { workspaceId, config } = await fleet.target();
  const pinned = `registry.test/app@sha256:${'a'.repeat(64)}`;
  const resolve = (imageId: string) => fleet.images.resolve(workspaceId, { ...config, imageId });
  expect(await resolve('')).toEqual({ kind: 'resolved', digest: '', warning: '' });
  expect(await resolve(pinned)).toMatchObject({ digest: '', warning: expect.stringMatching(/no machine/) as string });
  const agent = await agents.joined();
  const control = await agent.connect();
  const says = { failure: 'busy', message: 'i/o timeout (busy)', digest: '' };
  control.stream.on('data', ({ prepareImage }: ControlToAgent__Output) => {
    if (prepareImage) control.stream.write({ imagePrepared: { requestId: prepareImage.requestId, ...says } });
  });
  expect(await resolve('registry.test/app:1')).toMatchObject({
    kind: 'resolved',
    warning: expect.stringMatching(new RegExp(`registry.test/app:1 .*${agent.machineId}.*i/o timeout`)) as string,
  });
  // What it is called by makes no difference: one that names its bytes is asked about as well.
  says.failure = 'unauthorized';
  expect(await resolve(pinned)).toEqual({ kind: 'refused', text: 'i/o timeout (busy)' });
});

test('the file of Docker’s client is understood, whichever way it says it', () => {
  const auth = Buffer.from('user:pass:word').toString('base64');
  const config = {
    auths: {
      'https://index.docker.io/v1/': { auth },
      'ghcr.io': { username: 'a', password: 'b' },
      'registry.test:5000': { identitytoken: 't' },
      odd: 'no object',
    },
  };
  const found = parseDockerConfig(JSON.stringify(config));
  expect(found.get('docker.io')).toMatchObject({ username: 'user', password: 'pass:word' });
  expect(found.get('ghcr.io')).toMatchObject({ username: 'a', password: 'b' });
  expect(found.get('registry.test:5000')).toMatchObject({ identityToken: 't', username: '' });
  expect([found.size, parseDockerConfig('{}').size]).toEqual([3, 0]);
});
