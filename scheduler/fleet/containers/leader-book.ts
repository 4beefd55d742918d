// The book as the leader writes it. Every desired state carries the fencing number of its decider, and the store
// refuses it once a higher one has led. The autoscaler, placement and the health of machines use it. Operators'
// commands and agents' reports go to the book itself, from any replica.
import type { ContainerId, MachineId, QueueName } from '#shared/domain/ids.ts';
import type { Target } from '../../domain/stub-config.ts';
import type { Book, BookChange, BookEntry, ContainerBook, MoveOptions, Moved } from './book.ts';
import type { Birth } from '../../stores/store/queries/containers.ts';
import type { ContainerEvent } from './state.ts';

export class LeaderBook implements Book {
  readonly #book: ContainerBook;
  readonly #fence: () => number | undefined;

  /**
   * The book with the leader's fence.
   * @param fence - the leader's number; undefined while this replica does not lead
   */
  constructor(book: ContainerBook, fence: () => number | undefined) {
    this.#book = book;
    this.#fence = fence;
  }

  async create(target: Target, options: { readonly warmUp?: boolean } = {}): Promise<BookEntry | undefined> {
    const [entry] = await this.#create(target, 1, options.warmUp);
    return entry;
  }

  createMany(target: Target, count: number): Promise<readonly BookEntry[]> {
    return this.#create(target, count);
  }

  async createPlaced(target: Target, births: readonly Birth[]): Promise<readonly BookEntry[]> {
    const fence = this.#fence();
    if (fence !== undefined) return await this.#book.createPlaced(target, births, fence);
    this.#book.refuseLeader(undefined, 'create');
    return [];
  }

  async #create(target: Target, count: number, warmUp?: boolean): Promise<readonly BookEntry[]> {
    const fence = this.#fence();
    if (fence !== undefined) return await this.#book.createAsLeader(target, count, fence, warmUp);
    this.#book.refuseLeader(undefined, 'create');
    return [];
  }

  /** Moves a container; the outcome is `refused` also when this replica does not lead any more. */
  async transition(id: ContainerId, event: ContainerEvent, options: MoveOptions = {}): Promise<Moved> {
    const fence = this.#fence();
    if (fence !== undefined) return await this.#book.transition(id, event, { ...options, fence });
    this.#book.refuseLeader(id, event);
    return 'refused';
  }

  /** Written without a fence: the text has no consequences, whichever replica leads. */
  noteRejections(entry: BookEntry): Promise<void> {
    return this.#book.noteRejections(entry);
  }

  onChange(listener: (change: BookChange) => void): void {
    this.#book.onChange(listener);
  }

  get(id: ContainerId): BookEntry | undefined {
    return this.#book.get(id);
  }

  ofQueue(queue: QueueName): Iterable<BookEntry> {
    return this.#book.ofQueue(queue);
  }

  ofMachine(machineId: MachineId): Iterable<BookEntry> {
    return this.#book.ofMachine(machineId);
  }

  pending(): Iterable<BookEntry> {
    return this.#book.pending();
  }

  queues(): Iterable<QueueName> {
    return this.#book.queues();
  }

  all(): Iterable<BookEntry> {
    return this.#book.all();
  }
}
