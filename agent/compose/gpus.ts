// The machine's GPUs: how they are asked, and how they are watched where tests want it otherwise than in production.
import { excludedGpus } from '../config.ts';
import type { GpusParts } from '../devices/gpus.ts';
import { Gpus } from '../devices/gpus.ts';
import { KMSG } from '../devices/kernel-log.ts';
import { NvidiaSmi, PROBE_DEADLINE_MS } from '../devices/nvidia-smi.ts';
import type { Books } from '../reconcile/books.ts';
import type { Host } from './host.ts';

/** Each as in production by default. */
export interface GpuOptions {
  /** Read as /dev/kmsg is. */
  readonly kernelLog?: string;
  readonly probeEveryMs?: number;
  readonly probeDeadlineMs?: number;
  readonly proofMs?: number;
}

/** What a shell says that finds no such program, or may not run it. */
const CANNOT_BE_RUN = [126, 127];

export function makeGpus(
  host: Host,
  books: Books,
  options: GpuOptions | undefined,
  told: Pick<GpusParts, 'onChange' | 'onFault' | 'onNote'>,
): Gpus {
  const { config, log, stateDir, runtime, metrics, conditions, bootId } = host;
  return new Gpus({
    smi: new NvidiaSmi(config.LONGSHORE_NVIDIA_SMI, options?.probeDeadlineMs ?? PROBE_DEADLINE_MS),
    stateDir,
    bootId,
    excluded: excludedGpus(config),
    kernelLog: KMSG,
    ...options,
    metrics,
    log,
    holders: () => books.gpuHolders(),
    running: () => books.runningWithGpu(),
    askInside: async (dockerId) => {
      const { exitCode, output } = await runtime.exec(dockerId, ['nvidia-smi', '-L'], PROBE_DEADLINE_MS);
      return CANNOT_BE_RUN.includes(exitCode) ? undefined : output;
    },
    conditions,
    ...told,
  });
}
