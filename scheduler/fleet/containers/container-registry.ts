// Every container that is not terminal, in memory, and the only writer of its row. The autoscaler, placement and the
// fleet's links move containers through `transition`; the surfaces read; other replicas' writes come in by `learn`.
// Invariant: the row is changed by compare-and-set before memory is. The moves of one
// container happen one after another. Memory never goes back to an older revision. A
// transition that the table does not list is refused, counted and logged.
import type { ContainerId, MachineId, QueueName, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { ContainerState } from '#shared/domain/status.ts';
import { isLiveContainer, isTerminalContainer } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import { Grouped } from '#shared/grouped.ts';
import type { Log } from '#shared/log.ts';
import type { Target } from '../../domain/stub-config.ts';
import type { Db } from '../../stores/store/db.ts';
import type { EventWriter } from '../../workspaces/events/writer.ts';
import { eventsOfMove, isTold } from './container-events.ts';
import { GroupedWrites } from '../../stores/store/grouped-writes.ts';
import { containerById } from '../../stores/store/queries/containers.ts';
import type { ContainerAmendment, ContainerRow, RejectionNote } from '../../stores/store/queries/containers.ts';
import type { ContainerChange, ContainerMove, MoveOutcome } from '../../stores/store/queries/container-moves.ts';
import { assignContainers, insertContainers } from '../../stores/store/queries/container-placements.ts';
import type {
  InitialPlacement,
  Place,
  Assignment,
  AssignOutcome,
} from '../../stores/store/queries/container-placements.ts';
import {
  amendContainer,
  containersById,
  countByHand,
  listLiveContainers,
  liveContainerRevisions,
  liveContainersOfMachine,
  MAX_CONTAINER_BATCH,
  recordRejections,
} from '../../stores/store/queries/containers.ts';
import { moveContainers } from '../../stores/store/queries/container-moves.ts';
import { lockCounts } from '../../stores/store/queries/workspaces.ts';
import type { ContainerReads, ContainerView } from './container-view.ts';
import type { StoredSpec } from './spec.ts';
import type { ContainerEvent } from './state.ts';
import { containerTransition } from './state.ts';
import { besides, entryOf, newContainersOf, newPlacements, viewOf } from './container-entry.ts';
import type { ContainerEntry, CreateOptions } from './container-entry.ts';

export type Moved = 'moved' | 'already' | 'refused' | 'unknown';
/** `no_room`: rows that this process does not know hold the machine, or it takes no containers. */
export type Assigned = Moved | 'no_room';

export interface ContainerEntryChange {
  readonly entry: ContainerEntry;
  readonly from: ContainerState | null;
  readonly to: ContainerState;
  /** The container's machine before the move, when that differs. */
  readonly machineBefore: MachineId | null;
  /** The row before the move; null: the container is new. */
  readonly before: ContainerRow | null;
}

/** Operations on containers that deciders need; {@link LeaderContainerRegistry} adds the leader's number. */
export interface ContainerControl extends Pick<
  ContainerRegistry,
  | 'transition'
  | 'assign'
  | 'get'
  | 'ofQueue'
  | 'ofMachine'
  | 'pending'
  | 'queues'
  | 'all'
  | 'onChange'
  | 'noteRejections'
  | 'readMissed'
> {
  /** Creates a container; undefined: not written, because this process does not lead any more. */
  create(target: Target, options?: CreateOptions): Promise<ContainerEntry | undefined>;
  /** Creates `count` containers; returns fewer when this process does not lead any more. */
  createMany(target: Target, count: number): Promise<readonly ContainerEntry[]>;
  /**
   * Creates containers in one statement, placed ones together with their place, if there is room;
   * returns none when this process does not lead any more.
   */
  createPlaced(target: Target, placements: readonly InitialPlacement[]): Promise<readonly ContainerEntry[]>;
}

export interface MoveOptions {
  /** Epoch that the row must have: a message about an older assignment changes nothing. */
  readonly epoch?: number;
  /** State that the row must have by then: moves of a container take turns. Absent: any that the event may follow. */
  readonly from?: ContainerState;
  readonly change?: ContainerChange;
  /** The fencing number of the leader that decided this; refused if a higher one has led meanwhile. */
  readonly fence?: number;
}

/** Containers that ended, remembered so that late news of them does not bring them back. */
const MOST_ENDED = 10_000;
const READ_BATCH = 500;
const MOST_MOVES_WAITING = 100 * MAX_CONTAINER_BATCH;

export class ContainerRegistry implements ContainerReads {
  readonly #db: Pick<Db, 'query' | 'transaction'>;
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #entries = new Map<ContainerId, ContainerEntry>();
  readonly #byQueue = new Grouped<QueueName, ContainerEntry>();
  readonly #byMachine = new Grouped<MachineId, ContainerEntry>();
  readonly #pending = new Set<ContainerEntry>();
  readonly #listeners: ((change: ContainerEntryChange) => void)[] = [];
  readonly #written: ((id: ContainerId) => void)[] = [];
  readonly #ended = new Set<ContainerId>();
  readonly #told: { readonly db: Db; readonly events: Pick<EventWriter, 'transaction'> } | undefined;
  /** Moves that are decided together are written together. */
  readonly #moves: GroupedWrites<ContainerMove, MoveOutcome>;
  readonly #placements: GroupedWrites<Assignment, AssignOutcome>;
  #refused = 0;
  #refusedLeaderWrites = 0;

  /** @param parts - `told`: the database and the writer of events, for moves that are told; absent: none is */
  constructor(parts: {
    readonly db: Pick<Db, 'query' | 'transaction'>;
    readonly log: Log;
    readonly clock: Clock;
    readonly told?: { readonly db: Db; readonly events: Pick<EventWriter, 'transaction'> };
  }) {
    this.#db = parts.db;
    this.#log = parts.log;
    this.#clock = parts.clock;
    this.#told = parts.told;
    this.#moves = new GroupedWrites({
      write: (moves) => this.#moveTogether(moves),
      mostAtOnce: MAX_CONTAINER_BATCH,
      mostWaiting: MOST_MOVES_WAITING,
      what: 'moves of containers',
    });
    this.#placements = new GroupedWrites({
      write: (placements) => assignContainers(this.#db, placements),
      mostAtOnce: MAX_CONTAINER_BATCH,
      mostWaiting: MOST_MOVES_WAITING,
      what: 'placements of containers',
    });
  }

  onChange(listener: (change: ContainerEntryChange) => void): void {
    this.#listeners.push(listener);
  }

  /** Calls the listener for every row written here, once memory has it; the other replicas read it then. */
  onWritten(listener: (id: ContainerId) => void): void {
    this.#written.push(listener);
  }

  /** Reads the containers of the scheduler before. */
  async load(): Promise<void> {
    const rows = await listLiveContainers(this.#db);
    // Entries that another replica wrote meanwhile may be known already, and newer.
    for (const row of rows) if (!this.#entries.has(row.id)) this.#put(entryOf(row));
  }

  /** Creates a container of the target, PENDING. */
  async create(target: Target, options: CreateOptions = {}): Promise<ContainerEntry> {
    const [entry] = await this.#insert(target, newPlacements(target, 1), options);
    if (entry === undefined) throw new Error('a container that nobody refused was not written');
    return entry;
  }

  /**
   * Creates a container by hand, PENDING.
   * @param most - containers of the workspace that were made so and have not ended, on whichever replica
   * @returns undefined: the workspace has as many
   */
  async createByHand(target: Target, most: number): Promise<ContainerEntry | undefined> {
    const rows = await this.#db.transaction(async (tx) => {
      await lockCounts(tx, target.workspaceId);
      if ((await countByHand(tx, target.workspaceId)) >= most) return undefined;
      return await insertContainers(tx, newPlacements(target, 1), newContainersOf(target, { byHand: true }));
    });
    return rows === undefined ? undefined : this.#known(rows)[0];
  }

  /**
   * Creates `count` containers of the target as the leader with that fence, in as few statements as possible.
   * @returns fewer: a higher fence has led meanwhile
   */
  async createAsLeader(
    target: Target,
    count: number,
    fence: number,
    options?: CreateOptions,
  ): Promise<readonly ContainerEntry[]> {
    const created: ContainerEntry[] = [];
    while (created.length < count) {
      const placements = newPlacements(target, Math.min(count - created.length, MAX_CONTAINER_BATCH));
      const entries = await this.createPlaced(target, placements, fence, options);
      if (entries.length === 0) break;
      created.push(...entries);
    }
    return created;
  }

  /** Creates `count` containers of the target. */
  async createMany(target: Target, count: number): Promise<readonly ContainerEntry[]> {
    const created: ContainerEntry[] = [];
    while (created.length < count)
      created.push(
        ...(await this.#insert(target, newPlacements(target, Math.min(count - created.length, MAX_CONTAINER_BATCH)))),
      );
    return created;
  }

  /**
   * Creates containers in one statement: with their place where there is room, else PENDING.
   * @returns none: a higher number has led meanwhile
   */
  async createPlaced(
    target: Target,
    placements: readonly InitialPlacement[],
    fence?: number,
    options?: CreateOptions,
  ): Promise<readonly ContainerEntry[]> {
    const entries = await this.#insert(target, placements, options, fence);
    if (entries.length === 0) this.refuseLeader(undefined, 'create');
    return entries;
  }

  async #insert(
    target: Target,
    placements: readonly InitialPlacement[],
    options: CreateOptions = {},
    fence?: number,
  ): Promise<readonly ContainerEntry[]> {
    return this.#known((await insertContainers(this.#db, placements, newContainersOf(target, options), fence)) ?? []);
  }

  /** Entries of rows that were written here. */
  #known(rows: readonly ContainerRow[]): readonly ContainerEntry[] {
    this.learn(rows);
    for (const { id } of rows) this.#tellWritten(id);
    return rows.map((row) => this.#entries.get(row.id) ?? entryOf(row));
  }

  /** Moves one container. */
  transition(id: ContainerId, event: ContainerEvent, options: MoveOptions = {}): Promise<Moved> {
    const entry = this.#entries.get(id);
    if (entry === undefined) return Promise.resolve('unknown');
    const moving = entry.tail.then(() => this.#move(entry, event, options));
    entry.tail = moving.catch(() => undefined);
    return moving;
  }

  async #move(entry: ContainerEntry, event: ContainerEvent, options: MoveOptions): Promise<Moved> {
    const { row } = entry;
    const { epoch = row.epoch, from: state = row.state } = options;
    const outdated = epoch !== row.epoch || state !== row.state;
    const step = containerTransition(row.state, event);
    if (step.kind === 'already' && !outdated) return 'already';
    if (step.kind !== 'moved' || outdated) {
      this.#refused += 1;
      this.#log.info(
        { containerId: row.id, state: row.state, event, epoch: options.epoch },
        'container transition refused',
      );
      return 'refused';
    }
    const ended = isTerminalContainer(step.to) ? { endedAtMs: this.#clock.nowMs() } : {};
    const change = { ...ended, ...besides(row.state, step.to), ...options.change };
    const from = { states: [row.state], epoch: row.epoch };
    const outcome = await this.#moves.write({ id: row.id, from, to: step.to, change, fence: options.fence });
    return await this.#takeOver(entry, event, outcome);
  }

  /**
   * Gives a container that waits its place.
   * @param options - `epoch`: that the row must have
   * @throws the database's error; the container may have been placed all the same
   */
  assign(
    id: ContainerId,
    place: Place,
    options: { readonly epoch: number; readonly fence?: number },
  ): Promise<Assigned> {
    const entry = this.#entries.get(id);
    if (entry === undefined) return Promise.resolve('unknown');
    const assigning = entry.tail.then(() => this.#assign(entry, place, options));
    entry.tail = assigning.catch(() => undefined);
    return assigning;
  }

  async #assign(
    entry: ContainerEntry,
    place: Place,
    { epoch, fence }: { readonly epoch: number; readonly fence?: number },
  ): Promise<Assigned> {
    const { id, state } = entry.row;
    if (state !== 'PENDING' || entry.row.epoch !== epoch) {
      this.#refused += 1;
      this.#log.info({ containerId: id, state, epoch }, 'a place for a container that waits no more is refused');
      return 'refused';
    }
    const outcome = await this.#placements.write({ id, epoch, place, fence });
    if (outcome.kind !== 'no_room') return await this.#takeOver(entry, 'assign', outcome);
    this.#log.info({ containerId: id, machineId: place.machineId, why: outcome.why }, 'container not placed');
    return 'no_room';
  }

  /** Takes over the outcome of a written move. */
  async #takeOver(entry: ContainerEntry, event: ContainerEvent, outcome: MoveOutcome): Promise<'moved' | 'refused'> {
    const { row } = entry;
    if (outcome.kind === 'stale') this.refuseLeader(row.id, event);
    const written = outcome.kind === 'written' ? await this.#wholeRow(row, outcome.row) : undefined;
    if (written === undefined) {
      await this.#reload(row.id);
      return 'refused';
    }
    this.#become(entry, written);
    this.#tellWritten(row.id);
    return 'moved';
  }

  async #wholeRow(before: ContainerRow, moved: Omit<ContainerRow, 'spec'>): Promise<ContainerRow | undefined> {
    // Another replica has amended the row since it was read here, perhaps its recipe.
    if (moved.revision > before.revision + 1) return (await containersById(this.#db, [before.id]))[0];
    return { ...moved, spec: before.spec };
  }

  /** Writes moves, together with the events that they mean; moves that tell nothing are a statement alone. */
  #moveTogether(moves: readonly ContainerMove[]): Promise<readonly MoveOutcome[]> {
    const told = this.#told;
    if (told === undefined || !moves.some(({ from, to }) => isTold(from.states, to)))
      return moveContainers(this.#db, moves);
    return told.events.transaction(told.db, async (tx, emit) => {
      const outcomes = await moveContainers(tx, moves);
      const nowMs = this.#clock.nowMs();
      for (const [index, { id, from }] of moves.entries()) {
        const outcome = outcomes[index];
        if (outcome?.kind !== 'written') continue;
        const entry = this.#entries.get(id);
        eventsOfMove(from.states, outcome.row, entry?.spec, nowMs, entry?.startPhases).forEach(emit);
      }
      return outcomes;
    });
  }

  /**
   * Changes a container's row beside its state.
   * @returns false: it has ended, or may not be changed so
   */
  async amend(id: ContainerId, change: ContainerAmendment): Promise<boolean> {
    const row = await amendContainer(this.#db, id, change);
    if (row === undefined) return false;
    this.learn([row]);
    this.#tellWritten(id);
    return true;
  }

  /** Counts a decision of a replica that does not lead, or not any more; it changes nothing. */
  refuseLeader(containerId: ContainerId | undefined, event: string): void {
    this.#refusedLeaderWrites += 1;
    this.#log.warn({ containerId, event }, 'a write of a leader that was superseded is refused');
  }

  /** Takes over a row into memory, never an older one. */
  #become(entry: ContainerEntry, row: ContainerRow): void {
    if (this.#entries.get(row.id) !== entry || row.revision <= entry.row.revision) return;
    const before = entry.row;
    this.#unindex(entry);
    entry.row = row;
    entry.spec = row.spec as StoredSpec;
    if (isTerminalContainer(row.state)) this.#end(row.id);
    else this.#put(entry);
    this.#tell({ entry, from: before.state, to: row.state, machineBefore: before.machineId, before });
  }

  #end(id: ContainerId): void {
    this.#entries.delete(id);
    this.#ended.add(id);
    if (this.#ended.size <= MOST_ENDED) return;
    for (const oldest of this.#ended) {
      this.#ended.delete(oldest);
      return;
    }
  }

  /** Takes over rows from the store; rows older than the known ones change nothing. */
  learn(rows: readonly ContainerRow[]): void {
    for (const row of rows) {
      const known = this.#entries.get(row.id);
      if (known !== undefined) this.#become(known, row);
      else if (!isTerminalContainer(row.state) && !this.#ended.has(row.id)) {
        const entry = entryOf(row);
        this.#put(entry);
        this.#tell({ entry, from: null, to: row.state, machineBefore: null, before: null });
      }
    }
  }

  /** Reads the rows of these containers again. */
  async readAgain(ids: readonly ContainerId[]): Promise<void> {
    for (let at = 0; at < ids.length; at += READ_BATCH) {
      this.learn(await containersById(this.#db, ids.slice(at, at + READ_BATCH)));
    }
  }

  /** Reads rows that other replicas wrote while their messages may have been lost. */
  async readMissed(): Promise<void> {
    const revisions = await liveContainerRevisions(this.#db);
    const differing = [...revisions].filter(([id, revision]) => this.#entries.get(id)?.row.revision !== revision);
    const gone = [...this.#entries.keys()].filter((id) => !revisions.has(id));
    await this.readAgain([...differing.map(([id]) => id), ...gone]);
  }

  /** Reads all containers placed on one machine, before its agent gets its orders. */
  async readMachine(machineId: MachineId): Promise<void> {
    const rows = await liveContainersOfMachine(this.#db, machineId);
    this.learn(rows);
    const live = new Set(rows.map((row) => row.id));
    const others = [...this.ofMachine(machineId)].map((entry) => entry.row.id).filter((id) => !live.has(id));
    await this.readAgain(others);
  }

  /** Another process wrote the row: read it. */
  async #reload(id: ContainerId): Promise<void> {
    this.learn(await containersById(this.#db, [id]));
  }

  /** Stores why no machine takes containers that wait: for later questions, and for those at other replicas. */
  async noteRejections(notes: readonly RejectionNote[]): Promise<void> {
    await recordRejections(this.#db, notes);
  }

  /** Row of a container: from memory, or from the database where the container has ended. undefined: no such row */
  async rowOf(id: ContainerId): Promise<ContainerRow | undefined> {
    return this.#entries.get(id)?.row ?? (await containerById(this.#db, id));
  }

  /** Rows as of {@link rowOf}: one statement for all containers that are not in memory. */
  async rowsOf(ids: Iterable<ContainerId>): Promise<ReadonlyMap<ContainerId, ContainerRow>> {
    const rows = new Map<ContainerId, ContainerRow>();
    const others: ContainerId[] = [];
    for (const id of ids) {
      const row = this.#entries.get(id)?.row;
      if (row === undefined) others.push(id);
      else rows.set(id, row);
    }
    if (others.length > 0) for (const row of await containersById(this.#db, others)) rows.set(row.id, row);
    return rows;
  }

  get(id: ContainerId): ContainerEntry | undefined {
    return this.#entries.get(id);
  }

  ofQueue(queue: QueueName): Iterable<ContainerEntry> {
    return this.#byQueue.of(queue);
  }

  ofMachine(machineId: MachineId): Iterable<ContainerEntry> {
    return this.#byMachine.of(machineId);
  }

  /** Containers without a place. */
  pending(): Iterable<ContainerEntry> {
    return this.#pending;
  }

  queues(): Iterable<QueueName> {
    return this.#byQueue.keys();
  }

  all(): Iterable<ContainerEntry> {
    return this.#entries.values();
  }

  get refusedTransitions(): number {
    return this.#refused;
  }

  get refusedLeaderWrites(): number {
    return this.#refusedLeaderWrites;
  }

  list(workspaceId: WorkspaceId | null): readonly ContainerView[] {
    const views: ContainerView[] = [];
    for (const entry of this.#entries.values()) {
      if (workspaceId !== null && entry.row.workspaceId !== workspaceId) continue;
      const view = viewOf(entry);
      if (view !== undefined) views.push(view);
    }
    return views.sort((a, b) => (b.scheduledAtMs ?? 0) - (a.scheduledAtMs ?? 0));
  }

  countOfStub(stubId: StubId): number {
    let count = 0;
    for (const entry of this.#entries.values())
      if (entry.row.stubId === stubId && entry.row.state === 'RUNNING') count += 1;
    return count;
  }

  hasLive(queue: QueueName): boolean {
    for (const { row } of this.ofQueue(queue)) if (isLiveContainer(row.state) || row.state === 'UNKNOWN') return true;
    return false;
  }

  /** Whether a container of the queue runs. */
  isServed(queue: QueueName): boolean {
    for (const { row } of this.ofQueue(queue)) if (row.state === 'RUNNING') return true;
    return false;
  }

  #put(entry: ContainerEntry): void {
    this.#entries.set(entry.row.id, entry);
    this.#byQueue.add(entry.spec.queue, entry);
    if (entry.row.state === 'PENDING') this.#pending.add(entry);
    if (entry.row.machineId !== null) this.#byMachine.add(entry.row.machineId, entry);
  }

  #unindex(entry: ContainerEntry): void {
    this.#byQueue.delete(entry.spec.queue, entry);
    this.#pending.delete(entry);
    if (entry.row.machineId !== null) this.#byMachine.delete(entry.row.machineId, entry);
  }

  #tellWritten(id: ContainerId): void {
    for (const listener of this.#written) listener(id);
  }

  #tell(change: ContainerEntryChange): void {
    for (const listener of this.#listeners) listener(change);
  }
}
