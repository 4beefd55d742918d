// The managed registry on a port of loopback. Two simulated hosts, each with an engine of its own, push and pull there.
// The registry collects its layers meanwhile, when nobody is behind the port for a moment.
import { join } from 'node:path';
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { aHostsPlatform } from '../helpers/hosts.ts';
import type { HostsPlatform } from '../helpers/hosts.ts';
import { aRegistryDaemon, buildImage, imageOf } from '../helpers/images.ts';
import { ServedRegistry } from '../helpers/managed-registry.ts';
import { jsonOf, plainEnv } from '../helpers/platform.ts';
import { freePort } from '../helpers/services.ts';

let registry: ServedRegistry;
let platform: HostsPlatform;

beforeAll(async () => {
  registry = new ServedRegistry(`http://127.0.0.1:${await freePort()}`);
  await registry.start();
  platform = await aHostsPlatform({ count: 2, settings: { LONGSHORE_REGISTRY: registry.address } });
}, 180_000);
afterAll(async () => {
  await (platform as HostsPlatform | undefined)?.stop();
  await registry.stop();
}, 60_000);

test('each host pulls what the other one built, also over a collection', { timeout: 180_000 }, async () => {
  const [one, two] = platform.two;
  for (const [builder, other] of [
    [one, two],
    [two, one],
  ] as const) {
    await platform.only(builder);
    const { imageId, text } = await buildImage(platform, {
      pythonVersion: 'python3.11',
      commands: ['mkdir /built', 'echo hello > /built/file', `echo ${randomUUID()} > /built/own`],
    });
    expect(text).toContain('pushing the image to the registry');
    expect(await imageOf(platform, imageId)).toMatchObject({
      machines: [{ id: builder.machineId() }],
      registry: { error: '', digest: expect.stringMatching(/^sha256:/) as string },
    });
    await platform.only(other);
    // The pull finds a port without anybody, or one that is taken over.
    const collected = registry.collect();
    const app = await platform.deploy({ app: 'packages.py', handler: 'file', name: `by-${other.host.name}`, imageId });
    expect(jsonOf(await platform.invoke(app))).toEqual({ file: 'hello' });
    expect(await other.host.containers([`io.longshore.deployment=${app.deploymentId}`])).toHaveLength(1);
    await collected();
  }
});

test('a registry that others could reach does not start', { timeout: 60_000 }, async () => {
  const open = aRegistryDaemon(registry.directory.path, () => ({
    ...plainEnv(),
    LONGSHORE_DATA_DIR: join(registry.directory.path, 'open'),
    LONGSHORE_REGISTRY: 'http://0.0.0.0:5999',
  }));
  await expect(open.start()).rejects.toThrow(/everybody who reaches that address could read and replace all images/);
});
