// Workers and pools as operators handle them: list, cordon, uncordon, drain, delete. Intent is written to the machine's row and survives everything; what drains is carried on by the leader,
// woken by each attempt that ends and each container that goes. A drained machine is one without a live container.
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import { endOnDeleted } from '../containers/deleted-machine.ts';
import type { Book, BookEntry, ContainerBook } from '../containers/book.ts';
import { viewOf } from '../containers/book.ts';
import type { SlotTable } from '../dispatch/slots.ts';
import type { Db } from '../store/db.ts';
import { deleteMachine, updateMachine } from '../store/queries/machines.ts';
import { listPools } from '../store/queries/pools.ts';
import type { Machine } from './machine.ts';
import type { Machines } from './machines.ts';
import { intentAfter } from './state.ts';
import type { IntentEvent } from './state.ts';
import type { DeleteMachineOutcome, Owner, PoolView, WorkerService, WorkerView } from './worker-service.ts';

export interface WorkersParts {
  readonly db: Db;
  readonly machines: Machines;
  readonly book: ContainerBook;
  /** The book as the leader writes it: what a drain makes of containers. */
  readonly leaderBook: Pick<Book, 'transition'>;
  readonly slots: SlotTable;
  readonly clock: Clock;
  readonly log: Log;
  /** The leader's number; undefined while this replica does not lead. */
  readonly fence: () => number | undefined;
}

/** What still runs after this is handed back and stopped. */
const DRAIN_DEADLINE_MS = 30 * 60_000;
const LOOK_EVERY_MS = 1_000;
const MIB = 1024 * 1024;

export class Workers implements WorkerService {
  readonly #parts: WorkersParts;
  /** When each drain runs out; a scheduler that restarts gives it its whole time again. */
  readonly #deadlines = new Map<MachineId, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: WorkersParts) {
    this.#parts = parts;
    parts.book.onChange(({ entry, machineBefore }) => {
      for (const id of [entry.row.machineId, machineBefore]) if (id !== null) this.#look(id);
    });
    parts.machines.onChange((machine) => this.#look(machine.row.id));
  }

