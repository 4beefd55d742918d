// The way of asking for GPUs, by the engine's answers: a server
// in the place of the engine gives those of moby 20.10 to 29.
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { expect, test as base } from 'vitest';
import { createLog } from '#shared/log.ts';
import { GpuDrivers } from '../../agent/containers/cdi.ts';
import type { DockerRuntime } from '../../agent/containers/engine/docker.ts';
import { dockerRuntime } from '../../agent/containers/engine/docker.ts';
import { CdiWatch } from '../../agent/devices/cdi-watch.ts';
import { startFailure } from '../../agent/reconcile/starting.ts';
import { Conditions } from '../../agent/telemetry/conditions.ts';
import { gpuUuid } from '../helpers/gpus.ts';
import { tempDirectory } from '../helpers/programs.ts';

const [G0, G1] = [gpuUuid(0), gpuUuid(1)];
const MIG = 'MIG-a686709d-6dc2-542a-8851-0d2508448c10';
/** Output of `nvidia-ctk cdi generate`. */
const YAML = `---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: ${G0}
- name: '${MIG}'
  containerEdits: {}
`;

interface Engine {
  readonly runtime: DockerRuntime;
  readonly drivers: GpuDrivers;
  /** Directories with one specification each. */
  readonly yaml: string;
  readonly json: string;
  readonly others: string;
  info: object;
  refusal: string;
  asked: number;
  nowMs: number;
}

// oxlint-disable-next-line no-empty-pattern -- vitest reads a fixture's needs from the pattern
const test = base.extend('engine', async ({}, { onCleanup }): Promise<Engine> => {
  const directory = tempDirectory('cdi');
  const at = (name: string, file: string, text: string): string => {
    mkdirSync(join(directory.path, name));
    writeFileSync(join(directory.path, name, file), text);
    return join(directory.path, name);
  };
  const server = createServer((request, response) => {
    const isInfo = request.url === '/info';
    if (isInfo) engine.asked += 1;
    response.writeHead(isInfo ? 200 : 500, { 'content-type': 'application/json' });
    response.end(JSON.stringify(isInfo ? engine.info : { message: engine.refusal }));
  });
  const socket = join(directory.path, 'engine.sock');
  server.listen(socket);
  await once(server, 'listening');
  onCleanup(() => {
    server.close();
    directory.remove();
  });
  const runtime = dockerRuntime(`unix://${socket}`);
  const engine: Engine = {
    runtime,
    drivers: new GpuDrivers(runtime, createLog({ name: 'test', level: 'silent' }), () => engine.nowMs),
    yaml: at('yaml', 'nvidia.yaml', YAML),
    json: at('json', 'n.json', JSON.stringify({ kind: 'nvidia.com/gpu', devices: [{ name: G0, containerEdits: {} }] })),
    others: at('others', 'o.json', JSON.stringify({ kind: 'vendor.com/net', devices: [{ name: G0 }] })),
    info: {},
    refusal: '',
    asked: 0,
    nowMs: 0,
  };
  return engine;
});

const discovered = (...names: readonly string[]): object => ({
  CDISpecDirs: ['/etc/cdi', '/var/run/cdi'],
  DiscoveredDevices: names.map((ID) => ({ Source: 'cdi', ID })),
});

test.for([
  ['20.10, which knows no CDI', () => ({}), 'nvidia'],
  ['25 to 28.1 with CDI off', () => ({ CDISpecDirs: null }), 'nvidia'],
  ['25 to 28.1 with CDI on', ({ yaml }: Engine) => ({ CDISpecDirs: ['/nowhere', yaml] }), 'cdi'],
  ['25 to 28.1 with a specification in JSON', ({ json }: Engine) => ({ CDISpecDirs: [json] }), 'cdi'],
  ['25 to 28.1 with devices of another kind', ({ others }: Engine) => ({ CDISpecDirs: [others] }), 'nvidia'],
  ['28.2 and later', () => discovered('nvidia.com/gpu=0', `nvidia.com/gpu=${G0}`, 'nvidia.com/gpu=all'), 'cdi'],
  ['28.2 and later with names by index alone', () => discovered('nvidia.com/gpu=0', 'nvidia.com/gpu=all'), 'nvidia'],
  ['28.2 and later with another vendor', () => discovered(`amd.com/gpu=${G0}`), 'nvidia'],
] as const)('an engine %s', async ([, info, driver], { engine }) => {
  engine.info = info(engine);
  await engine.drivers.check();
  expect(engine.drivers.driverFor([G0])).toBe(driver);
  // All devices of a container come by one driver.
  expect(engine.drivers.driverFor([G0, G1])).toBe('nvidia');
  expect(engine.drivers.driverFor([])).toBe('nvidia');
});

