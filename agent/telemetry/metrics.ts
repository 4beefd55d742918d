import {
  bounded,
  Counter,
  FAST_BUCKETS,
  fromZero,
  Gauge,
  Histogram,
  LabelValues,
  Registry,
  SLOW_BUCKETS,
} from '#shared/metrics.ts';
import type { ConditionName } from '#shared/domain/conditions.ts';
import { CONDITION_NAMES } from '#shared/domain/conditions.ts';
import type { ContainerPhase } from '#shared/domain/status.ts';
import { CONTAINER_PHASES } from '#shared/domain/status.ts';

/** Facts of a GPU on the page. */
export interface GpuFacts {
  readonly uuid: string;
  readonly model: string;
  readonly healthy: boolean;
  /** State of the device, as `longshore machine gpu list` shows it. */
  readonly state: string;
  /** The driver does not have the device any more: only its bad health is shown. */
  readonly missing: boolean;
  readonly leased: boolean;
  /** The deployment of its container; empty: no container, or one without a deployment. */
  readonly deploymentId: string;
  /** UUID of the whole device, also for a slice of it: the name that NVIDIA's exporter uses. */
  readonly wholeUuid: string;
  /** GPU instance of a MIG slice; otherwise empty. */
  readonly instance: string;
  readonly memoryBytes: number;
  /** Memory in use by nobody known; undefined: somebody has the device, or the driver does not tell. */
  readonly memoryUnknownBytes?: number | undefined;
  readonly sample:
    | {
        readonly utilizationRatio: number | undefined;
        readonly memoryUsedBytes: number | undefined;
        readonly temperatureCelsius: number | undefined;
        readonly powerWatts: number | undefined;
        readonly slowed: boolean | undefined;
      }
    | undefined;
}

/** Numbers of whole GPUs. */
export interface GpuCounts {
  readonly present: number;
  readonly expected: number | undefined;
  readonly unlisted: number;
}

/** Bounds, several times what one host can have. */
const MOST_GPUS = 256;
const MOST_XIDS = 100;
const GPU_EFFECTS = ['fatal', 'drain', 'container'];
/** Reasons why the GPU tool gives no information. */
export const PROBE_FAILURES = [
  'timeout',
  'not_found',
  'no_driver',
  'driver_mismatch',
  'off_bus',
  'permission',
  'unparsable',
  'error',
] as const;
export const PROBE_RESULTS = ['passed', 'failed', 'stuck', 'host', 'unable', 'absent'] as const;
/** Bound on names of checks of the host. */
const MOST_CHECKS = 40;
const GPU_LABELS = ['gpu_uuid', 'gpu_model'] as const;

/** The agent's metrics. Names: docs/metrics.md; labels come from small sets, and no label is an id, except a GPU's. */
export class AgentMetrics {
  readonly registry = new Registry();

