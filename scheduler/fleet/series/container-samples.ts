// Samples of containers on their way from agents to the database: kept in memory, and written every few seconds with
// one statement for a thousand. Nothing waits for them.
// Invariant: a sample counts only when its container is on the machine that sent it. Owner and requests come from the
// container's row. Samples above a bound are dropped and counted, and the memory that they take is bounded.
import type { Clock } from '#shared/clock.ts';
import type { ContainerId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { withDeadline } from '#shared/backoff.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerSample__Output, Samples__Output } from '#shared/protocol/generated/messages.ts';
import type { Queryable } from '../../stores/store/db.ts';
import { insertSamples, MAX_SAMPLE_BATCH } from '../../stores/store/queries/metric-samples.ts';
import type { NewSample } from '../../stores/store/queries/metric-samples.ts';
import type { ContainerEntry } from '../containers/container-entry.ts';
import type { ContainerRegistry } from '../containers/container-registry.ts';
import type { SeriesMetrics } from './metrics.ts';

const FLUSH_MS = 10_000;
/** Agents sample every 5 s: one that sends more often is not listened to in between. */
const LEAST_BETWEEN_MS = 2_500;
const MOST_OF_MACHINE = 1_000;
/** Samples of a workspace between two flushes: those of 2 500 containers. */
const MOST_OF_WORKSPACE = 5_000;
const MOST_WAITING = 50_000;
const STOP_MS = 2_000;
/** Longest time that a sample may cover; a machine that slept sends a longer one. */
const LONGEST_MS = 3_600_000;

export interface ContainerSamplesParts {
  readonly db: Queryable;
  readonly containers: Pick<ContainerRegistry, 'get'>;
  readonly clock: Clock;
  readonly metrics: SeriesMetrics;
  readonly log: Log;
  readonly flushMs?: number;
  readonly mostWaiting?: number;
}

export class ContainerSamples {
  readonly name = 'samples of containers';
  readonly #parts: ContainerSamplesParts;
  #waiting: NewSample[] = [];
  /** Number of samples since the last flush, by workspace. */
  readonly #ofWorkspace = new Map<WorkspaceId, number>();
  /** Monotonic time of each container's last sample. */
  readonly #lastMs = new Map<ContainerId, number>();
  #timer: NodeJS.Timeout | undefined;
  #flushing: Promise<void> | undefined;
  #isFailing = false;
  readonly #sampled = new Listeners<[ContainerEntry, NewSample]>();

  constructor(parts: ContainerSamplesParts) {
    this.#parts = parts;
  }

  /** Told each sample that counts. */
  onSampled(listener: (entry: ContainerEntry, sample: NewSample) => void): void {
    this.#sampled.add(listener);
  }

  /** Samples that are not written yet. */
  get waiting(): number {
    return this.#waiting.length;
  }

  start(): void {
    const { flushMs = FLUSH_MS } = this.#parts;
    this.#timer = setInterval(() => void this.flush(), flushMs);
    this.#timer.unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await withDeadline(this.flush(), STOP_MS, () => new Error('samples not written in time')).catch(() => undefined);
  }

  /** Takes in the samples of a machine. An agent that does not send deltas is left out. */
  heard(machineId: MachineId, { containers: sent }: Samples__Output): void {
    const { containers, clock, metrics, mostWaiting = MOST_WAITING } = this.#parts;
    const atMs = clock.nowMs();
    const nowMs = clock.monotonicMs();
    const drop = (result: 'over_bound' | 'unknown', count = 1): void => metrics.samples.inc({ result }, count);
    if (sent.length > MOST_OF_MACHINE) drop('over_bound', sent.length - MOST_OF_MACHINE);
    for (const one of sent.slice(0, MOST_OF_MACHINE)) {
      if (one.since === null || one.since === undefined || one.since.intervalMs === 0) continue;
      const entry = containers.get(one.containerId as ContainerId);
      if (entry === undefined || entry.row.machineId !== machineId) {
        drop('unknown');
        continue;
      }
      const { id, workspaceId } = entry.row;
      if (nowMs - (this.#lastMs.get(id) ?? -Infinity) < LEAST_BETWEEN_MS) {
        drop('unknown');
        continue;
      }
      const before = this.#ofWorkspace.get(workspaceId) ?? 0;
      if (before >= MOST_OF_WORKSPACE || this.#waiting.length >= mostWaiting) {
        drop('over_bound');
        continue;
      }
      this.#ofWorkspace.set(workspaceId, before + 1);
      this.#lastMs.set(id, nowMs);
      const sample = sampleOf(entry, one, atMs);
      this.#waiting.push(sample);
      this.#sampled.tell(entry, sample);
    }
    metrics.waiting.set(this.#waiting.length);
  }

  /** Writes the samples that wait. After a failure they wait for the next flush, as far as the bound allows. */
  flush(): Promise<void> {
    this.#flushing ??= this.#flush().finally(() => (this.#flushing = undefined));
    return this.#flushing;
  }

  async #flush(): Promise<void> {
    const { db, clock, metrics, log } = this.#parts;
    this.#ofWorkspace.clear();
    const sinceMs = clock.monotonicMs() - LONGEST_MS;
    for (const [id, lastMs] of this.#lastMs)
      if (lastMs < sinceMs || this.#parts.containers.get(id) === undefined) this.#lastMs.delete(id);
    try {
      while (this.#waiting.length > 0) {
        const batch = this.#waiting.slice(0, MAX_SAMPLE_BATCH);
        await insertSamples(db, batch);
        this.#waiting.splice(0, batch.length);
        metrics.samples.inc({ result: 'stored' }, batch.length);
      }
      this.#isFailing = false;
    } catch (error) {
      if (!this.#isFailing) log.warn({ err: error }, 'samples of containers were not written, trying again');
      this.#isFailing = true;
    }
    metrics.waiting.set(this.#waiting.length);
  }
}

function sampleOf({ row, spec }: ContainerEntry, sent: ContainerSample__Output, atMs: number): NewSample {
  const { since, gpu } = sent;
  const intervalMs = bounded(since?.intervalMs, LONGEST_MS);
  return {
    atMs,
    workspaceId: row.workspaceId,
    stubId: row.stubId,
    containerId: row.id,
    intervalMs,
    cpuMillicores: spec.cpuMillicores,
    memoryBytes: spec.memoryBytes,
    gpuCount: spec.gpuCount,
    cpuUsed: bounded((since?.cpuMicroseconds ?? 0) / intervalMs, MOST_MILLICORES),
    memoryRss: bounded(sent.memoryRssBytes),
    memoryVms: bounded(sent.memoryVmsBytes),
    memorySwap: bounded(sent.memorySwapBytes),
    gpuMemoryUsed: bounded(gpu?.memoryUsedBytes),
    gpuMemoryTotal: bounded(gpu?.memoryTotalBytes),
    diskRead: bounded(since?.diskReadBytes),
    diskWrite: bounded(since?.diskWriteBytes),
    receivedBytes: bounded(since?.receivedBytes),
    sentBytes: bounded(since?.sentBytes),
    receivedPackets: bounded(since?.receivedPackets),
    sentPackets: bounded(since?.sentPackets),
  };
}

const MOST_MILLICORES = 10_000_000;
/** A sum of an hour's samples stays within 63 bits. */
const MOST_NUMBER = 2 ** 50;

/** A whole number within bounds: an agent may send any. */
const bounded = (value: number | undefined, most = MOST_NUMBER): number =>
  value === undefined || !(value > 0) ? 0 : Math.round(Math.min(value, most));
