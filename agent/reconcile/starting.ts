// Classifies failed starts, and gives up starts. Used by starts.ts.
import { readdir } from 'node:fs/promises';
import { AppError, messageOf } from '#shared/errors.ts';
import { EngineError, isGpuRefusal } from '../containers/runtime.ts';
import { needText, requirementProblem } from '../devices/cuda-requirement.ts';

/** The image needs a newer GPU driver than this machine has. */
const GPU_DRIVER = 'gpu_driver';

/** Messages of a container's init that cannot find the program that we told it to run. */
export const NO_PYTHON = /exec python3 failed|exec: "python3"|exec \/opt\/longshore\/base\/ld\.so failed/;

/** The party at fault, as a reason and a sentence. Pure. */
export function startFailure(error: unknown): { readonly reason: string; readonly message: string } {
  const message = messageOf(error);
  if (error instanceof AppError && error.code === 'image_error') return { reason: 'image_error', message };
  if (error instanceof AppError && (error.code === 'code_error' || error.code === 'bucket_error'))
    return { reason: 'user_error', message };
  if (error instanceof EngineError && error.failure === 'no_such_image') return { reason: 'image_error', message };
  if (error instanceof AppError && error.code === 'mount_error') return { reason: 'mount_error', message };
  if (error instanceof EngineError && error.failure === 'mount_refused') return { reason: 'mount_error', message };
  if (error instanceof AppError && error.code === GPU_DRIVER) return { reason: GPU_DRIVER, message };
  if (error instanceof EngineError && error.failure === 'gpu_requirement')
    return {
      reason: GPU_DRIVER,
      message: needText(/requirement error: (?:unsatisfied condition: )?([^\n]*)/.exec(message)?.[1] ?? message, ''),
    };
  if (isGpuRefusal(error)) return { reason: 'gpu_fault', message };
  // The image names a user that it does not have.
  if (/unable to find (?:user|group) /.test(message)) return { reason: 'image_error', message };
  if (NO_PYTHON.test(message)) return { reason: 'image_error', message: 'the image has no python3' };
  // These are faults of this machine or of the registry, not of the image: the container may start elsewhere.
  if (error instanceof AppError && ['disk_full', 'registry_busy', 'registry_unreachable'].includes(error.code))
    return { reason: error.code, message };
  return { reason: 'start_failed', message };
}

/**
 * Checks an image's need for a GPU driver, which NVIDIA's hook does by itself and CDI does not.
 * @param env - the image's variables, `NAME=value`
 * @throws AppError `gpu_driver`
 */
export function checkGpuDriver(env: readonly string[], driver: string): void {
  const of = (name: string): string => env.findLast((one) => one.startsWith(`${name}=`))?.slice(name.length + 1) ?? '';
  if (/^(1|true)$/i.test(of('NVIDIA_DISABLE_REQUIRE'))) return;
  const problem = requirementProblem(of('NVIDIA_REQUIRE_CUDA'), driver);
  if (problem !== undefined) throw new AppError('gpu_driver', problem);
}

/** Processors in the words of images. */
const ARCHITECTURES: Readonly<Record<string, string>> = { x64: 'amd64', arm64: 'arm64' };
/** Where Linux lists the interpreters of programs for other processors. */
const INTERPRETERS = '/proc/sys/fs/binfmt_misc';

/** @returns why programs of an image for that architecture do not run here; undefined: they do, or nobody knows */
export async function architectureProblem(image: string, architecture: string): Promise<string | undefined> {
  const own = ARCHITECTURES[process.arch];
  if (own === undefined || architecture === '' || architecture === own) return undefined;
  const interpreters = await readdir(INTERPRETERS).catch(() => []);
  if (interpreters.some((name) => name.startsWith('qemu-'))) return undefined;
  return `image ${image} is for ${architecture}, and this machine has ${own}`;
}

/** The promise's value, or undefined as soon as the signal aborts. */
export async function abortable<T>(work: Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  if (signal.aborted) return undefined;
  let onAbort = (): void => undefined;
  const aborted = new Promise<undefined>((resolve) => {
    onAbort = () => resolve(undefined);
    signal.addEventListener('abort', onAbort, { once: true });
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}
