// Placement loop of the leader: the planner chooses machines for PENDING containers, and placement-writes.ts writes the
// choices. A container that needs a place, a machine that changed, or a slow sweep starts a round. The planner hears
// of each change when it happens, and a round takes its choices one by one until it has no more.
import { setImmediate as turnOfLoop } from 'node:timers/promises';
import type { ContainerId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { isTerminalContainer } from '#shared/domain/status.ts';
import type { ContainerEntryChange } from '../../fleet/containers/container-registry.ts';
import type { ContainerEntry } from '../../fleet/containers/container-entry.ts';
import { rejectionsOf, unwrittenEntry } from '../../fleet/containers/container-entry.ts';
import { DEFAULT_SHARE } from '../../domain/shares.ts';
import type { Sharing } from '../../domain/shares.ts';
import type { Target } from '../../domain/stub-config.ts';
import { isSchedulable } from '../../fleet/machine.ts';
import type { Machine } from '../../fleet/machine.ts';
import type { FleetMetrics } from '../../fleet/metrics.ts';
import type { LoopMetrics } from '../../cluster/loop-metrics.ts';
import type { ClassFacts, FitClass, ImagePlaces, Item, Wanted } from '../plan/fit-class.ts';
import type { Quota } from '../plan/ledger.ts';
import type { MarketTurn } from '../plan/markets.ts';
import type { Choice } from '../plan/place.ts';
import { RecordedPlanner } from '../plan/recorded-planner.ts';
import type { Tape } from '../plan/recording.ts';
import { reportReservations } from '../plan/reservation-report.ts';
import type { ReservationRow } from '../plan/reservation-report.ts';
import type { MarketReport, PlaceInLine, ShareRow } from '../plan/share-report.ts';
import { listShares, sharesOf } from '../plan/share-report.ts';
import { FailedImages } from './failed-images.ts';
import { GivingUp } from './giving-up.ts';
import type { GrowthFacts } from './giving-up.ts';
import { corrections } from './ledger-check.ts';
import { BACKOFF, PlacementBackoff } from './placement-backoff.ts';
import type { Preemptions } from './preemptions.ts';
import { PlacementWrites } from './placement-writes.ts';
import type { PlacementWritesParts } from './placement-writes.ts';
import { gpuModelOf, holdingOf, MachineFacts, wantedOf } from './snapshot.ts';
import { GIVE_UP_MS, placementWait, RETURNED_OFTEN } from './waiting.ts';
import type { PlacementWait } from './waiting.ts';
import { WaitNotes } from './wait-notes.ts';

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
  /** Whether many machines went silent at once, so that none is reserved. */
  readonly isGuarded: () => boolean;
  /** Interruptible containers, which end for others. */
  readonly preemptions: Pick<Preemptions, 'candidates' | 'carryOut'>;
  /** Time for which a new leader reserves no machine, and asks no container to leave. */
  readonly reserveGraceMs: number;
  /** Limits on what workspaces may have at once; absent: no bound. */
  readonly quotas: (workspaces: ReadonlySet<WorkspaceId>) => Promise<ReadonlyMap<WorkspaceId, Quota>>;
}

const NOWHERE: ImagePlaces = { machines: new Set(), inRegistry: false };

const COALESCE_MS = 1;
const SWEEP_MS = 30_000;
/** Milliseconds for which a round decides before other work of the process has a turn. */
const SLICE_MS = 5;
/** Most containers decided in one go, then written together. */
const BATCH = 256;
/** Least time between two looks for containers that may end for others. */
const RECLAIM_EVERY_MS = 1000;
/** Most containers that a line of the log names. */
const MOST_NAMED = 10;
/** Most reservations that are listed. */
const MOST_RESERVATIONS = 1000;
/** Candidates that turn out to be taken before the container waits for a moment. */
const MAX_CONFLICTS = 3;
/** A container that has a choice, which is to be written. */
interface Chosen {
  readonly entry: ContainerEntry;
  readonly choice: Choice;
  readonly startedAtMs: number;
}

