// Uses of containers made by hand, which end a time after their last one. Operations call `used`, and open streams
// `hold`. Each replica notes them in the row, grouped and every few seconds; the leader stops what was unused too long.
// Invariant: a container is never stopped while a replica that lives holds it. Uses outlive a restart.
import type { ContainerId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Queryable } from '../../stores/store/db.ts';
import { GroupedWrites } from '../../stores/store/grouped-writes.ts';
import type { ContainerUse } from '../../stores/store/queries/containers.ts';
import { expiredContainers, MAX_CONTAINER_BATCH, noteUses } from '../../stores/store/queries/containers.ts';
import type { ContainerActions } from './actions.ts';
import type { ContainerEntryChange, ContainerRegistry } from './container-registry.ts';

export interface ContainerUsesParts {
  readonly db: Queryable;
  readonly containers: Pick<ContainerRegistry, 'get' | 'amend'>;
  readonly actions: Pick<ContainerActions, 'stopFor'>;
  readonly isLeader: () => boolean;
  readonly clock: Pick<Clock, 'monotonicMs'>;
  readonly log: Log;
}

/** Time between notes of a container that is used all the time; a quarter of its time to live where that is shorter. */
const NOTE_EVERY_MS = 5_000;
const NOTE_AT_LEAST_EVERY_MS = 250;
/** Time for which a noted stream counts as open: its replica may be gone. */
const HELD_MS = 3 * NOTE_EVERY_MS;
/** Time that is left to other replicas, which may hold the container, too. */
const OVER_MS = NOTE_EVERY_MS + 1_000;
const SWEEP_EVERY_MS = 1_000;
const MOST_STOPPED_AT_ONCE = 100;

interface Use {
  holds: number;
  usedAtMs: number;
  isNoted: boolean;
  /** Runs until the next note may be written. */
  timer: NodeJS.Timeout | undefined;
}

export class ContainerUses {
  readonly name = 'uses of containers';
  readonly #parts: ContainerUsesParts;
  /** Containers that were used lately, or are held. */
  readonly #uses = new Map<ContainerId, Use>();
  readonly #notes: GroupedWrites<ContainerUse, undefined>;
  #sweep: NodeJS.Timeout | undefined;
  #isSweeping = false;
  /** Nothing is stopped before: replicas note first what was used while the store, or this process, was away. */
  #sweepsFromMs = 0;
  #isStopped = false;

