// The machine's GPUs: how they are asked, and how they are watched where tests want it otherwise than in production.
import { excludedGpus } from '../config.ts';
import type { GpuDrivers } from '../containers/cdi.ts';
import type { GpusParts } from '../devices/gpus.ts';
import { Gpus } from '../devices/gpus.ts';
import { KMSG } from '../devices/kernel-log.ts';
import { CdiWatch } from '../devices/cdi-watch.ts';
import { NvidiaSmi, PROBE_DEADLINE_MS } from '../devices/nvidia-smi.ts';
import { CUDA_PROBE_DEADLINE_MS, probeInContainer } from '../devices/probe-container.ts';
import type { Books } from '../reconcile/books.ts';
import type { Host } from './host.ts';

/** Each as in production by default. */
export interface GpuOptions {
  /** Read as /dev/kmsg is. */
  readonly kernelLog?: string;
  readonly probeEveryMs?: number;
  readonly probeDeadlineMs?: number;
  readonly proofMs?: number;
  readonly cudaProbeDeadlineMs?: number;
}

/** Who else is asked about GPUs. */
export interface GpuHelp {
  readonly drivers: GpuDrivers;
  readonly labels: () => Readonly<Record<string, string>>;
  /** The engine refused a container of ours. */
  readonly onRefused: (error: unknown) => void;
}

/** What a shell says that finds no such program, or may not run it. */
const CANNOT_BE_RUN = [126, 127];

export function makeGpus(
  host: Host,
  books: Books,
  options: GpuOptions | undefined,
  help: GpuHelp,
  told: Pick<GpusParts, 'onChange' | 'onFault' | 'onNote'>,
): Gpus {
  const { config, log, stateDir, runtime, metrics, conditions, bootId } = host;
  const cdi = new CdiWatch(help.drivers, conditions);
  const deadlineMs = options?.cudaProbeDeadlineMs ?? CUDA_PROBE_DEADLINE_MS;
  const probing = { runtime, ...help, deadlineMs, log };
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
      if ((await runtime.inspect(dockerId))?.hasCdi === true) return { kind: 'never' };
      const { exitCode, output } = await runtime.exec(dockerId, ['nvidia-smi', '-L'], PROBE_DEADLINE_MS);
      return CANNOT_BE_RUN.includes(exitCode) ? { kind: 'cannot' } : { kind: 'said', text: output };
    },
    probe: (uuid, signal) => probeInContainer(uuid, probing, signal),
    conditions,
    onLook: (uuids) => cdi.looked(uuids),
    ...told,
  });
}
