/**
 * Programs of builds, each in a container of our own: the engine's builder bounds no processes, keeps new privileges,
 * and gives neither packages from before nor a GPU. Called by stages.ts. Must stay true: such a container has
 * the network and the limits of the build; it is removed with its step; no variable of the step stays in the image.
 */
import { createHash, randomBytes } from 'node:crypto';
import { BUILD_STEP_LABEL } from '#shared/domain/built-images.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerRuntime, GpuDriver, GpuRequest, Mount } from '../containers/runtime.ts';
import { EngineError, VISIBLE_DEVICES, isGpuRefusal } from '../containers/runtime.ts';
import type { GpuDrivers } from '../containers/cdi.ts';

/** The engine's usual capabilities, without raw sockets and device nodes, which no package needs. */
const PACKAGE_CAPABILITIES = [
  'AUDIT_WRITE',
  'CHOWN',
  'DAC_OVERRIDE',
  'FOWNER',
  'FSETID',
  'KILL',
  'NET_BIND_SERVICE',
  'SETFCAP',
  'SETGID',
  'SETPCAP',
  'SETUID',
  'SYS_CHROOT',
];
/** The engine's usual capabilities. */
const CAPABILITIES = [...PACKAGE_CAPABILITIES, 'MKNOD', 'NET_RAW'];
const GPU_CAPABILITIES = ['compute', 'utility'];

export interface StepsApartParts {
  readonly runtime: ContainerRuntime;
  readonly gpuDrivers: Pick<GpuDrivers, 'check' | 'driverFor' | 'refused'>;
  readonly machineId: () => string;
  readonly log: Log;
}

export interface StepApart {
  /** The image on which the step runs, by its id. */
  readonly imageId: string;
  /** The program with its arguments. */
  readonly command: readonly string[];
  readonly variables: Readonly<Record<string, string>>;
  /** A step of the scheduler's own, which needs fewer capabilities. */
  readonly isOurs: boolean;
  readonly mounts: readonly Mount[];
  readonly network: string;
  readonly memoryBytes: number;
  readonly cpuMillicores: number;
  readonly pids: number;
  /** UUIDs of the step's GPUs. */
  readonly gpuUuids: readonly string[];
  /** Further facts that the layer follows from. */
  readonly key: string;
  readonly noCache: boolean;
  readonly signal: AbortSignal;
  readonly onLine: (line: string) => void;
  /** Called with the container's id before it starts. */
  readonly onContainer: (dockerId: string) => void;
  /** Called with the container's id once the program has ended, while the container is there. */
  readonly onEnd: (dockerId: string) => Promise<void>;
}

export type StepResult =
  | { readonly kind: 'built'; readonly imageId: string; readonly isReused: boolean }
  | { readonly kind: 'failed'; readonly exitCode: number }
  /** The program could not be started; the engine's words. */
  | { readonly kind: 'not_started'; readonly message: string };

/** Prefix of the names of this machine's containers. */
export const stepPrefix = (machineId: string): string => `ls-step-${machineId}-`;

export class StepsApart {
  readonly #parts: StepsApartParts;

  constructor(parts: StepsApartParts) {
    this.#parts = parts;
  }

  /** Containers that steps of an agent before this one have left, with their GPUs. */
  async left(): Promise<readonly { readonly dockerId: string; readonly gpuUuids: readonly string[] }[]> {
    const { runtime, machineId } = this.#parts;
    const ids = await runtime.containersNamed(stepPrefix(machineId()));
    const found = await Promise.all(ids.map((id) => runtime.inspect(id)));
    return found.flatMap((one) => (one === undefined ? [] : [{ dockerId: one.dockerId, gpuUuids: one.gpuUuids }]));
  }

  /**
   * Runs a step, or takes its layer from before.
   * @throws EngineError
   */
  async run(step: StepApart): Promise<StepResult> {
    const { runtime } = this.#parts;
    const key = keyOf(step);
    const before = step.noCache ? undefined : await runtime.imageIdWithLabel(`${BUILD_STEP_LABEL}=${key}`);
    // An image of a registry is no layer of ours, whatever its labels say.
    if (before !== undefined && (await runtime.image(before))?.isLocal === true)
      return { kind: 'built', imageId: before, isReused: true };
    let dockerId: string;
    try {
      dockerId = await this.#started(step, key);
    } catch (error) {
      if (!(error instanceof NotStarted)) throw error;
      return { kind: 'not_started', message: messageOf(error.cause) };
    }
    try {
      await this.#follow(dockerId, step);
      if (!step.signal.aborted) await step.onEnd(dockerId);
      if (step.signal.aborted) throw new EngineError('refused', 'the build was ended');
      const end = await runtime.inspect(dockerId);
      if (end === undefined || end.state !== 'exited')
        throw new EngineError('refused', 'the container of a step is gone');
      if (end.exitCode !== 0 || end.oomKilled) return { kind: 'failed', exitCode: end.oomKilled ? 137 : end.exitCode };
      const imageId = await runtime.commit(dockerId, step.imageId, { [BUILD_STEP_LABEL]: key });
      return { kind: 'built', imageId, isReused: false };
    } finally {
      await this.#remove(dockerId);
    }
  }

