// From a queue to a container with a free slot: fetches when a job arrives or a slot frees, never on a timer of its own but for the retry after a failed fetch.
// Called by tasks/service.ts (a job arrived) and by fleet/ (a container is ready, a machine came back). What must stay true: a slot is taken before the fetch
// and freed when it came back empty, so no fetched job is ever without one; and fetching goes on until every job that woke us has come or the queue is empty
// (counting expected jobs instead hangs a lone caller for ever after one missed wake-up).
import type { AttemptToken, InstanceId, LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import { lockTokenOf, newAttemptToken } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Fetched, TaskQueues } from '../queues/task-queues.ts';
import type { TaskJob } from '../queues/jobs.ts';
import { chooseContainer } from './choose.ts';
import type { ReadyContainer, SlotTable } from './slots.ts';

/** A fetched job with the slot it has been given. */
export interface Claim {
  readonly queue: QueueName;
  readonly job: TaskJob;
  readonly starts: number;
  readonly token: AttemptToken;
  readonly lock: LockToken;
  readonly container: ReadyContainer;
  /** Another replica's task, lent to this one. */
  readonly isLent: boolean;
  /** When the fetch went out; monotonic milliseconds. */
  readonly askedAtMs: number;
}

interface QueueState {
  /** Jobs added here that did not come yet, with the wake-up that named them. */
  readonly expected: Map<TaskId, number>;
  /** Jobs may wait that nobody here added. */
  backlog: boolean;
  fetching: number;
  wakes: number;
  retry: NodeJS.Timeout | undefined;
  /** It is being looked through before its first fetch. */
  gated: boolean;
}

const MAX_EXPECTED = 10_000;
const BACKLOG_FETCHES = 4;
const FETCH_RETRY_MS = 250;

export class Dispatcher {
  readonly #queues: TaskQueues;
  readonly #slots: SlotTable;
  readonly #instance: InstanceId;
  readonly #log: Log;
  readonly #begin: (claim: Claim) => void;
  readonly #onDue: (queue: QueueName, dueMs: number) => void;
  readonly #beforeFetch: ((queue: QueueName) => Promise<void> | undefined) | undefined;
  readonly #onIdle: ((container: ReadyContainer) => void) | undefined;
  readonly #onNoRoom: ((queue: QueueName, taskId: TaskId | undefined) => void) | undefined;
  readonly #states = new Map<QueueName, QueueState>();
  #stopped = false;

  constructor(parts: {
    readonly queues: TaskQueues;
    readonly slots: SlotTable;
    readonly instance: InstanceId;
    readonly log: Log;
    /** Takes over a claim; must end it with {@link release} sooner or later. */
    readonly begin: (claim: Claim) => void;
    /** An empty fetch gave the slot back, and the container has nothing to do: its keep-warm may have run out meanwhile. */
    readonly onIdle?: (container: ReadyContainer) => void;
    /** A job waits, and no container here has a slot for it: another replica's may. */
    readonly onNoRoom?: (queue: QueueName, taskId: TaskId | undefined) => void;
    /** undefined: the queue may be fetched from; else when the promise has resolved. */
    readonly beforeFetch?: (queue: QueueName) => Promise<void> | undefined;
    /** The queue's next delayed job is due then. */
    readonly onDue: (queue: QueueName, dueMs: number) => void;
  }) {
    this.#queues = parts.queues;
    this.#slots = parts.slots;
    this.#instance = parts.instance;
    this.#log = parts.log;
    this.#begin = parts.begin;
    this.#onDue = parts.onDue;
    this.#onIdle = parts.onIdle;
    this.#onNoRoom = parts.onNoRoom;
    this.#beforeFetch = parts.beforeFetch;
  }

  /** A job is in the queue (named when this replica added it), or may be. Whoever has room for it elsewhere is told where nobody has here. */
  wake(queue: QueueName, taskId?: TaskId): void {
    if (!this.wakeHere(queue, taskId)) this.#onNoRoom?.(queue, taskId);
  }

