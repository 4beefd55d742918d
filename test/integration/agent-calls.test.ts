// A long call in the engine holds up no other call there.
import { randomBytes } from 'node:crypto';
import { expect } from 'vitest';
import { dockerRuntime } from '../../agent/containers/engine/docker.ts';
import { test } from '../helpers/services.ts';

/** Bound of the engine calls that may be under way at once. */
const HELPERS = 16;

test(
  'helper containers that work for long hold up no other call of the engine',
  { timeout: 120_000 },
  async ({ docker }) => {
    const runtime = dockerRuntime(process.env['DOCKER_HOST']);
    const helpers = Array.from({ length: HELPERS }, () =>
      runtime.runOnce(
        {
          name: `ls-test-${randomBytes(6).toString('hex')}`,
          image: docker.baseImage,
          entrypoint: ['sleep', '1000'],
          workingDir: '/',
          env: [],
          labels: docker.labels,
          mounts: [],
          network: 'none',
          memoryBytes: 32 * 1024 * 1024,
          cpuMillicores: 100,
        },
        60_000,
      ),
    );
    const settled = Promise.allSettled(helpers);
    const others = dockerRuntime(process.env['DOCKER_HOST']);
    const running = async (): Promise<number> =>
      (await others.list(docker.labels)).filter((one) => one.state === 'running').length;
    await expect.poll(running, { timeout: 50_000 }).toBe(HELPERS);
    const first = await Promise.race([
      runtime.list(docker.labels).then(() => 'the listing'),
      settled.then(() => 'them'),
    ]);
    for (const { dockerId } of await others.list(docker.labels)) await others.signal(dockerId, 'SIGKILL');
    expect((await settled).every(({ status }) => status === 'fulfilled')).toBe(true);
    expect(first).toBe('the listing');
  },
);

test('a listing of what does not run has created and ended containers, and no running one', async ({ docker }) => {
  const runtime = dockerRuntime(process.env['DOCKER_HOST']);
  const made = await Promise.all(
    ['created', 'running', 'exited'].map(async (name) => {
      const container = await docker.client.createContainer({
        Image: docker.baseImage,
        Entrypoint: name === 'exited' ? ['true'] : ['sleep', '1000'],
        Labels: { ...docker.labels },
        HostConfig: { NetworkMode: 'none' },
      });
      if (name !== 'created') await container.start();
      if (name === 'exited') await container.wait();
      return container.id;
    }),
  );
  // The engine may tell of an end a moment before its listings do.
  const listed = async () =>
    new Map((await runtime.list(docker.labels, 'not_running')).map((one) => [one.dockerId, one.state]));
  await expect.poll(listed).toEqual(
    new Map([
      [made[0], 'created'],
      [made[2], 'exited'],
    ]),
  );
  expect((await runtime.list(docker.labels)).map(({ dockerId }) => dockerId).toSorted()).toEqual(made.toSorted());
  for (const id of made) await runtime.remove(id);
});
