// Wake-ups that cross replicas. A replica without room for a job tells the replica most likely to have
// some, which passes the wake-up on when it has none either. A task that crosses costs one message and one
// fetch. The wake-up carries the replicas already asked, so that it ends. The sweep makes good a lost one.
import type { InstanceId, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { ContainerEntryChange, ContainerRegistry } from '../fleet/containers/container-registry.ts';
import type { Dispatcher } from '../tasks/dispatch/dispatcher.ts';
import type { Machine } from '../fleet/machine.ts';
import type { Presence } from '../cluster/presence.ts';
import type { Bus } from '../cluster/bus.ts';
import type { RemoteCapacity } from './remote-capacity.ts';

interface Wake {
  readonly queue: QueueName;
  readonly taskId?: TaskId;
  readonly asked: readonly InstanceId[];
}

export interface WakesParts {
  readonly bus: Bus;
  readonly channelOf: (replica: InstanceId) => string;
  readonly instance: InstanceId;
  readonly containers: Pick<ContainerRegistry, 'ofMachine'>;
  readonly presence: Pick<Presence, 'isAlive' | 'ask'>;
  readonly remoteCapacity: Pick<RemoteCapacity, 'of'>;
  readonly dispatcher: Pick<Dispatcher, 'wakeHere'>;
}

/** Most queues remembered whose wake-up reached no replica; the sweep finds the rest. */
const MOST_UNTOLD = 10_000;

export class Wakes {
  readonly #parts: WakesParts;
  /**
   * Queues in which jobs wait while no replica was known to have room. A new
   * container, or a machine's new link, may not have been heard of here yet.
   */
  readonly #untold = new Set<QueueName>();
  readonly #asking = new Set<InstanceId>();

  constructor(parts: WakesParts) {
    this.#parts = parts;
    parts.bus.on(parts.channelOf(parts.instance), (message) => this.#heard(message as Wake));
  }

  /** Called when no container here has a slot for a job of the queue. */
  noRoom(queue: QueueName, taskId: TaskId | undefined, asked: readonly InstanceId[] = []): void {
    const { bus, channelOf, instance } = this.#parts;
    const replica = this.#mostRoom(queue, asked);
    if (replica === undefined) {
      this.#remember(queue);
      return;
    }
    this.#untold.delete(queue);
    const message: Wake = { queue, asked: [...asked, instance], ...(taskId === undefined ? {} : { taskId }) };
    bus.publish(channelOf(replica), message);
  }

  #remember(queue: QueueName): void {
    this.#untold.delete(queue);
    this.#untold.add(queue);
    if (this.#untold.size <= MOST_UNTOLD) return;
    for (const oldest of this.#untold) {
      this.#untold.delete(oldest);
      return;
    }
  }

  /**
   * Tells the wake-up again when a container runs. The container's replica knows
   * that before the others do, and a caller may call again within that moment.
   */
  containerChanged({ entry, to }: ContainerEntryChange): void {
    if (to === 'RUNNING') this.#tellNow(entry.spec.queue);
  }

  /** Tells the wake-up again, because the machine's link may be at another replica now. */
  machineChanged(machine: Machine): void {
    if (this.#untold.size === 0 || machine.health !== 'READY') return;
    for (const { spec } of this.#parts.containers.ofMachine(machine.row.id)) this.#tellNow(spec.queue);
  }

  #tellNow(queue: QueueName): void {
    if (this.#untold.delete(queue)) this.noRoom(queue, undefined);
  }

  /** Looks up a replica that does not count as alive, because it may have started a moment ago. */
  async #ask(replica: InstanceId): Promise<void> {
    if (this.#asking.has(replica)) return;
    this.#asking.add(replica);
    // When Redis does not answer, the sweep looks again.
    const isAlive = await this.#parts.presence.ask(replica).catch(() => false);
    this.#asking.delete(replica);
    if (isAlive) for (const queue of [...this.#untold]) this.#tellNow(queue);
  }

  #heard({ queue, taskId, asked }: Wake): void {
    if (!this.#parts.dispatcher.wakeHere(queue, taskId)) this.noRoom(queue, taskId, asked);
  }

  /**
   * Picks a replica at random, weighted by free slots, so that a burst does not go to
   * one. A full replica is picked only where none has room: a slot may have freed since.
   */
  #mostRoom(queue: QueueName, asked: readonly InstanceId[]): InstanceId | undefined {
    const { remoteCapacity, presence } = this.#parts;
    const weights = new Map<InstanceId, number>();
    for (const [replica, { free }] of remoteCapacity.of(queue)) {
      if (asked.includes(replica)) continue;
      if (presence.isAlive(replica)) weights.set(replica, 0.01 + free);
      else void this.#ask(replica);
    }
    return pickOf(weights, Math.random());
  }
}

/** Picks a key at random, with a probability proportional to its weight. @param random - gives [0, 1) */
export function pickOf<T>(weights: ReadonlyMap<T, number>, random: number): T | undefined {
  let left = random * [...weights.values()].reduce((sum, weight) => sum + weight, 0);
  let last: T | undefined;
  for (const [one, weight] of weights) {
    if ((left -= weight) < 0) return one;
    last = one;
  }
  return last;
}
