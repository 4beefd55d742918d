/**
 * The probe of GPUs in its container, on a real engine. The program that releases carry runs
 * in the pause containers' image, against a stand-in for the driver's library. The engine here
 * passes no GPU, so the request for one becomes the mounts by which the library would come.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test as base } from 'vitest';
import { createLog } from '#shared/log.ts';
import { GpuDrivers } from '../../agent/containers/cdi.ts';
import type { DockerRuntime } from '../../agent/containers/engine/docker.ts';
import { dockerRuntime } from '../../agent/containers/engine/docker.ts';
import type { ContainerRuntime, CreateContainer, Mount } from '../../agent/containers/runtime.ts';
import { EngineError } from '../../agent/containers/runtime.ts';
import { probeInContainer, probeNameOf } from '../../agent/devices/probe-container.ts';
import type { ProbeOutcome } from '../../agent/devices/probe-outcome.ts';
import { fakeCuda } from '../helpers/fake-cuda.ts';
import { gpuUuid } from '../helpers/gpus.ts';
import { tempDirectory } from '../helpers/programs.ts';
import { docker } from '../helpers/services.ts';

const log = createLog({ name: 'test', level: 'silent' });

interface World {
  readonly runtime: DockerRuntime;
  /** How containers of probes were asked for. */
  readonly specs: CreateContainer[];
  /** Refusals that may concern every container of the engine. */
  readonly refused: unknown[];
  /** Runs a probe against a library with that behaviour: see fake-cuda.c. */
  readonly probe: (does: string, changes?: Partial<Probing>) => Promise<ProbeOutcome>;
}
interface Probing {
  readonly library: string;
  readonly deadlineMs: number;
  readonly signal: AbortSignal;
  readonly create: ContainerRuntime['runOnce'];
}

let count = 0;
const test = base.extend('world', async ({ task: _task }, { onCleanup }): Promise<World> => {
  const engine = await docker();
  const directory = tempDirectory('probe');
  onCleanup(async () => {
    directory.remove();
    await engine.cleanUp();
  });
  const runtime = dockerRuntime(process.env['DOCKER_HOST']);
  const world: World = {
    runtime,
    specs: [],
    refused: [],
    probe: async (does, changes = {}) => {
      const mode = join(directory.path, `mode-${(count += 1)}`);
      writeFileSync(mode, does);
      const bind = (source: string, target: string): Mount => ({ kind: 'bind', source, target, readOnly: true });
      const mounts = [bind(mode, '/etc/fake-cuda')];
      const library = changes.library ?? '/usr/lib64/libcuda.so.1';
      if (library !== '') mounts.push(bind(fakeCuda(), library));
      const runOnce: ContainerRuntime['runOnce'] = (spec, deadlineMs, onLine) => {
        world.specs.push(spec);
        const { gpus: _gpus, ...rest } = spec;
        return runtime.runOnce({ ...rest, mounts }, deadlineMs, onLine);
      };
      const injecting = new Proxy(runtime, {
        get: (target, name) => {
          if (name === 'runOnce') return changes.create ?? runOnce;
          const value: unknown = Reflect.get(target, name, target);
          return typeof value === 'function' ? (value.bind(target) as unknown) : value;
        },
      });
      return probeInContainer(
        gpuUuid(count),
        {
          runtime: injecting,
          drivers: new GpuDrivers(runtime, log),
          labels: () => engine.labels,
          onRefused: (error) => world.refused.push(error),
          deadlineMs: changes.deadlineMs ?? 20_000,
          log,
        },
        changes.signal ?? new AbortController().signal,
      );
    },
  };
  return world;
});

test('a device that works passes, from a container without network, capabilities or a root to write to', async ({
  world,
}) => {
  expect(await world.probe('')).toEqual({ kind: 'passed', text: '' });
  expect(world.specs[0]).toMatchObject({
    network: 'none',
    readOnlyRoot: true,
    memoryBytes: 2 * 1024 ** 3,
    gpus: { driver: 'nvidia', uuids: [gpuUuid(count)], capabilities: ['compute', 'utility'] },
  });
  expect(await world.runtime.inspect(probeNameOf(gpuUuid(count)))).toBeUndefined();
});

test('the library is found also where no linker cache names it', async ({ world }) => {
  expect(await world.probe('', { library: '/usr/lib/libcuda.so.580.126.09' })).toEqual({ kind: 'passed', text: '' });
});

test.for([
  ['init 802', 'host', /CUDA error 802 \(CUDA_ERROR_SYSTEM_NOT_READY\) at init: the fabric/],
  ['allocate 2', 'failed', /CUDA error 2 \(CUDA_ERROR_OUT_OF_MEMORY\) at allocate/],
  ['fill 214', 'failed', /CUDA error 214 .*at fill/],
  ['corrupt', 'failed', /wrong from the device: word 1048575 is \w+ and was written as/],
  ['crash context', 'failed', /exit code 134 at context/],
] as const)('a driver that does `%s`: %s', async ([does, kind, text], { world }) => {
  expect(await world.probe(does)).toEqual({ kind, text: expect.stringMatching(text) as string });
  expect(world.refused).toEqual([]);
});

test('without the driver’s library it is the host’s fault', async ({ world }) => {
  expect(await world.probe('', { library: '' })).toMatchObject({
    kind: 'host',
    text: expect.stringContaining('libcuda.so.1: cannot open shared object file') as string,
  });
});

test('a driver that hangs is the device’s fault after the deadline, with the step; nothing is left', async ({
  world,
}) => {
  expect(await world.probe('hang context', { deadlineMs: 1500 })).toEqual({
    kind: 'failed',
    text: 'no answer in 1500 ms at context',
  });
  expect(await world.runtime.inspect(probeNameOf(gpuUuid(count)))).toBeUndefined();
});

test('a stop of the agent ends a probe', async ({ world }) => {
  const abort = new AbortController();
  const running = world.probe('hang init', { signal: abort.signal });
  const name = probeNameOf(gpuUuid(count));
  await expect.poll(async () => (await world.runtime.inspect(name))?.state, { timeout: 10_000 }).toBe('running');
  abort.abort();
  // Long before the deadline of the probe.
  await expect.poll(() => world.runtime.inspect(name), { timeout: 10_000 }).toBeUndefined();
  await running;
});

test('what an earlier agent left of a probe is removed first', async ({ world }) => {
  const engine = await docker();
  const name = probeNameOf(gpuUuid(count + 1));
  await engine.run({ name, Entrypoint: ['sleep', '600'] });
  expect(await world.probe('')).toEqual({ kind: 'passed', text: '' });
});

test('an engine that cannot pass the device is the host’s fault; one that refuses for another reason says nothing of it', async ({
  world,
}) => {
  const refuses = (failure: EngineError['failure']) => (): Promise<number> =>
    Promise.reject(new EngineError(failure, 'the words of the engine'));
  expect(await world.probe('', { create: refuses('gpu_refused') })).toEqual({
    kind: 'host',
    text: 'the words of the engine',
  });
  expect(await world.probe('', { create: refuses('refused') })).toMatchObject({ kind: 'unable' });
  expect(world.refused).toHaveLength(1);
});
