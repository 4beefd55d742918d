// Attempts that this replica sent or adopted and that have not ended.
// Each has one valid token; a message with another token changes nothing.
import type { AttemptToken, ContainerId, LockToken, MachineId, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import { Grouped } from '#shared/grouped.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { FetchedJob } from '../../stores/queues/task-queues.ts';
import type { Lease } from './leases.ts';
import type { ReadyContainer } from './slots.ts';
import type { AttemptOutcome } from '../state.ts';

/** Report of an agent on the end of an attempt. */
export interface AttemptResult {
  readonly taskId: TaskId;
  readonly token: AttemptToken;
  readonly containerId: ContainerId;
  readonly outcome: AttemptOutcome;
  readonly durationMs: number;
  /** Result; undefined: it is larger than a result may be. */
  readonly body: Buffer | undefined;
}

export interface Attempt {
  readonly job: TaskJob;
  readonly queue: QueueName;
  readonly token: AttemptToken;
  readonly lock: LockToken;
  /** Number that grows with every fetch of the task. */
  readonly number: number;
  readonly machineId: MachineId;
  readonly containerId: ContainerId;
  /** Container of the attempt; undefined: adopted before its container was ready here. */
  container: ReadyContainer | undefined;
  /** Agent process that the attempt was sent to; another one after a restart may not know the attempt. */
  readonly agentInstance: string;
  /** Session over which the attempt was sent, or in which its agent last named it. */
  sessionEpoch: number;
  /** Time of sending, in epoch milliseconds: for records. */
  readonly sentAtMs: number;
  /** Time when this process sent the attempt or took it over, in monotonic milliseconds: for every time limit. */
  readonly handedOverAtMs: number;
  /** Whether it was taken over from another process: its job then lacks the input. */
  readonly adopted: boolean;
  /** Status of the task, as far as this attempt goes: PENDING while it is only claimed. */
  status: TaskStatus;
  startedAtMs: number | null;
  /** Host name that EndTask gave. */
  containerHostname?: string;
  /** Time when its machine last confirmed the attempt: at the hand-over, then in heartbeats. Monotonic milliseconds. */
  seenAtMs: number;
  /** Whether it did not start in time and its agent was asked. */
  unclaimed: boolean;
  /** Outcome of the write of its end: a repeated end gets the same one. */
  ending: Promise<boolean> | undefined;
  /** Called once its end is decided, and its caller answered; its record may still be on its way. */
  onDecided?: () => void;
  /** Whether its task goes back to the queue: it is not this attempt's any more. */
  isReturning: boolean;
  /** Whether it ends its task whatever lock its job has: whoever fetched the job takes it out. */
  isSole: boolean;
  /** Whether its slot was given back, which happens once. */
  slotFreed: boolean;
  /** Timer of the execution limit plus a grace, in case the agent's own clock does not end the attempt. */
  limit: NodeJS.Timeout | undefined;
}

/**
 * Attempt whose job the dispatcher fetched for a free slot, before its order leaves. Claim and
 * attempt are one object: the sender sets the agent and the times when it hands the attempt over.
 */
export interface Claim extends Attempt {
  readonly container: ReadyContainer;
  /** Number of fetches of the job since it was added, or of times the line gave it out, this one included. */
  readonly starts: number;
  /** Time when the fetch went out, or the slot was taken; monotonic milliseconds. */
  readonly askedAtMs: number;
  agentInstance: string;
  sentAtMs: number;
  handedOverAtMs: number;
}

/** Attempts by key, and by machine, container and queue: a report of one machine costs what that machine has. */
class AttemptIndex<K> {
  readonly #byKey = new Map<K, Attempt>();
  readonly ofMachine = new Grouped<MachineId, Attempt>();
  readonly ofContainer = new Grouped<ContainerId, Attempt>();
  readonly ofQueue = new Grouped<QueueName, Attempt>();

  get(key: K): Attempt | undefined {
    return this.#byKey.get(key);
  }

  set(key: K, attempt: Attempt): void {
    this.take(key);
    this.#byKey.set(key, attempt);
    this.ofMachine.add(attempt.machineId, attempt);
    this.ofContainer.add(attempt.containerId, attempt);
    this.ofQueue.add(attempt.queue, attempt);
  }

  take(key: K): Attempt | undefined {
    const attempt = this.#byKey.get(key);
    if (attempt === undefined) return undefined;
    this.#byKey.delete(key);
    this.ofMachine.delete(attempt.machineId, attempt);
    this.ofContainer.delete(attempt.containerId, attempt);
    this.ofQueue.delete(attempt.queue, attempt);
    return attempt;
  }

  values(): MapIterator<Attempt> {
    return this.#byKey.values();
  }

  get size(): number {
    return this.#byKey.size;
  }
}

export class Attempts {
  readonly #byTask = new AttemptIndex<TaskId>();
  /**
   * Attempts that ended here while their agents may still work on
   * them: their slots stay taken until the agents say otherwise.
   */
  readonly #revoked = new AttemptIndex<AttemptToken>();
  readonly #recording = new Map<AttemptToken, Attempt>();

  add(attempt: Attempt): void {
    this.#byTask.set(attempt.job.taskId, attempt);
  }

  /** Attempt of this token, if it is the current one. */
  find(taskId: TaskId, token: AttemptToken): Attempt | undefined {
    const attempt = this.#byTask.get(taskId);
    return attempt?.token === token ? attempt : undefined;
  }

  current(taskId: TaskId): Attempt | undefined {
    return this.#byTask.get(taskId);
  }

  /**
   * Whether an attempt here has the task. From then on it alone ends the task: whoever asks takes a job that came back
   * out of its queue, and holds that job's lock meanwhile.
   */
  has(taskId: TaskId): boolean {
    const attempt = this.#byTask.get(taskId);
    if (attempt === undefined || attempt.isReturning) return false;
    attempt.isSole = true;
    return true;
  }

  remove(attempt: Attempt): void {
    clearTimeout(attempt.limit);
    if (this.#byTask.get(attempt.job.taskId) === attempt) this.#byTask.take(attempt.job.taskId);
  }

  /** Keeps an attempt that ended findable while its record is on its way: its agent may send the result again. */
  recording(attempt: Attempt, safe: Promise<unknown>): void {
    this.#recording.set(attempt.token, attempt);
    void safe.finally(() => this.#recording.delete(attempt.token));
  }

  /** Attempt that ended here and whose record is on its way. */
  recorded(token: AttemptToken): Attempt | undefined {
    return this.#recording.get(token);
  }

  /** Attempts that ended here and whose records are on their way. */
  beingRecorded(): Iterable<Attempt> {
    return this.#recording.values();
  }

  revoke(attempt: Attempt): void {
    if (attempt.container !== undefined) this.#revoked.set(attempt.token, attempt);
  }

  isRevoked(attempt: Attempt): boolean {
    return this.#revoked.get(attempt.token) !== undefined;
  }

  /**
   * Removes a revoked attempt that the agent says is over.
   * @returns the attempt, once, when its slot was still taken
   */
  takeRevoked(token: AttemptToken): Attempt | undefined {
    return this.#revoked.take(token);
  }

  /** Attempt that was ended here and whose agent may still work on it. */
  revoked(token: AttemptToken): Attempt | undefined {
    return this.#revoked.get(token);
  }

  revokedOf(where: { readonly machineId: MachineId } | { readonly containerId: ContainerId }): Iterable<Attempt> {
    const { ofMachine, ofContainer } = this.#revoked;
    return 'machineId' in where ? ofMachine.of(where.machineId) : ofContainer.of(where.containerId);
  }

  /**
   * Notes that a heartbeat names these attempts: their leases run anew. The
   * token of one attempt does not renew another's lease.
   */
  named(live: Iterable<{ readonly taskId: TaskId; readonly token: AttemptToken }>, clock: Clock): void {
    const seenAtMs = clock.monotonicMs();
    const nowMs = clock.nowMs();
    for (const { taskId, token } of live) {
      const attempt = this.find(taskId, token);
      if (attempt === undefined) continue;
      attempt.seenAtMs = seenAtMs;
      attempt.startedAtMs ??= nowMs;
    }
  }

  ofMachine(machineId: MachineId): ReadonlySet<Attempt> {
    return this.#byTask.ofMachine.of(machineId);
  }

  ofContainer(containerId: ContainerId): ReadonlySet<Attempt> {
    return this.#byTask.ofContainer.of(containerId);
  }

  ofQueue(queue: QueueName): ReadonlySet<Attempt> {
    return this.#byTask.ofQueue.of(queue);
  }

  all(): Iterable<Attempt> {
    return this.#byTask.values();
  }

  /** Stops all timers of execution limits: the process stops, and the attempts go on in their containers. */
  dropLimits(): void {
    for (const attempt of this.#byTask.values()) clearTimeout(attempt.limit);
  }

  get size(): number {
    return this.#byTask.size;
  }
}

/** Attempt of a job that was just fetched for that container's slot. */
export function claimOf(
  fetched: FetchedJob,
  container: ReadyContainer,
  token: AttemptToken,
  lock: LockToken,
  askedAtMs: number,
): Claim {
  const { job, starts } = fetched;
  return {
    job,
    queue: container.queue,
    token,
    lock,
    number: job.attempts + starts,
    machineId: container.machineId,
    containerId: container.containerId,
    container,
    agentInstance: '',
    sessionEpoch: 0,
    sentAtMs: 0,
    handedOverAtMs: 0,
    seenAtMs: 0,
    unclaimed: false,
    adopted: false,
    status: 'PENDING',
    startedAtMs: null,
    ending: undefined,
    isReturning: false,
    isSole: false,
    slotFreed: false,
    limit: undefined,
    starts,
    askedAtMs,
  };
}

/** Facts of an attempt that another process of ours made. */
export type AttemptFacts = Pick<
  Attempt,
  'job' | 'queue' | 'token' | 'lock' | 'number' | 'machineId' | 'containerId' | 'sentAtMs' | 'sessionEpoch'
> & { readonly agentInstance: string };

/**
 * Attempt that another process of ours made; not yet among this one's.
 * @param monotonicMs - now: its time limits begin here, because the clock of the process that sent it may differ
 */
export const adoptedOf = (facts: AttemptFacts, monotonicMs: number): Attempt => ({
  ...facts,
  container: undefined,
  handedOverAtMs: monotonicMs,
  seenAtMs: monotonicMs,
  unclaimed: false,
  adopted: true,
  status: 'PENDING',
  startedAtMs: facts.sentAtMs,
  ending: undefined,
  isReturning: false,
  isSole: false,
  slotFreed: false,
  limit: undefined,
});

/** Attempt of an asynchronous task that another process made, from its lease. */
export const attemptOf = (lease: Lease, token: AttemptToken, monotonicMs: number): Attempt =>
  adoptedOf(
    {
      job: lease.job,
      queue: lease.queue as QueueName,
      token,
      lock: lease.lock,
      number: lease.attempt,
      machineId: lease.machineId,
      containerId: lease.containerId,
      agentInstance: '',
      sessionEpoch: 0,
      sentAtMs: lease.startedAtMs,
    },
    monotonicMs,
  );
