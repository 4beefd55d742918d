// The container registry as the leader writes it. Every desired state carries the fencing number of its decider, and
// the store refuses it once a higher one has led. The autoscaler, placement and the health of machines use it.
// Operators' commands and agents' reports go to the registry itself, from any replica.
import type { ContainerId, MachineId, QueueName } from '#shared/domain/ids.ts';
import type { Target } from '../../domain/stub-config.ts';
import type { CreateOptions, ContainerEntry } from './container-entry.ts';
import type {
  Assigned,
  ContainerControl,
  ContainerEntryChange,
  ContainerRegistry,
  MoveOptions,
  Moved,
} from './container-registry.ts';
import type { InitialPlacement, Place } from '../../stores/store/queries/container-placements.ts';
import type { ContainerEvent } from './state.ts';

export class LeaderContainerRegistry implements ContainerControl {
  readonly #registry: ContainerRegistry;
  readonly #fence: () => number | undefined;

  /**
   * The container registry with the leader's fence.
   * @param fence - the leader's number; undefined while this replica does not lead
   */
  constructor(registry: ContainerRegistry, fence: () => number | undefined) {
    this.#registry = registry;
    this.#fence = fence;
  }

  async create(target: Target, options: CreateOptions = {}): Promise<ContainerEntry | undefined> {
    const [entry] = await this.#create(target, 1, options);
    return entry;
  }

  createMany(target: Target, count: number): Promise<readonly ContainerEntry[]> {
    return this.#create(target, count);
  }

  async createPlaced(target: Target, placements: readonly InitialPlacement[]): Promise<readonly ContainerEntry[]> {
    const fence = this.#fence();
    if (fence !== undefined) return await this.#registry.createPlaced(target, placements, fence);
    this.#registry.refuseLeader(undefined, 'create');
    return [];
  }

  async #create(target: Target, count: number, options?: CreateOptions): Promise<readonly ContainerEntry[]> {
    const fence = this.#fence();
    if (fence !== undefined) return await this.#registry.createAsLeader(target, count, fence, options);
    this.#registry.refuseLeader(undefined, 'create');
    return [];
  }

  /** Moves a container; the outcome is `refused` also when this replica does not lead any more. */
  async transition(id: ContainerId, event: ContainerEvent, options: MoveOptions = {}): Promise<Moved> {
    const fence = this.#fence();
    if (fence !== undefined) return await this.#registry.transition(id, event, { ...options, fence });
    this.#registry.refuseLeader(id, event);
    return 'refused';
  }

  /** Gives a container its place; the outcome is `refused` also when this replica does not lead any more. */
  async assign(id: ContainerId, place: Place, { epoch }: { readonly epoch: number }): Promise<Assigned> {
    const fence = this.#fence();
    if (fence !== undefined) return await this.#registry.assign(id, place, { epoch, fence });
    this.#registry.refuseLeader(id, 'assign');
    return 'refused';
  }

  readMissed(): Promise<void> {
    return this.#registry.readMissed();
  }

  /** Written without a fence: the text has no consequences, whichever replica leads. */
  noteRejections(notes: Parameters<ContainerControl['noteRejections']>[0]): Promise<void> {
    return this.#registry.noteRejections(notes);
  }

  onChange(listener: (change: ContainerEntryChange) => void): void {
    this.#registry.onChange(listener);
  }

  get(id: ContainerId): ContainerEntry | undefined {
    return this.#registry.get(id);
  }

  ofQueue(queue: QueueName): Iterable<ContainerEntry> {
    return this.#registry.ofQueue(queue);
  }

  ofMachine(machineId: MachineId): Iterable<ContainerEntry> {
    return this.#registry.ofMachine(machineId);
  }

  pending(): Iterable<ContainerEntry> {
    return this.#registry.pending();
  }

  queues(): Iterable<QueueName> {
    return this.#registry.queues();
  }

  all(): Iterable<ContainerEntry> {
    return this.#registry.all();
  }
}
