// Queues whose containers an empty machine of a pool did not take, so that the pool makes no machine for them. The
// machine may be at fault and not the queue, so a refusal ends by itself. Each further machine that confirms it has it
// hold longer, so a queue that no machine takes costs ever fewer machines.
import type { MachineId, QueueName } from '#shared/domain/ids.ts';

/** Time for which the refusal by a first machine holds; each further machine doubles it. */
export const HOLDS_MS = 10 * 60_000;
export const LONGEST_MS = 4 * 3_600_000;
/** Most queues of a pool that are remembered. */
const MOST_QUEUES = 1_000;

interface Refusal {
  readonly machineId: MachineId;
  /** Machines in a row that did not take the queue. */
  readonly machines: number;
  readonly untilMs: number;
}

export class Refusals {
  readonly #byPool = new Map<number, Map<QueueName, Refusal>>();

  /** @returns whether the machine is another one than the last that refused the queue */
  note(poolId: number, queue: QueueName, machineId: MachineId, nowMs: number): boolean {
    const queues = this.#byPool.get(poolId) ?? new Map<QueueName, Refusal>();
    const before = queues.get(queue);
    const isOther = before?.machineId !== machineId;
    if (before === undefined && queues.size >= MOST_QUEUES) return false;
    const machines = (before?.machines ?? 0) + (isOther ? 1 : 0);
    const untilMs = nowMs + Math.min(LONGEST_MS, HOLDS_MS * 2 ** (machines - 1));
    queues.set(queue, { machineId, machines, untilMs });
    this.#byPool.set(poolId, queues);
    return isOther;
  }

  /** Queues that the pool refuses. @param isThere - whether a machine of the pool is there still */
  of(poolId: number, isThere: (id: MachineId) => boolean, nowMs: number): ReadonlySet<QueueName> {
    const queues = this.#byPool.get(poolId);
    if (queues === undefined) return NONE;
    const refused = new Set<QueueName>();
    for (const [queue, { machineId, machines, untilMs }] of queues) {
      if (nowMs >= untilMs + LONGEST_MS) queues.delete(queue);
      // A single machine that is gone may have been at fault.
      else if (nowMs < untilMs && (machines > 1 || isThere(machineId))) refused.add(queue);
    }
    return refused;
  }

  /** Whether the pool refuses the queue, or did lately. */
  has(poolId: number, queue: QueueName): boolean {
    return this.#byPool.get(poolId)?.has(queue) === true;
  }

  /** A machine of the pool's provider takes a container of the queue. */
  taken(poolId: number, queue: QueueName): void {
    this.#byPool.get(poolId)?.delete(queue);
  }

  /** The pool changed, or is gone. */
  delete(poolId: number): void {
    this.#byPool.delete(poolId);
  }

  clear(): void {
    this.#byPool.clear();
  }
}

const NONE: ReadonlySet<QueueName> = new Set();