  /** The same, for this replica's own containers alone. @returns false: none of them has a slot */
  wakeHere(queue: QueueName, taskId?: TaskId): boolean {
    // Nothing here serves it: a container that comes wakes it again, and nothing is kept of it until then.
    if (!this.#slots.serves(queue)) {
      this.#drop(queue);
      return false;
    }
    const state = this.#stateOf(queue);
    state.wakes += 1;
    if (taskId !== undefined && state.expected.size < MAX_EXPECTED) state.expected.set(taskId, state.wakes);
    else state.backlog = true;
    if (this.#pump(queue, state)) return true;
    // Without containers here nothing is remembered: one that becomes ready looks by itself.
    if (state.fetching === 0 && !this.#slots.has(queue)) this.#states.delete(queue);
    return false;
  }

  /** A job that was expected will not come: removed before it was fetched. */
  forget(queue: QueueName, taskId: TaskId): void {
    const state = this.#states.get(queue);
    if (state === undefined) return;
    state.expected.delete(taskId);
    if (isIdle(state)) this.#states.delete(queue);
  }

  /** The attempt in that container ended: its slot is free again. */
  release(container: ReadyContainer, nowMs: number): void {
    container.inFlight = Math.max(0, container.inFlight - 1);
    if (container.inFlight === 0) container.idleSinceMs = nowMs;
    const state = this.#states.get(container.queue);
    if (state !== undefined) this.#pump(container.queue, state);
  }

  /** Drops what is kept of queues whose last container went. */
  prune(): void {
    for (const queue of [...this.#states.keys()]) if (!this.#slots.serves(queue)) this.#drop(queue);
  }

  #drop(queue: QueueName): void {
    const state = this.#states.get(queue);
    if (state === undefined || state.fetching > 0) return;
    clearTimeout(state.retry);
    this.#states.delete(queue);
  }

  /** Queues of which something is kept here: none that nobody serves. */
  get size(): number {
    return this.#states.size;
  }

  stop(): void {
    this.#stopped = true;
    for (const state of this.#states.values()) clearTimeout(state.retry);
  }

  #stateOf(queue: QueueName): QueueState {
    let state = this.#states.get(queue);
    if (state === undefined) {
      state = { expected: new Map(), backlog: false, fetching: 0, wakes: 0, retry: undefined, gated: false };
      this.#states.set(queue, state);
    }
    return state;
  }

  /** @returns false: jobs wait for want of a slot */
  #pump(queue: QueueName, state: QueueState): boolean {
    if (this.#stopped || state.retry !== undefined || state.gated) return true;
    if (!this.#slots.serves(queue)) {
      // Its last container went.
      this.#drop(queue);
      return false;
    }
    const gate = this.#beforeFetch?.(queue);
    if (gate !== undefined) {
      void this.#gate(queue, state, gate);
      return true;
    }
    while (state.fetching < state.expected.size || (state.backlog && state.fetching < BACKLOG_FETCHES)) {
      const container = chooseContainer(this.#slots.of(queue), Math.random);
      // A fetch under way may bring what a wake-up without a name is about.
      if (container === undefined) return state.backlog && state.fetching > 0;
      container.inFlight += 1;
      state.fetching += 1;
      void this.#fetch(queue, state, container);
    }
    // A newer state may have taken its place while this one was still held by a fetch.
    if (isIdle(state) && this.#states.get(queue) === state) this.#states.delete(queue);
    return true;
  }

  async #gate(queue: QueueName, state: QueueState, gate: Promise<void>): Promise<void> {
    state.gated = true;
    try {
      await gate;
    } catch (error) {
      this.#log.warn({ err: error, queue }, 'queue not looked through yet, trying again');
      this.#retryLater(queue, state);
    }
    state.gated = false;
    if (!this.#pump(queue, state)) this.#onNoRoom?.(queue, undefined);
  }

  async #fetch(queue: QueueName, state: QueueState, container: ReadyContainer): Promise<void> {
    const token = newAttemptToken();
    const lock = lockTokenOf(this.#instance, token);
    const wakesBefore = state.wakes;
    const askedAtMs = performance.now();
    let fetched: Fetched;
    try {
      fetched = await this.#queues.fetch(queue, lock);
    } catch (error) {
      this.#log.warn({ err: error, queue }, 'fetch failed, trying again');
      state.fetching -= 1;
      container.inFlight = Math.max(0, container.inFlight - 1);
      state.backlog = true;
      this.#retryLater(queue, state);
      return;
    }
    state.fetching -= 1;
    if (fetched.job === undefined) {
      // Whatever was added before this fetch went out has been taken by somebody; later ones are still to come.
      if (state.wakes === wakesBefore) {
        state.expected.clear();
        state.backlog = false;
      } else {
        for (const [taskId, wake] of state.expected) if (wake <= wakesBefore) state.expected.delete(taskId);
      }
      if (fetched.nextDueMs !== undefined) this.#onDue(queue, fetched.nextDueMs);
      container.inFlight = Math.max(0, container.inFlight - 1);
      if (container.inFlight === 0) this.#onIdle?.(container);
    } else {
      if (!state.expected.delete(fetched.job.taskId)) state.backlog = true;
      const { job, starts, isLent = false } = fetched;
      this.#begin({ queue, job, starts, isLent, token, lock, container, askedAtMs });
    }
    this.#pump(queue, state);
  }

  #retryLater(queue: QueueName, state: QueueState): void {
    if (this.#stopped || state.retry !== undefined) return;
    state.retry = setTimeout(() => {
      state.retry = undefined;
      this.#pump(queue, state);
    }, FETCH_RETRY_MS);
  }
}

const isIdle = (state: QueueState): boolean => state.fetching === 0 && state.expected.size === 0 && !state.backlog;
