// Vocabulary of machines that a pool's provider makes: what a provider is asked and answers, what one machine offers,
// and what the deciding loop may ask for.
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';

/** Offer of one new machine of a pool, as its settings declare it; a machine that has joined reports its own. */
export interface MachineShape {
  /** Empty: no GPU. */
  readonly gpuModel: string;
  readonly gpuCount: number;
  readonly cpuCores: number;
  readonly memoryMib: number;
}

/** Order that a provider gets. */
export interface InstanceRequest {
  /** Tag of the instance, unique for ever. A second `create` with it must find the first one's instance. */
  readonly requestId: string;
  /** Tag of all instances of this installation; an instance with another one is none of ours. */
  readonly installationId: string;
  readonly machineId: MachineId;
  readonly poolName: string;
  readonly shape: MachineShape;
  /** Line that installs the agent and joins; it holds the join token. */
  readonly joinLine: string;
  /** The same as a cloud-init document, for the user data of an instance. */
  readonly userData: string;
}

export type InstanceState = 'pending' | 'running' | 'stopping' | 'gone';

/** An instance as its provider lists it. */
export interface Instance {
  readonly instanceId: string;
  readonly requestId: string;
  readonly state: InstanceState;
  readonly address: string | null;
  /** Price of an hour, in the operator's currency; null: not known. */
  readonly hourlyCost: number | null;
  /** When the provider takes the instance back (epoch milliseconds); null: it has not said so. */
  readonly endsAtMs: number | null;
}

/**
 * A cloud, behind an operator's program. Each call has a deadline and may fail, hang until then, or have worked
 * although it failed.
 */
export interface Provider {
  readonly name: string;
  create(request: InstanceRequest): Promise<Instance>;
  /** All instances with the installation's tag. An incomplete answer must fail and not pass as a whole one. */
  list(installationId: string): Promise<readonly Instance[]>;
  /** Ends an instance; one that is gone counts as ended. */
  terminate(instance: Pick<Instance, 'instanceId' | 'requestId'>): Promise<void>;
}

/** A provider as it is configured. */
export interface ConfiguredProvider extends Provider {
  /** Deadline of each call. */
  readonly timeoutMs: number;
}

/** Order of a machine, as its provider got it: later settings of the pool do not change it. */
export interface MachineOrder {
  readonly provider: string;
  readonly shape: MachineShape;
}

/** Orders of machines that providers make, for as long as they are there, on their way or leaving. */
export interface MachineOrders {
  /** @returns undefined: no provider was asked for the machine, or it has ended */
  orderOf(machineId: MachineId): MachineOrder | undefined;
}

/** Machines of a pool that a provider makes, as the loop counts them. */
export interface PoolCapacity {
  readonly poolId: number;
  readonly workspaceId: WorkspaceId | null;
  /** Requested, and not ready for containers yet. */
  readonly pending: number;
  /** Requested, joined or leaving: everything that may cost money. */
  readonly alive: number;
  /** Sum of the known prices of an hour. */
  readonly hourlyCost: number;
  /** Machines alive whose price is not known. */
  readonly unpriced: number;
  /** No create before this moment, after failures (epoch milliseconds); 0: none failed. */
  readonly notBeforeMs: number;
  /** Last failure of the provider, for explanations; null: the last call succeeded. */
  readonly lastFailure: string | null;
}

/** A machine that cannot go on, because a call of its provider fails again and again. */
export interface StuckMachine {
  readonly machineId: MachineId;
  readonly provider: string;
  /** null: not known. */
  readonly instanceId: string | null;
  /** Call that fails. `list`: no listing shows whether the instance is there. */
  readonly verb: 'list' | 'terminate';
  /** Calls in a row that failed. */
  readonly failures: number;
  /** Last failure; null: not known since the leader changed. */
  readonly failure: string | null;
  /** Whether it is on its way, and not about to end. */
  readonly isComing: boolean;
}

/** Calls of a pool's provider that fail again and again. */
export interface PoolTrouble {
  /** Listings in a row that failed; 0: they work, or only few failed. */
  readonly listFailures: number;
  readonly listFailure: string | null;
  /** Machines of the pool that cannot go on. */
  readonly stuck: readonly StuckMachine[];
}

export const NO_TROUBLE: PoolTrouble = { listFailures: 0, listFailure: null, stuck: [] };

/** Executes what the loop decided. Every step is written before its effect, so that another leader goes on with it. */
export interface CapacityChanges {
  /** Whether the installation has a provider of that name; without one, no pool that names it grows. */
  knows(provider: string): boolean;
  capacity(poolId: number): PoolCapacity;
  /** @param provider - of the pool; machines of an earlier provider count, too */
  trouble(poolId: number, provider: string): PoolTrouble;
  /**
   * Machines of the pool that its provider made, from when they are ready until they begin to leave. Machines that
   * were admitted by hand are none of them, and are never shrunk.
   */
  machines(poolId: number): Iterable<MachineId>;
  /** Machines that `capacity` counts as pending. Their agents may be connected already. */
  pending(poolId: number): Iterable<MachineId>;
  /** Calls the listener when something changed of what `capacity` or `machines` tells of a pool. */
  onChange(listener: (poolId: number) => void): void;
  /** CreateMachine, then the provider's `create`. Resolves when the request is written; `capacity` counts it then. */
  grow(poolId: number, reason: string): Promise<void>;
  /**
   * Cordon, look again whether the machine is empty, drain, terminate. Resolves when the intent is written.
   * @returns false: the machine got work meanwhile, and stays
   */
  shrink(machineId: MachineId, reason: string): Promise<boolean>;
}
