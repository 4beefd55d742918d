// The engine's failures, translated into the port's: status numbers of the engine are known in this folder alone.
import { messageOf } from '#shared/errors.ts';
import { EngineError } from '../runtime.ts';

export function statusOf(error: unknown): number | undefined {
  return error instanceof Error && 'statusCode' in error && typeof error.statusCode === 'number'
    ? error.statusCode
    : undefined;
}

/** The engine's message, without the client's frame around it. */
export const wordsOf = (error: unknown): string =>
  messageOf(error)
    .replace(/^\(HTTP code \d+\) [^-]*- /, '')
    .trim();

/** Messages of a refused GPU: from NVIDIA's hook, its CDI hooks, the engine, and a runtime that lacks a driver file. */
const GPU_REFUSED: readonly RegExp[] = [
  /nvidia-container-cli|nvidia-container-runtime|libnvidia-container|nvidia-cdi-hook|nvidia-ctk/,
  /CDI device injection failed|unresolvable CDI devices/,
  // A specification of an older driver names files that an upgrade removed. Sources of volumes lie elsewhere.
  /(?:error mounting|mount request: open) "?\/(?:usr|lib|lib64|run|var\/run|dev)\/[^"\s]*(?:nvidia|libcuda|libnv)/,
];

export function translate(error: unknown, what: string): EngineError {
  if (error instanceof EngineError) return error;
  const status = statusOf(error);
  const text = wordsOf(error);
  const message = `${what}: ${text}`;
  if (status === 409) return new EngineError('conflict', message, { cause: error });
  if (status === 404 && /network \S+ not found/i.test(text))
    return new EngineError('no_such_network', message, { cause: error });
  if (status === 404 && /no such image/i.test(text)) return new EngineError('no_such_image', message, { cause: error });
  if (/failed to mount local volume|error while mounting volume/.test(text))
    return new EngineError('mount_refused', message, { cause: error });
  if (/could not select device driver/.test(text)) return new EngineError('no_gpu_support', message, { cause: error });
  // NVIDIA's hook compares the image with the driver: no fault of this machine.
  if (/requirement error: /.test(text)) return new EngineError('gpu_requirement', message, { cause: error });
  if (GPU_REFUSED.some((words) => words.test(text))) return new EngineError('gpu_refused', message, { cause: error });
  if (status === undefined) return new EngineError('unavailable', message, { cause: error });
  return new EngineError('refused', message, { cause: error });
}
