// Workers and pools as operators see them, and operations on workers: list, cordon, uncordon, drain, delete. Intent is
// written to the machine's row and survives restarts. The leader continues a drain, woken by each attempt that ends and
// each container that goes. A drained machine is one without a live container.
import { computeCapOf } from '#shared/domain/gpus.ts';
import { labelsText, MOST_LABELS } from '#shared/domain/labels.ts';
import type { GpuAction } from '#shared/domain/gpus.ts';
import { SYSTEM } from '../workspaces/events/audit.ts';
import type { Actor, AuditKind } from '../workspaces/events/audit.ts';
import type { MachineEvents } from './machine-events.ts';
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import { isTerminalContainer } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import { endOnDeleted } from './containers/deleted-machine.ts';
import type { ContainerEntryChange, ContainerRegistry } from './containers/container-registry.ts';
import { viewOf } from './containers/container-entry.ts';
import type { Db } from '../stores/store/db.ts';
import { deleteMachine, labelMachine, updateMachine } from '../stores/store/queries/machines.ts';
import type { MachineRow } from '../stores/store/queries/machines.ts';
import { listPools, poolByName } from '../stores/store/queries/pools.ts';
import type { PoolRow } from '../stores/store/queries/pools.ts';
import { gpuModelsOf, gpusOf } from './capacity.ts';
import type { Drains } from './drains.ts';
import { conditionsOf, isInService, labelsOf } from './machine.ts';
import type { Machine } from './machine.ts';
import type { Machines } from './machines.ts';
import { takesCpuWork } from './pool-settings.ts';
import { poolTroubles } from './pool-troubles.ts';
import type { ProviderNames } from './provisioning/provider-names.ts';
import { SteadyDeadlines } from './steady-deadlines.ts';
import { intentAfter } from './state.ts';
import type { IntentEvent } from './state.ts';
import type { DeleteMachineOutcome, Owner, PoolView, WorkerService, WorkerView, GpuView } from './worker-service.ts';

export interface WorkersParts {
  readonly db: Db;
  readonly machines: Machines;
  readonly containers: ContainerRegistry;
  /** Has every replica refuse the credentials of containers that ended. */
  readonly tellEnded?: (ids: readonly ContainerId[]) => Promise<void>;
  readonly drains: Drains;
  /** Whether work without a GPU may go to GPU machines of a pool that does not set it. */
  readonly cpuWorkAllowed: (poolName: string) => boolean;
  readonly clock: Clock;
  readonly log: Log;
  /** The leader's number; undefined while this replica does not lead. */
  readonly fence: () => number | undefined;
  readonly machineEvents: Pick<MachineEvents, 'write' | 'ordered'>;
  /** The providers of this scheduler; absent: any name counts as known. */
  readonly providers?: ProviderNames;
}

const AUDITED: Readonly<Partial<Record<IntentEvent, AuditKind>>> = {
  cordon: 'audit.machine.cordoned',
  uncordon: 'audit.machine.uncordoned',
  drain: 'audit.machine.drained',
};

const GPU_AUDITED: Readonly<Record<GpuAction, AuditKind>> = {
  exclude: 'audit.machine.gpu_excluded',
  return: 'audit.machine.gpu_returned',
  reset: 'audit.machine.gpu_reset',
  forget: 'audit.machine.gpu_forgotten',
};

/** Default time of a drain: attempts that still run after it are handed back, and their containers stopped. */
const DRAIN_DEADLINE_MS = 30 * 60_000;
const LOOK_EVERY_MS = 1_000;
/** Time that containers on a machine deleted by force have to stop. */
const FORCED_AFTER_MS = 60_000;
const MIB = 1024 * 1024;

