// Operations on machines for the surfaces. joining.ts implements this interface.
import type { GpuFacts } from '#shared/domain/gpu-terms.ts';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Labels } from '#shared/domain/labels.ts';
import type { PoolSettingsChange } from '#shared/api/pools.ts';
import type { Actor } from '../workspaces/events/audit.ts';
import type { HostView } from './host-facts.ts';

export interface CreatedMachine {
  readonly machineId: MachineId;
  readonly poolName: string;
  /** `lsj1.<CA fingerprint>.<secret>`: one use, 30 minutes. Shown this once. */
  readonly joinToken: string;
  readonly expiresAtMs: number;
  readonly createdAtMs: number;
}

/** A machine as the lists show it; its status is publicMachineStatus of machine.ts. */
export interface MachineView {
  readonly machineId: MachineId;
  readonly poolName: string;
  /** Whether only work that names the pool is placed there. */
  readonly requiresPoolSelector: boolean;
  readonly status: 'pending' | 'registered' | 'ready' | 'available' | 'disabled';
  readonly hostname: string;
  readonly cpuMillicores: number;
  readonly memoryMib: number;
  readonly labels: Labels;
  /** Labels that an operator gave it. */
  readonly ownLabels: Labels;
  readonly gpuModels: readonly string[];
  /** Facts of each device. */
  readonly gpus: readonly GpuFacts[];
  readonly gpuCount: number;
  /** Healthy GPUs without a holder. */
  readonly freeGpuCount: number;
  readonly agentVersion: string;
  readonly createdAtMs: number;
  readonly lastSeenAtMs: number | null;
  /** The most that its containers may have together. */
  readonly offeredCpuMillicores: number;
  readonly offeredMemoryMib: number;
  readonly freeCpuMillicores: number;
  readonly freeMemoryMib: number;
  readonly containerCount: number;
  /** Conditions that the agent reports, and `Unauthorized` when two agents use the machine's identity. */
  readonly conditions: readonly string[];
  /** Explanation of a condition, by the condition's name, where the agent gives one. */
  readonly conditionWords: Readonly<Record<string, string>>;
  /** The hardware; null before its agent described it. */
  readonly host: HostView | null;
}

export interface MachineService {
  /**
   * Creates a machine, and its pool when that is missing. `workspaceId` null: a shared pool (admin). A pool of another
   * owner: AppError `pool_not_found`. Too many that have not joined: `too_many_unjoined`.
   */
  create(
    owner: { readonly workspaceId: WorkspaceId | null },
    poolName: string,
    settings?: PoolSettingsChange,
    by?: Actor,
  ): Promise<CreatedMachine>;
  /** Machines of an owner. `workspaceId` null: shared pools' machines; else that workspace's own. */
  list(owner: { readonly workspaceId: WorkspaceId | null }): Promise<readonly MachineView[]>;
}
