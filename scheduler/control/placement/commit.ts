// Placement loop of the leader: takes PENDING containers, lets candidates.ts choose, reserves in
// Redis, and writes the choice by compare-and-set. A container that needs a place, a machine that
// changed, or a slow sweep starts a round. Invariants: free amounts never go below zero (reserve.lua
// verifies again). The row is the authority: a reservation that no row names is given back.
import { randomUUID } from 'node:crypto';
import type { Clock } from '#shared/clock.ts';
import type { ContainerId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { isTerminalContainer } from '#shared/domain/status.ts';
import type { Log } from '#shared/log.ts';
import type { Book, BookChange, BookEntry } from '../../fleet/containers/book.ts';
import { unwrittenEntry } from '../../fleet/containers/book.ts';
import type { Target } from '../../domain/stub-config.ts';
import { isSchedulable } from '../../fleet/machine.ts';
import type { Machine } from '../../fleet/machine.ts';
import type { Machines } from '../../fleet/machines.ts';
import type { FleetMetrics } from '../../fleet/metrics.ts';
import type { LoopMetrics } from '../../cluster/loop-metrics.ts';
import type { Accounting } from './accounting.ts';
import { FailedImages } from './failed-images.ts';
import type { PlacementRequest } from './filter.ts';
import type { Placement } from './place.ts';
import type { Reservation, Reservations } from './reservations.ts';
import { commonest, GIVE_UP_MS, giveUpReason, placementWait } from './waiting.ts';
import type { PlacementWait } from './waiting.ts';
import type { Quota } from './world.ts';
import { MachineFacts, PlacementWorld, driverOf } from './world.ts';

export interface PlacementParts {
  readonly book: Book;
  readonly machines: Machines;
  readonly reservations: Reservations;
  readonly accounting: Accounting;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: FleetMetrics;
  readonly loops: LoopMetrics;
  /** Fencing number of the leader; undefined: this replica does not lead. */
  readonly fence: () => number | undefined;
  /** Whether work without a GPU may go to GPU machines of a pool that has no such setting. */
  readonly cpuWorkAllowed: (poolName: string) => boolean;
  /** Home machines of local volumes, by volume id; a volume without a home is absent. */
  readonly volumeHomes: (volumeIds: readonly string[]) => Promise<ReadonlyMap<string, MachineId>>;
  /** Makes the machine the home of those volumes that have none. @returns false: another replica was faster */
  readonly bindVolumes: (volumeIds: readonly string[], machineId: MachineId) => Promise<boolean>;
  /** Limits on what workspaces may have at once; absent: no bound. */
  readonly quotas: (workspaces: ReadonlySet<WorkspaceId>) => Promise<ReadonlyMap<WorkspaceId, Quota>>;
}

const COALESCE_MS = 1;
const SWEEP_MS = 30_000;
/** Containers decided in one go, then reserved and written in parallel. */
const BATCH = 256;
/** Candidates that turn out to be taken before the container waits for a moment. */
const MAX_CONFLICTS = 3;
/**
 * Back-off of a container that came back from a machine: an agent that refuses at once must not be asked without end.
 */
const RETURNED = { baseMs: 250, capMs: 30_000 } as const;
/** Milliseconds for which a machine that sent the container back is avoided, while another has room. */
const AVOID_MS = 60_000;
const NOTE_EVERY_MS = 5_000;

interface Returned {
  readonly times: number;
  /** Monotonic milliseconds before which the container is not placed. */
  readonly notBeforeMs: number;
  readonly from: MachineId | null;
  readonly atMs: number;
}

type Outcome = 'placed' | 'conflict' | 'gone';

export class Placer {
  readonly name = 'placement';
  readonly #parts: PlacementParts;
  readonly #facts: MachineFacts;
  readonly #returned = new Map<ContainerId, Returned>();
  readonly #failedImages = new FailedImages();
  /** Last text written to a row about why its container waits, and when. */
  readonly #noted = new Map<ContainerId, { readonly text: string; readonly atMs: number }>();
  #timer: NodeJS.Timeout | undefined;
  #later: NodeJS.Timeout | undefined;
  #sweep: NodeJS.Timeout | undefined;
  #running = false;
  #again = false;
  #stopped = true;

  constructor(parts: PlacementParts) {
    this.#parts = parts;
    const leasedAtMs = (uuid: string): number => parts.accounting.leasedAtMs(uuid);
    this.#facts = new MachineFacts({ ...parts, leasedAtMs });
  }

  containerChanged({ entry, to, from, machineBefore }: BookChange): void {
    const { id, machineId, reason } = entry.row;
    for (const touched of [machineId, machineBefore]) if (touched !== null) this.#facts.touch(touched);
    if (to !== 'PENDING') this.#noted.delete(id);
    if (to === 'PENDING' && from !== null) this.#cameBack(id, machineBefore);
    else if (to === 'RUNNING' || isTerminalContainer(to)) this.#returned.delete(id);
    if (machineId !== null && to === 'RUNNING') this.#failedImages.worked(entry, machineId);
    if (machineId !== null && from !== null && to === 'FAILED' && reason === 'image_error')
      this.#failedImages.failed(entry, machineId, this.#parts.clock.monotonicMs());
    // A new container needs a place; one that ended freed resources.
    if (to === 'PENDING' || (from !== null && isTerminalContainer(to))) this.wake();
  }

  /** The machine may be ready or uncordoned, a condition cleared, or a device free again. */
  machineChanged(machine: Machine): void {
    this.#facts.touch(machine.row.id);
    if (isSchedulable(machine)) this.wake();
  }

  start(): void {
    this.#stopped = false;
    this.#sweep = setInterval(() => this.#lookAtAll(), SWEEP_MS);
    this.#sweep.unref();
    this.#lookAtAll();
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#later);
    clearInterval(this.#sweep);
  }

  /**
   * Explains what a PENDING container waits for; undefined: it has a place,
   * or is not known. Only the leader places, so only its answer is fresh.
   */
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

  #cameBack(id: ContainerId, from: MachineId | null): void {
    const times = (this.#returned.get(id)?.times ?? 0) + 1;
    this.#holdBack(id, { times, from }, Math.min(RETURNED.baseMs * 2 ** Math.min(times - 1, 20), RETURNED.capMs));
  }

  #holdBack(id: ContainerId, facts: Pick<Returned, 'times' | 'from'>, waitMs: number): void {
    const atMs = this.#parts.clock.monotonicMs();
    this.#returned.set(id, { ...facts, atMs, notBeforeMs: atMs + waitMs * (0.75 + Math.random() / 2) });
  }

  /** Whether the container may be placed now. If not, calls `wait` with the milliseconds left. */
  #mayBePlaced(entry: BookEntry, nowMs: number, wait: (ms: number) => void): boolean {
    const leftMs = (this.#returned.get(entry.row.id)?.notBeforeMs ?? 0) - nowMs;
    if (leftMs > 0) wait(leftMs);
    return leftMs <= 0;
  }

  #lookAtAll(): void {
    this.#facts.touchAll();
    this.wake();
  }

  /**
   * Makes new containers of that target. While nothing else is being placed, their
   * first rows already name their places: the order goes out after one statement and
   * not two. A container without a place at once is PENDING, and the rounds place it.
   */
  async create(target: Target, count: number): Promise<readonly BookEntry[]> {
    const { book, fence } = this.#parts;
    const [waiting] = book.pending();
    if (this.#running || this.#stopped || waiting !== undefined || fence() === undefined || count > BATCH)
      return await book.createMany(target, count);
    this.#running = true;
    try {
      return await this.#createPlaced(target, count);
    } finally {
      this.#running = false;
      if (this.#again) void this.#round();
    }
  }

  async #createPlaced(target: Target, count: number): Promise<readonly BookEntry[]> {
    const { book, clock, quotas } = this.#parts;
    const startedAt = clock.monotonicMs();
    const wanted = Array.from({ length: count }, () => unwrittenEntry(target, clock.nowMs()));
    const quota = (await quotas(new Set([target.workspaceId]))).get(target.workspaceId);
    this.#facts.refresh();
    const world = new PlacementWorld(book, this.#facts);
    const reserved = await Promise.all(wanted.map((entry) => this.#reserveUnwritten(world, entry, quota)));
    const scheduledAtMs = clock.nowMs();
    const entries = await book.createPlaced(
      target,
      wanted.map(({ row: { id } }, index) => {
        const place = reserved[index];
        return place === undefined ? { id } : { id, place: { ...place, scheduledAtMs } };
      }),
    );
    for (const reservation of reserved) {
      if (reservation === undefined) continue;
      const entry = entries.find(({ row }) => row.id === reservation.containerId);
      if (entry === undefined) await this.#parts.reservations.release(reservation);
      else {
        this.#confirm(reservation);
        this.#tellPlaced(entry, reservation.machineId, startedAt);
      }
    }
    return entries;
  }

  /** Reserves a place for a container that has no row yet. @returns undefined: there is no place for it at once */
  async #reserveUnwritten(
    world: PlacementWorld,
    entry: BookEntry,
    quota: Quota | undefined,
  ): Promise<Reservation | undefined> {
    // Local volumes have a home, or get one with their first container, so such a container is placed by the rounds.
    if (volumesOf(entry).length > 0) return undefined;
    const request = world.request(entry, { avoid: new Set(), volumeHomes: new Set(), quota });
    const placement = this.#choose(request, world, entry);
    if (placement.kind === 'rejected') return undefined;
    const { machineId, gpuUuids } = placement;
    world.take(entry, machineId, gpuUuids);
    const reservation = reservationOf(entry, machineId, gpuUuids);
    try {
      return (await this.#reserve(reservation)) ? reservation : undefined;
    } catch (error) {
      this.#parts.log.warn({ err: error, containerId: entry.row.id }, 'not reserved for a new container, trying again');
      return undefined;
    }
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
        if (this.#parts.fence() !== undefined) await this.#parts.loops.round('placement', () => this.#placeAll());
      }
    } catch (error) {
      this.#parts.log.error({ err: error }, 'placement round failed, trying again');
      this.#wakeIn(RETURNED.baseMs);
    } finally {
      this.#running = false;
    }
  }

  #wakeIn(ms: number): void {
    clearTimeout(this.#later);
    this.#later = setTimeout(() => this.wake(), Math.ceil(ms));
    this.#later.unref();
  }

  async #placeAll(): Promise<void> {
    const { book, clock, metrics } = this.#parts;
    const nowMs = clock.monotonicMs();
    let nextMs = Number.POSITIVE_INFINITY;
    const wait = (ms: number): void => void (nextMs = Math.min(nextMs, ms));
    const pending = [...book.pending()]
      .filter((entry) => this.#mayBePlaced(entry, nowMs, wait))
      .sort((a, b) => a.row.createdAtMs - b.row.createdAtMs);
    if (Number.isFinite(nextMs)) this.#wakeIn(nextMs);
    const waiting = new Map<string, number>();
    metrics.unschedulable.reset();
    if (pending.length === 0) return;
    const world = new PlacementWorld(book, this.#facts);
    for (let index = 0; index < pending.length; index += BATCH) {
      const batch = pending.slice(index, index + BATCH);
      const quotas = await this.#parts.quotas(new Set(batch.map((entry) => entry.row.workspaceId)));
      const homes = await this.#homesOf(batch);
      // No reservation is under way now, so the written state is all that machines hold.
      this.#facts.refresh();
      const reasons = await Promise.all(
        batch.map((entry) => this.#placeOne(world, entry, homes, quotas.get(entry.row.workspaceId))),
      );
      for (const reason of reasons) if (reason !== undefined) waiting.set(reason, (waiting.get(reason) ?? 0) + 1);
    }
    for (const [reason, count] of waiting) metrics.unschedulable.set({ reason }, count);
  }

  async #homesOf(batch: readonly BookEntry[]): Promise<ReadonlyMap<string, MachineId>> {
    const ids = new Set(batch.flatMap(volumesOf));
    return ids.size === 0 ? new Map() : await this.#parts.volumeHomes([...ids]);
  }

  /** Places one container. @returns why it has no place; undefined: it has one, or needs none any more */
  async #placeOne(
    world: PlacementWorld,
    entry: BookEntry,
    homes: ReadonlyMap<string, MachineId>,
    quota: Quota | undefined,
  ): Promise<string | undefined> {
    const { clock } = this.#parts;
    const { row, spec } = entry;
    const startedAt = clock.monotonicMs();
    const volumeHomes = new Set(volumesOf(entry).flatMap((id) => homes.get(id) ?? []));
    const taken = new Set<MachineId>();
    for (let tries = 0; tries < MAX_CONFLICTS; tries += 1) {
      // No await may come between here and take(): the next container decides with what this one left.
      const placement = this.#choose(world.request(entry, { avoid: taken, volumeHomes, quota }), world, entry);
      if (placement.kind === 'rejected') {
        entry.rejections = placement.rejections;
        // A machine that another container took a moment ago may be free again, or seen as full, in the next round.
        if (taken.size > 0) break;
        return await this.#stays(entry);
      }
      const { machineId, gpuUuids } = placement;
      world.take(entry, machineId, gpuUuids);
      const outcome = await this.#commit(entry, machineId, gpuUuids);
      if (outcome === 'placed') this.#tellPlaced(entry, machineId, startedAt);
      if (outcome !== 'conflict') return undefined;
      taken.add(machineId);
      entry.rejections = { anti_affinity: taken.size };
    }
    this.#parts.metrics.placements.inc({ pool: spec.poolName, gpu_model: gpuModelOf(entry), result: 'conflict' });
    this.#holdBack(row.id, { times: this.#returned.get(row.id)?.times ?? 0, from: null }, RETURNED.baseMs);
    this.#wakeIn(RETURNED.baseMs);
    return 'anti_affinity';
  }

  /**
   * Chooses a machine. Machines that just refused the container,
   * or could not get its image, are taken only when no other can.
   */
  #choose(request: PlacementRequest, world: PlacementWorld, entry: BookEntry): Placement {
    const nowMs = this.#parts.clock.monotonicMs();
    const shunned = new Set(this.#failedImages.machinesOf(entry, nowMs));
    const returned = this.#returned.get(entry.row.id);
    if (returned !== undefined && returned.from !== null && nowMs - returned.atMs <= AVOID_MS)
      shunned.add(returned.from);
    if (shunned.size === 0) return world.place(request);
    const elsewhere = world.place({ ...request, avoid: shunned.union(request.avoid) });
    return elsewhere.kind === 'placed' ? elsewhere : world.place(request);
  }

  /**
   * Makes the reservation (which expires), writes the row (which decides), then confirms the
   * reservation. After a crash before the row, the next leader, or the sweep within 15 s, gives
   * back what no row names. After a crash before the confirmation, it finds the row and confirms.
   */
  async #commit(entry: BookEntry, machineId: MachineId, gpuUuids: readonly string[]): Promise<Outcome> {
    const { book, reservations, clock, bindVolumes } = this.#parts;
    const { row } = entry;
    const reservation = reservationOf(entry, machineId, gpuUuids);
    if (!(await this.#reserve(reservation))) return 'conflict';
    const volumes = volumesOf(entry);
    if (volumes.length > 0 && !(await bindVolumes(volumes, machineId))) {
      await reservations.release(reservation);
      return 'conflict';
    }
    const moved = await book.transition(row.id, 'assign', {
      epoch: row.epoch,
      change: {
        gpuUuids,
        machineId,
        assignmentId: reservation.assignmentId,
        epoch: reservation.epoch,
        scheduledAtMs: clock.nowMs(),
        rejections: null,
      },
    });
    if (moved !== 'moved') {
      await reservations.release(reservation);
      return 'gone';
    }
    this.#confirm(reservation);
    return 'placed';
  }

  /** Confirms a reservation that the row names now, so that it does not expire. */
  #confirm(reservation: Reservation): void {
    const { reservations, accounting, machines, log } = this.#parts;
    const { machineId, containerId } = reservation;
    void reservations.confirm(reservation).then(
      (held) => {
        const machine = machines.get(machineId);
        if (!held && machine !== undefined) void accounting.recount([machine]);
      },
      (error: unknown) => log.warn({ err: error, containerId }, 'a reservation was not confirmed; the sweep will'),
    );
  }

  /** Reserves, and counts the machine first if Redis has no counts for it, or has those from before it became ready. */
  async #reserve(reservation: Reservation): Promise<boolean> {
    const { reservations, accounting, machines, fence, log } = this.#parts;
    for (let tries = 0; tries < 2; tries += 1) {
      const number = fence();
      if (number === undefined) return false;
      const answer = await reservations.reserve(reservation, number);
      if (answer === 'reserved') return true;
      log.info({ containerId: reservation.containerId, machineId: reservation.machineId, answer }, 'not reserved');
      const machine = machines.get(reservation.machineId);
      const isBehind = answer === 'unknown_machine' || answer === 'not_schedulable' || answer === 'already_assigned';
      if (machine === undefined || !isSchedulable(machine) || !isBehind) return false;
      await accounting.recount([machine]);
    }
    return false;
  }

  #tellPlaced(entry: BookEntry, machineId: MachineId, startedAt: number): void {
    const { metrics, machines, clock, log } = this.#parts;
    const gpu_model = gpuModelOf(entry);
    const pool = machines.get(machineId)?.row.poolName ?? '';
    metrics.placements.inc({ pool, gpu_model, result: 'placed' });
    metrics.placementDuration.observe({ gpu_model }, (clock.monotonicMs() - startedAt) / 1000);
    const waitedMs = clock.nowMs() - entry.row.createdAtMs;
    metrics.placementWait.observe({ gpu_model, result: 'placed' }, waitedMs / 1000);
    log.info({ containerId: entry.row.id, machineId }, 'container placed');
  }

  /**
   * Keeps a container waiting that no machine takes now: its row says why. After 20 minutes it fails with the reason.
   */
  async #stays(entry: BookEntry): Promise<string | undefined> {
    const { book, clock, metrics, log } = this.#parts;
    const { row, spec } = entry;
    const rejections = entry.rejections ?? {};
    const main = commonest(rejections);
    const waitedMs = clock.nowMs() - row.createdAtMs;
    if (waitedMs < GIVE_UP_MS) {
      await this.#note(entry);
      return main;
    }
    const reason = giveUpReason(rejections, this.#returned.get(row.id)?.times ?? 0);
    const message = `no machine took it in ${GIVE_UP_MS / 60_000} minutes: ${reason} (${main})`;
    log.warn({ containerId: row.id, rejections, reason }, 'container gave up waiting for a place');
    const gpu_model = gpuModelOf(entry);
    metrics.placements.inc({ pool: spec.poolName, gpu_model, result: 'gave_up' });
    metrics.placementWait.observe({ gpu_model, result: 'gave_up' }, waitedMs / 1000);
    await book.transition(row.id, 'give_up', { change: { reason, message, rejections } });
    return undefined;
  }

  async #note(entry: BookEntry): Promise<void> {
    const { book, clock, log } = this.#parts;
    const text = JSON.stringify(entry.rejections);
    const noted = this.#noted.get(entry.row.id);
    const nowMs = clock.monotonicMs();
    if (noted !== undefined && (noted.text === text || nowMs - noted.atMs < NOTE_EVERY_MS)) return;
    this.#noted.set(entry.row.id, { text, atMs: nowMs });
    try {
      await book.noteRejections(entry);
    } catch (error) {
      log.warn({ err: error, containerId: entry.row.id }, 'why a container waits was not written');
    }
  }
}

/** Reservation for the container's next assignment. */
const reservationOf = ({ row, spec }: BookEntry, machineId: MachineId, gpuUuids: readonly string[]): Reservation => ({
  machineId,
  containerId: row.id,
  assignmentId: randomUUID(),
  epoch: row.epoch + 1,
  cpuMillicores: spec.cpuMillicores,
  memoryBytes: Math.ceil(spec.memoryBytes),
  gpuUuids,
});

const gpuModelOf = (entry: BookEntry): string => entry.spec.gpu[0] ?? 'none';
/** Local volumes that the container mounts, which have home machines. */
const volumesOf = (entry: BookEntry): readonly string[] =>
  (entry.spec.wire.volumes ?? []).flatMap((volume) => (driverOf(volume) === 'local' ? (volume.volumeId ?? []) : []));
