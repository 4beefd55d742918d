// Metrics of the engines in pods that serve models, read every 2 s by the replica that has the machine's link, while
// calls are open. Applications behind a runner process have no port, and are known by their calls alone.
// Invariant: a figure that was not read again within 5 s no longer counts. Each read ends within 750 ms, and its size
// is bounded, so that no engine costs more than that.
import type { ContainerId, QueueName } from '#shared/domain/ids.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { ReadyContainer, SlotTable } from '../../tasks/dispatch/slots.ts';
import type { ContainerEntry } from '../containers/container-entry.ts';
import type { Inside } from '../inside/inside.ts';
import { bodyOfAnswer, engineMetricsOf } from './metrics-text.ts';
import type { EngineMetrics } from './metrics-text.ts';

export interface EnginesParts {
  readonly slots: Pick<SlotTable, 'all' | 'get'>;
  readonly containers: { get(containerId: ContainerId): Pick<ContainerEntry, 'row' | 'spec'> | undefined };
  readonly inside: Pick<Inside, 'exchange'>;
  readonly log: Log;
}

const ROUND_MS = 2_000;
const STALE_MS = 5_000;
const WITHIN_MS = 750;
const MOST_BYTES = 1024 * 1024;
const MOST_AT_ONCE = 64;

interface Reading extends EngineMetrics {
  readonly atMs: number;
}

export class Engines {
  readonly name = 'engine metrics';
  readonly #parts: EnginesParts;
  readonly #readings = new Map<ContainerId, Reading>();
  readonly #asked = new Set<ContainerId>();
  readonly #stuck = new Listeners<[QueueName]>();
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: EnginesParts) {
    this.#parts = parts;
  }

  /** Told when requests wait inside an engine, at two readings in a row. */
  onStuck(listener: (queue: QueueName) => void): void {
    this.#stuck.add(listener);
  }

  start(): void {
    this.#timer = setInterval(() => this.round(), ROUND_MS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Last reading of a container; undefined: none, or too old. */
  of(containerId: ContainerId): EngineMetrics | undefined {
    const reading = this.#readings.get(containerId);
    return reading !== undefined && performance.now() - reading.atMs <= STALE_MS ? reading : undefined;
  }

  /** Asks every engine here that has calls, and drops figures that are too old. */
  round(): void {
    const { slots, containers } = this.#parts;
    for (const containerId of this.#readings.keys()) {
      if (this.of(containerId) !== undefined && slots.get(containerId) !== undefined) continue;
      this.#readings.delete(containerId);
      const container = slots.get(containerId);
      if (container !== undefined) forget(container);
    }
    for (const container of slots.all()) {
      if (this.#asked.size >= MOST_AT_ONCE) return;
      const { containerId } = container;
      if (container.inFlight === 0 || container.link === undefined || this.#asked.has(containerId)) continue;
      const entry = containers.get(containerId);
      if (entry?.spec.engine === undefined) continue;
      this.#asked.add(containerId);
      void this.#read(container, entry, entry.spec.engine).finally(() => this.#asked.delete(containerId));
    }
  }

  async #read(
    container: ReadyContainer,
    { row }: Pick<ContainerEntry, 'row'>,
    { port, path }: NonNullable<ContainerEntry['spec']['engine']>,
  ): Promise<void> {
    const { inside, log } = this.#parts;
    const { containerId, machineId } = container;
    const request = `GET ${path} HTTP/1.0\r\nHost: 127.0.0.1:${port}\r\nAccept: text/plain\r\nConnection: close\r\n\r\n`;
    try {
      const { workspaceId } = row;
      const running = { containerId, machineId, workspaceId };
      const answer = await inside.exchange(running, port, Buffer.from(request, 'latin1'), MOST_BYTES, {
        withinMs: WITHIN_MS,
      });
      const body = bodyOfAnswer(answer);
      const metrics = body === undefined ? undefined : engineMetricsOf(body);
      if (metrics !== undefined && this.#parts.slots.get(containerId) === container) this.#learn(container, metrics);
    } catch (error) {
      // Many engines have no such page; their calls alone count.
      log.debug({ err: error, containerId }, 'metrics of an engine not read');
    }
  }

  #learn(container: ReadyContainer, metrics: EngineMetrics): void {
    const { containerId, queue } = container;
    // A moment's queue, as at the arrival of several requests, is no reason for another container.
    const waiting = Math.min(this.of(containerId)?.waiting ?? 0, metrics.waiting);
    this.#readings.set(containerId, { ...metrics, atMs: performance.now() });
    container.engineWaiting = metrics.waiting;
    container.engine = { running: metrics.running, waiting };
    if (waiting > 0) this.#stuck.tell(queue);
  }
}

function forget(container: ReadyContainer): void {
  container.engineWaiting = 0;
  container.engine = undefined;
}
