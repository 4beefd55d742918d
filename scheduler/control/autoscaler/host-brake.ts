import type { QueueName } from '#shared/domain/ids.ts';
import type { ContainerEntryChange } from '../../fleet/containers/container-registry.ts';
import { isUserCause } from '../../fleet/observe.ts';
import { BoundedMap } from '../../workspaces/deployments/bounded-map.ts';

const BASE_MS = 15_000;
const CAP_MS = 15 * 60_000;
const MOST_QUEUES = 10_000;
/** Ends of machines: their containers are replaced at once. */
const REPLACED: ReadonlySet<string> = new Set(['lost', 'host_reboot', 'drained', 'engine_restarted', 'killed']);

/** A queue whose containers fail to start by causes of hosts. */
export interface HostBrake {
  readonly failures: number;
  /** Time before which no further container is started, in epoch milliseconds. */
  readonly untilMs: number;
}

/**
 * Back-off of queues whose starts fail in a row by causes of hosts, such as a registry that hangs. It blames nobody: no
 * breaker opens, and no rollout fails. Only the leader's memory has it.
 */
export class HostBrakes {
  readonly #brakes = new BoundedMap<QueueName, HostBrake>(MOST_QUEUES);

  of(queue: QueueName): HostBrake | undefined {
    return this.#brakes.get(queue);
  }

  containerChanged({ entry: { row, spec }, to }: ContainerEntryChange, nowMs: number): void {
    if (to === 'RUNNING') this.#brakes.delete(spec.queue);
    if (to !== 'FAILED' || row.startedAtMs !== null || spec.byHand === true) return;
    const reason = row.reason ?? 'user_error';
    if (isUserCause(reason) || REPLACED.has(reason)) return;
    const before = this.#brakes.get(spec.queue);
    // Containers that fail while the queue waits were started before.
    if (before !== undefined && nowMs < before.untilMs) return;
    const failures = (before?.failures ?? 0) + 1;
    const waitMs = Math.min(BASE_MS * 2 ** Math.min(failures - 1, 20), CAP_MS);
    this.#brakes.set(spec.queue, { failures, untilMs: nowMs + waitMs });
  }
}
