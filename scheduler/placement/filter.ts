import type { MachineId } from '#shared/domain/ids.ts';

/** A machine as placement sees it. Free amounts already leave out the host's reserve and what is placed there. */
export interface PlacementMachine {
  readonly machineId: MachineId;
  readonly poolName: string;
  /** null: shared; else the workspace it belongs to. */
  readonly poolOwner: string | null;
  readonly ready: boolean;
  readonly intentActive: boolean;
  /** Conditions that block placement, e.g. `DockerDown`. */
  readonly blockedBy: readonly string[];
  readonly freeCpuMillicores: number;
  readonly freeMemoryBytes: number;
  readonly totalCpuMillicores: number;
  readonly totalMemoryBytes: number;
  readonly gpus: readonly { readonly uuid: string; readonly model: string; readonly free: boolean }[];
  /** Image references known to be there. */
  readonly images: ReadonlySet<string>;
  /** Containers of the same deployment already there. */
  readonly siblings: number;
}

export interface PlacementRequest {
  readonly workspaceId: string;
  /** Empty: any pool the workspace may use. */
  readonly poolName: string;
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
  /** Models in order of preference; `any` matches all. Empty: none. */
  readonly gpu: readonly string[];
  readonly gpuCount: number;
  readonly image: string;
  /** Spreads equal choices differently for each container, the same way each time. */
  readonly seed: string;
}

/** Why a machine cannot take a container: lower snake_case, counted and shown. */
export type RejectionReason =
  | 'no_matching_pool'
  | 'machine_not_ready'
  | 'cordoned'
  | 'condition'
  | 'gpu_model'
  | 'gpu_count'
  | 'cpu'
  | 'memory';

/** The first reason this machine cannot take it; undefined: it can. */
export function rejectionOf(machine: PlacementMachine, request: PlacementRequest): RejectionReason | undefined {
  if (machine.poolOwner !== null && machine.poolOwner !== request.workspaceId) return 'no_matching_pool';
  if (request.poolName !== '' && machine.poolName !== request.poolName) return 'no_matching_pool';
  if (!machine.ready) return 'machine_not_ready';
  if (!machine.intentActive) return 'cordoned';
  if (machine.blockedBy.length > 0) return 'condition';
  const gpuReason = gpuRejection(machine, request);
  if (gpuReason !== undefined) return gpuReason;
  if (machine.freeCpuMillicores < request.cpuMillicores) return 'cpu';
  if (machine.freeMemoryBytes < request.memoryBytes) return 'memory';
  return undefined;
}

function gpuRejection(machine: PlacementMachine, request: PlacementRequest): RejectionReason | undefined {
  if (request.gpuCount === 0) return undefined;
  const matching = machine.gpus.filter((gpu) => gpuMatches(gpu.model, request.gpu));
  if (matching.length === 0) return 'gpu_model';
  return matching.filter((gpu) => gpu.free).length < request.gpuCount ? 'gpu_count' : undefined;
}

/** `any` matches every model; else the wanted word stands in the device's name (`A10G` in `NVIDIA A10G`), whatever the case. */
export function gpuMatches(model: string, wanted: readonly string[]): boolean {
  const words = model.toLowerCase().split(/[\s-]+/);
  return wanted.some((want) => want.toLowerCase() === 'any' || words.includes(want.toLowerCase()));
}