  constructor(parts: ContainerUsesParts) {
    this.#parts = parts;
    this.#notes = new GroupedWrites({
      write: async (uses) => {
        await noteUses(parts.db, lastOfEach(uses));
        return uses.map(() => undefined);
      },
      mostAtOnce: MAX_CONTAINER_BATCH,
      mostWaiting: 20 * MAX_CONTAINER_BATCH,
      what: 'uses of containers',
    });
  }

  start(): void {
    this.#isStopped = false;
    this.#sweepsFromMs = this.#parts.clock.monotonicMs() + HELD_MS;
    this.#sweep = setInterval(() => void this.sweep(), SWEEP_EVERY_MS);
    this.#sweep.unref();
  }

  stop(): void {
    this.#isStopped = true;
    clearInterval(this.#sweep);
    for (const { timer } of this.#uses.values()) clearTimeout(timer);
    this.#uses.clear();
  }

  /** The container was used just now: its time to live begins anew. Does nothing for one without. */
  used(containerId: string): void {
    const id = containerId as ContainerId;
    if (this.#ttlMs(id) === undefined) return;
    const use = this.#of(id);
    use.usedAtMs = this.#parts.clock.monotonicMs();
    use.isNoted = false;
    if (use.timer === undefined) this.#note(id, use);
  }

  /**
   * A stream into the container is open: it counts as used until the returned function is called. Several may be open.
   * @returns ends this one; a second call does nothing
   */
  hold(containerId: string): () => void {
    const id = containerId as ContainerId;
    const use = this.#of(id);
    use.holds += 1;
    this.#note(id, use);
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      use.holds -= 1;
      if (use.holds === 0) this.#note(id, use, true);
    };
  }

  /**
   * Gives the container another time to live, from now on.
   * @param seconds - null: it is not stopped for want of use
   * @returns false: the container has ended, or does not exist
   */
  async setTtl(containerId: string, seconds: number | null): Promise<boolean> {
    return await this.#parts.containers.amend(containerId as ContainerId, { ttlSeconds: seconds });
  }

  /** A new time to live: whoever holds the container has to say so in time. */
  containerChanged({ entry: { row }, before }: ContainerEntryChange): void {
    if (before === null || before.ttlSeconds === row.ttlSeconds) return;
    const use = this.#uses.get(row.id);
    if (use !== undefined && use.holds > 0) this.#note(row.id, use);
  }

  /** Stops what was unused for its time to live, where this replica leads. */
  async sweep(): Promise<void> {
    const { db, actions, isLeader, clock, log } = this.#parts;
    if (this.#isSweeping || !isLeader() || clock.monotonicMs() < this.#sweepsFromMs) return;
    this.#isSweeping = true;
    try {
      for (const containerId of await expiredContainers(db, MOST_STOPPED_AT_ONCE)) {
        if (this.#isInUse(containerId)) continue;
        log.info({ containerId }, 'a container was unused for its time to live');
        await actions.stopFor(containerId, 'ttl');
      }
    } catch (error) {
      this.#sweepsFromMs = clock.monotonicMs() + HELD_MS;
      log.warn({ err: error }, 'unused containers could not be stopped, trying again');
    } finally {
      this.#isSweeping = false;
    }
  }

  /** Whether it is used here, although its row may not say so yet. */
  #isInUse(id: ContainerId): boolean {
    const use = this.#uses.get(id);
    return use !== undefined && (use.holds > 0 || !use.isNoted);
  }

  #of(id: ContainerId): Use {
    const known = this.#uses.get(id);
    if (known !== undefined) return known;
    const use: Use = { holds: 0, usedAtMs: 0, isNoted: true, timer: undefined };
    this.#uses.set(id, use);
    return use;
  }

  #ttlMs(id: ContainerId): number | undefined {
    const seconds = this.#parts.containers.get(id)?.row.ttlSeconds ?? null;
    return seconds === null ? undefined : seconds * 1000;
  }

  /** Writes the use, and waits with the next one. */
  #note(id: ContainerId, use: Use, isOver = false): void {
    clearTimeout(use.timer);
    use.timer = undefined;
    if (this.#isStopped) return;
    const nowMs = this.#parts.clock.monotonicMs();
    if (use.holds > 0 || isOver) use.usedAtMs = nowMs;
    const ttlMs = this.#ttlMs(id);
    use.isNoted = true;
    const everyMs = Math.min(NOTE_EVERY_MS, Math.max(NOTE_AT_LEAST_EVERY_MS, (ttlMs ?? Infinity) / 4));
    use.timer = setTimeout(() => this.#again(id, use), everyMs);
    use.timer.unref();
    if (ttlMs === undefined) return;
    const held = isOver ? { heldMs: OVER_MS, isOver } : use.holds > 0 ? { heldMs: HELD_MS } : {};
    this.#notes.write({ id, agoMs: nowMs - use.usedAtMs, ...held }).catch((error: unknown) => {
      use.isNoted = false;
      this.#parts.log.warn({ err: error, containerId: id }, 'a use was not noted, trying again');
    });
  }

  #again(id: ContainerId, use: Use): void {
    use.timer = undefined;
    if (this.#parts.containers.get(id) === undefined) this.#forget(id, use);
    else if (use.holds > 0 || !use.isNoted) this.#note(id, use);
    else this.#forget(id, use);
  }

  #forget(id: ContainerId, use: Use): void {
    if (this.#uses.get(id) === use && use.holds === 0) this.#uses.delete(id);
  }
}

/** A statement changes a row once: the last note of a container counts, and the last word on its streams. */
function lastOfEach(uses: readonly ContainerUse[]): readonly ContainerUse[] {
  const last = new Map<ContainerId, ContainerUse>();
  for (const use of uses) last.set(use.id, use.heldMs === undefined ? { ...last.get(use.id), ...use } : use);
  return [...last.values()];
}
