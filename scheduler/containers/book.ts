// Every container that is not terminal, in memory, and the only writer of its row. The autoscaler, placement and the fleet's links move containers through `transition`;
// the surfaces read. What must stay true: the row is changed by compare-and-set before memory is; the moves of one container happen one after another;
// what a transition table does not list is refused, counted and logged.
import type { ContainerId, MachineId, QueueName, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { newContainerId } from '#shared/domain/ids.ts';
import type { ContainerState } from '#shared/domain/status.ts';
import { isTerminalContainer } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Target } from '../deployments/stub-config.ts';
import type { Queryable } from '../store/db.ts';
import type { ContainerChange, ContainerRow } from '../store/queries/containers.ts';
import {
  containerById,
  insertContainer,
  listLiveContainers,
  transitionContainer,
} from '../store/queries/containers.ts';
import type { ContainerReads, ContainerView } from './container-view.ts';
import type { StoredSpec } from './spec.ts';
import { slotsOf, specOf } from './spec.ts';
import type { ContainerEvent } from './state.ts';
import { containerTransition, publicStatus } from './state.ts';

export interface BookEntry {
  row: ContainerRow;
  readonly spec: StoredSpec;
  /** What placement said last. */
  rejections: Readonly<Record<string, number>> | null;
  tail: Promise<unknown>;
}

export type Moved = 'moved' | 'already' | 'refused' | 'unknown';

export interface BookChange {
  readonly entry: BookEntry;
  readonly from: ContainerState | null;
  readonly to: ContainerState;
  /** The machine it was on before the move, when that differs. */
  readonly machineBefore: MachineId | null;
}

export class ContainerBook implements ContainerReads {
  readonly #db: Queryable;
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #entries = new Map<ContainerId, BookEntry>();
  readonly #byQueue = new Map<QueueName, Set<BookEntry>>();
  readonly #byMachine = new Map<MachineId, Set<BookEntry>>();
  readonly #listeners: ((change: BookChange) => void)[] = [];
  #refused = 0;

  constructor(parts: { readonly db: Queryable; readonly log: Log; readonly clock: Clock }) {
    this.#db = parts.db;
    this.#log = parts.log;
    this.#clock = parts.clock;
  }

  onChange(listener: (change: BookChange) => void): void {
    this.#listeners.push(listener);
  }

  /** Reads what the last scheduler left. */
  async load(): Promise<void> {
    for (const row of await listLiveContainers(this.#db)) this.#put(entryOf(row));
  }

  /** One more container of that target, PENDING. */
  async create(target: Target, options: { readonly warmUp?: boolean } = {}): Promise<BookEntry> {
    const row = await insertContainer(this.#db, {
      id: newContainerId(target.kind, target.stubId),
      workspaceId: target.workspaceId,
      stubId: target.stubId,
      deploymentId: target.deploymentId,
      spec: options.warmUp === true ? { ...specOf(target), warmUp: true } : specOf(target),
      slots: slotsOf(target),
    });
    const entry = entryOf(row);
    this.#put(entry);
    this.#tell({ entry, from: null, to: 'PENDING', machineBefore: null });
    return entry;
  }

  /** Moves one container. With `epoch`, only while that is its epoch: a message about an older assignment changes nothing. */
  transition(
    id: ContainerId,
    event: ContainerEvent,
    options: { readonly epoch?: number; readonly change?: ContainerChange } = {},
  ): Promise<Moved> {
    const entry = this.#entries.get(id);
    if (entry === undefined) return Promise.resolve('unknown');
    const moving = entry.tail.then(() => this.#move(entry, event, options));
    entry.tail = moving.catch(() => undefined);
    return moving;
  }

  async #move(
    entry: BookEntry,
    event: ContainerEvent,
    options: { readonly epoch?: number; readonly change?: ContainerChange },
  ): Promise<Moved> {
    const { row } = entry;
    const outdated = options.epoch !== undefined && options.epoch !== row.epoch;
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
    const written = await transitionContainer(this.#db, row.id, { states: [row.state], epoch: row.epoch }, step.to, {
      ...ended,
      ...besides(row.state, step.to),
      ...options.change,
    });
    if (written === undefined) {
      await this.#reload(entry);
      return 'refused';
    }
    const from = row.state;
    const machineBefore = row.machineId;
    this.#unindex(entry);
    entry.row = written;
    if (isTerminalContainer(step.to)) this.#entries.delete(row.id);
    else this.#put(entry);
    this.#tell({ entry, from, to: step.to, machineBefore });
    return 'moved';
  }

