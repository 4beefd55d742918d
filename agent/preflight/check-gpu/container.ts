/**
 * The part of `longshore agent check-gpu` that asks the engine: the view that a container gets of one GPU, by CDI and
 * by NVIDIA's hook. Leases nothing; removes everything it makes.
 */
import { randomBytes } from 'node:crypto';
import { messageOf } from '#shared/errors.ts';
import type { ContainerRuntime, GpuDriver } from '../../containers/runtime.ts';
import { EngineError } from '../../containers/runtime.ts';
import { createLog } from '#shared/log.ts';
import type { Line } from './report.ts';
import { line } from './report.ts';
import { CUDA_PROBE_DEADLINE_MS, probeInContainer } from '../../devices/probe-container.ts';

const EXEC_MS = 30_000;
/** A pull without any progress message for this long is given up. */
const PULL_SILENCE_MS = 60_000;
/**
 * Lifetime of a container, longer than all of its checks: the first device's container waits for the CUDA programs of
 * all others.
 */
const LIVES_SECONDS = 1800;
/** Parts of the driver that the hook passes. */
const PARTS = ['compute', 'utility', 'video'] as const;

export const WAY: Readonly<Record<GpuDriver, string>> = { cdi: 'CDI', nvidia: "NVIDIA's hook" };
const TOOLKIT: Readonly<Record<GpuDriver, string>> = {
  cdi: 'write the specification anew: sudo systemctl restart nvidia-cdi-refresh (toolkit 1.18 and later), else sudo nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml',
  nvidia:
    "install NVIDIA's container toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
};

/** Where container-optimised hosts keep the driver; programs there are outside the usual PATH of an image. */
const ELSEWHERE = '/usr/local/nvidia/bin';
const ON_PATH = `put ${ELSEWHERE} into the PATH of images that run nvidia-smi (ENV PATH=$PATH:${ELSEWHERE}), also of the image of this check`;

export interface DeviceContainer {
  readonly driver: GpuDriver;
  readonly uuid: string;
  readonly dockerId: string;
}

/**
 * Makes sure that the engine has the containers' image: a new host lacks it.
 * @returns undefined when the image was present; a failed line when no container of the check can start
 */
export async function imageLine(
  runtime: ContainerRuntime,
  image: string,
  signal: AbortSignal,
): Promise<Line | undefined> {
  if ((await runtime.image(image)) !== undefined) return undefined;
  const options = { auth: undefined, silenceMs: PULL_SILENCE_MS, signal, onProgress: () => undefined };
  try {
    await runtime.pull(image, options);
    return line('ok', 'image', `${image} was not here, and is pulled`);
  } catch (error) {
    return line(
      'failed',
      'image',
      `${image} is not here, and cannot be pulled: ${messageOf(error)}`,
      'name an image that this host has or can pull, with `sleep` and a C library: longshore agent check-gpu <image>',
    );
  }
}

interface Asked {
  readonly image: string;
  readonly uuid: string;
  readonly driver: GpuDriver;
  /** false: an engine without this way is no failure. */
  readonly needed: boolean;
  readonly labels: Readonly<Record<string, string>>;
}

/**
 * Starts a container with one device and checks its view.
 * @returns the container, when it sees the device and no other; the caller removes it
 */
export async function openDevice(
  runtime: ContainerRuntime,
  { image, uuid, driver, needed, labels }: Asked,
): Promise<{ readonly line: Line; readonly container: DeviceContainer | undefined }> {
  const check = `gpu by ${driver === 'cdi' ? 'cdi' : 'hook'}`;
  let dockerId: string | undefined;
  try {
    dockerId = await runtime.create({
      name: `longshore-check-gpu-${randomBytes(4).toString('hex')}`,
      image,
      entrypoint: ['sleep', String(LIVES_SECONDS)],
      workingDir: '/',
      env: [`NVIDIA_VISIBLE_DEVICES=${driver === 'cdi' ? 'void' : uuid}`, `NVIDIA_DRIVER_CAPABILITIES=${PARTS.join()}`],
      labels,
      mounts: [],
      network: 'none',
      memoryBytes: 256 * 1024 ** 2,
      cpuMillicores: 500,
      gpus: { driver, uuids: [uuid], capabilities: PARTS },
    });
    await runtime.start(dockerId);
    const passed = (await runtime.inspect(dockerId))?.gpuUuids.join() ?? '';
    const said = await runtime.exec(dockerId, ['nvidia-smi', '-L'], EXEC_MS);
    const elsewhere = isMissing(said)
      ? await runtime.exec(dockerId, [`${ELSEWHERE}/nvidia-smi`, '-L'], EXEC_MS)
      : undefined;
    const problem = viewProblem({ uuid, driver, passed, said, elsewhere });
    if (problem !== undefined) {
      await runtime.remove(dockerId);
      const { found: text, step, isWithoutHook } = problem;
      if (isWithoutHook && !needed) return { line: line('skipped', check, text), container: undefined };
      return { line: line('failed', check, `${uuid}: ${text}`, step), container: undefined };
    }
    const found = `a container was given ${uuid} by ${WAY[driver]} and sees it alone`;
    return { line: line('ok', check, found), container: { driver, uuid, dockerId } };
  } catch (error) {
    if (dockerId !== undefined) await runtime.remove(dockerId);
    return { line: refusal(check, error, { image, uuid, driver, needed }), container: undefined };
  }
}

