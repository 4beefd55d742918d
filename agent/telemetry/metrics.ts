import { Counter, FAST_BUCKETS, Gauge, Histogram, Registry, SLOW_BUCKETS } from '#shared/metrics.ts';

/** The agent's metrics. Names: docs/metrics.md; labels come from small sets, never ids. */
export class AgentMetrics {
  readonly registry = new Registry();

  readonly buildInfo = this.#gauge('build_info', 'Always 1; labels say what runs here', [
    'version',
    'protocol',
    'docker_version',
    'driver_version',
  ]);
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
  readonly condition = this.#gauge('condition', '1 for each condition that holds', ['condition']);
  readonly containers = this.#gauge('containers', 'Containers of this machine by state', ['state']);
  readonly startDuration = this.#histogram(
    'container_start_duration_seconds',
    'From the acknowledgement: prepare, create, start, ready',
    ['phase', 'cache'],
    SLOW_BUCKETS,
  );
  readonly exits = this.#counter('container_exits_total', 'Containers that ended, by reason', ['reason']);
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
  readonly imagePulls = this.#counter('image_pulls_total', 'Tries to pull an image', ['result']);
  readonly imagePullDuration = this.#histogram('image_pull_duration_seconds', 'Pulls that worked', [], SLOW_BUCKETS);
  readonly logRecords = this.#counter(
    'log_records_total',
    'Log lines of containers: accepted for sending, or dropped above a bound',
    ['result'],
  );
  readonly logBufferBytes = this.#gauge('log_buffer_bytes', 'Log lines that wait to be sent');
  readonly diskFree = this.#gauge('disk_free_bytes', 'Free space, as of the last heartbeat', ['filesystem']);

  /** Sets one gauge series per state, and zero for those that have none. */
  setContainers(counts: ReadonlyMap<string, number>): void {
    this.containers.reset();
    for (const [state, count] of counts) this.containers.set({ state }, count);
  }

  setConditions(conditions: readonly string[]): void {
    this.condition.reset();
    for (const condition of conditions) this.condition.set({ condition }, 1);
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