export class Placer {
  readonly name = 'placement';
  readonly #parts: PlacementParts;
  readonly #planner: RecordedPlanner;
  readonly #facts: MachineFacts;
  readonly #writes: PlacementWrites;
  readonly #notes: WaitNotes;
  readonly #backoff: PlacementBackoff;
  readonly #givingUp: GivingUp;
  readonly #failedImages = new FailedImages();
  /** Containers that wait, and are not tried before their back-off is over. */
  readonly #resting = new Map<ContainerId, ContainerEntry>();
  /** Containers whose choice is being written. */
  readonly #placing = new Set<ContainerId>();
  /** How often a container's choice was found taken, while it waits. */
  readonly #conflicts = new Map<ContainerId, number>();
  #timer: NodeJS.Timeout | undefined;
  #later: { readonly timer: NodeJS.Timeout; readonly atMs: number } | undefined;
  #sweep: NodeJS.Timeout | undefined;
  #reclaimAtMs = 0;
  /** The lease under which this process leads, and since when. */
  #lease: { readonly fence: number | undefined; readonly sinceMs: number } = { fence: undefined, sinceMs: 0 };
  /** Workspaces whose limits or shares changed while such were read. */
  #changedSince: Set<WorkspaceId> | undefined;
  /** Whether the next round compares what is counted with the rows. */
  #isToCheck = false;
  /** Tape of a recording that begins with the next round. */
  #toRecord: Tape | undefined;
  #running = false;
  #again = false;
  #stopped = true;
  #imageAway: (entry: ContainerEntry, volumeHomes: ReadonlySet<MachineId>) => void = () => undefined;
  #reserved: (id: MachineId) => void = () => undefined;

  constructor(parts: PlacementParts) {
    this.#parts = parts;
    this.#planner = new RecordedPlanner((wanted) => this.#shunned(wanted));
    this.#writes = new PlacementWrites(parts);
    this.#notes = new WaitNotes({ ...parts, planner: this.#planner });
    this.#backoff = new PlacementBackoff(parts.clock);
    this.#givingUp = new GivingUp({ ...parts, planner: this.#planner, backoff: this.#backoff });
    this.#facts = new MachineFacts(parts, this.#planner);
  }

  /** Called when a container found no machine, and a cause is that its image is not on all of them. */
  onImageAway(handler: (entry: ContainerEntry, volumeHomes: ReadonlySet<MachineId>) => void): void {
    this.#imageAway = handler;
  }

  /** Asks what pools with a provider do for a container. */
  growsBy(growth: GrowthFacts): void {
    this.#givingUp.growth = growth;
  }

  /** Called when a machine is reserved. */
  onReserved(handler: (id: MachineId) => void): void {
    this.#reserved = handler;
  }

  /** Whether a reservation of its machine waits for the end of the container. Right on the leader only. */
  isAwaited({ row: { id, machineId } }: ContainerEntry): boolean {
    const { reservations, leaving } = this.#planner;
    return machineId !== null && (reservations.isAwaited(id, machineId) || leaving.isAwaited(id));
  }

