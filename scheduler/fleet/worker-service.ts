// What the surfaces may ask of workers (a machine's schedulable capacity) and pools. `workspaceId` null: the shared pools' (admin); else that workspace's own.
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
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
  readonly containers: readonly ContainerView[];
}

export interface PoolView {
  readonly name: string;
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

export type DeleteMachineOutcome = 'deleted' | 'not_found' | 'not_drained';

export interface WorkerService {
  listWorkers(owner: Owner): readonly WorkerView[];
  /** No new containers there; what runs goes on. False: unknown worker, or another owner's. */
  cordon(owner: Owner, workerId: string): Promise<boolean>;
  uncordon(owner: Owner, workerId: string): Promise<boolean>;
  /** Cordon, then have its containers leave: without attempts at once, the others when theirs have ended, at most 30 min. Answers at once. */
  drain(owner: Owner, workerId: string): Promise<boolean>;
  /** Needs PENDING, EXPIRED, LOST or drained. `poolName` empty: any. */
  deleteMachine(owner: Owner, machineId: string, poolName: string): Promise<DeleteMachineOutcome>;
  listPools(owner: Owner): Promise<readonly PoolView[]>;
}
