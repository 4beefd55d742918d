// A built image on simulated hosts, each with an engine of its own: built on one, pulled by the other.
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { HostsPlatform } from '../helpers/hosts.ts';
import { aHostsPlatform } from '../helpers/hosts.ts';
import { aRegistryDaemon, buildImage, imageOf } from '../helpers/images.ts';
import type { Daemon } from '../helpers/platform.ts';
import { jsonOf, plainEnv } from '../helpers/platform.ts';
import { tempDirectory } from '../helpers/services.ts';

const directory = tempDirectory('registry');
let registry: Daemon;
let platform: HostsPlatform;

beforeAll(async () => {
  registry = aRegistryDaemon(directory.path, () => ({ ...plainEnv(), LONGSHORE_DATA_DIR: directory.path }));
  const address = String((await registry.start())['address']);
  platform = await aHostsPlatform({ count: 2, settings: { LONGSHORE_REGISTRY: address } });
}, 180_000);
afterAll(async () => {
  await (platform as HostsPlatform | undefined)?.stop();
  await registry.stop();
  directory.remove();
}, 60_000);

test('an image that one host built is pulled by the other, which serves it', { timeout: 120_000 }, async () => {
  const [builder, other] = platform.two;
  await platform.only(builder);
  const { imageId } = await buildImage(platform, {
    pythonVersion: 'python3.11',
    commands: ['mkdir /built', 'echo hello > /built/file'],
  });
  const built = await imageOf(platform, imageId);
  expect(built).toMatchObject({ machines: [{ id: builder.machineId() }], registry: { error: '' } });
  await platform.only(other);
  const app = await platform.deploy({ app: 'packages.py', handler: 'file', name: 'pulled', imageId });
  expect(jsonOf(await platform.invoke(app))).toEqual({ file: 'hello' });
  expect(await other.host.containers([`io.longshore.deployment=${app.deploymentId}`])).toHaveLength(1);
  const names = (await other.host.docker.listImages()).flatMap((one) => [
    ...(one.RepoTags ?? []),
    ...(one.RepoDigests ?? []),
  ]);
  expect(names).toContain(`${imageId}:latest`);
  expect(names.filter((name) => name.includes('longshore-built'))).toEqual([]);
});
