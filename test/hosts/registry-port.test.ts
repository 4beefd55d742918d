// The managed registry on a port of loopback. Two simulated hosts, each with an engine of its own, push and pull there.
// The registry collects its layers meanwhile, when nobody is behind the port for a moment.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ManagedRegistry } from '#cli/up/managed-registry.ts';
import { registryDirectory } from '#cli/up/registry-config.ts';
import { aHostsPlatform } from '../helpers/hosts.ts';
import type { HostsPlatform, Member } from '../helpers/hosts.ts';
import { aRegistryDaemon, buildImage, imageOf } from '../helpers/images.ts';
import { jsonOf, plainEnv } from '../helpers/platform.ts';
import { freePort, tempDirectory, waitFor } from '../helpers/services.ts';
import { silent } from '../integration/store-fixture.ts';

const directory = tempDirectory('registry');
let registry: ManagedRegistry;
let serving: Promise<void>;
let platform: HostsPlatform;

beforeAll(async () => {
  registry = new ManagedRegistry({
    program: 'docker-registry',
    settings: { LONGSHORE_DATA_DIR: directory.path, LONGSHORE_OBJECTS_REGION: '', LONGSHORE_OBJECTS_PREFIX: '' },
    address: `http://127.0.0.1:${await freePort()}`,
    log: silent,
  });
  await registry.start();
  serving = registry.run();
  platform = await aHostsPlatform({ count: 2, settings: { LONGSHORE_REGISTRY: registry.address } });
}, 180_000);
afterAll(async () => {
  await (platform as HostsPlatform | undefined)?.stop();
  await registry.stop();
  await serving;
  directory.remove();
}, 60_000);

function members(): readonly [Member, Member] {
  const [one, two] = platform.members;
  if (one === undefined || two === undefined) throw new Error('there are two hosts');
  return [one, two];
}

/** Leaves one machine to take work. */
async function only(member: Member): Promise<void> {
  for (const one of members())
    await platform.gateway(`/workers/${one.machineId()}/${one === member ? 'uncordon' : 'cordon'}`, {});
  await platform.statusIs(member, 'available', 30_000);
}

const pid = (): string => readFileSync(join(registryDirectory(directory.path), 'pid'), 'utf8');

test('each host pulls what the other one built, also over a collection', { timeout: 180_000 }, async () => {
  const [one, two] = members();
  for (const [builder, other] of [
    [one, two],
    [two, one],
  ] as const) {
    await only(builder);
    const { imageId, text } = await buildImage(platform, {
      pythonVersion: 'python3.11',
      commands: ['mkdir /built', 'echo hello > /built/file', `echo ${randomUUID()} > /built/own`],
    });
    expect(text).toContain('pushing the image to the registry');
    expect(await imageOf(platform, imageId)).toMatchObject({
      machines: [{ id: builder.machineId() }],
      registry: { error: '', digest: expect.stringMatching(/^sha256:/) as string },
    });
    await only(other);
    // The pull finds a port without anybody, or one that is taken over.
    const before = pid();
    registry.collectNow();
    const app = await platform.deploy({ app: 'packages.py', handler: 'file', name: `by-${other.host.name}`, imageId });
    expect(jsonOf(await platform.invoke(app))).toEqual({ file: 'hello' });
    expect(await other.host.containers([`io.longshore.deployment=${app.deploymentId}`])).toHaveLength(1);
    await waitFor(() => pid() !== before, 'the registry has changed its child', 60_000);
  }
});

test('a registry that others could reach does not start', { timeout: 60_000 }, async () => {
  const open = aRegistryDaemon(directory.path, () => ({
    ...plainEnv(),
    LONGSHORE_DATA_DIR: join(directory.path, 'open'),
    LONGSHORE_REGISTRY: 'http://0.0.0.0:5999',
  }));
  await expect(open.start()).rejects.toThrow(/everybody who reaches that address could read and replace all images/);
});
