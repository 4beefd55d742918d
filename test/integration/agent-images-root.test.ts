// The place where the engine keeps images, by the answers of engines.
// A server in the place of the engine gives those of moby 20.10 to 29.
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import { connectionOptions } from '../../agent/containers/engine/options.ts';
import { dockerRuntime } from '../../agent/containers/engine/docker.ts';
import { containerdRootIn, imagesRoot } from '../../agent/images/images-root.ts';
import type { AgentWorld } from '../helpers/agent.ts';
import { agentWorld } from '../helpers/agent.ts';
import type { CdiEngine } from '../helpers/cdi-engine.ts';
import { cdiEngine } from '../helpers/cdi-engine.ts';
import { tempDirectory, test as base } from '../helpers/services.ts';

interface Machine {
  readonly path: string;
  info: object;
  /** The root that the agent watches, below the machine's path. */
  root(): Promise<string>;
}

// oxlint-disable-next-line no-empty-pattern -- vitest reads a fixture's needs from the pattern
const test = base.extend('machine', async ({}, { onCleanup }): Promise<Machine> => {
  const directory = tempDirectory('root');
  const server = createServer((_request, response) => response.end(JSON.stringify(machine.info)));
  const socket = join(directory.path, 'engine.sock');
  server.listen(socket);
  await once(server, 'listening');
  onCleanup(() => {
    server.close();
    directory.remove();
  });
  for (const name of ['docker/containerd/daemon', 'containerd', 'big', 'etc', 'run'])
    mkdirSync(join(directory.path, name), { recursive: true });
  const runtime = dockerRuntime(`unix://${socket}`);
  const machine: Machine = {
    path: directory.path,
    info: {},
    root: async () => {
      const system = { config: join(directory.path, 'etc/config.toml'), root: join(directory.path, 'containerd') };
      return (await imagesRoot(await runtime.info(), system)).slice(directory.path.length + 1);
    },
  };
  return machine;
});

const infoOf = (machine: Machine, changes: object): object => ({
  DockerRootDir: join(machine.path, 'docker'),
  Driver: 'overlayfs',
  DriverStatus: [['driver-type', 'io.containerd.snapshotter.v1']],
  Containerd: { Address: join(machine.path, 'run/containerd.sock') },
  ...changes,
});

test('an engine with images of its own keeps them below its data-root', async ({ machine }) => {
  machine.info = infoOf(machine, { Driver: 'overlay2', DriverStatus: [['Backing Filesystem', 'extfs']] });
  expect(await machine.root()).toBe('docker');
  machine.info = infoOf(machine, { Driver: 'overlay2', DriverStatus: null, Containerd: undefined });
  expect(await machine.root()).toBe('docker');
});

test("images of containerd are below containerd's root, whatever data-root says", async ({ machine }) => {
  machine.info = infoOf(machine, {});
  expect(await machine.root()).toBe('containerd');
  writeFileSync(join(machine.path, 'etc/config.toml'), `version = 3\nroot = '${machine.path}/big'\n[grpc]\n`);
  expect(await machine.root()).toBe('big');
});

test('a containerd that the engine starts has its settings beside its socket', async ({ machine }) => {
  writeFileSync(join(machine.path, 'etc/config.toml'), `root = "${machine.path}/big"\n`);
  writeFileSync(join(machine.path, 'run/containerd.toml'), `root = "${machine.path}/docker/containerd/daemon"\n`);
  machine.info = infoOf(machine, { Containerd: { Address: `unix://${machine.path}/run/containerd.sock` } });
  expect(await machine.root()).toBe('docker/containerd/daemon');
});

test("a containerd inside the engine's process is below data-root; a root that cannot be seen is not watched", async ({
  machine,
}) => {
  machine.info = infoOf(machine, { Containerd: undefined });
  expect(await machine.root()).toBe('docker/containerd/daemon');
  writeFileSync(join(machine.path, 'etc/config.toml'), 'root = "/nowhere"\n');
  machine.info = infoOf(machine, {});
  expect(await machine.root()).toBe('docker');
});

const watching = test
  // oxlint-disable-next-line no-empty-pattern -- vitest reads a fixture's needs from the pattern
  .extend('engine', async ({}, { onCleanup }): Promise<CdiEngine> => {
    const at = connectionOptions(process.env['DOCKER_HOST']);
    const engine = await cdiEngine('socketPath' in at ? at.socketPath : '');
    onCleanup(() => engine.close());
    return engine;
  })
  .extend('world', async ({ docker, engine }, { onCleanup }): Promise<AgentWorld> => {
    const world = await agentWorld(docker.labels, { DOCKER_HOST: engine.host });
    onCleanup(() => world.end());
    return world;
  });

watching('an agent watches the disk of that root', async ({ engine, machine, world }) => {
  // This root is on another file system than the engine's own.
  writeFileSync(join(machine.path, 'run/containerd.toml'), 'root = "/dev/shm"\n');
  engine.info = infoOf(machine, {});
  await world.agent.start();
  await world.agent.connected;
  const { blocks, bsize } = await statfs('/dev/shm');
  expect(world.scheduler.hellos[0]?.inventory?.diskTotalBytes).toBe(blocks * bsize);
});

test.for([
  ['version = 2\nroot = "/data/containerd"\n', '/data/containerd'],
  ["# root = '/old'\n  root='/data'\n", '/data'],
  ['[plugins."io.containerd.snapshotter.v1.overlayfs"]\n  root = "/not/this"\n', undefined],
  ['rootless = true\nroot_path = "/x"\n', undefined],
  ['root = ""\n', undefined],
] as const)('the settings %j name the root %j', ([toml, root]) => {
  expect(containerdRootIn(toml)).toBe(root);
});
