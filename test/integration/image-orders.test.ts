/**
 * Images across the fleet, over the real link and a real Redis: the line of
 * machines that pull, and the machines that get credentials.
 */
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { ContainerId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { ControlToAgent__Output } from '#shared/protocol/generated/messages.ts';
import { RegistryCredentials, parseDockerConfig } from '#scheduler/fleet/images/credentials.ts';
import { tempDirectory, waitFor } from '../helpers/services.ts';
import type { Agent } from './fleet-fixture.ts';
import { test } from './fleet-fixture.ts';
import { aWorkspace, silent as quiet } from './store-fixture.ts';
import { aTarget } from './tasks-fixture.ts';

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

test('a workspace’s own credentials go with its own containers alone, for the repositories they list', async ({
  fleet,
  agents,
}) => {
  const image = 'registry.test/team/app:1';
  const config = { ...aTarget().config, imageId: image };
  const { id: other } = await aWorkspace(fleet.db);
  const [mine, others] = [await fleet.target({ config }), await fleet.target({ config, workspaceId: other })];
  const [shared, own] = [await agents.joined(), await agents.joined({ workspaceId: mine.workspaceId })];
  await Promise.all([shared.connect(), own.connect()]);
  const value = { registry: 'registry.test', username: 'me', password: 'p', repositories: ['team/*'] };
  await fleet.secrets.create(mine.workspaceId, 'LONGSHORE_REGISTRY_TEST', JSON.stringify(value));
  for (const target of [mine, others]) await fleet.assigned(target, shared.machineId);
  await fleet.assigned(mine, own.machineId);
  const asks = async (agent: Agent, { workspaceId }: { workspaceId: string }, what = image) =>
    (await agent.pullImage(what, { workspaceId })).auth?.username;
  expect(await asks(shared, mine)).toBe('me');
  expect(await asks(own, mine)).toBe('me');
  expect(await asks(shared, others)).toBeUndefined();
  expect(await asks(own, others)).toBeUndefined();
  // A question for no workspace gets what the operator shares alone.
  expect(await asks(shared, { workspaceId: '' })).toBeUndefined();
  // The operator's credentials are for workspaces without credentials of their own, on the operator's machines.
  fleet.registryAuth = { serverAddress: 'registry.test', username: 'all', password: 'p', identityToken: '' };
  expect([await asks(shared, mine), await asks(shared, others), await asks(own, others)]).toEqual([
    'me',
    'all',
    undefined,
  ]);
  const elsewhere = 'registry.test/teams/app:1';
  const outside = await fleet.target({
    workspaceId: mine.workspaceId,
    config: { ...aTarget().config, imageId: elsewhere },
  });
  await fleet.assigned(outside, shared.machineId);
  expect(await asks(shared, outside, elsewhere)).toBe('all');
});

test('credentials of a registry are checked when they are set, and are no variable of a container', async ({
  fleet,
}) => {
  const { workspaceId } = await fleet.target();
  const name = 'LONGSHORE_REGISTRY_A';
  const value = { registry: 'ghcr.io', username: 'u', password: 'hidden', repositories: ['team/app'] };
  const refused = async (changes: object): Promise<string> => {
    const set = fleet.secrets.create(workspaceId, name, JSON.stringify({ ...value, ...changes }));
    const error: unknown = await set.catch((one: unknown) => one);
    expect(error).toMatchObject({ code: 'invalid_body' });
    expect(String(error)).not.toContain('hidden');
    return String(error);
  };
  expect(await refused({ repositories: [] })).toContain('/repositories');
  expect(await refused({ repositories: ['team*'] })).toContain('/repositories/0');
  expect(await refused({ registry: 'https://ghcr.io/' })).toContain('value.registry');
  expect(await refused({ more: 1 })).toContain('value must be');
  await expect(fleet.secrets.create(workspaceId, name, 'text')).rejects.toMatchObject({ code: 'invalid_body' });
  await fleet.secrets.create(workspaceId, name, JSON.stringify(value));
  await expect(fleet.secrets.change(workspaceId, name, '{}')).rejects.toMatchObject({ code: 'invalid_body' });
  expect(await fleet.secrets.unknownOf(workspaceId, [name])).toEqual([name]);
  expect(await fleet.secrets.valuesOf(workspaceId, [name])).toEqual({ kind: 'missing', names: [name] });
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

test('the ninth machine is told its place, and its turn as soon as one of the eight has the image', async ({
  fleet,
  agents,
}) => {
  const image = `registry.test/${randomUUID()}:1`;
  const target = await fleet.target({ config: { ...aTarget().config, imageId: image } });
  const machines = await machinesWith(agents, 10);
  for (const { machineId } of machines) await fleet.assigned(target, machineId);
  for (const agent of machines.slice(0, 8)) expect((await agent.pullImage(image)).waitMs).toBe(0);
  const [ninth, tenth] = machines.slice(8) as [Agent, Agent];
  expect(await ninth.pullImage(image, { maxWaitMs: 20 })).toMatchObject({ waitMs: 1, place: 1, waiting: 1 });
  // A question that is not held keeps the place as well, and is asked again later.
  const unheld = await tenth.pullImage(image);
  expect(unheld).toMatchObject({ place: 2, waiting: 2 });
  expect(unheld.waitMs).toBeGreaterThan(1000);
  const turn = ninth.pullImage(image, { maxWaitMs: 20_000, hasWaited: true });
  await machines[0]?.pullImage(image, { done: true });
  expect(await turn).toMatchObject({ waitMs: 0, place: 0 });
  expect(await tenth.pullImage(image)).toMatchObject({ place: 1 });
  // The second machine that has the image widens the line as well.
  await machines[1]?.pullImage(image, { done: true, pulled: true });
  expect((await tenth.pullImage(image)).waitMs).toBe(0);
});

test('a machine whose container went while it waited in the line pulls nothing', async ({ fleet, agents }) => {
  const image = `registry.test/${randomUUID()}:1`;
  const target = await fleet.target({ config: { ...aTarget().config, imageId: image } });
  const machines = await machinesWith(agents, 9);
  const entries = [];
  for (const { machineId } of machines) entries.push(await fleet.assigned(target, machineId));
  const waits = await Promise.all(machines.map(async (agent) => (await agent.pullImage(image)).waitMs > 0));
  const last = waits.indexOf(true);
  await fleet.containers.transition(entries[last]?.row.id as ContainerId, 'abandon');
  expect(await machines[last]?.pullImage(image, { hasWaited: true })).toMatchObject({ waitMs: 0, unwanted: true });
});

test('machines that nobody wants the image on, and those of other owners, take no permits of it', async ({
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
  // The reference makes no difference: one with a digest is asked about as well.
  says.failure = 'unauthorized';
  expect(await resolve(pinned)).toEqual({ kind: 'refused', text: 'i/o timeout (busy)' });
});

test('machines that make their base images begin with that of a deployment, where they lack it', async ({
  fleet,
  agents,
}) => {
  const says = [
    { versions: ['3.11', '3.13'], here: ['3.11'], known: true },
    { versions: ['3.11', '3.13'], here: ['3.11', '3.13'], known: true },
    { versions: ['3.11'], here: ['3.11'], known: true },
    { versions: [], here: [], known: false },
  ];
  const ordered: string[][] = says.map(() => []);
  for (const [at, pythons] of says.entries()) {
    const agent = await agents.joined();
    const control = await agent.connect();
    control.stream.on('data', ({ prepareImage }: ControlToAgent__Output) => {
      if (prepareImage?.pull === true) ordered[at]?.push(`${prepareImage.image} ${prepareImage.pythonVersion}`);
    });
    control.stream.write({ basePythons: pythons });
    await waitFor(
      () => fleet.machines.get(agent.machineId)?.inventory?.basePythons.length === pythons.versions.length,
      'the machine has said its Pythons',
    );
  }
  const target = await fleet.target();
  const deploy = (pythonVersion: string, imageId = '') =>
    fleet.images.prepare({ ...target, active: true, config: { ...target.config, pythonVersion, imageId } });
  deploy('python3');
  deploy('python3.13');
  deploy('python3.13', 'registry.test/app:1');
  await waitFor(() => ordered.every((list) => list.includes('registry.test/app:1 ')), 'each has the last order');
  expect(ordered.map((list) => list.filter((one) => one.startsWith(' ')))).toEqual([[' python3.13'], [], [], []]);
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
  expect(found.get('docker.io')).toMatchObject({ auth: { username: 'user', password: 'pass:word' } });
  expect(found.get('ghcr.io')).toMatchObject({ auth: { username: 'a', password: 'b' } });
  expect(found.get('registry.test:5000')).toMatchObject({ auth: { identityToken: 't', username: '' } });
  expect([found.size, parseDockerConfig('{}').size]).toEqual([3, 0]);
});

test('an entry of the operator’s file is for the workspaces and repositories that it lists', async () => {
  const directory = tempDirectory('registries');
  const path = join(directory.path, 'config.json');
  const entry = { username: 'a', password: 'b' };
  const auths = {
    'ghcr.io': { ...entry, repositories: ['team/*', 'base'], workspaces: ['w1'] },
    'docker.io': entry,
    'broken.test': { ...entry, workspaces: 'w1' },
  };
  writeFileSync(path, JSON.stringify({ auths }));
  const credentials = new RegistryCredentials(path, quiet);
  const has = async (image: string, workspaceId: string) => (await credentials.of(image, workspaceId)) !== undefined;
  expect([await has('ghcr.io/team/app:1', 'w1'), await has('ghcr.io/base', 'w1')]).toEqual([true, true]);
  expect([await has('ghcr.io/team/app:1', 'w2'), await has('ghcr.io/team/app:1', '')]).toEqual([false, false]);
  expect([await has('ghcr.io/other/app', 'w1'), await has('ghcr.io/team', 'w1')]).toEqual([false, false]);
  expect([await has('python:3', 'w2'), await has('broken.test/x', 'w1')]).toEqual([true, false]);
  directory.remove();
});
