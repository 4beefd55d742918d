// The weights of a model on a cache volume: containers that start together download them once, later ones not at all.
// The server of the weights is the test's own, and counts.
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import { expect } from 'vitest';
import { MAIN, Platform, jsonOf, test as base } from '../helpers/platform.ts';
import type { Deployment } from '../helpers/platform.ts';
import { docker, waitFor } from '../helpers/services.ts';
import { WeightsServer } from '../helpers/weights-server.ts';

const MIB = 1024 * 1024;
const WEIGHTS_MIB = 24;
const AT_ONCE = 4;

const test = base
  .extend('weights', { scope: 'file' }, async ({}, { onCleanup }): Promise<WeightsServer> => {
    const weights = await WeightsServer.start();
    onCleanup(() => weights.stop());
    return weights;
  })
  .extend('platform', { scope: 'file' }, async ({ weights }, { onCleanup }): Promise<Platform> => {
    const platform = new Platform(await docker(), { LONGSHORE_AGENT_OPEN_ADDRESSES: weights.address });
    onCleanup(() => platform.stop());
    await platform.start();
    return platform;
  });

const deploy = (platform: Platform, weights: WeightsServer, volumeId: string, name: string): Promise<Deployment> =>
  platform.deploy({
    app: 'weights.py',
    handler: 'handler',
    onStart: 'load',
    name,
    env: [`WEIGHTS_URL=${weights.url(WEIGHTS_MIB)}`],
    volumes: [{ id: volumeId, mountPath: '/models' }],
  });

const scale = (platform: Platform, { deploymentId }: Deployment, containers: number): Promise<unknown> =>
  platform.gateway(`/deployments/${deploymentId}/scale`, { containers });

test('containers that start together download a model once, and later ones not at all', async ({
  platform,
  weights,
}) => {
  const { volume } = await platform.gateway<{ volume: { id: string } }>('/volumes', {
    name: 'models',
    driver: 'cache',
  });
  weights.waitMs = 1_500;
  const first = await deploy(platform, weights, volume.id, 'first');
  await scale(platform, first, AT_ONCE);
  const answer = jsonOf(await platform.invoke(first));
  expect(answer['bytes']).toBe(WEIGHTS_MIB * MIB);
  await waitFor(async () => (await platform.containers(first)).length === AT_ONCE, 'all containers are there', 60_000);
  await platform.logSays(`deployment_id=${first.deploymentId}`, 'another container fills /models/phi');
  expect(weights.requests).toBe(1);

  // Another app of the workspace, while those of the first are there, and after they are gone.
  const second = await deploy(platform, weights, volume.id, 'second');
  expect(jsonOf(await platform.invoke(second))['sha256']).toBe(answer['sha256']);
  await scale(platform, first, 0);
  await platform.noContainers(first, 60_000);
  await platform.noContainers(second, 60_000);
  const again = jsonOf(await platform.invoke(first));
  expect(again['sha256']).toBe(answer['sha256']);
  expect(again['container']).not.toBe(answer['container']);
  expect(weights.requests).toBe(1);

  // The copy lies where the agent says, and the scheduler knows of it.
  const copy = join(platform.dataDir, 'cache', platform.workspaceId, volume.id);
  expect(statSync(join(copy, 'phi', 'weights.bin')).size).toBe(WEIGHTS_MIB * MIB);
  expect(readdirSync(copy).toSorted()).toEqual(['.fill-phi.lock', 'phi']);
  const path = `/api/v1/volume/${platform.workspaceId}/models`;
  const shown = await waitFor(
    async () => {
      const { copies } = jsonOf<{ copies: { machine_id: string; bytes: number }[] }>(await platform.call(path));
      return copies[0];
    },
    'the copy is reported',
    40_000,
  );
  expect(shown.machine_id).toBe(platform.machineId());
  expect(Math.round(shown.bytes / MIB)).toBe(WEIGHTS_MIB);

  // Files of a cache are reached in a container alone.
  for (const route of ['/files', '/size', '/file-url?path=a&method=PUT', '/pack-url?method=PUT']) {
    const refused = await platform.call(`${path}${route}`);
    expect([route, refused.status, jsonOf(refused)['code']]).toEqual([route, 409, 'volume_is_cache']);
  }
  const env = { ...platform.env(), LONGSHORE_URL: platform.url, LONGSHORE_TOKEN: platform.token };
  const copied = await execa(process.execPath, [MAIN, 'volume', 'cp', MAIN, 'models:'], { env, reject: false });
  expect([copied.exitCode, copied.stderr]).toEqual([1, expect.stringContaining('volume models is a cache')]);

  // A deletion takes the copy along, once nothing mounts the volume.
  const inUse = await platform.call(path, { method: 'DELETE' });
  expect([inUse.status, jsonOf(inUse)['code']]).toEqual([409, 'volume_in_use']);
  for (const { deploymentId } of [first, second]) await platform.gateway(`/deployments/${deploymentId}/stop`, {});
  await platform.noContainers(first, 60_000);
  await waitFor(
    async () => (await platform.call(path, { method: 'DELETE' })).status === 200,
    'the volume is deleted',
    30_000,
  );
  await waitFor(() => !existsSync(copy), 'the copy is gone', 30_000);
});

test('the copy of a volume that was deleted while its machine was away leaves when the machine comes back', async ({
  platform,
  weights,
}) => {
  const { volume } = await platform.gateway<{ volume: { id: string } }>('/volumes', { name: 'away', driver: 'cache' });
  const before = weights.requests;
  const app = await deploy(platform, weights, volume.id, 'away');
  expect((await platform.invoke(app)).status).toBe(200);
  // Another volume is another copy.
  expect(weights.requests).toBe(before + 1);
  await platform.gateway(`/deployments/${app.deploymentId}/stop`, {});
  await platform.noContainers(app, 60_000);
  const copy = join(platform.dataDir, 'cache', platform.workspaceId, volume.id);
  const path = `/api/v1/volume/${platform.workspaceId}/away`;
  const users = async (): Promise<unknown> => jsonOf(await platform.call(path))['containers'];
  await waitFor(async () => (await users()) === 0, 'the scheduler knows that the container is gone', 30_000);
  await platform.agent.stop();
  expect((await platform.call(path, { method: 'DELETE' })).status).toBe(200);
  expect(existsSync(copy)).toBe(true);
  await platform.agent.start();
  await waitFor(() => !existsSync(copy), 'the copy is gone', 60_000);
});