  start(): void {
    this.#timer = setInterval(() => {
      for (const machine of this.#parts.machines.all()) this.#look(machine.row.id);
    }, LOOK_EVERY_MS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  // ---- lists ----------------------------------------------------------------------------------------------------------------------

  listWorkers(owner: Owner): readonly WorkerView[] {
    const views: WorkerView[] = [];
    for (const machine of this.#owned(owner)) {
      if (machine.row.joinedAtMs !== null) views.push(this.#view(machine));
    }
    return views.sort(
      (a, b) =>
        a.poolName.localeCompare(b.poolName) ||
        a.status.localeCompare(b.status) ||
        a.machineId.localeCompare(b.machineId),
    );
  }

  #view(machine: Machine): WorkerView {
    const capacity = this.#parts.machines.capacity(machine);
    const gpus = machine.inventory?.gpus ?? [];
    const containers = [...this.#parts.book.ofMachine(machine.row.id)].map(viewOf).filter((view) => view !== undefined);
    return {
      workerId: machine.row.id,
      machineId: machine.row.id,
      poolName: machine.row.poolName,
      status: workerStatus(machine),
      totalCpuMillicores: capacity.totalCpuMillicores,
      freeCpuMillicores: Math.max(0, capacity.freeCpuMillicores),
      totalMemoryMib: Math.floor(capacity.totalMemoryBytes / MIB),
      freeMemoryMib: Math.max(0, Math.floor(capacity.freeMemoryBytes / MIB)),
      gpu: gpus[0]?.model ?? '',
      totalGpuCount: gpus.length,
      freeGpuCount: gpus.length - capacity.leasedGpus.size,
      buildVersion: machine.row.agentVersion ?? '',
      cordonRequested: machine.row.intent !== 'active',
      containers,
    };
  }

  async listPools(owner: Owner): Promise<readonly PoolView[]> {
    const pools = (await listPools(this.#parts.db)).filter((pool) => pool.workspaceId === owner.workspaceId);
    return pools
      .map((pool) =>
        this.#poolView(
          pool.name,
          [...this.#owned(owner)].filter((machine) => machine.row.poolId === pool.id),
        ),
      )
      .sort((a, b) => a.name.localeCompare(b.name));
  }

  #poolView(name: string, machines: readonly Machine[]): PoolView {
    const workers = machines.filter((machine) => machine.row.joinedAtMs !== null).map((machine) => this.#view(machine));
    const available = workers.filter((worker) => worker.status === 'available');
    const sum = (pick: (worker: WorkerView) => number): number =>
      available.reduce((total, worker) => total + pick(worker), 0);
    const inState = (status: string): number =>
      workers.reduce((total, worker) => total + worker.containers.filter((one) => one.status === status).length, 0);
    const broken = machines.some((machine) => machine.health === 'LOST' || machine.health === 'SUSPECT');
    return {
      name,
      gpu: workers.find((worker) => worker.gpu !== '')?.gpu ?? '',
      status: broken ? 'DEGRADED' : 'HEALTHY',
      freeGpu: sum((worker) => worker.freeGpuCount),
      freeCpuMillicores: sum((worker) => worker.freeCpuMillicores),
      freeMemoryMib: sum((worker) => worker.freeMemoryMib),
      pendingWorkers: workers.filter((worker) => worker.status === 'pending').length,
      availableWorkers: available.length,
      pendingContainers: inState('PENDING'),
      runningContainers: inState('RUNNING'),
      registeredMachines: machines.filter((machine) => machine.row.joinedAtMs !== null).length,
      pendingMachines: machines.filter((machine) => machine.health === 'PENDING').length,
      readyMachines: machines.filter((machine) => machine.health === 'READY').length,
    };
  }

  // ---- intent ---------------------------------------------------------------------------------------------------------------------

  async cordon(owner: Owner, workerId: string): Promise<boolean> {
    const machine = this.#find(owner, workerId);
    if (machine === undefined) return false;
    await this.#intend(machine, 'cordon');
    await this.#revokeUnacknowledged(machine);
    return true;
  }

  async uncordon(owner: Owner, workerId: string): Promise<boolean> {
    const machine = this.#find(owner, workerId);
    if (machine === undefined) return false;
    this.#deadlines.delete(machine.row.id);
    await this.#intend(machine, 'uncordon');
    return true;
  }

  /** Draining twice keeps the earlier deadline. */
  async drain(owner: Owner, workerId: string): Promise<boolean> {
    const machine = this.#find(owner, workerId);
    if (machine === undefined) return false;
    await this.#intend(machine, 'drain');
    await this.#revokeUnacknowledged(machine);
    this.#look(machine.row.id);
    return true;
  }

  async deleteMachine(owner: Owner, machineId: string, poolName: string): Promise<DeleteMachineOutcome> {
    const machine = this.#find(owner, machineId);
    if (machine === undefined || (poolName !== '' && machine.row.poolName !== poolName)) return 'not_found';
    const removable = ['PENDING', 'EXPIRED', 'LOST'].includes(machine.health) || machine.row.intent === 'drained';
    if (!removable) return 'not_drained';
    if (!(await deleteMachine(this.#parts.db, machine.row.id))) return 'not_found';
    for (const entry of [...this.#parts.book.ofMachine(machine.row.id)]) {
      await endOnDeleted(this.#parts.book, entry.row);
    }
    this.#parts.machines.deleted(machine.row.id);
    this.#deadlines.delete(machine.row.id);
    this.#parts.log.info({ machineId: machine.row.id }, 'machine deleted');
    return 'deleted';
  }

  /** What the table does not list changes nothing: it is that already, or further. @param fence - of the leader's own steps, which an operator's word meanwhile overrides */
  async #intend(machine: Machine, event: IntentEvent, fence?: number): Promise<void> {
    const before = machine.row.intent;
    const intent = intentAfter(before, event);
    if (intent === undefined) return;
    const { id } = machine.row;
    if (fence === undefined) await updateMachine(this.#parts.db, id, { intent });
    else if (!(await updateMachine(this.#parts.db, id, { intent, ifIntent: before, fence }))) {
      this.#parts.log.info({ machineId: id, event, fence }, 'a step of a drain is refused: superseded');
      return;
    }
    this.#parts.machines.setIntent(machine, intent);
    this.#parts.log.info({ machineId: machine.row.id, intent }, 'intent of a machine changed');
  }

  /** Placed there and not acknowledged yet: back to the queue of what needs a place. */
  async #revokeUnacknowledged(machine: Machine): Promise<void> {
    for (const entry of [...this.#parts.book.ofMachine(machine.row.id)]) {
      if (entry.row.state !== 'ASSIGNED') continue;
      await this.#parts.book.transition(entry.row.id, 'revoke', {
        epoch: entry.row.epoch,
        change: { machineId: null, assignmentId: null },
      });
    }
  }

  // ---- draining -------------------------------------------------------------------------------------------------------------------

  /** One step for one machine; repeated whenever something there changes. */
  #look(machineId: MachineId): void {
    const { machines, clock } = this.#parts;
    const machine = machines.get(machineId);
    const fence = this.#parts.fence();
    if (machine === undefined || fence === undefined) return;
    if (machine.row.intent === 'drained' && this.#isOccupied(machine)) {
      this.#parts.log.warn({ machineId }, 'a live container on a drained machine: draining it again');
      this.#intendLater(machine, 'found_live', fence);
    }
    if (machine.row.intent !== 'draining') {
      // Uncordoned, perhaps through another replica: the next drain has its whole time.
      this.#deadlines.delete(machineId);
      return;
    }
    const nowMs = clock.nowMs();
    const deadlineMs = this.#deadlines.get(machineId) ?? nowMs + DRAIN_DEADLINE_MS;
    this.#deadlines.set(machineId, deadlineMs);
    const entries = [...this.#parts.book.ofMachine(machineId)];
    if (machine.health === 'READY' && !this.#isOccupied(machine)) {
      this.#deadlines.delete(machineId);
      this.#intendLater(machine, 'emptied', fence);
      return;
    }
    // What its containers do is known to the replica that has its link: that one stops them when they are idle.
    const isElsewhere = machine.health === 'READY' && machine.sessionId === undefined;
    for (const entry of entries) this.#leave(entry, nowMs >= deadlineMs, isElsewhere);
  }

  /** By what the rows place there, and by what its agent has besides (I16). */
  #isOccupied(machine: Machine): boolean {
    return machine.strangers.size > 0 || [...this.#parts.book.ofMachine(machine.row.id)].length > 0;
  }

  #intendLater(machine: Machine, event: IntentEvent, fence: number): void {
    void this.#intend(machine, event, fence).catch((error: unknown) =>
      this.#parts.log.warn({ err: error, machineId: machine.row.id, event }, 'intent not written, trying again'),
    );
  }

  /** No new attempts; stopped once it has none, or at the deadline. */
  #leave(entry: BookEntry, isLate: boolean, isElsewhere: boolean): void {
    const { slots } = this.#parts;
    const { state, id } = entry.row;
    if (state === 'RUNNING' || state === 'DRAINING') {
      slots.leave(id);
      const busy = isElsewhere || (slots.get(id)?.inFlight ?? 0) > 0;
      if (busy && !isLate) {
        if (state === 'RUNNING') this.#move(id, 'drain');
        return;
      }
    }
    if (state === 'STARTING' || state === 'RUNNING' || state === 'DRAINING') {
      this.#move(id, 'stop');
    }
  }

  /** Looked at again every second, so one that could not be written is no more than said. */
  #move(id: ContainerId, event: 'drain' | 'stop'): void {
    this.#parts.leaderBook.transition(id, event, { change: { reason: 'drained' } }).catch((error: unknown) => {
      this.#parts.log.warn({ err: error, containerId: id }, 'a container could not be drained, trying again');
    });
  }

  *#owned(owner: Owner): Iterable<Machine> {
    for (const machine of this.#parts.machines.all()) {
      if (machine.row.poolWorkspaceId === owner.workspaceId) yield machine;
    }
  }

  #find(owner: Owner, id: string): Machine | undefined {
    const machine = this.#parts.machines.get(id as MachineId);
    return machine?.row.poolWorkspaceId === owner.workspaceId ? machine : undefined;
  }
}

/** available = READY and active; pending = never READY yet; disabled = everything else. */
function workerStatus(machine: Machine): WorkerView['status'] {
  if (machine.health === 'READY' && machine.row.intent === 'active') return 'available';
  return machine.row.joinedAtMs === null || machine.row.lastSeenAtMs === null ? 'pending' : 'disabled';
}
