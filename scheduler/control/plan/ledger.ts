// Resources of containers that have a place: the use of workspaces, also by market, and how many of a queue are on each
// machine. A container is counted once, however often it is told, so a repeated or early event changes nothing.
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import { Grouped } from '#shared/grouped.ts';
import type { WorkspaceShare } from '../../domain/shares.ts';
import type { PlacementMachine } from './filter.ts';
import type { Markets } from './markets.ts';

/** Limits on what a workspace may have at once; null: no bound. */
export interface Quota {
  readonly gpus: number | null;
  readonly cpuMillicores: number | null;
  readonly memoryMib?: number | null;
  readonly containers?: number | null;
  /** How it shares the machines of all; absent: the default. */
  readonly share?: WorkspaceShare;
}

/** Resources of a container that has a place. */
export interface Holding {
  readonly workspaceId: WorkspaceId;
  readonly queue: QueueName;
  readonly machineId: MachineId | null;
  readonly gpuCount: number;
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
  /** Devices that it leases. Absent: none is known. */
  readonly gpuUuids?: readonly string[];
  /** Whether it may end for a container of another workspace. Absent: no. */
  readonly interruptible?: true;
  /** Time by which it ends at the latest. Absent: nothing ends it by a known time. */
  readonly endsAtMs?: number;
}

export interface Use {
  readonly gpus: number;
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
  readonly containers: number;
}

/** Amounts that one container takes. */
export type Amounts = Pick<Holding, 'gpuCount' | 'cpuMillicores' | 'memoryBytes'>;

export const NO_USE: Use = { gpus: 0, cpuMillicores: 0, memoryBytes: 0, containers: 0 };
const NO_SIBLINGS: ReadonlyMap<MachineId, number> = new Map();
const NOBODY: ReadonlySet<WorkspaceId> = new Set();
const MIB = 1024 * 1024;

export class Ledger {
  readonly markets: Markets;
  /** Containers that warmth alone keeps, as was told last: they end where another one waits for their machine. */
  spare: ReadonlySet<ContainerId> = new Set();
  #onMachine = new Grouped<MachineId, ContainerId>();
  readonly #held = new Map<ContainerId, Holding>();
  readonly #ending = new Set<ContainerId>();
  readonly #used = new Map<WorkspaceId, Use>();
  readonly #siblings = new Map<QueueName, Map<MachineId, number>>();

  constructor(markets: Markets) {
    this.markets = markets;
  }

  clear(): void {
    this.#onMachine = new Grouped();
    this.#held.clear();
    this.#ending.clear();
    this.spare = new Set();
    this.markets.clear();
    this.#used.clear();
    this.#siblings.clear();
  }

  /** Counts what a container holds from now on. */
  hold(id: ContainerId, holding: Holding): void {
    const before = this.#held.get(id);
    if (before?.machineId === holding.machineId) {
      // Amounts stay as they were counted. A container that was to end may stay after all.
      const { workspaceId, queue, gpuCount, cpuMillicores, memoryBytes } = before;
      const { endsAtMs: _, ...rest } = before;
      this.#held.set(id, { ...rest, ...holding, workspaceId, queue, gpuCount, cpuMillicores, memoryBytes });
      if (holding.endsAtMs === undefined) this.#ending.delete(id);
      else this.#ending.add(id);
      return;
    }
    this.release(id);
    this.#held.set(id, holding);
    if (holding.endsAtMs !== undefined) this.#ending.add(id);
    if (holding.machineId !== null) this.#onMachine.add(holding.machineId, id);
    this.#count(holding, 1);
  }

  /** Counts a container that holds nothing any more. @returns false: it held nothing */
  release(id: ContainerId): boolean {
    const holding = this.#held.get(id);
    if (holding === undefined) return false;
    this.#held.delete(id);
    this.#ending.delete(id);
    this.#count(holding, -1);
    const { machineId } = holding;
    if (machineId === null) return true;
    this.#onMachine.delete(machineId, id);
    if (this.#onMachine.of(machineId).size === 0) this.markets.left(machineId);
    return true;
  }

  /**
   * The machine is in the market of its devices; its containers count there.
   * @returns workspaces whose containers counted elsewhere before
   */
  setMachine(machine: PlacementMachine): ReadonlySet<WorkspaceId> {
    const isOther = this.markets.isOther(machine);
    if (!isOther) {
      this.markets.put(machine);
      return NOBODY;
    }
    this.#countThere(machine.machineId, -1);
    this.markets.put(machine);
    return this.#countThere(machine.machineId, 1);
  }

  deleteMachine(id: MachineId): void {
    this.markets.drop(id, this.#onMachine.of(id).size === 0);
  }

  #countThere(id: MachineId, sign: 1 | -1): ReadonlySet<WorkspaceId> {
    const there = this.on(id);
    for (const { holding } of there) this.#countInMarket(holding, sign);
    return new Set(there.map(({ holding }) => holding.workspaceId));
  }

  #countInMarket(holding: Holding, sign: 1 | -1): void {
    const { workspaceId, machineId, gpuCount } = holding;
    this.markets.count(workspaceId, this.markets.on(machineId, gpuCount), holding, sign);
  }

