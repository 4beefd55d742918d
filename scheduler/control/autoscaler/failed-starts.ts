// Ends of containers that count against the starts of their queue: its breaker, and callers who wait for nothing else.
import type { ContainerId, QueueName } from '#shared/domain/ids.ts';
import { isTerminalContainer } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import { Listeners } from '#shared/listeners.ts';
import type { ContainerControl, ContainerEntryChange } from '../../fleet/containers/container-registry.ts';
import type { Loads } from '../../cluster/loads.ts';
import type { SlotTable } from '../../tasks/dispatch/slots.ts';
import type { Targets } from '../../workspaces/deployments/targets.ts';
import type { Breakers } from './breakers.ts';
import { failedStart } from './starts.ts';

export interface FailedStartsParts {
  readonly targets: Pick<Targets, 'byQueue'>;
  readonly containers: Pick<ContainerControl, 'ofQueue'>;
  readonly slots: Pick<SlotTable, 'hasReady'>;
  readonly loads: Pick<Loads, 'of'>;
  readonly breakers: Breakers;
  readonly clock: Pick<Clock, 'nowMs'>;
}

export class FailedStarts {
  readonly #parts: FailedStartsParts;
  readonly #listeners = new Listeners<[QueueName, string, ContainerId]>();

  constructor(parts: FailedStartsParts) {
    this.#parts = parts;
  }

  /**
   * Told when a start failed by the user's cause and nothing
   * else serves the queue: its waiting callers get these lines.
   */
  on(listener: (queue: QueueName, lastLines: string, containerId: ContainerId) => void): void {
    this.#listeners.add(listener);
  }

  /** Counts a failed start, or an exit soon after it without an attempt, against the queue. */
  containerChanged(change: ContainerEntryChange): void {
    const { loads, clock, breakers } = this.#parts;
    const { row, spec } = change.entry;
    const served = change.entry.served ?? loads.of(row.id)?.served ?? false;
    // The container has started before a task ended it: nothing holds up the next start.
    if (served && isTerminalContainer(change.to)) breakers.works(spec.queue, row);
    const failed = failedStart(change, served, clock.nowMs());
    if (failed === undefined) return;
    const { neverReady, ...failure } = failed;
    // A container made by hand is not started again, so there is nothing to hold back.
    if (spec.byHand !== true) breakers.failed(spec.queue, failure, this.#knownName(spec.queue));
    if (neverReady && !this.#isServed(spec.queue)) this.#listeners.tell(spec.queue, failure.message, row.id);
  }

  /** Whether some container of the queue is ready, at any replica. */
  #isServed(queue: QueueName): boolean {
    const { containers, slots, loads } = this.#parts;
    if (slots.hasReady(queue)) return true;
    for (const { row } of containers.ofQueue(queue))
      if (row.state === 'RUNNING' && loads.of(row.id) !== undefined) return true;
    return false;
  }

  /** Name of the queue's deployment, where it is in memory: a line of a log is not worth a question. */
  #knownName(queue: QueueName): string {
    const target = this.#parts.targets.byQueue(queue);
    return target === undefined || target instanceof Promise ? '' : target.deploymentName;
  }
}
