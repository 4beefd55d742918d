// The machine's GPUs: how they are queried, and the settings by which tests watch them differently from production.
import { excludedGpus } from '../config.ts';
import type { GpuDrivers } from '../containers/cdi.ts';
import { Gpus } from '../devices/gpus.ts';
import type { GpusParts } from '../devices/gpus.ts';
import { KMSG } from '../devices/kernel-log.ts';
import { CdiWatch } from '../devices/cdi-watch.ts';
import { NvidiaSmi, PROBE_DEADLINE_MS } from '../devices/nvidia-smi.ts';
import { resetByUnit } from '../devices/reset-unit.ts';
import { CUDA_PROBE_DEADLINE_MS, probeInContainer } from '../devices/probe-container.ts';
import type { AgentState } from '../reconcile/agent-state.ts';
import type { Host } from './host.ts';

/** Each setting defaults to production's value. */
export interface GpuOptions {
  /** A file that is read like /dev/kmsg. */
  readonly kernelLog?: string;
  readonly probeEveryMs?: number;
  readonly probeDeadlineMs?: number;
  readonly proofMs?: number;
  readonly cudaProbeDeadlineMs?: number;
  readonly pciGpus?: GpusParts['pciGpus'];
}

/** Helpers for probing GPUs. */
export interface GpuHelp {
  readonly drivers: GpuDrivers;
  readonly labels: () => Readonly<Record<string, string>>;
  /** Called when the engine refused one of our containers. */
  readonly onRefused: (error: unknown) => void;
}

/** Exit codes of a shell that cannot find a program, or may not run it. */
const CANNOT_BE_RUN = [126, 127];

export function makeGpus(host: Host, agentState: AgentState, options: GpuOptions | undefined, help: GpuHelp): Gpus {
  const { config, log, stateDir, runtime, metrics, conditions, bootId } = host;
  const cdi = new CdiWatch(help.drivers, conditions);
  const deadlineMs = options?.cudaProbeDeadlineMs ?? CUDA_PROBE_DEADLINE_MS;
  const probing = { runtime, ...help, deadlineMs, log };
  return new Gpus({
    smi: new NvidiaSmi(config.LONGSHORE_NVIDIA_SMI, options?.probeDeadlineMs ?? PROBE_DEADLINE_MS),
    stateDir,
    bootId,
    excluded: excludedGpus(config),
    expected: config.LONGSHORE_EXPECTED_GPUS,
    kernelLog: KMSG,
    ...options,
    metrics,
    log,
    leaseOwners: () => agentState.gpuLeaseOwners(),
    running: () => agentState.runningWithGpu(),
    askInside: async (dockerId) => {
      if ((await runtime.inspect(dockerId))?.hasCdi === true) return { kind: 'never' };
      const { exitCode, output } = await runtime.exec(dockerId, ['nvidia-smi', '-L'], PROBE_DEADLINE_MS);
      return CANNOT_BE_RUN.includes(exitCode) ? { kind: 'cannot' } : { kind: 'said', text: output };
    },
    reset: (device) => resetByUnit(stateDir, device),
    probe: (uuid, signal) => probeInContainer(uuid, probing, signal),
    conditions,
    onLook: (uuids) => cdi.looked(uuids),
  });
}
