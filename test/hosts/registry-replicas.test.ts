// The managed registry with two schedulers and two machines, each linked to its own scheduler; and the registry's daily
// collection of layers in the middle of a push and of a pull.
import { join } from 'node:path';
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { HostsPlatform } from '../helpers/hosts.ts';
import { aHostsPlatform } from '../helpers/hosts.ts';
import { buildImage, imageOf } from '../helpers/images.ts';
import { ServedRegistry } from '../helpers/managed-registry.ts';
import type { Deployment } from '../helpers/platform.ts';
import { Daemon, jsonOf } from '../helpers/platform.ts';
import type { PrivatePostgres, PrivateRedis } from '../helpers/services.ts';
import { aPostgres, aRedis, waitFor } from '../helpers/services.ts';

const MB = 1_000_000;
let postgres: PrivatePostgres;
let redis: PrivateRedis;
let registry: ServedRegistry;
let platform: HostsPlatform;
let second: Daemon;
let first: string;
let other: string;

beforeAll(async () => {
  [postgres, redis] = await Promise.all([aPostgres(), aRedis()]);
  registry = new ServedRegistry();
  await registry.start();
  const settings = { DATABASE_URL: postgres.url, REDIS_URL: redis.url, LONGSHORE_REGISTRY: registry.address };
  platform = await aHostsPlatform({ count: 2, settings });
  first = platform.url;
  second = new Daemon('scheduler', join(platform.directory, 'second.log'), () => ({
    ...platform.env(),
    ...settings,
    LONGSHORE_DRAIN_SECONDS: '10',
    LONGSHORE_HTTP_ADDRESS: '127.0.0.1:0',
    LONGSHORE_AGENT_ADDRESS: `${platform.simulated.gateway}:0`,
  }));
  const ready = await second.start();
  other = `http://${String(ready['httpAddress'])}`;
  // The second machine links to the second scheduler from now on.
  const [, machine] = platform.two;
  const before = platform.agentAddress;
  await machine.agent.stop();
  platform.agentAddress = String(ready['agentAddress']);
  await machine.agent.start();
  platform.agentAddress = before;
  await platform.ready(60_000);
}, 240_000);
afterAll(async () => {
  await (second as Daemon | undefined)?.stop();
  await (platform as HostsPlatform | undefined)?.stop();
  await registry.stop();
  await Promise.all([redis.stop(), postgres.stop()]);
}, 60_000);

/** Runs with calls to one of the schedulers. */
async function at<Result>(url: string, run: () => Promise<Result>): Promise<Result> {
  platform.url = url;
  try {
    return await run();
  } finally {
    platform.url = first;
  }
}

const definition = (...commands: readonly string[]): object => ({
  pythonVersion: 'python3.11',
  commands: ['mkdir /built', 'echo hello > /built/file', `echo ${randomUUID()} > /built/own`, ...commands],
});

const deploy = (name: string, imageId: string): Promise<Deployment> =>
  platform.deploy({ app: 'packages.py', handler: 'file', name, imageId });

/** Bytes of images that went through both schedulers. */
async function bytes(direction: 'in' | 'out'): Promise<number> {
  const name = 'longshore_scheduler_registry_bytes_total';
  const each = [first, other].map(async (url) => {
    const page = await (await fetch(`${url}/metrics`)).text();
    return Number(new RegExp(`^${name}\\{direction="${direction}"\\} (\\S+)$`, 'm').exec(page)?.[1] ?? 0);
  });
  return (await Promise.all(each)).reduce((sum, one) => sum + one, 0);
}

/** Has the registry collect its layers once 10 MB have passed. */
async function collectIn(direction: 'in' | 'out'): Promise<void> {
  const from = await bytes(direction);
  await waitFor(async () => (await bytes(direction)) > from + 10 * MB, `bytes go ${direction}`, 120_000);
  await registry.collect()();
}

test('an image is built and pushed by a call to any scheduler, on a machine of any, and each machine pulls it', async () => {
  const [one, two] = platform.two;
  const ways = [
    { url: first, builder: one, puller: two },
    { url: first, builder: two, puller: one },
    { url: other, builder: one, puller: two },
    { url: other, builder: two, puller: one },
  ];
  for (const [index, { url, builder, puller }] of ways.entries()) {
    await platform.only(builder);
    const { imageId } = await at(url, () => buildImage(platform, definition()));
    const built = await imageOf(platform, imageId);
    expect(built).toMatchObject({ machines: [{ id: builder.machineId() }], registry: { error: '' } });
    expect(built?.registry.digest).toMatch(/^sha256:/);
    await platform.only(puller);
    const app = await at(url, () => deploy(`way-${index}`, imageId));
    const answer = await at(url === first ? other : first, () => platform.invoke(app));
    expect(jsonOf(answer)).toEqual({ file: 'hello' });
    expect(await puller.host.containers([`io.longshore.deployment=${app.deploymentId}`])).toHaveLength(1);
  }
}, 400_000);

test('a push goes on behind the daily collection of the registry, and so does a pull; nothing is lost', async () => {
  const [one, two] = platform.two;
  await platform.only(one);
  let isOver = false;
  const building = buildImage(platform, definition('head -c 150000000 /dev/urandom > /built/large')).finally(
    () => (isOver = true),
  );
  await collectIn('in');
  expect(isOver).toBe(false);
  const { imageId } = await building;
  expect((await imageOf(platform, imageId))?.registry).toMatchObject({
    error: '',
    digest: expect.stringMatching(/^sha256:/) as string,
  });
  await platform.only(two);
  const app = await deploy('large', imageId);
  isOver = false;
  const answering = platform.invoke(app).finally(() => (isOver = true));
  await collectIn('out');
  expect(isOver).toBe(false);
  expect(jsonOf(await answering)).toEqual({ file: 'hello' });
  expect(await two.host.containers([`io.longshore.deployment=${app.deploymentId}`])).toHaveLength(1);
}, 400_000);
