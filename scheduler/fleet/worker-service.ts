// Operations on workers (a machine's schedulable capacity) and pools for the
// surfaces. `workspaceId` null: the shared pools' (admin); else that workspace's own.
import type { GpuAction } from '#shared/domain/gpus.ts';
import type { Labels } from '#shared/domain/labels.ts';
import type { PoolSettings } from '#shared/api/pools.ts';
import type { ContainerId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Actor } from '../workspaces/events/audit.ts';
import type { ContainerView } from './containers/container-view.ts';

export interface Owner {
  readonly workspaceId: WorkspaceId | null;
}

export interface WorkerView {
  /** Id of the worker's machine: a machine has one worker. */
  readonly workerId: string;
  readonly machineId: MachineId;
  readonly poolName: string;
  /** available = READY and active; pending = never READY yet; disabled = everything else. */
  readonly status: 'available' | 'pending' | 'disabled';
  readonly totalCpuMillicores: number;
  readonly freeCpuMillicores: number;
  readonly totalMemoryMib: number;
  readonly freeMemoryMib: number;
  readonly gpu: string;
  readonly totalGpuCount: number;
  readonly freeGpuCount: number;
  readonly buildVersion: string;
  readonly cordonRequested: boolean;
  /** Setting of the worker's pool. */
  readonly requiresPoolSelector: boolean;
  readonly priority: number;
  /** Conditions that the agent reports of the machine. */
  readonly conditions: readonly string[];
  readonly containers: readonly ContainerView[];
  /** Drain of the worker; null: it neither drains nor has drained. */
  readonly drain: DrainView | null;
}

export interface DrainView {
  /** Number of containers when the drain began. */
  readonly total: number;
  readonly remaining: number;
  /** Deadline of the drain; null: it is over. */
  readonly deadlineAtMs: number | null;
  /**
   * Containers that are still there: with tasks, waiting for a replacement
   * (or their turn), stopping, or on a machine that does not talk.
   */
  readonly blockedBy: readonly {
    readonly containerId: ContainerId;
    readonly why: 'tasks' | 'replacement' | 'made_by_hand' | 'stopping' | 'machine_away';
    readonly attempts: number;
    /** State of its replacement, in words; empty: it waits for none. */
    readonly detail: string;
  }[];
}

export interface PoolView {
  readonly id: number;
  readonly name: string;
  /** Settings as they were given. */
  readonly settings: PoolSettings;
  /** Value in effect, also where the pool does not set it. */
  readonly effectiveCpuWorkOnGpuMachines: boolean;
  /** The file that declares the pool; null: operations change it. */
  readonly declaredIn: string | null;
  readonly gpu: string;
  readonly status: 'HEALTHY' | 'DEGRADED';
  /** Why it is DEGRADED, in words. */
  readonly reasons: readonly string[];
  readonly freeGpu: number;
  readonly freeCpuMillicores: number;
  readonly freeMemoryMib: number;
  readonly pendingWorkers: number;
  readonly availableWorkers: number;
  readonly pendingContainers: number;
  readonly runningContainers: number;
  readonly registeredMachines: number;
  readonly pendingMachines: number;
  readonly readyMachines: number;
}

export type DeleteMachineOutcome = 'deleted' | 'not_found' | 'not_drained' | 'forced';

export interface GpuView {
  readonly uuid: string;
  readonly model: string;
  readonly memoryBytes: number;
  /** Compute capability; empty: not known. */
  readonly computeCap: string;
  readonly pciBusId: string;
  /** NVLink island on the machine, from 1 on; 0: none is known. */
  readonly nvlinkIsland: number;
  readonly parentUuid: string;
  readonly state: string;
  readonly why: string;
}

export interface WorkerService {
  listWorkers(owner: Owner): readonly WorkerView[];
  /** Cordons the worker: no new containers, and the running ones stay. False: unknown worker, or another owner's. */
  cordon(owner: Owner, workerId: string, by?: Actor): Promise<boolean>;
  uncordon(owner: Owner, workerId: string, by?: Actor): Promise<boolean>;
  /**
   * Cordons the worker, then has its containers leave: those without attempts at once, the others when their attempts
   * have ended, or at the deadline. Returns when the first ones are told to stop.
   * @param deadlineMs - from now; 30 min when not given. On a repeated call the earlier end counts
   */
  drain(owner: Owner, workerId: string, deadlineMs?: number, by?: Actor): Promise<boolean>;
  /** GPUs of a machine as its agent reported them; undefined: the owner has no such machine. */
  gpusOf(owner: Owner, machineId: string): readonly GpuView[] | undefined;
  /** Sets and removes labels that an operator gives a machine. @returns all labels that the machine has then */
  label(
    owner: Owner,
    machineId: string,
    change: { readonly set: Labels; readonly remove: readonly string[] },
    by?: Actor,
  ): Promise<Labels | 'not_found' | 'too_many'>;
  /** Writes an order about a GPU into the audit trail of the machine's owner. @param outcome - empty: it was done */
  gpuOrdered(
    owner: Owner,
    machineId: string,
    order: { readonly uuid: string; readonly action: GpuAction; readonly outcome: string },
    by: Actor,
  ): Promise<void>;
  /**
   * Deletes a machine that is PENDING, EXPIRED, LOST or drained. `poolName` empty: any.
   * @param force - in any state: all containers there are told to stop
   * now. A minute later the machine is deleted, even if some are left
   */
  deleteMachine(
    owner: Owner,
    machineId: string,
    poolName: string,
    force?: boolean,
    by?: Actor,
  ): Promise<DeleteMachineOutcome>;
  listPools(owner: Owner): Promise<readonly PoolView[]>;
  poolNamed(owner: Owner, name: string): Promise<PoolView | undefined>;
}
