// Placement's loop on the leader: takes the containers that are PENDING, lets place.ts choose, and writes the choice by compare-and-set. Woken by a container that needs a place and by
// a machine that changed; swept slowly. What must stay true: free amounts never go below zero, because decisions are made one after another against the book they are written to.
import { randomUUID } from 'node:crypto';
import type { Clock } from '#shared/clock.ts';
import type { ContainerId } from '#shared/domain/ids.ts';
import { isTerminalContainer } from '#shared/domain/status.ts';
import type { Log } from '#shared/log.ts';
import type { Book, BookEntry } from '../containers/book.ts';
import type { Machines } from '../fleet/machines.ts';
import type { FleetMetrics } from '../fleet/metrics.ts';
import type { LoopMetrics } from '../loop-metrics.ts';
import { placeContainer } from './place.ts';
import type { Rejections } from './place.ts';
import { commonest, GIVE_UP_MS, giveUpReason, placementWait } from './waiting.ts';
import type { PlacementWait } from './waiting.ts';
import { PlacementWorld } from './world.ts';

export interface PlacementParts {
  readonly book: Book;
  readonly machines: Machines;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: FleetMetrics;
  readonly loops: LoopMetrics;
  readonly isLeader: () => boolean;
}

const COALESCE_MS = 1;
const SWEEP_MS = 30_000;
/** A container that came back from a machine waits for its next place, longer each time: an agent that refuses at once must not be asked without end. */
const RETURNED = { baseMs: 250, capMs: 30_000 } as const;

interface Returned {
  readonly times: number;
  /** Monotonic. */
  readonly notBeforeMs: number;
}

export class Placer {
  readonly #parts: PlacementParts;
  readonly #returned = new Map<ContainerId, Returned>();
  #timer: NodeJS.Timeout | undefined;
  #later: NodeJS.Timeout | undefined;
  #sweep: NodeJS.Timeout | undefined;
  #running = false;
  #again = false;
  #stopped = true;

  constructor(parts: PlacementParts) {
    this.#parts = parts;
    parts.book.onChange(({ entry, to, from }) => {
      if (to === 'PENDING' && from !== null) this.#cameBack(entry.row.id);
      else if (to === 'RUNNING' || isTerminalContainer(to)) this.#returned.delete(entry.row.id);
      // A new one needs a place; one that went freed some.
      if (to === 'PENDING' || (from !== null && (to === 'STOPPED' || to === 'FAILED' || to === 'LOST'))) this.wake();
    });
    parts.machines.onChange((machine) => {
      if (machine.health === 'READY') this.wake();
    });
  }

  start(): void {
    this.#stopped = false;
    this.#sweep = setInterval(() => this.wake(), SWEEP_MS);
    this.#sweep.unref();
    this.wake();
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#later);
    clearInterval(this.#sweep);
  }

  /** What a PENDING container waits for; undefined: it has a place, or is not known. Only the leader places, so only its answer is fresh. */
  waitOf(id: ContainerId): PlacementWait | undefined {
    const entry = this.#parts.book.get(id);
    if (entry?.row.state !== 'PENDING') return undefined;
    const { clock } = this.#parts;
    const returned = this.#returned.get(id);
    const leftMs = (returned?.notBeforeMs ?? 0) - clock.monotonicMs();
    return placementWait({
      rejections: entry.rejections,
      timesReturned: returned?.times ?? 0,
      notBeforeMs: returned === undefined || leftMs <= 0 ? null : clock.nowMs() + leftMs,
      createdAtMs: entry.row.createdAtMs,
    });
  }

  #cameBack(id: ContainerId): void {
    const times = (this.#returned.get(id)?.times ?? 0) + 1;
    const waitMs =
      Math.min(RETURNED.baseMs * 2 ** Math.min(times - 1, 20), RETURNED.capMs) * (0.75 + Math.random() / 2);
    this.#returned.set(id, { times, notBeforeMs: this.#parts.clock.monotonicMs() + waitMs });
  }

  /** May it be placed now? If not, a round comes when the first of those that wait may. */
  #mayBePlaced(entry: BookEntry, nowMs: number, wait: (ms: number) => void): boolean {
    const leftMs = (this.#returned.get(entry.row.id)?.notBeforeMs ?? 0) - nowMs;
    if (leftMs > 0) wait(leftMs);
    return leftMs <= 0;
  }

  wake(): void {
    if (this.#stopped) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.#round();
    }, COALESCE_MS);
  }

