// Facts from which the loop decides how pools grow and shrink, and the words of its decisions. Times are
// monotonic milliseconds of the process that decides. Types alone.
import type { PoolSettings } from '#shared/api/pools.ts';
import type { DriverFact, GpuFacts, GpuLink } from '#shared/domain/gpu-terms.ts';
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import type { LabelRules, Labels } from '#shared/domain/labels.ts';
import type { PoolCapacity } from '../../domain/provisioning.ts';
import type { Market } from '../../domain/shares.ts';
import type { Standing } from '../plan/markets.ts';

/** Container that waits for a place. */
export interface Demand {
  readonly id: ContainerId;
  readonly queue: QueueName;
  readonly workspaceId: WorkspaceId;
  /** Pool that it must run in; empty: any that the workspace may use. */
  readonly poolName: string;
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
  /** GPU terms in order of preference, such as `H100` or `any:>=40GiB`. Empty: none. */
  readonly gpu: readonly string[];
  readonly gpuCount: number;
  /** How its GPUs must be linked; absent: anyhow. */
  readonly gpuLink?: GpuLink | undefined;
  /** Least CUDA version of the machine's driver; absent: any. */
  readonly minCuda?: string;
  /** Rules for labels of its machines; absent: none. */
  readonly labels?: LabelRules | undefined;
  /** Since when it waits. */
  readonly sinceMs: number;
  /** Milliseconds by which it counts as older inside its workspace. Absent: 0. */
  readonly headStartMs?: number;
  /** How its workspace stands in its market: who stands best is served first. Absent: who waits longest is. */
  readonly standing?: Standing | undefined;
  /** Markets of which its workspace may have no more. Absent: none. */
  readonly fullIn?: readonly Market[];
  /** Containers that it stands for: itself, and those that follow once it is placed. Absent: itself alone. */
  readonly count?: number;
}

/** Amounts that a machine offers to containers, less what stays for its host. */
export interface Offer {
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
  readonly gpus: readonly GpuFacts[];
  /** Version of their driver; absent: not known. */
  readonly gpuDriver?: DriverFact;
  /** Absent: none. */
  readonly labels?: Labels;
}

/** Machine of a pool that has joined. */
export interface Room {
  readonly machineId: MachineId;
  /** Whether the pool's provider made it: the loop never ends a machine that was admitted by hand. */
  readonly isMade: boolean;
  /** Whether the pool's capacity counts it as on its way: it has joined, and is not ready or was not noted as such. */
  readonly isPending: boolean;
  /** Whether the provider was asked for what the pool asks for today; false also of machines admitted by hand. */
  readonly isOrderOfToday: boolean;
  /** Whether new containers may be placed there. */
  readonly isOpen: boolean;
  /** Whether it may be ended: in service, and not in doubt. */
  readonly mayLeave: boolean;
  readonly total: Offer;
  readonly free: Offer;
  readonly createdAtMs: number;
  /** Since when it is open and has offered no less than now: placement has had so long to use it. */
  readonly offersSinceMs: number;
  /** Since when no container is there; null: one is. */
  readonly emptySinceMs: number | null;
}

/** Pool with a provider. */
export interface GrowingPool {
  readonly poolId: number;
  readonly poolName: string;
  /** Workspace that owns the pool; null: shared. */
  readonly poolOwner: WorkspaceId | null;
  readonly settings: PoolSettings;
  /** Whether the installation has the provider. */
  readonly isKnown: boolean;
  /** Amounts of a machine that the provider makes from now on. */
  readonly offer: Offer;
  /** Amounts of each machine on its way, as it was ordered; as many as `capacity` counts as pending. */
  readonly coming: readonly Offer[];
  /** Machines of the provider; `notBeforeMs` as monotonic time. */
  readonly capacity: PoolCapacity;
  readonly rooms: readonly Room[];
  /** Queues whose containers an empty machine of the pool did not take: for a while it makes no other one for them. */
  readonly refused: ReadonlySet<QueueName>;
  /** Since when less is free than the pool's floors ask for; null: enough is. */
  readonly shortSinceMs: number | null;
}

/** Why a pool can never serve a container. */
export type Unfit =
  | 'not_usable'
  | 'at_limit'
  | 'label'
  | 'kept_for_gpus'
  | 'gpu_model'
  | 'gpu_fact_unknown'
  | 'gpu_link'
  | 'gpu_driver'
  | 'gpu_count'
  | 'too_small'
  | 'refused';

/** Why a pool gets no further machine now. `price_unknown`: its first machine has to tell what a machine costs. */
export type Blocked =
  | 'unknown_provider'
  | 'pending_bound'
  | 'max_machines'
  | 'hourly_budget'
  | 'price_unknown'
  | 'backing_off';

/** Cause of a new machine. */
export type Cause = 'demand' | 'floor' | 'min_machines';

export type Step =
  | { readonly kind: 'grow'; readonly poolId: number; readonly cause: Cause; readonly reason: string }
  | { readonly kind: 'shrink'; readonly poolId: number; readonly machineId: MachineId; readonly reason: string };

/** Why a pool grows or not, and its cost. */
export interface PoolStatement {
  readonly poolId: number;
  readonly poolName: string;
  /** Machines that it gets now, by their cause. */
  readonly grows: Readonly<Partial<Record<Cause, number>>>;
  /** Containers for which it was the best pool, and got no machine. */
  readonly unserved: number;
  /** Containers that its machines on their way will take. */
  readonly awaiting: number;
  /** Bound that keeps it from growing, where something asks for more; null: none does, or nothing asks. */
  readonly blocked: Blocked | null;
  /** Whether less is free than its floors ask for. */
  readonly isShort: boolean;
  /** Price of a machine in an hour; null: not known. */
  readonly price: number | null;
  /** Cost of its machines in an hour, as the budget counts it. */
  readonly hourlyCost: number;
}

export interface Decision {
  readonly steps: readonly Step[];
  readonly pools: readonly PoolStatement[];
  /** Containers that a machine on its way will take, with its pool. */
  readonly awaited: ReadonlyMap<ContainerId, number>;
  /** Queues whose containers an empty machine does not take, by pool. */
  readonly refused: readonly { readonly poolId: number; readonly queue: QueueName; readonly machineId: MachineId }[];
  /** When to look at a pool again although nothing changes. */
  readonly againAtMs: ReadonlyMap<number, number>;
}
