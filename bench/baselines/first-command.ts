// The time that Docker alone needs to create a container, start it, and run a first command in it. Image, limits,
// hardening and network are those of the agent's containers.
import { randomBytes } from 'node:crypto';
import type { Readable } from 'node:stream';
import { createOptions } from '#agent/containers/engine/options.ts';
import { BENCH_LABEL } from '../engine.ts';
import type { BenchEngine } from '../engine.ts';
import type { ContainerBaseline } from './container.ts';

/** @returns the container, which still runs */
export async function firstCommand(
  engine: BenchEngine,
  spec: ContainerBaseline,
  command: readonly string[],
): Promise<string> {
  const container = await engine.client.createContainer(
    createOptions({
      name: `${engine.runId}-${randomBytes(6).toString('hex')}`,
      image: spec.image,
      entrypoint: ['tail', '-f', '/dev/null'],
      workingDir: '/',
      env: [],
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
    const exec = await container.exec({ Cmd: [...command], AttachStdout: true, AttachStderr: true });
    const output = (await exec.start({})) as unknown as Readable;
    for await (const _part of output) void _part;
    const { ExitCode } = await exec.inspect();
    if (ExitCode !== 0) throw new Error(`the command of the baseline ended with ${String(ExitCode)}`);
    return container.id;
  } catch (error) {
    await engine.remove(container.id);
    throw error;
  }
}