interface Said {
  readonly exitCode: number;
  readonly output: string;
}

/** Exit codes of an engine for a program that is not there or cannot be run. */
const isMissing = ({ exitCode }: Said): boolean => exitCode === 126 || exitCode === 127;

/** The view of a container that was given a device. */
export interface DeviceView {
  readonly uuid: string;
  readonly driver: GpuDriver;
  /** Devices that the engine says it passes. */
  readonly passed: string;
  /** Answer to `nvidia-smi -L`. */
  readonly said: Said;
  /** Answer to the same program below /usr/local/nvidia; undefined: the first one answered. */
  readonly elsewhere: Said | undefined;
}

/** The fault in a container's view of its device, and the remedy; undefined: there is none. Pure. */
export function viewProblem({
  uuid,
  driver,
  passed,
  said,
  elsewhere,
}: DeviceView): { readonly found: string; readonly step: string; readonly isWithoutHook: boolean } | undefined {
  const problem = (found: string, step = TOOLKIT[driver], isWithoutHook = false) => ({ found, step, isWithoutHook });
  if (passed !== uuid) return problem(`the engine says that it passes ${passed || 'nothing'}`);
  if (elsewhere !== undefined && !isMissing(elsewhere))
    return problem(`in the container nvidia-smi is below ${ELSEWHERE}, which is not in the PATH of the image`, ON_PATH);
  if (elsewhere !== undefined && driver === 'nvidia')
    return problem(
      "Docker takes the request and passes nothing of the driver: NVIDIA's hook is not installed here",
      TOOLKIT.nvidia,
      true,
    );
  const { exitCode, output } = said;
  const seen = [...output.matchAll(/UUID: ((?:GPU|MIG)-[^)\s]+)/g)].map((match) => match[1] ?? '');
  if (exitCode !== 0 || !seen.includes(uuid))
    return problem(`in the container nvidia-smi says: ${output.trim().slice(0, 300) || `exit code ${exitCode}`}`);
  const others = seen.filter((one) => one !== uuid && !uuid.startsWith('MIG-'));
  return others.length > 0 ? problem(`the container sees ${others.join(', ')}, too`) : undefined;
}

function refusal(check: string, error: unknown, { image, uuid, driver, needed }: Omit<Asked, 'labels'>): Line {
  const failure = error instanceof EngineError ? error.failure : undefined;
  if (failure === 'no_gpu_support' && !needed) return line('skipped', check, "Docker has no hook of NVIDIA's here");
  const found = `${uuid}: ${messageOf(error)}`;
  const step =
    failure === 'no_gpu_support' || failure === 'gpu_refused'
      ? TOOLKIT[driver]
      : failure === 'no_such_image'
        ? `docker pull ${image}, or name another image`
        : 'look at the Docker Engine (systemctl status docker) and its log';
  return line('failed', check, found, step);
}

/**
 * Whether the container still reaches its device. @returns empty when it does; else its tool's message, or why it
 * cannot be asked
 */
export async function deviceLost(runtime: ContainerRuntime, { dockerId, uuid }: DeviceContainer): Promise<string> {
  try {
    const { exitCode, output } = await runtime.exec(dockerId, ['nvidia-smi', '-L'], EXEC_MS);
    return exitCode === 0 && output.includes(uuid) ? '' : output.trim().slice(0, 300) || `exit code ${exitCode}`;
  } catch (error) {
    return messageOf(error);
  }
}

/** Runs the agent's own probe on the device, passed in that way: it takes a context, fills, copies and compares. */
export async function cudaLine(
  runtime: ContainerRuntime,
  { driver, uuid }: DeviceContainer,
  labels: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<Line> {
  const fromMs = performance.now();
  const outcome = await probeInContainer(
    uuid,
    {
      runtime,
      // Only the chosen driver may be used: the check looks for a refusal of it.
      drivers: { check: () => Promise.resolve(), driverFor: () => driver, refused: () => undefined },
      labels: () => labels,
      onRefused: () => undefined,
      deadlineMs: CUDA_PROBE_DEADLINE_MS,
      log: createLog({ name: 'check-gpu', level: 'silent' }),
    },
    signal,
  ).catch((error: unknown) => ({ kind: 'unable', text: messageOf(error) }) as const);
  const check = 'cuda';
  const seconds = ((performance.now() - fromMs) / 1000).toFixed(1);
  if (outcome.kind === 'passed')
    return line('ok', check, `a program worked on ${uuid}, by ${WAY[driver]}, in ${seconds} s`);
  const found = `${uuid} by ${WAY[driver]}: ${outcome.text}`;
  if (outcome.kind === 'absent') return line('skipped', check, found, 'use a release, whose image has the program');
  return line('failed', check, found, CUDA_CURES[outcome.kind]);
}

const CUDA_CURES = {
  failed: 'reset the GPU (sudo nvidia-smi --gpu-reset) or reboot; have it replaced when it fails again',
  host: 'no device is at fault: put right on this host what the text names, and repeat',
  stuck: 'reboot: a process waits in the driver and cannot be ended',
  unable: 'look at the Docker Engine and its log, and repeat',
} as const;
