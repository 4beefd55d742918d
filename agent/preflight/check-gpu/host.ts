/** The parts of `longshore agent check-gpu` on this host, from the agent's settings. */
import { excludedGpus, imageOf, loadAgentConfig } from '../../config.ts';
import { dockerRuntime } from '../../containers/engine/docker.ts';
import { checkGpus } from './check.ts';
import type { GpuReport } from './report.ts';
import { missingGpus } from '../missing-gpus.ts';
import { checkSettings } from '../service-settings.ts';
import { NvidiaSmi } from '../../devices/nvidia-smi.ts';

/** @throws StartupError when a setting is wrong */
export async function checkGpuHost(
  env: Readonly<Record<string, string | undefined>>,
  {
    image,
    reload,
    signal,
  }: { readonly image: string | undefined; readonly reload: boolean; readonly signal: AbortSignal },
): Promise<GpuReport> {
  const config = loadAgentConfig((await checkSettings(env)).env);
  return checkGpus({
    smi: new NvidiaSmi(config.LONGSHORE_NVIDIA_SMI),
    runtime: dockerRuntime(config.DOCKER_HOST),
    engineAt: config.DOCKER_HOST,
    image: image ?? imageOf(config, '', ''),
    reload,
    signal,
    excluded: excludedGpus(config),
    missing: (listing, pci) => missingGpus(config, listing, pci),
  });
}
