// Way of a task to a container with a free slot: of a synchronous one from the line (tasks/lines/), at once; of a job
// from its queue, by a fetch, which goes out when a job arrives or a slot frees; the only timer is the retry after a
// failed fetch. Callers: admission/ (a task arrived), fleet/ (a container is ready, a machine came back), lines/ (an
// offer takes a slot) and completion/ (a slot is free).
// Invariants: a slot is taken before the fetch, and freed when the fetch finds nothing, so every
// fetched job has a slot. Fetching goes on until every job of a wake-up has come, or the queue is
// empty. (Counting expected jobs instead hangs a lone caller for ever after one missed wake-up.)
import type { InstanceId, LockToken, QueueName, TaskId } from '#shared/domain/ids.ts';
import { lockTokenOf, newAttemptToken } from '#shared/domain/ids.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { Fetched, FetchedJob, TaskQueues } from '../../stores/queues/task-queues.ts';
import type { Lines } from '../lines/lines.ts';
import { Affinities } from './affinities.ts';
import type { Claim } from './attempts.ts';
import { claimOf } from './attempts.ts';
import { chooseContainer, chooseServing } from './choose.ts';
import type { ReadyContainer, SlotTable } from './slots.ts';

interface QueueState {
  /** Jobs added here that no fetch has brought yet, with the number of the wake-up that named them. */
  readonly expected: Map<TaskId, number>;
  /** Whether jobs may wait that this replica did not add. */
  backlog: boolean;
  fetching: number;
  wakes: number;
  retry: NodeJS.Timeout | undefined;
}

const MAX_EXPECTED = 10_000;
const BACKLOG_FETCHES = 4;
const FETCH_RETRY_MS = 250;

export class Dispatcher {
  readonly name = 'dispatcher';
  readonly #queues: Pick<TaskQueues, 'fetch'>;
  readonly #lines: Pick<Lines, 'mayHave' | 'next' | 'begin' | 'take'>;
  readonly #slots: SlotTable;
  readonly #instance: InstanceId;
  readonly #log: Log;
  readonly #claimed = new Listeners<[Claim]>();
  readonly #delayed = new Listeners<[QueueName, number]>();
  readonly #idle = new Listeners<[ReadyContainer]>();
  readonly #noRoom = new Listeners<[QueueName, TaskId | undefined]>();
  readonly #lineWaits = new Listeners<[QueueName]>();
  #keepRoom: (queue: QueueName, replica: InstanceId, container: ReadyContainer) => void = () => undefined;
  readonly #states = new Map<QueueName, QueueState>();
  readonly #affinities = new Affinities();
  #stopped = false;

  constructor(parts: {
    readonly queues: Pick<TaskQueues, 'fetch'>;
    readonly lines: Pick<Lines, 'mayHave' | 'next' | 'begin' | 'take'>;
    readonly slots: SlotTable;
    readonly instance: InstanceId;
    readonly log: Log;
  }) {
    this.#queues = parts.queues;
    this.#lines = parts.lines;
    this.#slots = parts.slots;
    this.#instance = parts.instance;
    this.#log = parts.log;
  }

  /**
   * The listener takes over a claim, and must end it with {@link release} sooner or later: `Sender.begin`, by
   * compose/wiring.ts.
   */
  onClaimed(listener: (claim: Claim) => void): void {
    this.#claimed.add(listener);
  }

  /** Told of the time, in epoch milliseconds, at which the queue's next delayed job is due. */
  onDelayed(listener: (queue: QueueName, dueMs: number) => void): void {
    this.#delayed.add(listener);
  }

  /**
   * Told when an empty fetch gave the slot back and the container
   * has nothing to do: its keep-warm may have run out meanwhile.
   */
  onIdle(listener: (container: ReadyContainer) => void): void {
    this.#idle.add(listener);
  }

  /** Told when a job waits and no container here has a slot for it: another replica's may. */
  onNoRoom(listener: (queue: QueueName, taskId: TaskId | undefined) => void): void {
    this.#noRoom.add(listener);
  }

