// What the surfaces may ask of workers (a machine's schedulable capacity) and pools. `workspaceId` null: the shared pools' (admin); else that workspace's own.
import type { PoolSettings } from '#shared/api/pools.ts';
import type { ContainerId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { ContainerView } from '../containers/container-view.ts';

export interface Owner {
  readonly workspaceId: WorkspaceId | null;
}

export interface WorkerView {
  /** The machine's id: one worker per machine. */
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
  /** Of its pool. */
  readonly requiresPoolSelector: boolean;
  readonly priority: number;
  /** What its agent says is wrong with the machine. */
  readonly conditions: readonly string[];
  readonly containers: readonly ContainerView[];
  /** null: it neither drains nor has drained. */
  readonly drain: DrainView | null;
}

export interface DrainView {
  /** Containers there when it began. */
  readonly total: number;
  readonly remaining: number;
  /** null: it is over. */
  readonly deadlineAtMs: number | null;
  /** What is still there: with tasks, waiting for its replacement (or its turn), on its way out, or on a machine that does not talk. */
  readonly blockedBy: readonly {
    readonly containerId: ContainerId;
    readonly why: 'tasks' | 'replacement' | 'stopping' | 'machine_away';
    readonly attempts: number;
  }[];
}

export interface PoolView {
  readonly name: string;
  /** As they were said. */
  readonly settings: PoolSettings;
  /** What holds, also where the pool says nothing of it. */
  readonly effectiveCpuWorkOnGpuMachines: boolean;
  /** The file that they come from; null: operations change them. */
  readonly declaredIn: string | null;
  readonly gpu: string;
  readonly status: 'HEALTHY' | 'DEGRADED';
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

export interface WorkerService {
  listWorkers(owner: Owner): readonly WorkerView[];
  /** No new containers there; what runs goes on. False: unknown worker, or another owner's. */
  cordon(owner: Owner, workerId: string): Promise<boolean>;
  uncordon(owner: Owner, workerId: string): Promise<boolean>;
  /**
   * Cordon, then have its containers leave: without attempts at once, the others when theirs have ended, or at the deadline. Answers when the first are told to stop.
   * @param deadlineMs - from now; 30 min when not given. Said again, the earlier end counts
   */
  drain(owner: Owner, workerId: string, deadlineMs?: number): Promise<boolean>;
  /**
   * Needs PENDING, EXPIRED, LOST or drained. `poolName` empty: any.
   * @param force - in any state: everything there is told to stop now, and a minute later the machine is gone, whatever is left
   */
  deleteMachine(owner: Owner, machineId: string, poolName: string, force?: boolean): Promise<DeleteMachineOutcome>;
  listPools(owner: Owner): Promise<readonly PoolView[]>;
  poolNamed(owner: Owner, name: string): Promise<PoolView | undefined>;
}
