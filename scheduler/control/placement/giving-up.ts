// Containers that have waited too long fail, unless a machine is on its way for them. All that wait are looked at when
// the first of them may have waited long enough, and now and then.
import type { Clock } from '#shared/clock.ts';
import type { ContainerId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerEntry } from '../../fleet/containers/container-entry.ts';
import type { ContainerControl } from '../../fleet/containers/container-registry.ts';
import type { FleetMetrics } from '../../fleet/metrics.ts';
import type { Planner } from '../plan/planner.ts';
import type { PlacementBackoff } from './placement-backoff.ts';
import { gpuModelOf } from './snapshot.ts';
import { AWAITED_MS, commonest, GIVE_UP_MS, giveUpReason, RETURNED_OFTEN } from './waiting.ts';
import type { Growth } from './waiting.ts';

/** Least time between two looks at all that wait. */
const EVERY_MS = 1000;
/** Most time between two looks. A container that came back is old, and an awaited machine gives more time. */
const LOOK_MS = 30_000;
/** Most containers that give up together. */
const AT_ONCE = 256;

export interface GivingUpParts {
  readonly containers: Pick<ContainerControl, 'pending' | 'transition'>;
  readonly metrics: Pick<FleetMetrics, 'placements' | 'placementWait'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly planner: Pick<Planner, 'get' | 'reservations'>;
  readonly backoff: PlacementBackoff;
}

/** Facts about pools with a provider. A look at all pools is worth it only before a container gives up. */
export type GrowthFacts = { readonly [Fact in keyof Growth]: (id: ContainerId) => boolean };

export class GivingUp {
  readonly #parts: GivingUpParts;
  #nextAtMs = 0;
  growth: GrowthFacts = { isAwaited: () => false, isLimited: () => false };

  constructor(parts: GivingUpParts) {
    this.#parts = parts;
  }

  /** Looks with the next round, because some container may give up. */
  soon(): void {
    this.#nextAtMs = 0;
  }

  /**
   * Fails containers that have waited too long.
   * @returns milliseconds until the next one may have; undefined: nothing was looked at
   */
  async look(): Promise<number | undefined> {
    const { clock, containers } = this.#parts;
    if (clock.monotonicMs() < this.#nextAtMs) return undefined;
    let nextMs = LOOK_MS;
    const late: ContainerEntry[] = [];
    for (const entry of containers.pending()) {
      const leftMs = GIVE_UP_MS - this.waitedMs(entry);
      if (leftMs <= 0) late.push(entry);
      else nextMs = Math.min(nextMs, leftMs);
    }
    nextMs = Math.max(nextMs, EVERY_MS);
    this.#nextAtMs = clock.monotonicMs() + nextMs;
    const given = late.toSorted((a, b) => a.row.createdAtMs - b.row.createdAtMs).filter((one) => this.#mayGiveUp(one));
    for (let at = 0; at < given.length; at += AT_ONCE)
      await Promise.all(given.slice(at, at + AT_ONCE).map((entry) => this.#giveUp(entry)));
    return nextMs;
  }

  #mayGiveUp(entry: ContainerEntry): boolean {
    const { planner } = this.#parts;
    const { id } = entry.row;
    const item = planner.get(id);
    // A container that rests is in no class.
    if (item === undefined ? this.#parts.backoff.times(id) < RETURNED_OFTEN : !item.fitClass.wasRefused) return false;
    return this.waitedMs(entry) >= (this.#isMachineAwaited(id) ? AWAITED_MS : GIVE_UP_MS);
  }

  async #giveUp(entry: ContainerEntry): Promise<void> {
    const { containers, metrics, log, backoff } = this.#parts;
    const { row, spec } = entry;
    const rejections = entry.refusal?.count() ?? {};
    const times = backoff.times(row.id);
    const main = Object.keys(rejections).length > 0 || times === 0 ? commonest(rejections) : 'machine_rejected';
    const waitedMs = this.waitedMs(entry);
    const reason = giveUpReason(rejections, times, this.growthOf(row.id));
    const message = `no machine took it in ${Math.floor(waitedMs / 60_000)} minutes: ${reason}${main === reason ? '' : ` (${main})`}`;
    log.warn({ containerId: row.id, rejections, reason }, 'container gave up waiting for a place');
    const gpu_model = gpuModelOf(spec);
    metrics.placements.inc({ pool: spec.poolName, gpu_model, result: 'gave_up' });
    metrics.placementWait.observe({ gpu_model, result: 'gave_up' }, waitedMs / 1000);
    await containers.transition(row.id, 'give_up', { change: { reason, message, rejections } });
  }

  /** Whether a machine comes for a container: of a pool that grows, or one that is kept for it. */
  #isMachineAwaited(id: ContainerId): boolean {
    return this.#parts.planner.reservations.of(id) !== undefined || this.growth.isAwaited(id);
  }

  growthOf(id: ContainerId): Growth {
    const isAwaited = this.#isMachineAwaited(id);
    return { isAwaited, isLimited: !isAwaited && this.growth.isLimited(id) };
  }

  waitedMs({ row }: Pick<ContainerEntry, 'row'>): number {
    return this.#parts.clock.nowMs() - row.createdAtMs;
  }
}
