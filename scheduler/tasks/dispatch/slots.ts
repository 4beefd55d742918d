// Ready containers on machines linked to this replica, and their free slots.
// fleet/ puts containers in and out; the dispatcher takes and frees slots.
// Invariant: an attempt is sent only while `inFlight` is below `slots`. A slot is freed only
// when the agent said that the attempt ended, or when its container or machine is gone.
import type { AttemptToken, ContainerId, MachineId, QueueName, TaskId } from '#shared/domain/ids.ts';
import { Grouped } from '#shared/grouped.ts';
import type { EngineLoad } from '../../domain/serving.ts';
import type { ServingCandidate } from './choose.ts';

/** Task stream of one machine's agent. */
export interface TaskLink {
  readonly machineId: MachineId;
  /** Identity of the agent process; new at every start of the agent. */
  readonly agentInstance: string;
  /** Number of the machine's session; each one has a higher number. */
  readonly sessionEpoch: number;
  /** Milliseconds between heartbeats that this agent was told. Absent: the default. */
  readonly heartbeatIntervalMs?: number;
  /** Sends an attempt. @returns false: the stream is gone or its buffer is full, and nothing was sent */
  run(task: RunOrder): boolean;
  cancel(taskId: TaskId, token: AttemptToken, reason: string): void;
  /** Tells the agent that the scheduler has the result: the agent may forget it. */
  acked(taskId: TaskId, token: AttemptToken): void;
}

export interface RunOrder {
  readonly taskId: TaskId;
  readonly token: AttemptToken;
  readonly containerId: ContainerId;
  readonly timeoutMs: number;
  readonly query: Readonly<Record<string, readonly string[]>> | undefined;
  readonly input: string;
  /** Absent: the task has an input, and no stream. */
  readonly stream?: boolean;
  /** For another scheduler that takes the attempt over. Absent: leases have them. */
  readonly facts?: Buffer;
}

export interface ReadyContainer extends ServingCandidate {
  readonly queue: QueueName;
  readonly machineId: MachineId;
  /** Whether its calls are synchronous: its queue has no jobs in Redis. Absent: they may be both. */
  readonly isSync?: boolean;
  slots: number;
  inFlight: number;
  /** Estimated tokens of its attempts that call a model. */
  tokens: number;
  /** Requests that wait inside its engine, as far as is known. */
  engineWaiting: number;
  /** Requests that its engine works on, and those that waited at two readings in a row; undefined: not known. */
  engine: EngineLoad | undefined;
  accepting: boolean;
  /** True while the container leaves: it accepts nothing, even when its machine's link comes back. */
  leaving: boolean;
  /** Timer of a pause: the agent just refused a task, so nothing is sent to the container for a moment. */
  paused: NodeJS.Timeout | undefined;
  link: TaskLink | undefined;
  idleSinceMs: number;
  /** Keep-warm that the last EndTask asked for, in milliseconds; applies beside the stub's. */
  keepWarmMs: number;
  completed: number;
  /** Whether it was handed an attempt: its start has worked then, whatever the attempt does. */
  served: boolean;
}

export class SlotTable {
  readonly #byId = new Map<ContainerId, ReadyContainer>();
  readonly #byQueue = new Grouped<QueueName, ReadyContainer>();
  readonly #byMachine = new Grouped<MachineId, ReadyContainer>();

  /** Puts a container in, or changes the number of slots of a known container, which keeps its attempts. */
  ready(
    facts: {
      readonly containerId: ContainerId;
      readonly queue: QueueName;
      readonly machineId: MachineId;
      readonly slots: number;
      readonly isSync?: boolean;
    },
    link: TaskLink | undefined,
    nowMs: number,
  ): ReadyContainer {
    const existing = this.#byId.get(facts.containerId);
    if (existing !== undefined) {
      existing.link = link;
      existing.slots = facts.slots;
      existing.accepting = accepts(existing);
      return existing;
    }
    const container: ReadyContainer = {
      ...facts,
      inFlight: 0,
      tokens: 0,
      engineWaiting: 0,
      engine: undefined,
      accepting: link !== undefined,
      leaving: false,
      paused: undefined,
      link,
      idleSinceMs: nowMs,
      keepWarmMs: 0,
      completed: 0,
      served: false,
    };
    this.#byId.set(facts.containerId, container);
    this.#byQueue.add(facts.queue, container);
    this.#byMachine.add(facts.machineId, container);
    return container;
  }

  get(containerId: ContainerId): ReadyContainer | undefined {
    return this.#byId.get(containerId);
  }

  /** Stops new attempts in the container; its current attempts go on. */
  leave(containerId: ContainerId): void {
    const container = this.#byId.get(containerId);
    if (container === undefined) return;
    container.leaving = true;
    container.accepting = false;
  }

  /** Lets the container accept again: load came back before a stop was sent. */
  stay(containerId: ContainerId): void {
    const container = this.#byId.get(containerId);
    if (container === undefined) return;
    container.leaving = false;
    container.accepting = accepts(container);
  }

  /** Sends nothing to the container for `ms`; then calls `onOver`, unless the container left meanwhile. */
  pause(container: ReadyContainer, ms: number, onOver: () => void): void {
    if (container.paused !== undefined || this.#byId.get(container.containerId) !== container) return;
    container.paused = setTimeout(() => {
      container.paused = undefined;
      container.accepting = accepts(container);
      onOver();
    }, ms);
    container.paused.unref();
    container.accepting = false;
  }

  remove(containerId: ContainerId): void {
    const container = this.#byId.get(containerId);
    if (container === undefined) return;
    clearTimeout(container.paused);
    container.accepting = false;
    this.#byId.delete(containerId);
    this.#byQueue.delete(container.queue, container);
    this.#byMachine.delete(container.machineId, container);
  }

  /** Sets or clears (undefined) the machine's stream: its containers accept, or do not. */
  setLink(machineId: MachineId, link: TaskLink | undefined): readonly QueueName[] {
    const queues = new Set<QueueName>();
    for (const container of this.#byMachine.of(machineId)) {
      container.link = link;
      container.accepting = accepts(container);
      queues.add(container.queue);
    }
    return [...queues];
  }

  all(): Iterable<ReadyContainer> {
    return this.#byId.values();
  }

  of(queue: QueueName): Iterable<ReadyContainer> {
    return this.#byQueue.of(queue);
  }

  /** Whether any container of the queue is here, in any state. */
  serves(queue: QueueName): boolean {
    return this.#byQueue.of(queue).size > 0;
  }

  /** Whether synchronous calls run in the queue's containers here: Redis has no jobs for it. No container: false. */
  isSync(queue: QueueName): boolean {
    for (const { isSync } of this.#byQueue.of(queue)) return isSync === true;
    return false;
  }

  /** Whether some container of the queue is ready here and does not leave; the link of its machine may be down. */
  hasReady(queue: QueueName): boolean {
    for (const container of this.of(queue)) if (!container.leaving) return true;
    return false;
  }

  queues(): Iterable<QueueName> {
    return this.#byQueue.keys();
  }
}

function accepts(container: ReadyContainer): boolean {
  return container.link !== undefined && !container.leaving && container.paused === undefined;
}
