import { repeat } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { ControlFromAgent } from '#shared/protocol/generated/messages.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import type { Archives } from '../code/archives.ts';
import type { Gpus } from '../devices/gpus.ts';
import type { AgentState } from '../reconcile/agent-state.ts';
import type { Volumes } from '../volumes/volumes.ts';
import type { ContainerDisks } from '../telemetry/container-disks.ts';
import type { DiskWatch } from '../telemetry/disk-watch.ts';
import { HostUse } from '../telemetry/host-use.ts';
import type { AgentMetrics } from '../telemetry/metrics.ts';
import { Sampler } from '../telemetry/samples.ts';

const SAMPLE_MS = 5_000;

export interface SamplingParts {
  readonly runtime: Pick<ContainerRuntime, 'pidOf'>;
  readonly agentState: Pick<AgentState, 'running' | 'volumesMounted'>;
  readonly gpus: Pick<Gpus, 'useOf' | 'newSamples'>;
  readonly volumes: Pick<Volumes, 'down'>;
  readonly containerDisks: Pick<ContainerDisks, 'usedBy' | 'limitBytes'>;
  readonly archives: Pick<Archives, 'bytes'>;
  readonly disks: Pick<DiskWatch, 'reading'>;
  readonly metrics: Pick<AgentMetrics, 'volumeMounts' | 'codeCacheBytes'>;
  readonly send: (message: ControlFromAgent) => void;
  readonly log: Log;
}

/**
 * Every five seconds, reports the resource use of the containers and of the machine to the scheduler, and the number of
 * mounted volumes to the metrics page. GPU numbers are those of the last look (every 30 s), and each GPU's own are sent
 * once after it: no sample calls the driver's tool.
 * @returns a function that stops it
 */
export function startSampling(parts: SamplingParts): () => Promise<void> {
  const { agentState, gpus, containerDisks, archives, metrics, log } = parts;
  const abort = new AbortController();
  const sampler = new Sampler(parts.runtime, log);
  const hostUse = new HostUse();
  const round = async (): Promise<void> => {
    countMounts(parts);
    metrics.codeCacheBytes.set(archives.bytes);
    const running = agentState.running();
    const gpusOf = new Map(running.map(({ containerId, gpuUuids }) => [containerId, gpuUuids]));
    const sampled = await sampler.round(running);
    const containers = sampled.map((one) => ({
      ...one,
      gpu: gpus.useOf(gpusOf.get(one.containerId ?? '') ?? []) ?? null,
      diskBytes: containerDisks.usedBy(one.containerId ?? ''),
      diskLimitBytes: containerDisks.limitBytes,
    }));
    const machine = hostUse.sample(parts.disks.reading);
    const devices = gpus.newSamples();
    if (containers.length > 0 || machine !== null || devices.length > 0)
      parts.send({ samples: { sampledAtMs: Date.now(), containers, machine, devices } });
  };
  const running = repeat(SAMPLE_MS, abort.signal, round, (error) => log.warn({ err: error }, 'containers not sampled'));
  return async () => {
    abort.abort();
    await running;
    sampler.close();
  };
}

function countMounts({ agentState, volumes, metrics }: SamplingParts): void {
  const down = new Set(volumes.down);
  const counts = { active: 0, down: 0 };
  for (const { driver } of agentState.volumesMounted()) counts[down.has(driver || 'local') ? 'down' : 'active'] += 1;
  for (const [state, count] of Object.entries(counts)) metrics.volumeMounts.set({ state }, count);
}