  /** Somebody else wrote the row: believe it. */
  async #reload(entry: BookEntry): Promise<void> {
    const row = await containerById(this.#db, entry.row.id);
    this.#unindex(entry);
    if (row === undefined || isTerminalContainer(row.state)) this.#entries.delete(entry.row.id);
    else {
      entry.row = row;
      this.#put(entry);
    }
  }

  get(id: ContainerId): BookEntry | undefined {
    return this.#entries.get(id);
  }

  ofQueue(queue: QueueName): Iterable<BookEntry> {
    return this.#byQueue.get(queue) ?? [];
  }

  ofMachine(machineId: MachineId): Iterable<BookEntry> {
    return this.#byMachine.get(machineId) ?? [];
  }

  queues(): Iterable<QueueName> {
    return this.#byQueue.keys();
  }

  all(): Iterable<BookEntry> {
    return this.#entries.values();
  }

  get refusedTransitions(): number {
    return this.#refused;
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

  #put(entry: BookEntry): void {
    this.#entries.set(entry.row.id, entry);
    add(this.#byQueue, entry.spec.queue, entry);
    if (entry.row.machineId !== null) add(this.#byMachine, entry.row.machineId, entry);
  }

  #unindex(entry: BookEntry): void {
    drop(this.#byQueue, entry.spec.queue, entry);
    if (entry.row.machineId !== null) drop(this.#byMachine, entry.row.machineId, entry);
  }

  #tell(change: BookChange): void {
    for (const listener of this.#listeners) listener(change);
  }
}

function entryOf(row: ContainerRow): BookEntry {
  return {
    row,
    spec: row.spec as StoredSpec,
    rejections: row.rejections,
    tail: Promise.resolve(),
  };
}

/** What a move itself says: back in the queue it holds no device, and UNKNOWN remembers what it was. */
function besides(from: ContainerState, to: ContainerState): ContainerChange {
  if (to === 'PENDING') return { gpuUuids: [] };
  if (to === 'UNKNOWN') return { stateBefore: from };
  return from === 'UNKNOWN' ? { stateBefore: null } : {};
}

export function viewOf(entry: BookEntry): ContainerView | undefined {
  const { row, spec } = entry;
  const status = publicStatus(row.state, row.stateBefore);
  if (status === undefined) return undefined;
  return {
    containerId: row.id,
    workspaceId: row.workspaceId,
    stubId: row.stubId,
    deploymentId: row.deploymentId,
    state: row.state,
    status,
    machineId: row.machineId,
    scheduledAtMs: row.scheduledAtMs,
    startedAtMs: row.startedAtMs,
    cpuMillicores: spec.cpuMillicores,
    memoryMib: Math.round(spec.memoryBytes / (1024 * 1024)),
  };
}

function add<K>(index: Map<K, Set<BookEntry>>, key: K, entry: BookEntry): void {
  const set = index.get(key);
  if (set === undefined) index.set(key, new Set([entry]));
  else set.add(entry);
}

function drop<K>(index: Map<K, Set<BookEntry>>, key: K, entry: BookEntry): void {
  const set = index.get(key);
  if (set === undefined) return;
  set.delete(entry);
  if (set.size === 0) index.delete(key);
}