  /** Told when synchronous tasks wait here for want of a slot: another replica may have one. */
  onLineWaits(listener: (queue: QueueName) => void): void {
    this.#lineWaits.add(listener);
  }

  /**
   * Sets who keeps a slot for another replica's older task. The slot is taken, and freed by {@link free}, or used by
   * {@link take}.
   */
  keepsRoom(handler: (queue: QueueName, replica: InstanceId, container: ReadyContainer) => void): void {
    this.#keepRoom = handler;
  }

  /** Gives free slots of the queue to synchronous tasks, the oldest first. Costs nothing while none waits. */
  wakeLine(queue: QueueName): void {
    while (!this.#stopped && this.#lines.mayHave(queue)) {
      const container = this.#freeOf(queue);
      if (container === undefined) {
        this.#lineWaits.tell(queue);
        return;
      }
      const next = this.#lines.next(queue);
      if (next.kind === 'nobody') return;
      container.inFlight += 1;
      if (next.kind === 'room') {
        this.#keepRoom(queue, next.replica, container);
        continue;
      }
      const { task } = next;
      this.#claim(queue, container, (lock) => this.#lines.begin(task, lock));
    }
  }

  /** Whether a container here has a free slot for the queue. */
  hasRoom(queue: QueueName): boolean {
    return this.#freeOf(queue) !== undefined;
  }

  /**
   * Takes a slot for a task that another replica offers.
   * @param kept - container in which a slot is kept for it; absent: any free one
   * @returns false: no container here has a slot for it
   */
  take(queue: QueueName, job: TaskJob, attempt: number, kept?: ReadyContainer): boolean {
    const isKept = kept?.accepting === true;
    if (kept !== undefined && !isKept) kept.inFlight = Math.max(0, kept.inFlight - 1);
    const container = isKept ? kept : this.#freeOf(queue);
    if (container === undefined) return false;
    if (!isKept) container.inFlight += 1;
    this.#claim(queue, container, (lock) => this.#lines.take(queue, job, attempt, lock));
    return true;
  }

  /** Frees a slot that was taken, and not used. */
  free(container: ReadyContainer): void {
    container.inFlight = Math.max(0, container.inFlight - 1);
    this.wakeLine(container.queue);
    if (container.inFlight === 0) this.#idle.tell(container);
  }

  #freeOf(queue: QueueName): ReadyContainer | undefined {
    return chooseContainer(this.#slots.of(queue), Math.random);
  }

  /** Makes the claim of a task from the line, whose slot is taken. */
  #claim(queue: QueueName, container: ReadyContainer, begin: (lock: LockToken) => FetchedJob): void {
    const token = newAttemptToken();
    const lock = lockTokenOf(this.#instance, token);
    const fetched = begin(lock);
    const { serving } = fetched.job;
    const server = serving === undefined ? container : this.#serverFor(queue, container, serving);
    this.#claimed.tell(claimOf(fetched, server, token, lock, performance.now()));
  }

  /**
   * Wakes the queue, because it has a job (named when this replica added it), or
   * may have one. Where no container here has room, a replica with room is told.
   */
  wake(queue: QueueName, taskId?: TaskId): void {
    if (!this.wakeHere(queue, taskId)) this.#noRoom.tell(queue, taskId);
  }

