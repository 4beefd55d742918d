// Requests for a scaling decision, sent to the leader by a replica that accepted a task or
// gave one back. Replicas that do not lead remember the requests, in case they lead next.
import type { QueueName } from '#shared/domain/ids.ts';
import type { Bus } from '../cluster/bus.ts';

interface Wakes {
  /** Decides on a queue soon. */
  wake(queue: QueueName): void;
}

export class DecisionRequests {
  readonly #bus: Bus;
  readonly #channel: string;
  readonly #isLeader: () => boolean;
  readonly #autoscaler: Wakes;
  readonly #requested = new Set<QueueName>();

  constructor(bus: Bus, channel: string, isLeader: () => boolean, autoscaler: Wakes) {
    this.#bus = bus;
    this.#channel = channel;
    this.#isLeader = isLeader;
    this.#autoscaler = autoscaler;
    bus.on(channel, (message) => {
      const { queue } = message as { queue?: QueueName };
      if (queue !== undefined) autoscaler.wake(queue);
    });
  }

  /** Asks for a decision on a queue, after a change that may need more or fewer containers. */
  request(queue: QueueName): void {
    if (this.#isLeader()) {
      this.#autoscaler.wake(queue);
      return;
    }
    // Each queue is asked for once a turn, even in a burst of tasks.
    // The message reaches this process too, which remembers it.
    if (this.#requested.size === 0) setImmediate(() => this.#requested.clear());
    if (this.#requested.has(queue)) return;
    this.#requested.add(queue);
    this.#bus.publish(this.#channel, { queue });
  }
}
