// Baseline B2: the time that Docker alone needs from `create` to the first byte of an HTTP answer. Image, limits,
// hardening and network are those of the agent's containers. Nothing pulls, mounts, decides or queues.
import { randomBytes } from 'node:crypto';
import { connect } from 'node:net';
import { sleep } from '#shared/backoff.ts';
import { createOptions } from '#agent/containers/engine/options.ts';
import { BENCH_LABEL } from '../engine.ts';
import type { BenchEngine } from '../engine.ts';

export interface ContainerBaseline {
  readonly image: string;
  readonly network: string;
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
}

const PORT = 8000;
/** The command of every baseline container. */
export const SERVER = ['python3', '-m', 'http.server', String(PORT)] as const;
const BYTE_DEADLINE_MS = 30_000;
/** Pause between two tries to connect: the server listens a while after the container runs. */
const RETRY_MS = 1;
const CONNECT_MS = 100;

/** Starts a container, waits for its first byte and removes it. @returns milliseconds, the removal not counted */
export async function coldContainerMs(engine: BenchEngine, spec: ContainerBaseline): Promise<number> {
  const startedMs = performance.now();
  const id = await startAnswering(engine, spec);
  const ms = performance.now() - startedMs;
  await engine.remove(id);
  return ms;
}

/** Starts a container and waits for its first byte. @returns the engine's id */
export async function startAnswering(engine: BenchEngine, spec: ContainerBaseline): Promise<string> {
  const startedMs = performance.now();
  const container = await engine.client.createContainer(
    createOptions({
      name: `${engine.runId}-${randomBytes(6).toString('hex')}`,
      image: spec.image,
      entrypoint: [...SERVER],
      workingDir: '/mnt',
      env: ['PYTHONUNBUFFERED=1', 'PYTHONDONTWRITEBYTECODE=1'],
      labels: { [BENCH_LABEL]: engine.runId },
      mounts: [],
      network: spec.network,
      memoryBytes: spec.memoryBytes,
      cpuMillicores: spec.cpuMillicores,
    }),
  );
  engine.known.add(container.id);
  try {
    await container.start();
    const { NetworkSettings } = await container.inspect();
    const address = NetworkSettings.Networks[spec.network]?.IPAddress ?? '';
    if (address === '') throw new Error(`a container in ${spec.network} got no address`);
    await firstByte(address, startedMs + BYTE_DEADLINE_MS);
    return container.id;
  } catch (error) {
    await engine.remove(container.id);
    throw error;
  }
}

/** Resolves when a server at the address has answered with a byte. @throws Error when none does in time */
export async function firstByte(address: string, deadlineMs: number): Promise<void> {
  while (performance.now() < deadlineMs) {
    if (await tryOnce(address, deadlineMs)) return;
    await sleep(RETRY_MS);
  }
  throw new Error(`the container at ${address} did not answer within ${BYTE_DEADLINE_MS / 1000} s`);
}

/** Tries to connect and read a byte; false: no server listens yet. */
function tryOnce(address: string, deadlineMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(PORT, address);
    const end = (answered: boolean): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(answered);
    };
    let timer = setTimeout(() => end(false), CONNECT_MS);
    socket.once('connect', () => {
      clearTimeout(timer);
      timer = setTimeout(() => end(false), Math.max(1, deadlineMs - performance.now()));
      socket.write(`GET / HTTP/1.1\r\nHost: ${address}\r\nConnection: close\r\n\r\n`);
    });
    socket.once('data', () => end(true));
    socket.once('error', () => end(false));
    socket.once('close', () => end(false));
  });
}
