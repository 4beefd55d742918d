// Placement loop of the leader: takes PENDING containers, lets candidates.ts choose, and has placement-writes.ts write
// the choice. A container that needs a place, a machine that changed, or a slow sweep starts a round.
import type { ContainerId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { isBuiltImage } from '#shared/domain/built-images.ts';
import { isTerminalContainer } from '#shared/domain/status.ts';
import type { ContainerEntryChange } from '../../fleet/containers/container-registry.ts';
import type { ContainerEntry } from '../../fleet/containers/container-entry.ts';
import { unwrittenEntry } from '../../fleet/containers/container-entry.ts';
import type { Target } from '../../domain/stub-config.ts';
import { isSchedulable } from '../../fleet/machine.ts';
import type { Machine } from '../../fleet/machine.ts';
import type { FleetMetrics } from '../../fleet/metrics.ts';
import type { LoopMetrics } from '../../cluster/loop-metrics.ts';
import { FailedImages } from './failed-images.ts';
import type { PlacementRequest } from '../plan/filter.ts';
import type { Placement } from '../plan/place.ts';
import { BACKOFF, PlacementBackoff } from './placement-backoff.ts';
import { PlacementWrites, volumesOf } from './placement-writes.ts';
import type { Choice, PlacementWritesParts } from './placement-writes.ts';
import {
  AWAITED_MS,
  commonest,
  GIVE_UP_MS,
  giveUpReason,
  NO_GROWTH,
  placementWait,
  RETURNED_OFTEN,
} from './waiting.ts';
import type { Growth, PlacementWait } from './waiting.ts';
import type { ImagePlaces, Quota } from './snapshot.ts';
import { MachineFacts, PlacementSnapshot } from './snapshot.ts';

export interface PlacementParts extends PlacementWritesParts {
  readonly metrics: FleetMetrics;
  readonly loops: LoopMetrics;
  /** Fencing number of the leader; undefined: this replica does not lead. */
  readonly fence: () => number | undefined;
  /** Whether work without a GPU may go to GPU machines of a pool that has no such setting. */
  readonly cpuWorkAllowed: (poolName: string) => boolean;
  /** Home machines of local volumes, by volume id; a volume without a home is absent. */
  readonly volumeHomes: (volumeIds: readonly string[]) => Promise<ReadonlyMap<string, MachineId>>;
  /** Where each of these built images is; an image that is nowhere is absent. */
  readonly imagePlaces: (images: readonly string[]) => Promise<ReadonlyMap<string, ImagePlaces>>;
  /** Limits on what workspaces may have at once; absent: no bound. */
  readonly quotas: (workspaces: ReadonlySet<WorkspaceId>) => Promise<ReadonlyMap<WorkspaceId, Quota>>;
}

const NOWHERE: ImagePlaces = { machines: new Set(), inRegistry: false };

/** Where the image of a container is; null: it was not built here, and any machine can get it. */
function imagePlacesOf({ spec }: ContainerEntry, places: ReadonlyMap<string, ImagePlaces>): ImagePlaces | null {
  const image = spec.wire.image ?? '';
  return isBuiltImage(image) ? (places.get(image) ?? NOWHERE) : null;
}

const COALESCE_MS = 1;
const SWEEP_MS = 30_000;
/** Containers decided in one go, then written together. */
const BATCH = 256;
/** Candidates that turn out to be taken before the container waits for a moment. */
const MAX_CONFLICTS = 3;
const NOTE_EVERY_MS = 5_000;

export class Placer {
  readonly name = 'placement';
  readonly #parts: PlacementParts;
  readonly #facts: MachineFacts;
  readonly #writes: PlacementWrites;
  readonly #backoff: PlacementBackoff;
  readonly #failedImages = new FailedImages();
  /** Last text written to a row about why its container waits, and when. */
  readonly #noted = new Map<ContainerId, { readonly text: string; readonly atMs: number }>();
  #timer: NodeJS.Timeout | undefined;
  #later: NodeJS.Timeout | undefined;
  #sweep: NodeJS.Timeout | undefined;
  #running = false;
  #again = false;
  #stopped = true;
  #imageAway: (entry: ContainerEntry, volumeHomes: ReadonlySet<MachineId>) => void = () => undefined;
  #growth: (id: ContainerId) => Growth = () => NO_GROWTH;

  constructor(parts: PlacementParts) {
    this.#parts = parts;
    this.#writes = new PlacementWrites(parts);
    this.#backoff = new PlacementBackoff(parts.clock);
    this.#facts = new MachineFacts(parts);
  }

  /** Called when a container found no machine, and a cause is that its image is not on all of them. */
  onImageAway(handler: (entry: ContainerEntry, volumeHomes: ReadonlySet<MachineId>) => void): void {
    this.#imageAway = handler;
  }

  /** Asks what pools with a provider do for a container, before it gives up. */
  growsBy(growth: (id: ContainerId) => Growth): void {
    this.#growth = growth;
  }

  containerChanged({ entry, to, from, machineBefore }: ContainerEntryChange): void {
    const { id, machineId, reason, gpuUuids } = entry.row;
    if (to === 'ASSIGNED') this.#facts.leased(gpuUuids, this.#parts.clock.nowMs());
    for (const touched of [machineId, machineBefore]) if (touched !== null) this.#facts.touch(touched);
    if (to !== 'PENDING') this.#noted.delete(id);
    if (to === 'PENDING' && from !== null) this.#backoff.cameBack(id, machineBefore);
    else if (to === 'RUNNING' || isTerminalContainer(to)) this.#backoff.forget(id);
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
    const entry = this.#parts.containers.get(id);
    if (entry?.row.state !== 'PENDING') return undefined;
    const { clock } = this.#parts;
    const leftMs = this.#backoff.leftMs(id, clock.monotonicMs());
    return placementWait({
      rejections: entry.rejections,
      timesReturned: this.#backoff.times(id),
      notBeforeMs: leftMs <= 0 ? null : clock.nowMs() + leftMs,
      createdAtMs: entry.row.createdAtMs,
      growth: this.#growth(id),
    });
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
  async create(target: Target, count: number): Promise<readonly ContainerEntry[]> {
    const { containers, fence } = this.#parts;
    const [waiting] = containers.pending();
    if (this.#running || this.#stopped || waiting !== undefined || fence() === undefined || count > BATCH)
      return await containers.createMany(target, count);
    this.#running = true;
    try {
      return await this.#createPlaced(target, count);
    } finally {
      this.#running = false;
      if (this.#writes.doubtful.size > 0) this.#wakeIn(BACKOFF.baseMs);
      if (this.#again) void this.#round();
    }
  }

  async #createPlaced(target: Target, count: number): Promise<readonly ContainerEntry[]> {
    const { containers, clock, quotas } = this.#parts;
    const startedAt = clock.monotonicMs();
    const wanted = Array.from({ length: count }, () => unwrittenEntry(target, clock.nowMs()));
    const quota = (await quotas(new Set([target.workspaceId]))).get(target.workspaceId);
    const places = await this.#placesOf(wanted);
    this.#facts.refresh();
    const snapshot = new PlacementSnapshot(containers, this.#facts);
    const choices = wanted.map((entry) => this.#choiceAtOnce(snapshot, entry, quota, imagePlacesOf(entry, places)));
    const entries = await this.#writes.create(target, wanted, choices);
    for (const entry of entries)
      if (entry.row.machineId !== null) this.#tellPlaced(entry, entry.row.machineId, startedAt);
    return entries;
  }

  /** Finds a place for a container that has no row yet. @returns undefined: no machine has room now */
  #choiceAtOnce(
    snapshot: PlacementSnapshot,
    entry: ContainerEntry,
    quota: Quota | undefined,
    image: ImagePlaces | null,
  ): Choice | undefined {
    // Local volumes have a home, or get one with their first container, so such a container is placed by the rounds.
    if (volumesOf(entry).length > 0) return undefined;
    const avoid = this.#writes.doubtful;
    const request = snapshot.request(entry, { avoid, volumeHomes: new Set(), image, quota });
    const placement = this.#choose(request, snapshot, entry);
    if (placement.kind === 'rejected') return undefined;
    snapshot.take(entry, placement.machineId, placement.gpuUuids);
    return placement;
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
      this.#parts.log.warn({ err: error }, 'placement round failed, trying again');
      this.#wakeIn(BACKOFF.baseMs);
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
    const { containers, clock, metrics } = this.#parts;
    await this.#writes.settle();
    const nowMs = clock.monotonicMs();
    let nextMs = Number.POSITIVE_INFINITY;
    const wait = (ms: number): void => void (nextMs = Math.min(nextMs, ms));
    if (this.#writes.doubtful.size > 0) wait(BACKOFF.baseMs);
    const pending = [...containers.pending()]
      .filter((entry) => {
        const leftMs = this.#backoff.leftMs(entry.row.id, nowMs);
        if (leftMs > 0) wait(leftMs);
        return leftMs <= 0;
      })
      .sort((a, b) => a.row.createdAtMs - b.row.createdAtMs);
    if (Number.isFinite(nextMs)) this.#wakeIn(nextMs);
    const waiting = new Map<string, number>();
    metrics.unschedulable.reset();
    if (pending.length === 0) return;
    const snapshot = new PlacementSnapshot(containers, this.#facts);
    for (let index = 0; index < pending.length; index += BATCH) {
      const batch = pending.slice(index, index + BATCH);
      const quotas = await this.#parts.quotas(new Set(batch.map((entry) => entry.row.workspaceId)));
      const homes = await this.#homesOf(batch);
      const places = await this.#placesOf(batch);
      // No placement is under way now, so the written state is all that machines hold.
      this.#facts.refresh();
      const outcomes = await Promise.allSettled(
        batch.map((entry) =>
          this.#placeOne(snapshot, entry, homes, imagePlacesOf(entry, places), quotas.get(entry.row.workspaceId)),
        ),
      );
      for (const outcome of outcomes) {
        if (outcome.status === 'rejected') throw outcome.reason;
        const reason = outcome.value;
        if (reason !== undefined) waiting.set(reason, (waiting.get(reason) ?? 0) + 1);
      }
    }
    for (const [reason, count] of waiting) metrics.unschedulable.set({ reason }, count);
  }

  async #homesOf(batch: readonly ContainerEntry[]): Promise<ReadonlyMap<string, MachineId>> {
    const ids = new Set(batch.flatMap(volumesOf));
    return ids.size === 0 ? new Map() : await this.#parts.volumeHomes([...ids]);
  }

  async #placesOf(batch: readonly ContainerEntry[]): Promise<ReadonlyMap<string, ImagePlaces>> {
    const images = new Set(batch.map(({ spec }) => spec.wire.image ?? '').filter(isBuiltImage));
    return images.size === 0 ? new Map() : await this.#parts.imagePlaces([...images]);
  }

  /** Places one container. @returns why it has no place; undefined: it has one, or needs none any more */
  async #placeOne(
    snapshot: PlacementSnapshot,
    entry: ContainerEntry,
    homes: ReadonlyMap<string, MachineId>,
    image: ImagePlaces | null,
    quota: Quota | undefined,
  ): Promise<string | undefined> {
    const { clock } = this.#parts;
    const { row, spec } = entry;
    const startedAt = clock.monotonicMs();
    const volumeHomes = new Set(volumesOf(entry).flatMap((id) => homes.get(id) ?? []));
    const taken = new Set<MachineId>();
    for (let tries = 0; tries < MAX_CONFLICTS; tries += 1) {
      // No await may come between here and take(): the next container decides with what this one left.
      const placement = this.#choose(
        snapshot.request(entry, { avoid: taken.union(this.#writes.doubtful), volumeHomes, image, quota }),
        snapshot,
        entry,
      );
      if (placement.kind === 'rejected') {
        entry.rejections = placement.rejections;
        if ((placement.rejections.image_unavailable ?? 0) > 0) this.#imageAway(entry, volumeHomes);
        // A machine that another container took a moment ago, or that is in doubt, may be free in the next round.
        if (taken.size > 0 || this.#writes.doubtful.size > 0) break;
        return await this.#stays(entry);
      }
      // Machines that take it and always send it back would keep it for ever.
      if (this.#waitedMs(entry) >= GIVE_UP_MS && this.#backoff.times(row.id) >= RETURNED_OFTEN)
        return await this.#stays(entry);
      const { machineId, gpuUuids } = placement;
      snapshot.take(entry, machineId, gpuUuids);
      const outcome = await this.#writes.commit(entry, placement);
      if (outcome === 'placed') this.#tellPlaced(entry, machineId, startedAt);
      if (outcome !== 'conflict') return undefined;
      taken.add(machineId);
      entry.rejections = { anti_affinity: taken.size };
    }
    this.#parts.metrics.placements.inc({ pool: spec.poolName, gpu_model: gpuModelOf(entry), result: 'conflict' });
    this.#backoff.hadConflicts(row.id);
    this.#wakeIn(BACKOFF.baseMs);
    return 'anti_affinity';
  }

  /**
   * Chooses a machine. Machines that just refused the container,
   * or could not get its image, are taken only when no other can.
   */
  #choose(request: PlacementRequest, snapshot: PlacementSnapshot, entry: ContainerEntry): Placement {
    const nowMs = this.#parts.clock.monotonicMs();
    const shunned = new Set(this.#failedImages.machinesOf(entry, nowMs));
    const avoided = this.#backoff.avoided(entry.row.id, nowMs);
    if (avoided !== undefined) shunned.add(avoided);
    if (shunned.size === 0) return snapshot.place(request);
    const elsewhere = snapshot.place({ ...request, avoid: shunned.union(request.avoid) });
    return elsewhere.kind === 'placed' ? elsewhere : snapshot.place(request);
  }

  #tellPlaced(entry: ContainerEntry, machineId: MachineId, startedAt: number): void {
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
  async #stays(entry: ContainerEntry): Promise<string | undefined> {
    const { containers, metrics, log } = this.#parts;
    const { row, spec } = entry;
    const rejections = entry.rejections ?? {};
    const isRefused = Object.keys(rejections).length > 0;
    const main = isRefused || this.#backoff.times(row.id) === 0 ? commonest(rejections) : 'machine_rejected';
    const waitedMs = this.#waitedMs(entry);
    const growth = waitedMs < GIVE_UP_MS ? NO_GROWTH : this.#growth(row.id);
    if (waitedMs < (growth.isAwaited ? AWAITED_MS : GIVE_UP_MS)) {
      await this.#note(entry);
      return main;
    }
    const reason = giveUpReason(rejections, this.#backoff.times(row.id), growth);
    const message = `no machine took it in ${Math.floor(waitedMs / 60_000)} minutes: ${reason}${main === reason ? '' : ` (${main})`}`;
    log.warn({ containerId: row.id, rejections, reason }, 'container gave up waiting for a place');
    const gpu_model = gpuModelOf(entry);
    metrics.placements.inc({ pool: spec.poolName, gpu_model, result: 'gave_up' });
    metrics.placementWait.observe({ gpu_model, result: 'gave_up' }, waitedMs / 1000);
    await containers.transition(row.id, 'give_up', { change: { reason, message, rejections } });
    return undefined;
  }

  #waitedMs({ row }: ContainerEntry): number {
    return this.#parts.clock.nowMs() - row.createdAtMs;
  }

  async #note(entry: ContainerEntry): Promise<void> {
    const { containers, clock, log } = this.#parts;
    const text = JSON.stringify(entry.rejections);
    const noted = this.#noted.get(entry.row.id);
    const nowMs = clock.monotonicMs();
    if (noted !== undefined && (noted.text === text || nowMs - noted.atMs < NOTE_EVERY_MS)) return;
    this.#noted.set(entry.row.id, { text, atMs: nowMs });
    try {
      await containers.noteRejections(entry);
    } catch (error) {
      log.warn({ err: error, containerId: entry.row.id }, 'why a container waits was not written');
    }
  }
}

const gpuModelOf = (entry: ContainerEntry): string => entry.spec.gpu[0] ?? 'none';