  /** Resources of the container; undefined: it holds nothing. */
  get(id: ContainerId): Holding | undefined {
    return this.#held.get(id);
  }

  /** Containers that hold something. */
  ids(): Iterable<ContainerId> {
    return this.#held.keys();
  }

  /** Containers that end by a known time. */
  ending(): Iterable<ContainerId> {
    return this.#ending;
  }

  useOf(workspaceId: WorkspaceId): Use {
    return this.#used.get(workspaceId) ?? NO_USE;
  }

  /** Containers on the machine. `isSpare`: warmth alone keeps it. */
  on(
    machineId: MachineId,
  ): readonly { readonly id: ContainerId; readonly holding: Holding; readonly isSpare: boolean }[] {
    return [...this.#onMachine.of(machineId)].flatMap((id) => {
      const holding = this.#held.get(id);
      return holding === undefined ? [] : [{ id, holding, isSpare: this.spare.has(id) }];
    });
  }

  /** Number of containers of the queue on each machine. */
  siblingsOf(queue: QueueName): ReadonlyMap<MachineId, number> {
    return this.#siblings.get(queue) ?? NO_SIBLINGS;
  }

  #count(holding: Holding, sign: 1 | -1): void {
    const { workspaceId, queue, machineId } = holding;
    const use = plus(this.useOf(workspaceId), holding, sign);
    if (use.containers === 0) this.#used.delete(workspaceId);
    else this.#used.set(workspaceId, use);
    this.#countInMarket(holding, sign);
    if (machineId === null) return;
    const siblings = this.#siblings.get(queue) ?? new Map<MachineId, number>();
    const count = (siblings.get(machineId) ?? 0) + sign;
    if (count > 0) siblings.set(machineId, count);
    else siblings.delete(machineId);
    if (siblings.size > 0) this.#siblings.set(queue, siblings);
    else this.#siblings.delete(queue);
  }
}

/** Adds containers of these amounts to what a workspace uses. @param count - how many; -1: one is taken off */
export const plus = (use: Use, { gpuCount, cpuMillicores, memoryBytes }: Amounts, count = 1): Use => ({
  gpus: use.gpus + count * gpuCount,
  cpuMillicores: use.cpuMillicores + count * cpuMillicores,
  memoryBytes: use.memoryBytes + count * memoryBytes,
  containers: use.containers + count,
});

/** Whether one more such container would pass the limits. */
export function isOver(use: Use, wanted: Amounts, quota: Quota): boolean {
  const { gpus, cpuMillicores, memoryMib = null, containers = null } = quota;
  const next = plus(use, wanted);
  if (gpus !== null && wanted.gpuCount > 0 && next.gpus > gpus) return true;
  if (cpuMillicores !== null && next.cpuMillicores > cpuMillicores) return true;
  if (memoryMib !== null && next.memoryBytes > memoryMib * MIB) return true;
  return containers !== null && next.containers > containers;
}

/** Number of such containers that the limits leave room for. */
export function roomFor(use: Use, { gpuCount, cpuMillicores, memoryBytes }: Amounts, quota: Quota): number {
  const { gpus, cpuMillicores: cpu, memoryMib = null, containers = null } = quota;
  const left = (most: number | null, used: number, each: number): number =>
    most === null || each === 0 ? Infinity : Math.max(0, Math.floor((most - used) / each));
  return Math.min(
    left(gpus, use.gpus, gpuCount),
    left(cpu, use.cpuMillicores, cpuMillicores),
    left(memoryMib === null ? null : memoryMib * MIB, use.memoryBytes, memoryBytes),
    left(containers, use.containers, 1),
  );
}