export class Workers implements WorkerService {
  readonly name = 'workers';
  readonly #parts: WorkersParts;
  /** Moments at which machines deleted by force go, even with containers left. */
  readonly #deletions: SteadyDeadlines<MachineId>;
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: WorkersParts) {
    this.#parts = parts;
    this.#deletions = new SteadyDeadlines(parts.clock);
  }

  containerChanged({ entry, machineBefore }: ContainerEntryChange): void {
    for (const id of [entry.row.machineId, machineBefore]) if (id !== null) this.#lookSoon(id);
  }

  machineChanged(machine: Machine): void {
    this.#lookSoon(machine.row.id);
  }

  start(): void {
    this.#timer = setInterval(() => {
      for (const machine of this.#parts.machines.all()) this.#lookSoon(machine.row.id);
    }, LOOK_EVERY_MS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  // ---- lists --------------------------------------------------------------------------------------------------------

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
    const views = [...this.#parts.containers.ofMachine(machine.row.id)]
      .map(viewOf)
      .filter((view) => view !== undefined);
    return {
      workerId: machine.row.id,
      machineId: machine.row.id,
      poolName: machine.row.poolName,
      status: workerStatus(machine),
      totalCpuMillicores: capacity.totalCpuMillicores,
      freeCpuMillicores: Math.max(0, capacity.freeCpuMillicores),
      totalMemoryMib: Math.floor(capacity.totalMemoryBytes / MIB),
      freeMemoryMib: Math.max(0, Math.floor(capacity.freeMemoryBytes / MIB)),
      gpu: gpuModelsOf(machine).join(','),
      totalGpuCount: gpusOf(machine).length,
      freeGpuCount: capacity.freeGpus,
      buildVersion: machine.row.agentVersion ?? '',
      cordonRequested: machine.row.intent !== 'active',
      requiresPoolSelector: machine.row.poolSettings.requiresPoolSelector,
      priority: machine.row.poolSettings.priority,
      conditions: conditionsOf(machine, this.#parts.clock.nowMs()),
      containers: views,
      drain: this.#parts.drains.progressOf(machine),
    };
  }

  async listPools(owner: Owner): Promise<readonly PoolView[]> {
    const pools = await listPools(this.#parts.db, owner.workspaceId);
    const within = Map.groupBy(this.#owned(owner), (machine) => machine.row.poolId);
    return pools
      .map((pool) => this.#poolView(pool, within.get(pool.id) ?? []))
      .sort((a, b) => a.name.localeCompare(b.name));
  }

  async poolNamed(owner: Owner, name: string): Promise<PoolView | undefined> {
    const pool = await poolByName(this.#parts.db, { name, workspaceId: owner.workspaceId });
    if (pool === undefined) return undefined;
    return this.#poolView(
      pool,
      [...this.#owned(owner)].filter((machine) => machine.row.poolId === pool.id),
    );
  }

  #poolView({ id, name, settings, declaredIn }: PoolRow, machines: readonly Machine[]): PoolView {
    const workers = machines.filter((machine) => machine.row.joinedAtMs !== null).map((machine) => this.#view(machine));
    const available = workers.filter((worker) => worker.status === 'available');
    const sum = (pick: (worker: WorkerView) => number): number =>
      available.reduce((total, worker) => total + pick(worker), 0);
    const inState = (status: string): number =>
      workers.reduce((total, worker) => total + worker.containers.filter((one) => one.status === status).length, 0);
    const reasons = poolTroubles(machines, settings, this.#parts.providers);
    return {
      id,
      name,
      settings,
      effectiveCpuWorkOnGpuMachines: takesCpuWork(
        { poolName: name, poolSettings: settings },
        this.#parts.cpuWorkAllowed,
      ),
      declaredIn,
      gpu: workers.find((worker) => worker.gpu !== '')?.gpu ?? '',
      status: reasons.length > 0 ? 'DEGRADED' : 'HEALTHY',
      reasons,
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

  gpusOf(owner: Owner, machineId: string): readonly GpuView[] | undefined {
    const machine = this.#find(owner, machineId);
    if (machine === undefined) return undefined;
    return gpusOf(machine).map((gpu) => ({
      uuid: gpu.uuid,
      model: gpu.model,
      memoryBytes: Number(gpu.memoryBytes),
      computeCap: gpu.computeCap || computeCapOf(gpu.model),
      pciBusId: gpu.pciBusId,
      nvlinkIsland: gpu.nvlinkIsland,
      parentUuid: gpu.parentUuid,
      why: gpu.why,
      state: gpu.state || (gpu.unhealthy ? 'unhealthy' : 'healthy'),
    }));
  }

  async gpuOrdered(...[owner, machineId, order, by]: Parameters<WorkerService['gpuOrdered']>): Promise<void> {
    const machine = this.#find(owner, machineId);
    if (machine === undefined) return;
    const attrs = { gpu_uuid: order.uuid, outcome: order.outcome || 'done' };
    await this.#parts.machineEvents.ordered(machine.row, { kind: GPU_AUDITED[order.action], by, attrs });
  }

  async label(...[owner, machineId, change, by = SYSTEM]: Parameters<WorkerService['label']>) {
    const machine = this.#find(owner, machineId);
    if (machine === undefined) return 'not_found';
    const labels = await labelMachine(this.#parts.db, machine.row.id, change, MOST_LABELS);
    if (labels === undefined) return 'too_many';
    this.#parts.machines.setRow(machine, { labels });
    const attrs = { set: labelsText(change.set), removed: change.remove.join(',') };
    await this.#parts.machineEvents.ordered(machine.row, { kind: 'audit.machine.labelled', by, attrs });
    return labelsOf(this.#parts.machines.get(machine.row.id) ?? machine);
  }

  // ---- intent -------------------------------------------------------------------------------------------------------

  async cordon(owner: Owner, workerId: string, by: Actor = SYSTEM): Promise<boolean> {
    const machine = this.#find(owner, workerId);
    if (machine === undefined) return false;
    await this.#intend(machine, 'cordon', { by });
    await this.#revokeUnacknowledged(machine);
    return true;
  }

  async uncordon(owner: Owner, workerId: string, by: Actor = SYSTEM): Promise<boolean> {
    const machine = this.#find(owner, workerId);
    if (machine === undefined) return false;
    await this.#intend(machine, 'uncordon', { by });
    return true;
  }

  /** On a second call the earlier deadline counts. */
  async drain(owner: Owner, workerId: string, deadlineMs?: number, by: Actor = SYSTEM): Promise<boolean> {
    const machine = this.#find(owner, workerId);
    if (machine === undefined) return false;
    await this.#drain(machine, deadlineMs, by);
    return true;
  }

  async #drain(machine: Machine, deadlineMs?: number, by?: Actor): Promise<void> {
    const drain = this.#drainFrom(machine, deadlineMs);
    if (machine.row.intent !== 'draining')
      await this.#intend(machine, 'drain', { drain, ...(by === undefined ? {} : { by }) });
    else if (await updateMachine(this.#parts.db, machine.row.id, { drain, ifIntent: 'draining' }))
      this.#parts.machines.setRow(machine, rowOf(drain));
    await this.#revokeUnacknowledged(machine);
    await this.#check(machine.row.id);
  }

  async deleteMachine(
    owner: Owner,
    machineId: string,
    poolName: string,
    force = false,
    by: Actor = SYSTEM,
  ): Promise<DeleteMachineOutcome> {
    const machine = this.#find(owner, machineId);
    if (machine === undefined || (poolName !== '' && machine.row.poolName !== poolName)) return 'not_found';
    const removable = ['PENDING', 'EXPIRED', 'LOST'].includes(machine.health) || machine.row.intent === 'drained';
    if (removable) return (await this.#delete(machine, by)) ? 'deleted' : 'not_found';
    if (!force) return 'not_drained';
    const deleteAtMs = machine.row.deleteAtMs ?? this.#parts.clock.nowMs() + FORCED_AFTER_MS;
    if (!(await updateMachine(this.#parts.db, machine.row.id, { deleteAtMs }))) return 'not_found';
    this.#parts.machines.setRow(machine, { deleteAtMs });
    await this.#drain(machine, 0, by);
    return 'forced';
  }

  /** Deletes a machine in any state: its instance is gone, and nothing runs there. False: it was deleted already. */
  async remove(machineId: MachineId): Promise<boolean> {
    const machine = this.#parts.machines.get(machineId);
    return machine !== undefined && (await this.#delete(machine));
  }

  async #delete(machine: Machine, by: Actor = SYSTEM): Promise<boolean> {
    const isDeleted = await this.#parts.machineEvents.write(
      machine.row,
      'deleted',
      '',
      (tx) => deleteMachine(tx, machine.row.id),
      { kind: 'audit.machine.deleted', by },
    );
    if (!isDeleted) return false;
    const entries = [...this.#parts.containers.ofMachine(machine.row.id)];
    for (const { row } of entries) await endOnDeleted(this.#parts.containers, row);
    this.#parts.machines.deleted(machine.row.id);
    // Containers that had not been taken there live on elsewhere, under another epoch.
    const ended = entries.filter(({ row }) => isTerminalContainer(row.state));
    await this.#parts.tellEnded?.(ended.map(({ row }) => row.id));
    this.#parts.log.info({ machineId: machine.row.id }, 'machine deleted');
    return true;
  }

  /**
   * Changes the intent of a machine. An event that the table does not list
   * changes nothing: the machine has that intent already, or a later one.
   * @param options - `fence`: for the leader's own steps, which a later change by an operator overrides
   */
  async #intend(
    machine: Machine,
    event: IntentEvent,
    options: {
      readonly fence?: number;
      readonly drain?: { readonly deadlineMs: number; readonly total: number };
      readonly by?: Actor;
    } = {},
  ): Promise<void> {
    const before = machine.row.intent;
    const intent = intentAfter(before, event);
    if (intent === undefined) return;
    const { id } = machine.row;
    const { fence, drain, by } = options;
    // A finished drain keeps its initial numbers for later views.
    const change = { intent, ...(drain !== undefined || event === 'uncordon' ? { drain: drain ?? null } : {}) };
    const audit = AUDITED[event];
    const write = (fields: Parameters<typeof updateMachine>[2]): Promise<boolean> =>
      this.#parts.machineEvents.write(
        machine.row,
        intent,
        event,
        (tx) => updateMachine(tx, id, fields),
        by === undefined || audit === undefined ? undefined : { kind: audit, by },
      );
    if (fence === undefined) await write(change);
    else if (!(await write({ ...change, ifIntent: before, fence }))) {
      this.#parts.log.info({ machineId: id, event, fence }, 'a step of a drain is refused: superseded');
      return;
    }
    this.#parts.machines.setRow(machine, { intent, ...(change.drain === undefined ? {} : rowOf(change.drain)) });
    this.#parts.log.info({ machineId: machine.row.id, intent }, 'intent of a machine changed');
  }

  /** Takes back containers that were placed there and not acknowledged yet: they wait for a place again. */
  async #revokeUnacknowledged(machine: Machine): Promise<void> {
    for (const entry of [...this.#parts.containers.ofMachine(machine.row.id)]) {
      if (entry.row.state !== 'ASSIGNED') continue;
      await this.#parts.containers.transition(entry.row.id, 'revoke', {
        epoch: entry.row.epoch,
        change: { machineId: null, assignmentId: null },
      });
    }
  }

  // ---- draining -----------------------------------------------------------------------------------------------------

  /** Takes one step for a machine; repeated whenever something there changes. */
  async #check(machineId: MachineId): Promise<void> {
    const { machines, drains } = this.#parts;
    const machine = machines.get(machineId);
    const fence = this.#parts.fence();
    if (machine === undefined || fence === undefined) return;
    const { intent, deleteAtMs } = machine.row;
    if (deleteAtMs !== null && (this.#deletions.isOver(machineId, deleteAtMs) || !this.#isOccupied(machine))) {
      this.#deletions.forget(machineId);
      await this.#delete(machine);
      return;
    }
    if (intent === 'drained' && this.#isOccupied(machine)) {
      this.#parts.log.warn({ machineId }, 'a live container on a drained machine: draining it again');
      await this.#intend(machine, 'found_live', { fence, drain: this.#drainFrom(machine) });
    } else if (intent === 'draining' && machine.health === 'READY' && !this.#isOccupied(machine)) {
      await this.#intend(machine, 'emptied', { fence });
    }
    await drains.check(machine);
  }

  /** Looks at the machine now. A failure is only logged, because the next look comes within a second. */
  #lookSoon(machineId: MachineId): void {
    this.#check(machineId).catch((error: unknown) =>
      this.#parts.log.warn({ err: error, machineId }, 'a drain could not go on, trying again'),
    );
  }

  /** Whether containers are on the machine, by its rows or by its agent's report of others (I16). */
  #isOccupied(machine: Machine): boolean {
    return machine.orphans.size > 0 || [...this.#parts.containers.ofMachine(machine.row.id)].length > 0;
  }

  #drainFrom(
    machine: Machine,
    deadlineMs = DRAIN_DEADLINE_MS,
  ): { readonly deadlineMs: number; readonly total: number } {
    const untilMs = this.#parts.clock.nowMs() + deadlineMs;
    const now = [...this.#parts.containers.ofMachine(machine.row.id)].length;
    const isOn = machine.row.intent === 'draining';
    return {
      deadlineMs: isOn ? Math.min(machine.row.drainDeadlineAtMs ?? untilMs, untilMs) : untilMs,
      total: isOn ? (machine.row.drainTotal ?? now) : now,
    };
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
  if (machine.health === 'READY' && isInService(machine.row)) return 'available';
  return machine.row.joinedAtMs === null || machine.row.lastSeenAtMs === null ? 'pending' : 'disabled';
}

const rowOf = (
  drain: { readonly deadlineMs: number; readonly total: number } | null,
): Pick<MachineRow, 'drainDeadlineAtMs' | 'drainTotal'> => ({
  drainDeadlineAtMs: drain?.deadlineMs ?? null,
  drainTotal: drain?.total ?? null,
});