  /** Like {@link wake}, for this replica's own containers alone. @returns false: none of them has a slot */
  wakeHere(queue: QueueName, taskId?: TaskId): boolean {
    this.wakeLine(queue);
    // No container here serves the queue: nothing is kept of it, since a container that comes wakes it again.
    if (!this.#slots.serves(queue)) {
      this.#drop(queue);
      return false;
    }
    if (this.#slots.isSync(queue)) return true;
    const state = this.#stateOf(queue);
    state.wakes += 1;
    if (taskId !== undefined && state.expected.size < MAX_EXPECTED) state.expected.set(taskId, state.wakes);
    else state.backlog = true;
    return this.#pump(queue, state);
  }

  /** Forgets an expected job that was removed before it was fetched. */
  forget(queue: QueueName, taskId: TaskId): void {
    const state = this.#states.get(queue);
    if (state === undefined) return;
    state.expected.delete(taskId);
    if (isIdle(state)) this.#states.delete(queue);
  }

  /** Frees the slot of an attempt that ended in that container. */
  release({ container, job }: { readonly container: ReadyContainer; readonly job: TaskJob }, nowMs: number): void {
    container.inFlight = Math.max(0, container.inFlight - 1);
    if (job.serving !== undefined) container.tokens = Math.max(0, container.tokens - job.serving.tokens);
    if (container.inFlight === 0) container.idleSinceMs = nowMs;
    this.wakeLine(container.queue);
    const state = this.#states.get(container.queue);
    if (state !== undefined) this.#pump(container.queue, state);
  }

  /** Drops the state of queues whose last container left. */
  prune(): void {
    for (const queue of [...this.#states.keys()]) if (!this.#slots.serves(queue)) this.#drop(queue);
  }

  #drop(queue: QueueName): void {
    const state = this.#states.get(queue);
    if (state === undefined || state.fetching > 0) return;
    clearTimeout(state.retry);
    this.#states.delete(queue);
  }

  /** Number of queues with state here; a queue that no container here serves has none. */
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
      state = { expected: new Map(), backlog: false, fetching: 0, wakes: 0, retry: undefined };
      this.#states.set(queue, state);
    }
    return state;
  }

  /** Sends fetches while slots are free and jobs may wait. @returns false: jobs wait for want of a slot */
  #pump(queue: QueueName, state: QueueState): boolean {
    if (this.#stopped || state.retry !== undefined) return true;
    if (!this.#slots.serves(queue)) {
      // The queue's last container left.
      this.#drop(queue);
      return false;
    }
    while (state.fetching < state.expected.size || (state.backlog && state.fetching < BACKLOG_FETCHES)) {
      const container = this.#freeOf(queue);
      // A fetch under way may bring the job that an unnamed wake-up is about.
      if (container === undefined) return state.backlog && state.fetching > 0;
      container.inFlight += 1;
      state.fetching += 1;
      void this.#fetch(queue, state, container);
    }
    // A newer state may have replaced this one while a fetch still held it.
    if (isIdle(state) && this.#states.get(queue) === state) this.#states.delete(queue);
    return true;
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
      this.free(container);
      state.backlog = true;
      this.#retryLater(queue, state);
      return;
    }
    state.fetching -= 1;
    if (fetched.job === undefined) {
      // Another fetch took every job added before this one went out; later jobs are still to come.
      if (state.wakes === wakesBefore) {
        state.expected.clear();
        state.backlog = false;
      } else {
        for (const [taskId, wake] of state.expected) if (wake <= wakesBefore) state.expected.delete(taskId);
      }
      if (fetched.nextDueMs !== undefined) this.#delayed.tell(queue, fetched.nextDueMs);
      this.free(container);
    } else {
      if (!state.expected.delete(fetched.job.taskId)) state.backlog = true;
      this.#claimed.tell(claimOf(fetched, container, token, lock, askedAtMs));
    }
    this.#pump(queue, state);
  }

  /**
   * Chooses a container again, now that the fetched call tells its tokens and its conversation.
   * @param container - the one whose slot was taken before the fetch; its slot is freed when another is chosen
   */
  #serverFor(queue: QueueName, container: ReadyContainer, serving: NonNullable<TaskJob['serving']>): ReadyContainer {
    const { tokens, prefers } = serving;
    const nowMs = performance.now();
    container.inFlight -= 1;
    const preferred = prefers === undefined ? undefined : this.#affinities.of(queue, prefers, nowMs);
    // None accepts any more: the sender gives the job back.
    const chosen = chooseServing(this.#slots.of(queue), serving, preferred, Math.random) ?? container;
    chosen.inFlight += 1;
    chosen.tokens += tokens;
    if (prefers !== undefined) this.#affinities.served(queue, prefers, chosen.containerId, nowMs);
    if (container.inFlight === 0) this.#idle.tell(container);
    return chosen;
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
