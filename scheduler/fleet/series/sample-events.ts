// Samples of containers as events `container.metrics`, for live streams that ask for them. Source: REST §9.2.
import type { StubId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { NewSample } from '../../stores/store/queries/metric-samples.ts';
import type { PassingEvents } from '../../workspaces/events/passing.ts';
import type { EventGiven } from '../../workspaces/events/writer.ts';
import type { ContainerEntry } from '../containers/container-entry.ts';

type Stub = { readonly appId: string; readonly type: string };

export class SampleEvents {
  readonly #passing: Pick<PassingEvents, 'wants' | 'tell'>;
  readonly #stubOf: (id: StubId) => Promise<Stub | undefined>;
  readonly #log: Log;

  /** @param stubOf - from memory, nearly always */
  constructor(
    passing: Pick<PassingEvents, 'wants' | 'tell'>,
    stubOf: (id: StubId) => Promise<Stub | undefined>,
    log: Log,
  ) {
    this.#passing = passing;
    this.#stubOf = stubOf;
    this.#log = log;
  }

  sampled({ row }: Pick<ContainerEntry, 'row'>, sample: NewSample): void {
    if (!this.#passing.wants(row.workspaceId, 'container.metrics')) return;
    this.#stubOf(row.stubId).then(
      (stub) => this.#passing.tell(metricsEvent(row, sample, stub)),
      (error: unknown) => this.#log.info({ err: error, containerId: row.id }, 'a sample is not told to live streams'),
    );
  }
}

/** @internal exported for its test */
export function metricsEvent(row: ContainerEntry['row'], sample: NewSample, stub: Stub | undefined): EventGiven {
  const { atMs, cpuUsed, cpuMillicores: cpuTotal } = sample;
  const machineId = row.machineId ?? '';
  return {
    workspaceId: row.workspaceId,
    type: 'container.metrics',
    atMs,
    stubId: row.stubId,
    containerId: row.id,
    ...(stub === undefined ? {} : { appId: stub.appId as EventGiven['appId'], stubType: stub.type }),
    ...(row.deploymentId === null ? {} : { deploymentId: row.deploymentId }),
    ...(row.machineId === null ? {} : { machineId: row.machineId }),
    data: {
      container_id: row.id,
      stub_id: row.stubId,
      deployment_id: row.deploymentId ?? '',
      workspace_id: row.workspaceId,
      worker_id: machineId,
      machine_id: machineId,
      metrics: {
        sample_interval_ms: sample.intervalMs,
        cpu_used: cpuUsed,
        cpu_total: cpuTotal,
        cpu_pct: cpuTotal > 0 ? (100 * cpuUsed) / cpuTotal : 0,
        memory_rss_bytes: sample.memoryRss,
        memory_vms_bytes: sample.memoryVms,
        memory_swap_bytes: sample.memorySwap,
        memory_total_bytes: sample.memoryBytes,
        gpu_count: sample.gpuCount,
        gpu_memory_used_bytes: sample.gpuMemoryUsed,
        gpu_memory_total_bytes: sample.gpuMemoryTotal,
        disk_read_bytes: sample.diskRead,
        disk_write_bytes: sample.diskWrite,
        network_recv_bytes: sample.receivedBytes,
        network_sent_bytes: sample.sentBytes,
        network_recv_packets: sample.receivedPackets,
        network_sent_packets: sample.sentPackets,
      },
    },
  };
}