  readonly buildInfo = this.#gauge('build_info', 'Always 1; labels say what runs here', [
    'version',
    'protocol',
    'docker_version',
    'driver_version',
    'toolkit_version',
  ]);
  readonly hostWarning = bounded(
    this.#gauge('host_warning', '1 while this check of the host warns, else 0; looked at hourly', ['check']),
    { check: new LabelValues(MOST_CHECKS) },
  );
  readonly connected = this.#gauge('connected', '1 while the control stream is welcomed, else 0');
  readonly connectionAttempts = this.#counter(
    'connection_attempts_total',
    'Tries to open the control stream, when each ends in a welcome or not',
    ['result'],
  );
  readonly lastContact = this.#gauge(
    'last_contact_timestamp_seconds',
    'When the scheduler was last heard; stops moving when the link is dead',
  );
  readonly heartbeatRtt = this.#histogram(
    'heartbeat_rtt_seconds',
    "From a heartbeat to the scheduler's answer",
    [],
    FAST_BUCKETS,
  );
  readonly clockSkew = this.#gauge(
    'clock_skew_seconds',
    "By how much this machine's clock is ahead of the scheduler's; negative when behind",
  );
  readonly condition = this.#gauge('condition', '1 while the condition holds, else 0', ['condition']);
  readonly engineTrials = this.#counter(
    'engine_trials_total',
    'Containers of our own image that were started to see whether the engine starts any: ok, failed, unknown (the engine did not answer)',
    ['result'],
  );
  readonly diskLooks = this.#counter(
    'container_disk_looks_total',
    'Times that what a container wrote was counted: ok, or failed',
    ['result'],
  );
  readonly codeCacheBytes = this.#gauge(
    'code_cache_bytes',
    'Unpacked code archives on this machine, those in use included',
  );
  readonly containers = this.#gauge('containers', 'Containers of this machine by state', ['state']);
  readonly startDuration = this.#histogram(
    'container_start_duration_seconds',
    'Steps of starts, told when the container is ready; ready: all of it',
    ['phase', 'cache'],
    SLOW_BUCKETS,
  );
  readonly exits = this.#counter('container_exits_total', 'Containers that ended, by reason', ['reason']);
  readonly protocolViolations = this.#counter(
    'protocol_violations_total',
    'Containers that were ended because of what they sent to the agent, by the rule they broke (second_hello, holding, rare_frames, bad_frames, calls)',
    ['rule'],
  );
  readonly stopDuration = this.#histogram(
    'container_stop_duration_seconds',
    'From the first signal to the exit',
    ['result'],
    SLOW_BUCKETS,
  );
  readonly orphansRemoved = this.#counter(
    'orphans_removed_total',
    'Things of ours without a place in the books that were removed',
    ['kind'],
  );
  readonly reconcileDuration = this.#histogram(
    'reconcile_duration_seconds',
    'One round of reading and deciding',
    [],
    FAST_BUCKETS,
  );
  readonly journalErrors = this.#counter('journal_errors_total', 'Writes of the journal that failed');
  readonly dockerUp = this.#gauge('docker_up', '1 while the container engine answers pings');
  readonly dockerApi = this.#histogram(
    'docker_api_duration_seconds',
    'Calls to the container engine',
    ['operation', 'result'],
    FAST_BUCKETS,
  );
  readonly imagePulls = this.#counter(
    'image_pulls_total',
    'Tries to pull an image: ok, or what each that failed met (not_found, unauthorized, bad_manifest, closed, busy, unreachable, corrupt, disk_full, engine)',
    ['result'],
  );
  readonly imagePullDuration = this.#histogram('image_pull_duration_seconds', 'Pulls that worked', [], SLOW_BUCKETS);
  readonly volumeOperations = this.#counter(
    'volume_operations_total',
    'Volumes mounted, deleted and probed; result down: not tried, because its files did not answer before',
    ['operation', 'result'],
  );
  readonly imagePullBytes = this.#counter('image_pull_bytes_total', 'Layers as they came from registries, compressed');
  readonly imagePushes = this.#counter('image_pushes_total', 'Pushes of images that were built here', ['result']);
  readonly imagePushDuration = this.#histogram('image_push_duration_seconds', 'Pushes that worked', [], SLOW_BUCKETS);
  readonly imagePullsActive = this.#gauge('image_pulls_active', 'Pulls under way, waits between tries included');
  readonly imageCacheBytes = this.#gauge('image_cache_bytes', 'Images that this agent pulled, as of the last look');
  readonly imageGcFreed = this.#counter('image_gc_freed_bytes_total', 'Space that evicted images gave back');
  readonly volumeMounts = this.#gauge(
    'volume_mounts',
    'Mounts of volumes in the containers of this machine, by whether their files answer (active, down)',
    ['state'],
  );
  readonly bucketMounts = this.#gauge(
    'bucket_mounts',
    'Mounts of buckets by the mount helper of this machine, those of s3 volumes included',
  );
  readonly cacheBytes = this.#gauge('cache_bytes', 'Cache volumes of this machine, as of the last look');
  readonly cacheLimitBytes = this.#gauge('cache_limit_bytes', 'Bound on the cache volumes of this machine');
  readonly cacheMounts = this.#counter(
    'cache_mounts_total',
    'Mounts of cache volumes that held something by the last look (filled), and others (empty)',
    ['result'],
  );
  readonly cacheEvictions = this.#counter(
    'cache_evictions_total',
    'Cache volumes that left: for a bound (workspace, machine), for room (disk), because they passed a bound themselves (bound: their containers ended), without content (empty), or with their volume (deleted)',
    ['reason'],
  );
  readonly logRecords = this.#counter(
    'log_records_total',
    'Log lines of containers: accepted for sending, or dropped above a bound',
    ['result'],
  );
  readonly logBufferBytes = this.#gauge('log_buffer_bytes', 'Log lines that wait to be sent');
  readonly diskFree = this.#gauge(
    'disk_free_bytes',
    'Free space where images are (images), of the root and of the state directory, looked at every 10 s',
    ['filesystem'],
  );

  readonly #shownFaults = new Set<string>();
  #collectGpus: () => void = () => undefined;
  #xidsFromZero: readonly number[] = [];
  readonly #gpuHealthy = new Gauge({
    name: 'longshore_agent_gpu_healthy',
    help: '1 while the GPU may be leased, else 0',
    labelNames: GPU_LABELS,
    registers: [this.registry],
    // The registry collects in the order of registration: this first gauge fills all the others.
    collect: () => this.#collectGpus(),
  });
  readonly #gpuState = this.#gauge('gpu_state', '1 for the state that the GPU is in now', [...GPU_LABELS, 'state']);
  readonly #gpusPresent = this.#gauge('gpus_present', 'Whole GPUs that the driver lists');
  readonly #gpusExpected = this.#gauge(
    'gpus_expected',
    'Whole GPUs that the machine should have, by its own setting or that of its pool; absent: nobody says',
  );
  readonly #gpusUnlisted = this.#gauge(
    'gpus_unlisted',
    'GPUs that the host has and that the driver cannot name: broken ones, and functions on PCI without a device',
  );
  readonly #gpuLeased = this.#gauge('gpu_leased', '1 while a container has the GPU', GPU_LABELS);
  readonly #gpuUtilization = this.#gauge('gpu_utilization_ratio', 'As of the last look', GPU_LABELS);
  readonly #gpuMemoryUsed = this.#gauge('gpu_memory_used_bytes', 'As of the last look', GPU_LABELS);
  readonly #gpuMemoryTotal = this.#gauge('gpu_memory_total_bytes', 'As the driver says', GPU_LABELS);
  readonly #gpuMemoryUnknown = this.#gauge(
    'gpu_memory_unknown_bytes',
    'Memory above the idle use of a GPU that nobody has: it is in use by nobody known',
    GPU_LABELS,
  );
  readonly #gpuTemperature = this.#gauge('gpu_temperature_celsius', 'As of the last look', GPU_LABELS);
  readonly #gpuPower = this.#gauge('gpu_power_watts', 'As of the last look', GPU_LABELS);
  readonly #gpuSlowed = this.#gauge(
    'gpu_slowed',
    '1 while heat or the power supply holds the clocks of the GPU down, as of the last look',
    GPU_LABELS,
  );
  readonly gpuXidErrors = bounded(
    this.#counter('gpu_xid_errors_total', 'Errors that the GPU driver wrote to the kernel log, by its number', [
      'gpu_uuid',
      'xid',
    ]),
    { gpu_uuid: new LabelValues(MOST_GPUS), xid: new LabelValues(MOST_XIDS) },
  );
  readonly #gpuLeaseInfo = this.#gauge(
    'gpu_lease_info',
    'Always 1: a container of the deployment has the GPU; gpu_device and gpu_instance name it as the exporter of NVIDIA does',
    ['gpu_uuid', 'gpu_device', 'gpu_instance', 'deployment_id'],
  );
  readonly gpuFaults = bounded(
    this.#counter(
      'gpu_faults_total',
      'Errors of the GPU driver that had an effect here: fatal (the GPU is out, its container failed), drain (it takes no new work), container (its container failed)',
      ['gpu_uuid', 'effect'],
    ),
    { gpu_uuid: new LabelValues(MOST_GPUS) },
  );
  readonly gpuSwitchErrors = this.#counter(
    'gpu_switch_errors_total',
    'Errors that the driver of NVSwitches wrote to the kernel log (SXid): fatal, non_fatal',
    ['severity'],
  );
  readonly kernelLogRead = this.#gauge(
    'kernel_log_read',
    '1 while the kernel log is read, where GPU drivers report errors; else 0, also on a machine without a GPU',
  );
  readonly kernelLogLastLine = this.#gauge(
    'kernel_log_last_line_timestamp_seconds',
    'When the kernel wrote the newest line that was read of its log',
  );
  readonly gpuLeaseRefusals = this.#counter(
    'gpu_lease_refusals_total',
    'Assignments refused because of a GPU that they name',
    ['reason'],
  );
  readonly gpuProbeDuration = this.#histogram(
    'gpu_probe_duration_seconds',
    'One look at all GPUs through nvidia-smi',
    [],
    FAST_BUCKETS,
  );
  readonly gpuCudaProbes = this.#counter(
    'gpu_cuda_probes_total',
    'Probes of GPUs by a CUDA program: passed, failed (the GPU is out), stuck (the probe does not end), host (no program reaches GPUs here), unable (the engine did not run it), absent (this copy has no probe)',
    ['result'],
  );
  readonly gpuCudaProbeDuration = this.#histogram(
    'gpu_cuda_probe_duration_seconds',
    'Probes of GPUs by a CUDA program, with the start of their container',
    [],
    SLOW_BUCKETS,
  );
  readonly gpuProbeFailures = this.#counter(
    'gpu_probe_failures_total',
    'Looks at the GPUs that gave no answer, by why',
    ['reason'],
  );

  readonly gatewayCalls = this.#counter(
    'gateway_calls_total',
    'Calls of containers through their sockets, when they end: answered (whatever the answer was), refused (not on the allow-list), busy (too many under way), away (no scheduler), cut_off (the container hung up), failed',
    ['result'],
  );
  readonly gatewayCallsActive = this.#gauge('gateway_calls_active', 'Calls of containers under way');
  readonly streamsActive = this.#gauge(
    'streams_active',
    'Streamed calls under way: bytes between callers and containers',
  );
  readonly gatewayCallDuration = this.#histogram(
    'gateway_call_duration_seconds',
    'Calls of containers that were carried to the scheduler, synchronous tasks with all their waiting',
    [],
    SLOW_BUCKETS,
  );

  constructor() {
    fromZero(
      this.gpuProbeFailures,
      PROBE_FAILURES.map((reason) => ({ reason })),
    );
    fromZero(
      this.gpuCudaProbes,
      PROBE_RESULTS.map((result) => ({ result })),
    );
    fromZero(this.gpuSwitchErrors, [{ severity: 'fatal' }, { severity: 'non_fatal' }]);
    fromZero(this.logRecords, [{ result: 'accepted' }, { result: 'dropped' }]);
  }

  /** Numbers of the driver's errors that are counted from 0 on for each GPU. */
  set xidsFromZero(xids: readonly number[]) {
    this.#xidsFromZero = xids;
  }

  /** Sets the function that calls `setGpus` at each request of the page. */
  onCollectGpus(collect: () => void): void {
    this.#collectGpus = collect;
  }

  /** Shows how many GPUs there are. The numbers are absent on a machine that never had one and expects none. */
  setGpuCounts({ present, expected, unlisted }: GpuCounts): void {
    for (const gauge of [this.#gpusPresent, this.#gpusExpected, this.#gpusUnlisted]) gauge.remove();
    if (expected !== undefined) this.#gpusExpected.set(expected);
    if (present + unlisted === 0 && expected === undefined) return;
    this.#gpusPresent.set(present);
    this.#gpusUnlisted.set(unlisted);
  }

  /** Replaces the shown GPUs; for a missing one only its state is shown. */
  setGpus(gpus: readonly GpuFacts[]): void {
    const memory = [this.#gpuMemoryUsed, this.#gpuMemoryTotal, this.#gpuMemoryUnknown];
    const shown = [this.#gpuLeased, this.#gpuUtilization, ...memory];
    const all = [
      this.#gpuHealthy,
      this.#gpuState,
      ...shown,
      this.#gpuTemperature,
      this.#gpuPower,
      this.#gpuSlowed,
      this.#gpuLeaseInfo,
    ];
    for (const gauge of all) gauge.reset();
    for (const gpu of gpus) {
      const labels = { gpu_uuid: gpu.uuid, gpu_model: gpu.model };
      this.#gpuHealthy.set(labels, gpu.healthy ? 1 : 0);
      this.#gpuState.set({ ...labels, state: gpu.state }, 1);
      this.#showFaults(gpu.uuid);
      if (gpu.missing) continue;
      const set = (gauge: Gauge, value: number | undefined): void => {
        if (value !== undefined) gauge.set(labels, value);
      };
      set(this.#gpuLeased, gpu.leased ? 1 : 0);
      if (gpu.leased)
        this.#gpuLeaseInfo.set(
          {
            gpu_uuid: gpu.uuid,
            gpu_device: gpu.wholeUuid,
            gpu_instance: gpu.instance,
            deployment_id: gpu.deploymentId,
          },
          1,
        );
      set(this.#gpuMemoryTotal, gpu.memoryBytes > 0 ? gpu.memoryBytes : undefined);
      set(this.#gpuUtilization, gpu.sample?.utilizationRatio);
      set(this.#gpuMemoryUsed, gpu.sample?.memoryUsedBytes);
      set(this.#gpuMemoryUnknown, gpu.leased ? undefined : gpu.memoryUnknownBytes);
      set(this.#gpuTemperature, gpu.sample?.temperatureCelsius);
      set(this.#gpuPower, gpu.sample?.powerWatts);
      set(this.#gpuSlowed, gpu.sample?.slowed === undefined ? undefined : Number(gpu.sample.slowed));
    }
  }

  /** Starts the counters of errors at 0 with the first look at a GPU, so that its first one is an increase. */
  #showFaults(uuid: string): void {
    if (this.#shownFaults.has(uuid) || this.#shownFaults.size >= MOST_GPUS) return;
    this.#shownFaults.add(uuid);
    fromZero(
      this.gpuFaults,
      GPU_EFFECTS.map((effect) => ({ gpu_uuid: uuid, effect })),
    );
    fromZero(
      this.gpuXidErrors,
      this.#xidsFromZero.map((xid) => ({ gpu_uuid: uuid, xid: String(xid) })),
    );
  }

  /** Sets one gauge series per state, and zero for states without containers. */
  setContainers(counts: ReadonlyMap<ContainerPhase, number>): void {
    for (const state of CONTAINER_PHASES)
      if (state !== 'removed') this.containers.set({ state }, counts.get(state) ?? 0);
  }

  /** Metrics of image pulls. */
  readonly images = {
    pullEnded: (result: string, seconds: number): void => {
      this.imagePulls.inc({ result });
      if (result === 'ok') this.imagePullDuration.observe(seconds);
    },
    pushEnded: (result: string, seconds: number): void => {
      this.imagePushes.inc({ result });
      if (result === 'ok') this.imagePushDuration.observe(seconds);
    },
    pullBytes: (bytes: number): void => this.imagePullBytes.inc(bytes),
    pullsActive: (change: 1 | -1): void => this.imagePullsActive.inc(change),
  };

  setConditions(held: readonly ConditionName[]): void {
    for (const condition of CONDITION_NAMES) this.condition.set({ condition }, held.includes(condition) ? 1 : 0);
  }

  #gauge(name: string, help: string, labelNames: readonly string[] = []): Gauge {
    return new Gauge({
      name: `longshore_agent_${name}`,
      help,
      labelNames: [...labelNames],
      registers: [this.registry],
    });
  }

  #counter(name: string, help: string, labelNames: readonly string[] = []): Counter {
    return new Counter({
      name: `longshore_agent_${name}`,
      help,
      labelNames: [...labelNames],
      registers: [this.registry],
    });
  }

  #histogram(name: string, help: string, labelNames: readonly string[], buckets: number[]): Histogram {
    return new Histogram({
      name: `longshore_agent_${name}`,
      help,
      labelNames: [...labelNames],
      buckets,
      registers: [this.registry],
    });
  }
}