  containerChanged({ entry, to, from, machineBefore }: ContainerEntryChange): void {
    const { id, machineId, reason, gpuUuids, workspaceId } = entry.row;
    if (to === 'ASSIGNED') this.#facts.leased(gpuUuids, this.#parts.clock.nowMs());
    for (const touched of [machineId, machineBefore]) if (touched !== null) this.#facts.touch(touched);
    if (machineId !== null && to === 'RUNNING') this.#failedImages.worked(wantedOf(entry), machineId);
    if (machineId !== null && from !== null && to === 'FAILED' && reason === 'image_error')
      this.#failedImages.failed(wantedOf(entry), machineId, this.#parts.clock.monotonicMs());
    if (to === 'RUNNING' || isTerminalContainer(to)) this.#backoff.forget(id);
    if (to === 'PENDING') {
      if (from === 'PENDING') return;
      this.#planner.release(id, workspaceId);
      if (from !== null) this.#backoff.cameBack(id, machineBefore);
      this.#waits(entry);
    } else {
      this.#waitsNoMore(entry);
      if (isTerminalContainer(to)) this.#planner.release(id, workspaceId);
      else this.#planner.hold(id, holdingOf(entry, this.#parts.clock.nowMs()));
    }
    // A container that ended freed resources, and others that wait may be next.
    if ((from !== null && isTerminalContainer(to)) || this.#planner.isBusy) this.wake();
  }

  /** The machine may be ready or uncordoned, a condition cleared, or a device free again. */
  machineChanged(machine: Machine): void {
    this.#facts.touch(machine.row.id);
    if (isSchedulable(machine)) this.wake();
  }

  /** The workspace may have more, or less, than before: its limits or its share changed. */
  limitsChanged(workspaceId: WorkspaceId): void {
    this.#changedSince?.add(workspaceId);
    this.#planner.shareChanged(workspaceId);
    this.wake();
  }

  /** How the installation shares its machines. */
  setSharing(sharing: Sharing): void {
    this.#planner.setSharing(sharing);
    this.wake();
  }

  /** An image that was built here is on a machine, or in the registry, where it was not. */
  imagesChanged(): void {
    this.#planner.imagesChanged();
    this.wake();
  }

  start(): void {
    this.#stopped = false;
    this.#planner.clear();
    this.#tellAll();
    this.#sweep = setInterval(() => this.#lookAtAll(), SWEEP_MS);
    this.#sweep.unref();
  }

  /** Records what the planner is told and answers, from the next round on, which begins by telling it all again. */
  record(tape: Tape): void {
    this.#toRecord = tape;
    this.wake();
  }

  recordNoMore(): void {
    this.#toRecord = undefined;
    this.#planner.recordNoMore();
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#later?.timer);
    this.#timer = undefined;
    this.#later = undefined;
    clearInterval(this.#sweep);
    this.#notes.stop();
  }

  /**
   * Explains what a PENDING container waits for; undefined: it has a place,
   * or is not known. Only the leader places, so only its answer is fresh.
   */
  waitOf(id: ContainerId, isCounted = true): PlacementWait | undefined {
    const entry = this.#parts.containers.get(id);
    if (entry?.row.state !== 'PENDING') return undefined;
    const { clock } = this.#parts;
    const leftMs = this.#backoff.leftMs(id, clock.monotonicMs());
    return placementWait({
      rejections: isCounted ? rejectionsOf(entry) : entry.row.rejections,
      timesReturned: this.#backoff.times(id),
      notBeforeMs: leftMs <= 0 ? null : clock.nowMs() + leftMs,
      createdAtMs: entry.row.createdAtMs,
      growth: this.#givingUp.growthOf(id),
    });
  }

  /** Use of each market by workspaces, beside what would be fair. Right on the leader only. */
  shares(): readonly MarketReport[] {
    return this.#planner.shares(this.#parts.clock.nowMs());
  }

  /** Place in line of a container that waits; undefined: it has a place, or there is no such machine. */
  placeOf(id: ContainerId): PlaceInLine | undefined {
    const entry = this.#parts.containers.get(id);
    if (entry?.row.state !== 'PENDING') return undefined;
    return this.#planner.placeOf(wantedOf(entry), this.#parts.clock.nowMs());
  }

  /** Turn of a container that waits, for the growth of pools. Right on the leader only. */
  turnOf(entry: ContainerEntry): MarketTurn {
    return this.#planner.turnOf(wantedOf(entry));
  }

  /**
   * The same as a list.
   * @param workspaceId - null: the largest users of each market, and the others as a sum
   */
  shareReport(workspaceId: WorkspaceId | null = null): readonly ShareRow[] {
    return workspaceId === null ? listShares(this.shares()) : sharesOf(this.shares(), workspaceId);
  }

  /** Machines that are kept for containers that wait. Right on the leader only. */
  reservations(): readonly ReservationRow[] {
    return reportReservations(this.#planner.reservations).slice(0, MOST_RESERVATIONS);
  }

  /** Containers that end for the one that waits, or for one like it. Right on the leader only. */
  leavingFor(id: ContainerId): number {
    const item = this.#planner.get(id);
    return item === undefined ? 0 : this.#planner.leaving.countFor(item.fitClass);
  }

  /** Tells a planner that knows nothing all that there is. */
  #tellAll(): void {
    for (const entry of this.#parts.containers.all())
      if (entry.row.state !== 'PENDING') this.#planner.hold(entry.row.id, holdingOf(entry, this.#parts.clock.nowMs()));
    this.#lookAtAll();
  }

  /** Compares what waits with the container registry, and tries all of it again: some facts change without an event. */
  #lookAtAll(): void {
    const { containers } = this.#parts;
    for (const { wanted } of [...this.#planner.waiting])
      if (containers.get(wanted.id)?.row.state !== 'PENDING') this.#planner.remove(wanted.id);
    for (const entry of containers.pending()) this.#waits(entry);
    this.#facts.touchAll();
    this.#isToCheck = true;
    this.#planner.forgetBlocks();
    this.wake();
  }

  // ---- what waits ---------------------------------------------------------------------------------------------------

  /** Puts a PENDING container into its line, now or after its back-off. */
  #waits(entry: ContainerEntry): void {
    const { id } = entry.row;
    if (this.#placing.has(id) || this.#planner.get(id) !== undefined) return;
    if (this.#backoff.leftMs(id, this.#parts.clock.monotonicMs()) > 0) this.#rests(entry);
    else {
      this.#resting.delete(id);
      const item = this.#planner.add(wantedOf(entry));
      if (item !== undefined) entry.refusal = this.#refusalOf(item);
    }
  }

  #rests(entry: ContainerEntry): void {
    const { id } = entry.row;
    this.#planner.remove(id);
    this.#resting.set(id, entry);
    this.#wakeIn(this.#backoff.leftMs(id, this.#parts.clock.monotonicMs()));
  }

  #waitsNoMore(entry: ContainerEntry): void {
    const { id } = entry.row;
    this.#planner.remove(id);
    this.#resting.delete(id);
    this.#conflicts.delete(id);
    entry.refusal = undefined;
  }

  #refusalOf({ fitClass }: Item): NonNullable<ContainerEntry['refusal']> {
    const { clock } = this.#parts;
    return {
      get isKnown() {
        return fitClass.wasRefused;
      },
      count: () => this.#planner.refusalsOf(fitClass, clock.monotonicMs()),
    };
  }

  /** Machines that just refused the container, or could not get its image. */
  #shunned(wanted: Wanted): ReadonlySet<MachineId> {
    const nowMs = this.#parts.clock.monotonicMs();
    const failing = this.#failedImages.machinesOf(wanted, nowMs);
    const avoided = this.#backoff.avoided(wanted.id, nowMs);
    return avoided === undefined ? failing : failing.union(new Set([avoided]));
  }

  // ---- new containers -----------------------------------------------------------------------------------------------

  /**
   * Makes new containers of that target. While nothing else is being placed, and no older container waits for the same
   * machines, their first rows already name their places: the order goes out after one statement and not two. A
   * container without a place at once is PENDING, and the rounds place it.
   * @param unplaced - most containers that are written without a place
   */
  async create(target: Target, count: number, unplaced = count): Promise<readonly ContainerEntry[]> {
    const { containers, fence, clock } = this.#parts;
    const isAtOnce = !this.#running && !this.#stopped && fence() !== undefined && count <= BATCH;
    const wanted = Array.from({ length: isAtOnce ? count : 0 }, () => unwrittenEntry(target, clock.nowMs()));
    const [first] = wanted;
    // Local volumes have a home, or get one with their first container, so such a container is placed by the rounds.
    if (first === undefined || wantedOf(first).volumes.length > 0)
      return await containers.createMany(target, Math.min(count, unplaced));
    this.#running = true;
    try {
      return await this.#createPlaced(target, wanted, wantedOf(first), unplaced);
    } finally {
      this.#running = false;
      if (this.#writes.doubtful.size > 0) this.#wakeIn(BACKOFF.baseMs);
      if (this.#again) void this.#round();
    }
  }

  async #createPlaced(
    target: Target,
    all: readonly ContainerEntry[],
    first: Wanted,
    unplaced: number,
  ): Promise<readonly ContainerEntry[]> {
    const { containers, clock } = this.#parts;
    const startedAtMs = clock.monotonicMs();
    const fitClass = this.#planner.classOf(first);
    const facts = await this.#factsOf([fitClass]);
    await this.#refresh();
    if (this.#planner.isBusy) this.wake();
    if (this.#planner.isBusy || fitClass.size > 0)
      return await containers.createMany(target, Math.min(all.length, unplaced));
    const found = this.#planner.chooseNew(all.map(wantedOf), facts.get(fitClass));
    // All are of one class, so those without a place are the last ones.
    const written = found.filter((choice) => choice !== undefined).length + unplaced;
    const [wanted, choices] = [all.slice(0, written), found.slice(0, written)];
    try {
      const entries = await this.#writes.create(target, wanted, choices);
      for (const entry of entries)
        if (entry.row.machineId !== null) this.#tellPlaced(entry, entry.row.machineId, startedAtMs);
      return entries;
    } finally {
      for (const [index, entry] of wanted.entries()) {
        const choice = choices[index];
        if (choice !== undefined) this.#written({ entry, choice });
      }
    }
  }

  /** Ends a choice, written or not: the machine is read again, and the container holds what its row says, or waits. */
  #written({ entry: { row }, choice: { machineId } }: Pick<Chosen, 'entry' | 'choice'>): void {
    this.#placing.delete(row.id);
    this.#facts.touch(machineId);
    const entry = this.#parts.containers.get(row.id);
    if (entry !== undefined && entry.row.state !== 'PENDING') return;
    this.#planner.release(row.id, row.workspaceId);
    if (entry !== undefined) this.#waits(entry);
  }

  // ---- rounds -------------------------------------------------------------------------------------------------------

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

  /** Wakes after that time, or earlier. */
  #wakeIn(ms: number): void {
    const atMs = this.#parts.clock.monotonicMs() + ms;
    if (this.#stopped || (this.#later !== undefined && this.#later.atMs <= atMs)) return;
    clearTimeout(this.#later?.timer);
    const timer = setTimeout(
      () => {
        this.#later = undefined;
        this.wake();
      },
      Math.ceil(Math.max(0, ms)),
    );
    timer.unref();
    this.#later = { timer, atMs };
  }

  async #placeAll(): Promise<void> {
    if (this.#toRecord !== undefined) {
      // Between rounds the planner knows nothing that cannot be told to it again: no choice is being written.
      this.#planner.record(this.#toRecord);
      this.#toRecord = undefined;
      this.#tellAll();
    }
    if (this.#isToCheck) await this.#checkLedger();
    for (const id of await this.#writes.settle()) this.#facts.touch(id);
    for (const entry of [...this.#resting.values()]) this.#waits(entry);
    for (let chosen: Chosen[] = []; this.#parts.fence() !== undefined; chosen = []) {
      try {
        await this.#chooseSome(chosen);
      } catch (error) {
        for (const one of chosen) this.#written(one);
        throw error;
      }
      if (chosen.length === 0) break;
      await this.#write(chosen);
    }
    if (this.#writes.doubtful.size > 0) this.#wakeIn(BACKOFF.baseMs);
    await this.#reclaim();
    const nextMs = await this.#givingUp.look();
    if (nextMs !== undefined) this.#wakeIn(nextMs);
    this.#notes.soon();
  }

  /** Compares what is counted with the rows, with turns of other work, while no choice is being written. */
  async #checkLedger(): Promise<void> {
    const { clock, containers, metrics, log } = this.#parts;
    this.#isToCheck = false;
    const wrong: ContainerId[] = [];
    let endMs = clock.monotonicMs() + SLICE_MS;
    for (const id of corrections(this.#planner, containers, () => clock.nowMs())) {
      if (id !== undefined) wrong.push(id);
      if (clock.monotonicMs() < endMs) continue;
      await turnOfLoop();
      endMs = clock.monotonicMs() + SLICE_MS;
    }
    if (wrong.length === 0) return;
    metrics.ledgerFaults.inc(wrong.length);
    log.warn(
      { containers: wrong.slice(0, MOST_NAMED), count: wrong.length },
      'containers were counted otherwise than their rows say; corrected',
    );
  }

  /** Builds changed machines anew, with turns of other work. */
  async #refresh(): Promise<void> {
    const { clock } = this.#parts;
    this.#planner.doubtful = this.#writes.doubtful;
    for (let isDone = false; !isDone;) {
      const endMs = clock.monotonicMs() + SLICE_MS;
      isDone = this.#facts.refresh(() => clock.monotonicMs() > endMs);
      if (!isDone) await turnOfLoop();
    }
  }

  /**
   * Chooses machines for as many containers as are written together, and adds them; no placement is under way
   * meanwhile, so the written state is all that machines hold.
   */
  async #chooseSome(chosen: Chosen[]): Promise<void> {
    const { clock } = this.#parts;
    await this.#refresh();
    await this.#readShares();
    this.#reserve();
    this.#planner.forgetFacts();
    let endMs = clock.monotonicMs() + SLICE_MS;
    while (chosen.length < BATCH && !this.#stopped) {
      const startedAtMs = clock.monotonicMs();
      if (startedAtMs > endMs) {
        if (chosen.length > 0) break;
        await turnOfLoop();
        endMs = clock.monotonicMs() + SLICE_MS;
      }
      const step = this.#planner.next();
      if (step === undefined) break;
      if (step.kind === 'ask') {
        for (const [fitClass, facts] of await this.#factsOf(step.classes)) this.#planner.know(fitClass, facts);
        endMs = clock.monotonicMs() + SLICE_MS;
      } else if (step.kind === 'refused') this.#refused(step.item);
      else {
        const entry = this.#take(step.item, step.choice);
        if (entry !== undefined) chosen.push({ entry, choice: step.choice, startedAtMs });
      }
    }
  }

  /** Whether what machines hold is in doubt: many are silent at once, or this process has just begun to lead. */
  #isInDoubt(): boolean {
    const { clock, fence, isGuarded, reserveGraceMs } = this.#parts;
    const monotonicMs = clock.monotonicMs();
    const now = fence();
    if (now !== this.#lease.fence) this.#lease = { fence: now, sinceMs: monotonicMs };
    const graceMs = this.#lease.sinceMs + reserveGraceMs - monotonicMs;
    if (graceMs > 0) this.#wakeIn(graceMs);
    return graceMs > 0 || isGuarded();
  }

  /** Keeps machines for containers that need much, unless what machines hold is in doubt. */
  #reserve(): void {
    const { clock, log } = this.#parts;
    const nowMs = clock.nowMs();
    const againAtMs = this.#planner.reserve(this.#isInDoubt() ? null : nowMs);
    for (const { machineId, item } of this.#planner.reservations.made) {
      log.info({ containerId: item.wanted.id, machineId }, 'machine reserved for a container that needs much of it');
      this.#reserved(machineId);
    }
    if (againAtMs !== undefined) this.#wakeIn(againAtMs - nowMs);
  }

  /** Asks interruptible containers to leave for those that fit nowhere, once a second at most. */
  async #reclaim(): Promise<void> {
    const { clock, containers, preemptions, fence } = this.#parts;
    if (fence() === undefined) return;
    const monotonicMs = clock.monotonicMs();
    if (monotonicMs < this.#reclaimAtMs) return;
    this.#reclaimAtMs = monotonicMs + RECLAIM_EVERY_MS;
    const heads = [...this.#planner.classes()].flatMap(({ head }) => head?.wanted.id ?? []);
    const candidates = heads.length === 0 ? [] : preemptions.candidates();
    if (candidates.length > 0) this.#wakeIn(RECLAIM_EVERY_MS);
    const growing = candidates.length === 0 ? [] : heads.filter((id) => this.#givingUp.growth.isAwaited(id));
    const reclaimed = this.#planner.reclaim(this.#isInDoubt() ? null : { nowMs: clock.nowMs(), candidates, growing });
    for (const { id, isWarm } of reclaimed.told) {
      const machineId = containers.get(id)?.row.machineId ?? null;
      if (isWarm === true && machineId !== null) this.#reserved(machineId);
    }
    await preemptions.carryOut(reclaimed);
  }

  async #factsOf(classes: readonly FitClass[]): Promise<ReadonlyMap<FitClass, ClassFacts>> {
    const volumes = [...new Set(classes.flatMap((one) => one.volumes))];
    const images = [...new Set(classes.flatMap(({ builtImage }) => (builtImage === '' ? [] : [builtImage])))];
    const [quotas, homes, places] = await Promise.all([
      this.#quotasOf(new Set(classes.map(({ workspaceId }) => workspaceId))),
      volumes.length === 0 ? new Map<string, MachineId>() : this.#parts.volumeHomes(volumes),
      images.length === 0 ? new Map<string, ImagePlaces>() : this.#parts.imagePlaces(images),
    ]);
    const quotaOf = (id: WorkspaceId): Quota | undefined => quotas.get(id);
    return new Map(
      classes.map((one) => [
        one,
        {
          quota: quotaOf(one.workspaceId),
          volumeHomes: new Set(one.volumes.flatMap((id) => homes.get(id) ?? [])),
          image: one.builtImage === '' ? null : (places.get(one.builtImage) ?? NOWHERE),
        },
      ]),
    );
  }

  /** Limits of workspaces; the planner is told their shares. */
  async #quotasOf(ids: ReadonlySet<WorkspaceId>): Promise<ReadonlyMap<WorkspaceId, Quota>> {
    const changed = (this.#changedSince = new Set<WorkspaceId>());
    try {
      const quotas = await this.#parts.quotas(ids);
      for (const id of ids) this.#planner.setShare(id, quotas.get(id)?.share ?? DEFAULT_SHARE);
      return quotas;
    } finally {
      this.#changedSince = undefined;
      // They may be as they were before, so they are read again.
      for (const id of changed) this.#planner.shareChanged(id);
    }
  }

  /** Reads shares of workspaces that wait for nothing, too: what is guaranteed to them counts, and reports name it. */
  async #readShares(): Promise<void> {
    const { fence } = this.#parts;
    for (let ids = this.#planner.unread(BATCH); ids.size > 0; ids = this.#planner.unread(BATCH)) {
      await this.#quotasOf(ids);
      if (this.#stopped || fence() === undefined) return;
    }
  }

  /** Takes a choice. @returns undefined: the container gets no place */
  #take({ wanted }: Item, choice: Choice): ContainerEntry | undefined {
    const { id } = wanted;
    const entry = this.#parts.containers.get(id);
    if (entry?.row.state !== 'PENDING') {
      this.#planner.remove(id);
      return undefined;
    }
    // Machines that take it and always send it back would keep it for ever.
    if (this.#givingUp.waitedMs(entry) >= GIVE_UP_MS && this.#backoff.times(id) >= RETURNED_OFTEN) {
      this.#backoff.rest(id, BACKOFF.capMs);
      this.#rests(entry);
      this.#givingUp.soon();
      return undefined;
    }
    this.#planner.take(wanted, choice);
    this.#placing.add(id);
    return entry;
  }

  #refused({ wanted, fitClass }: Item): void {
    if (fitClass.builtImage === '') return;
    const entry = this.#parts.containers.get(wanted.id);
    const rejections = this.#planner.refusalsOf(fitClass, this.#parts.clock.monotonicMs());
    if (entry !== undefined && (rejections.image_unavailable ?? 0) > 0)
      this.#imageAway(entry, fitClass.facts.volumeHomes);
  }

  async #write(chosen: readonly Chosen[]): Promise<void> {
    const outcomes = await Promise.allSettled(chosen.map(({ entry, choice }) => this.#writes.commit(entry, choice)));
    let failure: unknown;
    for (const [index, outcome] of outcomes.entries()) {
      const one = chosen[index];
      if (one === undefined) continue;
      const { entry, choice, startedAtMs } = one;
      if (outcome.status === 'rejected') failure = outcome.reason;
      else if (outcome.value === 'placed') this.#tellPlaced(entry, choice.machineId, startedAtMs);
      else if (this.#parts.containers.get(entry.row.id)?.row.state === 'PENDING') {
        if (outcome.value === 'conflict') this.#hadConflict(entry);
        // The row has changed, or this process does not lead any more, which memory learns in a moment.
        else this.#backoff.rest(entry.row.id, BACKOFF.baseMs);
      }
      this.#written(one);
    }
    if (failure !== undefined) throw failure;
  }

  /** Another machine is tried at once, and after a few of them the container waits for a moment. */
  #hadConflict({ row, spec }: ContainerEntry): void {
    const times = (this.#conflicts.get(row.id) ?? 0) + 1;
    this.#conflicts.set(row.id, times);
    if (times < MAX_CONFLICTS) return;
    this.#conflicts.delete(row.id);
    this.#parts.metrics.placements.inc({ pool: spec.poolName, gpu_model: gpuModelOf(spec), result: 'conflict' });
    this.#backoff.hadConflicts(row.id);
  }

  #tellPlaced({ row, spec }: ContainerEntry, machineId: MachineId, startedAtMs: number): void {
    const { metrics, machines, clock, log } = this.#parts;
    const gpu_model = gpuModelOf(spec);
    const pool = machines.get(machineId)?.row.poolName ?? '';
    metrics.placements.inc({ pool, gpu_model, result: 'placed' });
    metrics.placementDuration.observe({ gpu_model }, (clock.monotonicMs() - startedAtMs) / 1000);
    const waitedMs = clock.nowMs() - row.createdAtMs;
    metrics.placementWait.observe({ gpu_model, result: 'placed' }, waitedMs / 1000);
    log.info({ containerId: row.id, machineId }, 'container placed');
  }
}
