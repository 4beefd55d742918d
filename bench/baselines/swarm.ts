// A peer of the scaling benchmark: Docker Swarm, on an engine of its own. The Swarm engine has its own network
// namespace, because beside the first engine it would take its network away. Image, limits and program are those of the
// plain loop; a task counts when its program answers.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type Docker from 'dockerode';
import { sleep } from '#shared/backoff.ts';
import { SimulatedNetwork, whyNoHosts } from '../../test/helpers/hosts/network.ts';
import type { SimulatedHost } from '../../test/helpers/hosts/host.ts';
import type { BenchEngine } from '../engine.ts';
import type { ContainerBaseline } from './container.ts';
import { SERVER } from './container.ts';

const POLL_MS = 20;
const UP_MS = 120_000;
const SERVICE = 'bench-scale';
/** Seconds until a task that is told to end is killed: the server ends at once. */
const GRACE_NS = 1e9;

export interface Swarm {
  /** Scales from 0 to that many answering tasks. @returns milliseconds */
  scale(count: number): Promise<number>;
  /** Scales to 0 again; resolves when no task is left. */
  empty(): Promise<void>;
}

/** Reason why there can be no Swarm; undefined: there can be one. */
export const whyNoSwarm = whyNoHosts;

/** @param later - registers the cleanup */
export async function startSwarm(
  engine: BenchEngine,
  spec: Omit<ContainerBaseline, 'network'>,
  later: (work: () => Promise<void>) => void,
): Promise<Swarm> {
  // Without this setting each task asks a registry for an image that the engine has.
  process.env['DOCKER_SERVICE_PREFER_OFFLINE_IMAGE'] = '1';
  const network = await SimulatedNetwork.up(1, spec.image);
  later(() => network.down());
  const [host] = network.hosts as readonly [SimulatedHost];
  const { docker } = host;
  const answers = proberIn(host, later);
  await docker.swarmInit({ ListenAddr: `${host.address}:2377`, AdvertiseAddr: `${host.address}:2377` });
  await docker.createService({
    Name: SERVICE,
    TaskTemplate: {
      ContainerSpec: { Image: spec.image, Command: [...SERVER], Init: true, StopGracePeriod: GRACE_NS },
      Resources: { Limits: { NanoCPUs: spec.cpuMillicores * 1e6, MemoryBytes: spec.memoryBytes } },
      RestartPolicy: { Condition: 'none' },
      Networks: [{ Target: 'bridge' }],
    },
    Mode: { Replicated: { Replicas: 0 } },
  } as unknown as Docker.CreateServiceOptions);
  const service = docker.getService(SERVICE);
  const replicate = async (count: number): Promise<void> => {
    const { Version, Spec } = (await service.inspect()) as { Version: { Index: number }; Spec: object };
    await service.update({ version: Version.Index, ...Spec, Mode: { Replicated: { Replicas: count } } });
  };
  const running = (): Promise<Docker.ContainerInfo[]> =>
    docker.listContainers({ filters: { label: [`com.docker.swarm.service.name=${SERVICE}`] } });
  return {
    scale: async (count) => {
      const startedMs = performance.now();
      const deadlineMs = startedMs + UP_MS;
      await replicate(count);
      const answering = new Map<string, Promise<void>>();
      while (answering.size < count) {
        if (performance.now() > deadlineMs) throw new Error(`swarm had ${answering.size} of ${count} tasks running`);
        for (const { Id, NetworkSettings } of await running()) {
          const address = NetworkSettings.Networks['bridge']?.IPAddress ?? '';
          if (address === '' || answering.has(Id)) continue;
          engine.known.add(Id);
          answering.set(Id, answers(address));
        }
        await sleep(POLL_MS);
      }
      await Promise.all(answering.values());
      return performance.now() - startedMs;
    },
    empty: async () => {
      await replicate(0);
      while ((await docker.listContainers({ all: true })).length > 0) await sleep(POLL_MS);
    },
  };
}

/**
 * Resolves for an address when a server there has answered. The prober asks from inside the host's namespace, because
 * only there the addresses of its containers are reachable.
 */
function proberIn(host: SimulatedHost, later: (work: () => Promise<void>) => void): (address: string) => Promise<void> {
  const file = fileURLToPath(new URL('prober.ts', import.meta.url));
  const child = spawn('nsenter', [`--net=/run/netns/${host.name}`, process.execPath, file], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  later(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  const waiting = new Map<string, () => void>();
  createInterface({ input: child.stdout }).on('line', (address) => waiting.get(address)?.());
  return (address) =>
    new Promise((resolve, reject) => {
      waiting.set(address, resolve);
      void ended.then(() => reject(new Error('a task of the swarm did not answer')));
      child.stdin.write(`${address}\n`);
    });
}
