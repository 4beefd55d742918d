// Ready containers on machines linked to this replica, and their free slots. fleet/ puts containers in and out, the dispatcher takes and frees slots.
// What must stay true: an attempt is sent only while `inFlight` is below `slots`; a slot is freed only when the agent said the attempt ended, or its container or machine is gone.
import type { AttemptToken, ContainerId, MachineId, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { Candidate } from './choose.ts';

/** The task stream of one machine's agent. */
export interface TaskLink {
  readonly machineId: MachineId;
  /** New at every start of the agent. */
  readonly agentInstance: string;
  /** How often this agent was told to send a heartbeat. Absent: as often as the default says. */
  readonly heartbeatIntervalMs?: number;
  /** False: the stream is gone or its buffer is full; nothing was sent. */
  run(task: RunOrder): boolean;
  cancel(taskId: TaskId, token: AttemptToken, reason: string): void;
  /** The scheduler has the result: the agent may forget it. */
  acked(taskId: TaskId, token: AttemptToken): void;
}

export interface RunOrder {
  readonly taskId: TaskId;
  readonly token: AttemptToken;
  readonly containerId: ContainerId;
  readonly timeoutMs: number;
  readonly query: Readonly<Record<string, readonly string[]>> | undefined;
  readonly input: string;
}

export interface ReadyContainer extends Candidate {
  readonly queue: QueueName;
  readonly machineId: MachineId;
  slots: number;
  inFlight: number;
  accepting: boolean;
  /** Leaving: never accepts again, whatever its machine does. */
  leaving: boolean;
  /** Its agent just refused a task: nothing is sent there for a moment. */
  paused: NodeJS.Timeout | undefined;
  link: TaskLink | undefined;
  idleSinceMs: number;
  /** As the last EndTask asked, beside the stub's. */
  keepWarmMs: number;
  completed: number;
}

export class SlotTable {
  readonly #byQueue = new Map<QueueName, Map<ContainerId, ReadyContainer>>();
  readonly #byId = new Map<ContainerId, ReadyContainer>();

  /** Puts a container in, or changes how many slots one has that is there already: that one keeps its attempts. */
  ready(
    facts: {
      readonly containerId: ContainerId;
      readonly queue: QueueName;
      readonly machineId: MachineId;
      readonly slots: number;
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
      accepting: link !== undefined,
      leaving: false,
      paused: undefined,
      link,
      idleSinceMs: nowMs,
      keepWarmMs: 0,
      completed: 0,
    };
    this.#byId.set(facts.containerId, container);
    let queue = this.#byQueue.get(facts.queue);
    if (queue === undefined) this.#byQueue.set(facts.queue, (queue = new Map()));
    queue.set(facts.containerId, container);
    return container;
  }

  get(containerId: ContainerId): ReadyContainer | undefined {
    return this.#byId.get(containerId);
  }

  /** No new attempts; those it has go on. */
  leave(containerId: ContainerId): void {
    const container = this.#byId.get(containerId);
    if (container === undefined) return;
    container.leaving = true;
    container.accepting = false;
  }

  /** Load came back before a stop was sent. */
  stay(containerId: ContainerId): void {
    const container = this.#byId.get(containerId);
    if (container === undefined) return;
    container.leaving = false;
    container.accepting = accepts(container);
  }

  /** Nothing goes there for `ms`; then `onOver` is told, unless the container went meanwhile. */
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
    const queue = this.#byQueue.get(container.queue);
    queue?.delete(containerId);
    if (queue?.size === 0) this.#byQueue.delete(container.queue);
  }

  /** The machine's stream came (or went: undefined): its containers accept, or do not. */
  setLink(machineId: MachineId, link: TaskLink | undefined): readonly QueueName[] {
    const queues = new Set<QueueName>();
    for (const container of this.#byId.values()) {
      if (container.machineId !== machineId) continue;
      container.link = link;
      container.accepting = accepts(container);
      queues.add(container.queue);
    }
    return [...queues];
  }

  has(queue: QueueName): boolean {
    return this.#byQueue.has(queue);
  }

  all(): Iterable<ReadyContainer> {
    return this.#byId.values();
  }

  of(queue: QueueName): Iterable<ReadyContainer> {
    return this.#byQueue.get(queue)?.values() ?? [];
  }

  /** Whether any container of the queue is here, whatever it does just now. */
  serves(queue: QueueName): boolean {
    return this.#byQueue.has(queue);
  }

  /** True while some container of the queue is ready and its machine's link lives. */
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
