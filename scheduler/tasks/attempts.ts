// Attempts this replica has sent (or adopted) and not seen the end of. One valid token each; a message with another token changes nothing.
import type { AttemptToken, ContainerId, LockToken, MachineId, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import type { TaskJob } from '../queues/jobs.ts';
import type { Lease } from '../dispatch/leases.ts';
import type { ReadyContainer } from '../dispatch/slots.ts';
import type { AttemptOutcome } from './state.ts';

/** What an agent says of an attempt's end. */
export interface AttemptResult {
  readonly taskId: TaskId;
  readonly token: AttemptToken;
  readonly containerId: ContainerId;
  readonly outcome: AttemptOutcome;
  readonly durationMs: number;
  /** undefined: larger than a result may be. */
  readonly body: Buffer | undefined;
}

export interface Attempt {
  readonly job: TaskJob;
  readonly queue: QueueName;
  readonly token: AttemptToken;
  readonly lock: LockToken;
  /** Grows with every fetch of the task. */
  readonly number: number;
  readonly machineId: MachineId;
  readonly containerId: ContainerId;
  /** undefined: adopted before its container was ready here. */
  container: ReadyContainer | undefined;
  /** The agent process it was sent to; another one after a restart may know nothing of it. */
  readonly agentInstance: string;
  /** Epoch milliseconds: for records. */
  readonly sentAtMs: number;
  /** When this process sent it or took it over. Monotonic milliseconds: for every time limit. */
  readonly handedOverAtMs: number;
  /** Taken over from another process: it knows its job without the input. */
  readonly adopted: boolean;
  /** Of its task, as far as this attempt goes: PENDING while it is only claimed. */
  status: TaskStatus;
  startedAtMs: number | null;
  /** As EndTask said it. */
  containerHostname?: string;
  /** When its machine last said that it has it: at the hand-over, then in heartbeats. Monotonic milliseconds. */
  seenAtMs: number;
  /** It did not start in time: its agent was asked. */
  unclaimed: boolean;
  /** Its end is being written: a second one is a repetition of the first and has the same answer. */
  ending: Promise<boolean> | undefined;
  /** Its slot was given back, which happens once. */
  slotFreed: boolean;
  /** The limit plus a grace, in case the agent's own clock did not end it. */
  limit: NodeJS.Timeout | undefined;
}

export class Attempts {
  readonly #byTask = new Map<TaskId, Attempt>();
  /** Ended here while its agent may still work on it: the slot stays taken until the agent says otherwise. */
  readonly #revoked = new Map<AttemptToken, Attempt>();

  add(attempt: Attempt): void {
    this.#byTask.set(attempt.job.taskId, attempt);
  }

  /** The attempt this token belongs to, if it is the current one. */
  find(taskId: TaskId, token: AttemptToken): Attempt | undefined {
    const attempt = this.#byTask.get(taskId);
    return attempt?.token === token ? attempt : undefined;
  }

  current(taskId: TaskId): Attempt | undefined {
    return this.#byTask.get(taskId);
  }

  remove(attempt: Attempt): void {
    clearTimeout(attempt.limit);
    if (this.#byTask.get(attempt.job.taskId) === attempt) this.#byTask.delete(attempt.job.taskId);
  }

  revoke(attempt: Attempt): void {
    if (attempt.container !== undefined) this.#revoked.set(attempt.token, attempt);
  }

  isRevoked(attempt: Attempt): boolean {
    return this.#revoked.has(attempt.token);
  }

  /** The agent says that attempt is over. @returns it, once, when its slot was still taken */
  takeRevoked(token: AttemptToken): Attempt | undefined {
    const attempt = this.#revoked.get(token);
    this.#revoked.delete(token);
    return attempt;
  }

  /** An attempt that was ended here and whose agent may still work on it. */
  revoked(token: AttemptToken): Attempt | undefined {
    return this.#revoked.get(token);
  }

  *revokedOf(where: { readonly machineId: MachineId } | { readonly containerId: ContainerId }): Iterable<Attempt> {
    for (const attempt of this.#revoked.values()) {
      if ('machineId' in where ? attempt.machineId === where.machineId : attempt.containerId === where.containerId)
        yield attempt;
    }
  }

  *ofMachine(machineId: MachineId): Iterable<Attempt> {
    for (const attempt of this.#byTask.values()) if (attempt.machineId === machineId) yield attempt;
  }

  *ofContainer(containerId: ContainerId): Iterable<Attempt> {
    for (const attempt of this.#byTask.values()) if (attempt.containerId === containerId) yield attempt;
  }

  all(): Iterable<Attempt> {
    return this.#byTask.values();
  }

  get size(): number {
    return this.#byTask.size;
  }
}

/**
 * An attempt that another process of ours made, from its lease; not yet among this one's.
 * @param monotonicMs - now: its time limits begin here, because the clock of the process that sent it may differ from this one's
 */
export function attemptOf(lease: Lease, token: AttemptToken, monotonicMs: number): Attempt {
  return {
    job: lease.job,
    queue: lease.queue as QueueName,
    token,
    lock: lease.lock,
    number: lease.attempt,
    machineId: lease.machineId,
    containerId: lease.containerId,
    container: undefined,
    agentInstance: '',
    sentAtMs: lease.startedAtMs,
    handedOverAtMs: monotonicMs,
    seenAtMs: monotonicMs,
    unclaimed: false,
    adopted: true,
    status: 'PENDING',
    startedAtMs: lease.startedAtMs,
    ending: undefined,
    slotFreed: false,
    limit: undefined,
  };
}
