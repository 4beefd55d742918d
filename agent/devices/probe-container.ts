/**
 * The container of one probe: the program of agent/probe/gpu-probe.c in the image of pause containers. The container
 * has one device, passed as to workloads; no network, and a read-only root. Must stay true: one container exists per
 * device, even after a crash of the agent, because its name is the device's. A probe that misses its deadline is
 * killed, and one that survives the kill keeps its name.
 */
import type { Log } from '#shared/log.ts';
import { messageOf } from '#shared/errors.ts';
import type { GpuDrivers } from '../containers/cdi.ts';
import { GPU_PROBE, PAUSE_IMAGE, ensurePauseImage } from '../containers/pause-image.ts';
import type { ContainerRuntime, CreateContainer, GpuDriver, GpuRequest } from '../containers/runtime.ts';
import { EngineError, isGpuRefusal } from '../containers/runtime.ts';
import type { ProbeOutcome } from './probe-outcome.ts';
import { outcomeOf, stepOf } from './probe-outcome.ts';

/** An idle device without persistence mode, behind NVSwitches, takes seconds to come up. */
export const CUDA_PROBE_DEADLINE_MS = 60_000;
/** Memory limit, not a reservation: the driver's memory in a process with one context is some hundred MiB. */
const MEMORY_BYTES = 2 * 1024 ** 3;
/** Prefix of probe containers' names. */
const PROBE_NAME = 'c-probe-';
/** Folders of the driver's libraries, for those that the driver opens by name. */
const LIBRARIES = '/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/usr/lib64:/usr/local/nvidia/lib64';

export interface ProbeContainerParts {
  readonly runtime: ContainerRuntime;
  readonly drivers: Pick<GpuDrivers, 'check' | 'driverFor' | 'refused'>;
  readonly labels: () => Readonly<Record<string, string>>;
  /** Called when the engine refused the container: it may refuse every one. */
  readonly onRefused: (error: unknown) => void;
  readonly deadlineMs: number;
  readonly log: Log;
}

export const probeNameOf = (uuid: string): string => `${PROBE_NAME}${uuid.replace(/[^A-Za-z0-9-]/g, '_')}`;

export const probeContainer = (
  uuid: string,
  gpus: GpuRequest | undefined,
  labels: Readonly<Record<string, string>>,
): CreateContainer => ({
  name: probeNameOf(uuid),
  image: PAUSE_IMAGE,
  // A shell starts the program: its exit code 127 means that the image lacks it.
  entrypoint: ['sh', '-c', `exec ${GPU_PROBE}`],
  workingDir: '/',
  env: [
    `NVIDIA_VISIBLE_DEVICES=${gpus?.driver === 'nvidia' ? uuid : 'void'}`,
    'NVIDIA_DRIVER_CAPABILITIES=compute,utility',
    // The probe needs neither compilation nor caches.
    'CUDA_CACHE_DISABLE=1',
    'CUDA_FORCE_PRELOAD_LIBRARIES=0',
    'CUDA_MODULE_LOADING=LAZY',
    `LD_LIBRARY_PATH=${LIBRARIES}`,
  ],
  labels,
  mounts: [],
  network: 'none',
  readOnlyRoot: true,
  memoryBytes: MEMORY_BYTES,
  cpuMillicores: 1000,
  pids: 256,
  ...(gpus === undefined ? {} : { gpus }),
});

/** @param signal - ends the probe and removes its container */
export async function probeInContainer(
  uuid: string,
  parts: ProbeContainerParts,
  signal: AbortSignal,
): Promise<ProbeOutcome> {
  const { runtime, drivers, log } = parts;
  const name = probeNameOf(uuid);
  const left = await runtime.inspect(name);
  if (left !== undefined && !(await isRemoved(runtime, left.dockerId)))
    return { kind: 'stuck', text: 'an earlier probe does not end, not even by a kill' };
  await ensurePauseImage(runtime);
  await drivers.check();
  signal.throwIfAborted();
  const driver = drivers.driverFor([uuid]);
  try {
    return await runProbe(uuid, driver, parts, signal);
  } catch (error) {
    const other = isGpuRefusal(error) ? drivers.refused(driver) : undefined;
    if (other === undefined) return outcomeOfError(error, parts);
    log.warn({ err: error, gpuUuid: uuid }, `a GPU is refused by CDI; its probe is tried by NVIDIA's hook`);
    return runProbe(uuid, other, parts, signal).catch((again: unknown) => outcomeOfError(again, parts));
  }
}

async function runProbe(
  uuid: string,
  driver: GpuDriver,
  parts: ProbeContainerParts,
  signal: AbortSignal,
): Promise<ProbeOutcome> {
  const { runtime, labels, deadlineMs } = parts;
  const gpus: GpuRequest = { driver, uuids: [uuid], capabilities: ['compute', 'utility'] };
  const spec = probeContainer(uuid, gpus, labels());
  const fromMs = performance.now();
  const lines: string[] = [];
  const take = (line: string): void => {
    if (lines.length < 100) lines.push(line);
  };
  const end = (): void => void isRemoved(runtime, spec.name);
  signal.addEventListener('abort', end, { once: true });
  try {
    return outcomeOf({ exitCode: await runtime.runOnce(spec, deadlineMs, take), lines });
  } catch (error) {
    const there = await runtime.inspect(spec.name).catch(() => undefined);
    const isLate =
      (error instanceof EngineError && error.failure === 'overdue') || performance.now() - fromMs >= deadlineMs;
    if (there !== undefined && !(await isRemoved(runtime, there.dockerId)))
      return { kind: 'stuck', text: `no answer in ${deadlineMs} ms at ${stepOf(lines)}, and a kill does not end it` };
    if (isLate) return { kind: 'failed', text: `no answer in ${deadlineMs} ms at ${stepOf(lines)}` };
    throw error;
  } finally {
    signal.removeEventListener('abort', end);
  }
}

const isRemoved = (runtime: ContainerRuntime, dockerId: string): Promise<boolean> =>
  runtime.remove(dockerId).then(
    () => true,
    () => false,
  );

function outcomeOfError(error: unknown, { onRefused }: ProbeContainerParts): ProbeOutcome {
  if (isGpuRefusal(error)) return { kind: 'host', text: messageOf(error) };
  onRefused(error);
  return { kind: 'unable', text: messageOf(error) };
}