  async #started(step: StepApart, key: string): Promise<string> {
    const { gpuDrivers, log } = this.#parts;
    if (step.gpuUuids.length === 0) return this.#start(step, key, undefined);
    await gpuDrivers.check();
    const driver = gpuDrivers.driverFor(step.gpuUuids);
    try {
      return await this.#start(step, key, driver);
    } catch (error) {
      const other = isGpuRefusal(error) ? gpuDrivers.refused(driver) : undefined;
      if (other === undefined) throw error;
      log.warn({ err: error }, `GPUs are refused by CDI; a step of a build is tried by NVIDIA's hook`);
      return this.#start(step, key, other);
    }
  }

  async #start(step: StepApart, key: string, driver: GpuDriver | undefined): Promise<string> {
    const { runtime, machineId } = this.#parts;
    const config = await runtime.imageConfig(step.imageId);
    const gpus: GpuRequest | undefined =
      driver === undefined ? undefined : { driver, uuids: step.gpuUuids, capabilities: GPU_CAPABILITIES };
    const dockerId = await runtime.create({
      name: `${stepPrefix(machineId())}${randomBytes(6).toString('hex')}`,
      image: step.imageId,
      entrypoint: withVariables(step.command, step.variables),
      workingDir: config?.workingDir ?? '',
      user: config?.user ?? '',
      // Where NVIDIA's runtime is the engine's default, a variable of the image would ask it for GPUs.
      env: [`${VISIBLE_DEVICES}=${driver === 'nvidia' ? step.gpuUuids.join(',') : 'void'}`],
      // The agent knows its containers by labels; those of this one would stay in the image.
      labels: { [BUILD_STEP_LABEL]: key },
      mounts: step.mounts,
      network: step.network,
      memoryBytes: step.memoryBytes,
      cpuMillicores: step.cpuMillicores,
      pids: step.pids,
      capabilities: step.isOurs ? PACKAGE_CAPABILITIES : CAPABILITIES,
      ...(gpus === undefined ? {} : { gpus }),
    });
    try {
      step.onContainer(dockerId);
      await runtime.start(dockerId);
      return dockerId;
    } catch (error) {
      await this.#remove(dockerId);
      // An engine that answers has a reason in the image: no such program, user or directory.
      const isOfImage = error instanceof EngineError && error.failure === 'refused';
      throw isOfImage ? new NotStarted('the program of a step could not be started', { cause: error }) : error;
    }
  }

  /** Follows the output to the container's end, or ends it with the build. */
  async #follow(dockerId: string, { signal, onLine }: StepApart): Promise<void> {
    const { runtime } = this.#parts;
    let since = '';
    const take = (_stream: string, line: string, position: string): void => {
      since = position;
      onLine(line);
    };
    do {
      await runtime.followLogs(dockerId, since, take, signal).catch((error: unknown) => {
        if (!signal.aborted) throw error;
      });
    } while (!signal.aborted && (await runtime.inspect(dockerId))?.state === 'running');
  }

  async #remove(dockerId: string): Promise<void> {
    await this.#parts.runtime.remove(dockerId).catch((error: unknown) => {
      this.#parts.log.warn(
        { err: error, dockerId },
        `the container of a step stays until the next start: ${messageOf(error)}`,
      );
    });
  }
}

/** The layer follows from the image below, which names the workspace, and from what the step reads. */
const keyOf = ({ imageId, command, variables, gpuUuids, key }: StepApart): string =>
  createHash('sha256')
    .update(JSON.stringify(['step-2', imageId, command, Object.entries(variables), gpuUuids.length, key]))
    .digest('hex');

/** Variables of the container itself would stay in the image, so a shell sets them. */
function withVariables(command: readonly string[], variables: Readonly<Record<string, string>>): readonly string[] {
  const exports = Object.entries(variables).map(
    ([name, value]) => `export ${name}='${value.replaceAll("'", `'\\''`)}'`,
  );
  return exports.length === 0
    ? command
    : ['/bin/sh', '-c', [...exports, 'exec "$@"'].join('\n'), '/bin/sh', ...command];
}

/** A program that the engine could not start. */
class NotStarted extends Error {
  override readonly name = 'NotStarted';
}
