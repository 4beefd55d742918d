// Steps of image builds that a killed agent left on the engine: the next agent removes them, and nobody else's; the
// device of such a step goes to nobody before it is gone.
import { expect } from 'vitest';
import { BUILD_STEP_LABEL } from '#shared/domain/built-images.ts';
import type { Gpu__Output } from '#shared/protocol/generated/messages.ts';
import { stepPrefix } from '../../agent/builds/steps-apart.ts';
import { dockerRuntime } from '../../agent/containers/engine/docker.ts';
import type { AgentWorld } from '../helpers/agent.ts';
import { agentWorld } from '../helpers/agent.ts';
import type { EngineGate } from '../helpers/engine-gate.ts';
import { engineGate } from '../helpers/engine-gate.ts';
import { until } from '../helpers/fake-scheduler.ts';
import { FakeNvidia, aGpu, gpuUuid } from '../helpers/gpus.ts';
import { tempDirectory, test as base, waitFor } from '../helpers/services.ts';

interface Story {
  readonly world: AgentWorld;
  readonly gate: EngineGate;
  /** Makes a container as a step has it. @returns its id */
  readonly left: (name: string, gpuUuids?: readonly string[]) => Promise<string>;
  readonly isThere: (dockerId: string) => Promise<boolean>;
  /** A device by the agent's last report. */
  readonly device: (index: number) => Gpu__Output | undefined;
}

const test = base.extend('story', async ({ docker }, { onCleanup }): Promise<Story> => {
  const gate = await engineGate();
  const directory = tempDirectory('gpu');
  const nvidia = new FakeNvidia(directory.path, { gpus: [aGpu(0), aGpu(1)] });
  const settings = { DOCKER_HOST: gate.host, LONGSHORE_NVIDIA_SMI: nvidia.tool };
  const world = await agentWorld(docker.labels, settings, { gpus: { kernelLog: nvidia.kernelLog } });
  const runtime = dockerRuntime(process.env['DOCKER_HOST']);
  onCleanup(async () => {
    gate.open();
    await world.end();
    await gate.close();
    directory.remove();
  });
  return {
    world,
    gate,
    left: (name, uuids = []) =>
      runtime.create({
        name,
        image: docker.baseImage,
        entrypoint: ['/bin/sh', '-c', 'sleep 1000'],
        workingDir: '',
        user: '',
        env: [],
        labels: { ...docker.labels, [BUILD_STEP_LABEL]: 'a'.repeat(64) },
        mounts: [],
        network: 'none',
        memoryBytes: 64 * 1024 ** 2,
        cpuMillicores: 100,
        capabilities: [],
        ...(uuids.length === 0 ? {} : { gpus: { driver: 'nvidia', uuids, capabilities: ['compute', 'utility'] } }),
      }),
    isThere: async (dockerId) => (await runtime.inspect(dockerId)) !== undefined,
    device: (index) => {
      const { heard, hellos } = world.scheduler;
      const gpus = heard.findLast(({ devices }) => devices)?.devices?.gpus ?? hellos.at(-1)?.inventory?.gpus ?? [];
      return gpus.find(({ uuid }) => uuid === gpuUuid(index));
    },
  };
});

test('they are removed, also running ones; those of other machines and of other names stay', async ({
  story,
  docker,
}) => {
  const { world, left, isThere } = story;
  const prefix = stepPrefix(world.scheduler.machineId);
  const own = [await left(`${prefix}000000000001`), await left(`${prefix}000000000002`)];
  await docker.client.getContainer(own[1] ?? '').start();
  const others = [
    await left(`${stepPrefix('ffff0000')}${world.scheduler.machineId}`),
    await left(`other-${prefix}000000000003`),
  ];
  await world.agent.start();
  for (const dockerId of own) await waitFor(async () => !(await isThere(dockerId)), 'a step is gone');
  for (const dockerId of others) {
    expect(await isThere(dockerId)).toBe(true);
    await docker.client.getContainer(dockerId).remove();
  }
});

test('its device goes to nobody before the container is gone, and is free then', async ({ story }) => {
  const { world, gate, left, isThere, device } = story;
  const step = await left(`${stepPrefix(world.scheduler.machineId)}000000000001`, [gpuUuid(1)]);
  gate.shut(new RegExp(`^DELETE /.*${step}`), 'wait');
  await world.agent.start();
  await until('the removal waits', () => gate.met > 0);
  expect(await until('the agent tells of its devices', () => device(1))).toMatchObject({
    unhealthy: true,
    state: 'in_build',
  });
  expect(device(0)?.state).not.toBe('in_build');
  expect(await isThere(step)).toBe(true);
  gate.open();
  await until('the device is free', () => device(1)?.state === 'healthy');
  expect(await isThere(step)).toBe(false);
});