test('a slice of MIG is found by its name', async ({ engine }) => {
  engine.info = { CDISpecDirs: [engine.yaml] };
  await engine.drivers.check();
  expect(engine.drivers.driverFor([MIG])).toBe('cdi');
});

test('the engine is asked once in 30 s, after a refusal at once, and one that does not answer changes nothing', async ({
  engine,
}) => {
  engine.info = { ...discovered(`nvidia.com/gpu=${G0}`), Runtimes: { nvidia: {} } };
  await Promise.all([engine.drivers.check(), engine.drivers.check()]);
  await engine.drivers.check();
  expect(engine.asked).toBe(1);
  engine.info = discovered(`nvidia.com/gpu=${G1}`);
  engine.nowMs = 29_999;
  await engine.drivers.check();
  expect(engine.drivers.driverFor([G0])).toBe('cdi');
  expect(engine.drivers.refused('cdi')).toBe('nvidia');
  await engine.drivers.check();
  expect(engine.asked).toBe(2);
  expect([engine.drivers.driverFor([G0]), engine.drivers.driverFor([G1])]).toEqual(['nvidia', 'cdi']);
  // Without a hook there is no other driver to try; the hook's own refusal is final.
  expect([engine.drivers.refused('cdi'), engine.drivers.refused('nvidia')]).toEqual([undefined, undefined]);
  const gone = new GpuDrivers(dockerRuntime('unix:///nowhere.sock'), createLog({ name: 'test', level: 'silent' }));
  await gone.check();
  expect(gone.driverFor([G0])).toBe('nvidia');
});

test('a specification that names some GPUs by UUID lacks the others; one by index alone lacks none', async ({
  engine,
}) => {
  engine.info = discovered(`nvidia.com/gpu=${G0}`, 'nvidia.com/gpu=all');
  const conditions = new Conditions();
  const watch = new CdiWatch(engine.drivers, conditions);
  watch.looked([G0, G1]);
  await expect.poll(() => conditions.words['CdiOutdated']).toBe(G1);
  // The next look reads the specification that was written anew.
  engine.info = discovered(`nvidia.com/gpu=${G0}`, `nvidia.com/gpu=${G1}`);
  engine.nowMs = 30_000;
  watch.looked([G0, G1]);
  await expect.poll(() => conditions.names).toEqual([]);
  const { asked } = engine;
  for (let looks = 0; looks < 8; looks += 1) {
    engine.nowMs += 30_000;
    watch.looked([G0, G1]);
  }
  await engine.drivers.check();
  expect(engine.asked).toBeLessThanOrEqual(asked + 1);
  engine.info = discovered('nvidia.com/gpu=0', 'nvidia.com/gpu=all');
  engine.nowMs += 30_000;
  await engine.drivers.check();
  expect(engine.drivers.lacks([G0, G1])).toEqual([]);
});

test('an image that needs a newer driver is no fault of the machine, in the words of the hook', async ({ engine }) => {
  engine.refusal =
    'OCI runtime create failed: nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your driver to a newer version, or use an earlier cuda container';
  const error = await engine.runtime.start('0'.repeat(64)).catch((thrown: unknown) => thrown);
  expect(startFailure(error)).toEqual({ reason: 'gpu_driver', message: 'the image needs CUDA 12.8 or newer' });
});

const FAILED =
  'OCI runtime create failed: runc create failed: unable to start container process: error during container init: ';
const LIBRARIES = '/usr/lib/x86_64-linux-gnu';
test.for([
  ['CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=GPU-1', 'gpu_fault'],
  [
    'CDI device injection failed: failed to stat CDI host device "/dev/nvidia1": no such file or directory',
    'gpu_fault',
  ],
  ['could not select device driver "cdi" with capabilities: []', 'gpu_fault'],
  [`${FAILED}error running createContainer hook #1: exit status 1, stderr: nvidia-cdi-hook: failed`, 'gpu_fault'],
  [
    `${FAILED}error mounting "${LIBRARIES}/libcuda.so.550.54.14" to rootfs at "${LIBRARIES}/libcuda.so.550.54.14": no such file or directory`,
    'gpu_fault',
  ],
  [
    `${FAILED}failed to fulfil mount request: open ${LIBRARIES}/libnvidia-ml.so.550.54.14: no such file or directory`,
    'gpu_fault',
  ],
  [`${FAILED}error mounting "/srv/nvidia-models" to rootfs at "/mnt/nvidia": not a directory`, 'start_failed'],
] as const)('a start that the engine refuses with %s is %s', async ([words, reason], { engine }) => {
  engine.refusal = words;
  const error = await engine.runtime.start('0'.repeat(64)).catch((thrown: unknown) => thrown);
  expect(startFailure(error)).toEqual({ reason, message: expect.stringContaining(words) as string });
});
