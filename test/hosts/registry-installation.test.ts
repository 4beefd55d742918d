// Built images on several machines: the managed registry, two agents, and an image whose machine is gone.
import { join } from 'node:path';
import { randomUUID } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { builtRepository } from '#shared/domain/built-images.ts';
import { Daemon, Platform, jsonOf } from '../helpers/platform.ts';
import type { Answer, Deployment } from '../helpers/platform.ts';
import { aRegistryDaemon, buildImage, imageOf } from '../helpers/images.ts';
import { docker, freePort, waitFor } from '../helpers/services.ts';
import type { TestDocker } from '../helpers/services.ts';

/** A second machine of the installation, on the same engine. */
class Second {
  readonly agent: Daemon;
  readonly port: number;
  machineId = '';
  #joinToken: string | undefined;

  constructor(platform: Platform, port: number) {
    this.port = port;
    const dataDir = join(platform.directory, 'second');
    mkdirSync(dataDir, { mode: 0o700 });
    const env = (): NodeJS.ProcessEnv => ({
      ...platform.env(),
      LONGSHORE_DATA_DIR: dataDir,
      LONGSHORE_SCHEDULER_ADDRESS: platform.agentAddress,
      LONGSHORE_AGENT_METRICS_ADDRESS: '127.0.0.1:0',
      LONGSHORE_AGENT_NETWORK: `${platform.network}-2`,
      LONGSHORE_AGENT_HOLDERS: '0',
      LONGSHORE_AGENT_REGISTRY_ADDRESS: `127.0.0.1:${port}`,
      ...(this.#joinToken === undefined ? {} : { LONGSHORE_JOIN_TOKEN: this.#joinToken }),
    });
    this.agent = new Daemon('agent', join(platform.directory, 'second.log'), env);
  }

  async join(platform: Platform): Promise<void> {
    const made = await platform.gateway<{ machine: { id: string }; agentUpstreamToken: string }>('/machines', {
      poolName: 'default',
    });
    this.machineId = made.machine.id;
    this.#joinToken = made.agentUpstreamToken;
    await this.agent.start();
    this.#joinToken = undefined;
    await ready(platform, this.machineId);
  }
}

interface Worker {
  readonly id: string;
  readonly machineId: string;
  readonly status: string;
}

const workers = async (platform: Platform): Promise<readonly Worker[]> =>
  (await platform.gateway<{ workers: readonly Worker[] }>('/workers')).workers;

const ready = (platform: Platform, machineId: string): Promise<unknown> =>
  waitFor(
    async () => (await workers(platform)).some((one) => one.machineId === machineId && one.status === 'available'),
    `machine ${machineId} is ready`,
    30_000,
  );

async function cordon(platform: Platform, machineId: string, verb: 'cordon' | 'uncordon' = 'cordon'): Promise<void> {
  const worker = (await workers(platform)).find((one) => one.machineId === machineId);
  await platform.gateway(`/workers/${worker?.id ?? ''}/${verb}`, {});
}

/** Removes an image from the engine, as on a machine that never had it. */
async function forget(engine: TestDocker, name: string): Promise<void> {
  await engine.client.getImage(name).remove({ force: true });
}

const machinesOf = async (platform: Platform, deploymentId: string): Promise<readonly string[]> =>
  (
    await platform.engine.client.listContainers({
      all: true,
      filters: { label: [`io.longshore.deployment=${deploymentId}`] },
    })
  ).map((one) => one.Labels['io.longshore.machine'] ?? '');

const DEFINITION = { pythonVersion: 'python3.11', commands: ['mkdir /built', 'echo hello > /built/file'] };
const own = (): string => `echo ${randomUUID()} > /built/own`;

let engine: TestDocker;
let platform: Platform;
let second: Second;
let registry: Daemon;
let address: string | undefined;

beforeAll(async () => {
  engine = await docker();
  platform = new Platform(engine, (daemon) => (daemon === 'scheduler' ? { LONGSHORE_REGISTRY: address } : {}));
  registry = aRegistryDaemon(platform.directory, () => platform.env());
  await platform.start();
  second = new Second(platform, await freePort());
  await second.join(platform);
}, 120_000);
afterAll(async () => {
  await second.agent.stop({ kind: 'stop', containers: 'stop' });
  await registry.stop();
  await platform.stop();
}, 60_000);

describe('without a registry', () => {
  const explained = async (deploymentId: string): Promise<string> =>
    (await platform.call(`/api/v1/explain/${platform.workspaceId}/${deploymentId}`)).text;

  /** Calls, and waits until the explanation says why the call waits. */
  async function calledUntil(deployment: Deployment, text: string): Promise<Answer> {
    const answering = platform.invoke(deployment);
    await waitFor(async () => (await explained(deployment.deploymentId)).includes(text), `it says ${text}`, 20_000);
    return answering;
  }

  /** An image that was built on the first machine alone. */
  async function builtOnFirst(): Promise<string> {
    await cordon(platform, second.machineId);
    const { imageId } = await buildImage(platform, {
      ...DEFINITION,
      commands: [...DEFINITION.commands, own(), 'sleep 4'],
    });
    expect(await imageOf(platform, imageId)).toMatchObject({
      machines: [{ id: platform.machineId() }],
      registry: { digest: '', error: '' },
    });
    await cordon(platform, second.machineId, 'uncordon');
    return imageId;
  }

  test('an image whose machine leaves is built again where a container wants it', { timeout: 120_000 }, async () => {
    const first = platform.machineId() ?? '';
    const imageId = await builtOnFirst();
    const app = await platform.deploy({ app: 'packages.py', handler: 'file', name: 'again', imageId });
    await cordon(platform, first);
    await forget(engine, imageId);
    expect(jsonOf(await calledUntil(app, 'its image is being built now'))).toEqual({ file: 'hello' });
    expect(await machinesOf(platform, app.deploymentId)).toEqual([second.machineId]);
    await cordon(platform, first, 'uncordon');
  });

  test('an image is built again at the home of its volume', { timeout: 120_000 }, async () => {
    const imageId = await builtOnFirst();
    const made = await platform.call(`/api/v1/volume/${platform.workspaceId}`, {
      body: { name: `v-${randomUUID()}`, machine_id: second.machineId },
    });
    const { id } = jsonOf<{ id: string }>(made);
    const volumes = [{ id, mountPath: 'data' }];
    const app = await platform.deploy({ app: 'packages.py', handler: 'file', name: 'at-home', imageId, volumes });
    expect(jsonOf(await calledUntil(app, 'its image is being built now'))).toEqual({ file: 'hello' });
    expect(await machinesOf(platform, app.deploymentId)).toEqual([second.machineId]);
  });
});

describe('with the managed registry', () => {
  beforeAll(async () => {
    address = String((await registry.start())['address']);
    await platform.scheduler.stop();
    await platform.startScheduler();
    for (const machineId of [platform.machineId() ?? '', second.machineId]) await ready(platform, machineId);
  }, 120_000);

  test('an image is pushed by its builder, and another machine pulls it and serves', { timeout: 180_000 }, async () => {
    const first = platform.machineId() ?? '';
    // The builder is the only one that may build.
    await cordon(platform, second.machineId);
    const { imageId, text } = await buildImage(platform, { ...DEFINITION, commands: [...DEFINITION.commands, own()] });
    expect(text).toContain('pushing the image to the registry');
    const built = await imageOf(platform, imageId);
    expect(built).toMatchObject({ machines: [{ id: first }], registry: { error: '' } });
    expect(built?.registry.digest).toMatch(/^sha256:[0-9a-f]{64}$/);
    const limits = jsonOf<{ bytes: { images: { used: number } } }>(
      await platform.call(`/api/v1/workspace/${platform.workspaceId}/limits`),
    );
    expect(limits.bytes.images.used).toBeGreaterThan(1_000_000);

    await cordon(platform, second.machineId, 'uncordon');
    await cordon(platform, first);
    await forget(engine, imageId);
    const app = await platform.deploy({ app: 'packages.py', handler: 'file', name: 'pulled', imageId });
    expect(jsonOf(await platform.invoke(app))).toEqual({ file: 'hello' });
    expect(await machinesOf(platform, app.deploymentId)).toEqual([second.machineId]);
    const pulled = await engine.client.getImage(imageId).inspect();
    // The name of the pull is gone, and no message or record has the token.
    expect(pulled.RepoTags).toEqual([`${imageId}:latest`]);
    expect(pulled.RepoDigests?.filter((name) => name.includes(builtRepository(''))) ?? []).toEqual([]);
    for (const log of [platform.scheduler.log(), platform.agent.log(), second.agent.log()])
      expect(log).not.toContain('eyJ');
    await cordon(platform, first, 'uncordon');
  });
});
