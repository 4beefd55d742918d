// Steps of builds in containers of their own: what NVIDIA's runtime reads there, and what of it stays in the image.
import { expect, test } from 'vitest';
import type { Log } from '#shared/log.ts';
import { StepsApart } from '#agent/builds/steps-apart.ts';
import type { StepApart, StepsApartParts } from '#agent/builds/steps-apart.ts';
import type { CreateContainer, GpuDriver } from '#agent/containers/runtime.ts';
import { committedConfig } from '#agent/containers/engine/builds.ts';

async function created(gpuUuids: readonly string[], driver: GpuDriver): Promise<CreateContainer> {
  const asked: CreateContainer[] = [];
  const runtime = {
    imageConfig: async () => ({ env: ['NVIDIA_VISIBLE_DEVICES=all'], user: '', workingDir: '' }),
    create: async (container: CreateContainer) => {
      asked.push(container);
      return 'step';
    },
    start: async () => undefined,
    followLogs: async () => undefined,
    inspect: async () => ({ state: 'exited', exitCode: 1, oomKilled: false }),
    remove: async () => undefined,
  };
  const gpuDrivers = { check: async () => undefined, driverFor: () => driver, refused: () => undefined };
  const parts = { runtime, gpuDrivers, machineId: () => 'm', log: {} as Log } as unknown as StepsApartParts;
  const step: Partial<StepApart> = {
    imageId: 'sha256:1',
    command: ['true'],
    variables: {},
    isOurs: false,
    gpuUuids,
    noCache: true,
    signal: new AbortController().signal,
    onContainer: () => undefined,
    onEnd: async () => undefined,
    onLine: () => undefined,
  };
  await new StepsApart(parts).run(step as StepApart);
  const [container] = asked;
  if (container === undefined) throw new Error('no container was made');
  return container;
}

test('a step without a lease gets no GPU where an image asks for all and the runtime of NVIDIA is the default', async () => {
  expect((await created([], 'nvidia')).env).toEqual(['NVIDIA_VISIBLE_DEVICES=void']);
});

test('a step with a lease gets its GPU alone: by the hook from the variable, by CDI from nothing else', async () => {
  expect((await created(['GPU-1'], 'nvidia')).env).toEqual(['NVIDIA_VISIBLE_DEVICES=GPU-1']);
  expect((await created(['GPU-1'], 'cdi')).env).toEqual(['NVIDIA_VISIBLE_DEVICES=void']);
});

test("the variable of a step's container does not stay in its image, and the image's own does", () => {
  // A name without a value keeps the engine from adding the container's.
  expect(committedConfig({ Env: ['A=b'] }, {}).Env).toEqual(['A=b', 'NVIDIA_VISIBLE_DEVICES']);
  expect(committedConfig({ Env: ['NVIDIA_VISIBLE_DEVICES=all'] }, {}).Env).toEqual(['NVIDIA_VISIBLE_DEVICES=all']);
  expect(committedConfig({ Env: ['NVIDIA_VISIBLE_DEVICES'] }, {}).Env).toEqual(['NVIDIA_VISIBLE_DEVICES']);
});