  async #round(): Promise<void> {
    this.#again = true;
    if (this.#running) return;
    this.#running = true;
    try {
      while (this.#again && !this.#stopped) {
        this.#again = false;
        if (this.#parts.isLeader()) await this.#parts.loops.round('placement', () => this.#placeAll());
      }
    } catch (error) {
      this.#parts.log.error({ err: error }, 'placement round failed');
    } finally {
      this.#running = false;
    }
  }

  async #placeAll(): Promise<void> {
    const nowMs = this.#parts.clock.monotonicMs();
    let nextMs = Number.POSITIVE_INFINITY;
    const wait = (ms: number): void => void (nextMs = Math.min(nextMs, ms));
    const pending = [...this.#parts.book.all()]
      .filter((entry) => entry.row.state === 'PENDING' && this.#mayBePlaced(entry, nowMs, wait))
      .sort((a, b) => a.row.createdAtMs - b.row.createdAtMs);
    if (Number.isFinite(nextMs)) {
      clearTimeout(this.#later);
      this.#later = setTimeout(() => this.wake(), Math.ceil(nextMs));
      this.#later.unref();
    }
    const waiting = new Map<string, number>();
    for (const entry of pending) {
      const rejections = await this.#placeOne(entry);
      if (rejections === undefined) continue;
      const reason = commonest(rejections);
      waiting.set(reason, (waiting.get(reason) ?? 0) + 1);
    }
    const { unschedulable } = this.#parts.metrics;
    unschedulable.reset();
    for (const [reason, count] of waiting) unschedulable.set({ reason }, count);
  }

  /** @returns why it has no place; undefined: it has one, or gave up */
  async #placeOne(entry: BookEntry): Promise<Rejections | undefined> {
    const { book, clock, machines, metrics, log } = this.#parts;
    const { row, spec } = entry;
    const startedAt = clock.monotonicMs();
    const world = new PlacementWorld({ book, machines, leasedAtMs: () => 0, cpuWorkAllowed: () => true });
    const request = world.request(entry, { avoid: new Set(), volumeHomes: new Set(), overQuota: false });
    const placement = placeContainer(request, world.machines());
    entry.rejections = placement.rejections;
    const gpuModel = spec.gpu[0] ?? 'none';
    if (placement.kind === 'rejected') {
      if (clock.nowMs() - row.createdAtMs < GIVE_UP_MS) return placement.rejections;
      const reason = commonest(placement.rejections);
      log.warn({ containerId: row.id, rejections: placement.rejections }, 'container gave up waiting for a place');
      metrics.placements.inc({ pool: spec.poolName, gpu_model: gpuModel, result: 'gave_up' });
      await book.transition(row.id, 'give_up', {
        change: {
          reason: giveUpReason(placement.rejections, this.#returned.get(row.id)?.times ?? 0),
          message: `no machine took it: ${reason}`,
          rejections: placement.rejections,
        },
      });
      return undefined;
    }
    const nowMs = clock.nowMs();
    const moved = await book.transition(row.id, 'assign', {
      epoch: row.epoch,
      change: {
        gpuUuids: placement.gpuUuids,
        machineId: placement.machineId,
        assignmentId: randomUUID(),
        epoch: row.epoch + 1,
        scheduledAtMs: nowMs,
        rejections: null,
      },
    });
    if (moved !== 'moved') return undefined;
    const pool = machines.get(placement.machineId)?.row.poolName ?? '';
    metrics.placements.inc({ pool, gpu_model: gpuModel, result: 'placed' });
    metrics.placementDuration.observe({ gpu_model: gpuModel }, (clock.monotonicMs() - startedAt) / 1000);
    metrics.placementWait.observe({ gpu_model: gpuModel, result: 'placed' }, (nowMs - row.createdAtMs) / 1000);
    log.info({ containerId: row.id, machineId: placement.machineId }, 'container placed');
    return undefined;
  }
}
