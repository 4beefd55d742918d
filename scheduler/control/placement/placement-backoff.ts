// Back-off of containers that came back from a machine: an agent that refuses at once must not be asked
// without end. The machine that sent a container back is avoided for a minute, while another has room.
import type { Clock } from '#shared/clock.ts';
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';

export const BACKOFF = { baseMs: 250, capMs: 30_000 } as const;
/** Milliseconds for which a machine that sent the container back is avoided, while another has room. */
const AVOID_MS = 60_000;

interface Returned {
  readonly times: number;
  /** Monotonic milliseconds before which the container is not placed. */
  readonly notBeforeMs: number;
  readonly from: MachineId | null;
  readonly atMs: number;
}

export class PlacementBackoff {
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  readonly #returned = new Map<ContainerId, Returned>();

  constructor(clock: Pick<Clock, 'monotonicMs'>) {
    this.#clock = clock;
  }

  /** Notes that a machine sent the container back. */
  cameBack(id: ContainerId, from: MachineId | null): void {
    const times = this.times(id) + 1;
    this.#holdBack(id, { times, from }, Math.min(BACKOFF.baseMs * 2 ** Math.min(times - 1, 20), BACKOFF.capMs));
  }

  /** Notes that other containers took every machine that was chosen: the container waits for a moment. */
  hadConflicts(id: ContainerId): void {
    this.#holdBack(id, { times: this.times(id), from: null }, BACKOFF.baseMs);
  }

  /** Leaves the container alone for that long. */
  rest(id: ContainerId, forMs: number): void {
    const from = this.#returned.get(id)?.from ?? null;
    this.#holdBack(id, { times: this.times(id), from }, forMs);
  }

  #holdBack(id: ContainerId, facts: Pick<Returned, 'times' | 'from'>, waitMs: number): void {
    const atMs = this.#clock.monotonicMs();
    this.#returned.set(id, { ...facts, atMs, notBeforeMs: atMs + waitMs * (0.75 + Math.random() / 2) });
  }

  /** Forgets a container that runs or ended. */
  forget(id: ContainerId): void {
    this.#returned.delete(id);
  }

  /** Number of times that machines sent the container back. */
  times(id: ContainerId): number {
    return this.#returned.get(id)?.times ?? 0;
  }

  /** Milliseconds until the container may be placed; zero or less: now. */
  leftMs(id: ContainerId, nowMs: number): number {
    return (this.#returned.get(id)?.notBeforeMs ?? 0) - nowMs;
  }

  /** Machine to avoid, because it sent the container back a moment ago. */
  avoided(id: ContainerId, nowMs: number): MachineId | undefined {
    const returned = this.#returned.get(id);
    if (returned === undefined || returned.from === null || nowMs - returned.atMs > AVOID_MS) return undefined;
    return returned.from;
  }
}
