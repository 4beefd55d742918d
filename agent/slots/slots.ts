/**
 * The slot table: every container's slots, and the attempts in them. The task stream passes the scheduler's messages to
 * it; the containers' executor adds and ends containers. Must stay true: (task id, token) names an attempt everywhere,
 * a repetition changes nothing, and a result is kept until acknowledged.
 */
import type { AttemptsKnown__Output, RunTask__Output } from '#shared/protocol/generated/messages.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import { messageOf } from '#shared/errors.ts';
import type { TaskSink } from './attempts.ts';
import { UnacknowledgedAttempts, keyOf } from './attempts.ts';
import type { ContainerExit, ContainerSlotsEvents, SlotFacts, StreamWay } from './container-facts.ts';
import { ContainerSlots } from './container-slots.ts';

type Told<Event extends keyof ContainerSlotsEvents> = Parameters<ContainerSlotsEvents[Event]>;

/** A stopping agent reads so long what processes have sent; one that does nothing else closes within milliseconds. */
const LEAVE_MS = 1_000;

export class RunnerSlots {
  readonly #containers = new Map<string, ContainerSlots>();
  readonly #attempts = new UnacknowledgedAttempts();
  readonly #ready = new Listeners<Told<'onReady'>>();
  readonly #starting = new Listeners<Told<'onStarting'>>();
  readonly #failed = new Listeners<Told<'onFailed'>>();
  readonly #logged = new Listeners<Told<'onLog'>>();
  readonly #mustStop = new Listeners<Told<'onMustStop'>>();
  readonly #suspect = new Listeners<Told<'onSuspect'>>();
  readonly #violated = new Listeners<Told<'onViolation'>>();
  readonly #slotsChanged = new Listeners<Told<'onSlots'>>();
  readonly #events: ContainerSlotsEvents = {
    onReady: (...told) => this.#ready.tell(...told),
    onStarting: (...told) => this.#starting.tell(...told),
    onFailed: (...told) => this.#failed.tell(...told),
    onLog: (...told) => this.#logged.tell(...told),
    onMustStop: (...told) => this.#mustStop.tell(...told),
    onSuspect: (...told) => this.#suspect.tell(...told),
    onViolation: (...told) => this.#violated.tell(...told),
    onSlots: (...told) => this.#slotsChanged.tell(...told),
  };
  readonly #way: StreamWay;
  readonly #log: Log;

  constructor(way: StreamWay, log: Log) {
    this.#way = way;
    this.#log = log;
  }

  // ---- what containers tell (`ContainerSlotsEvents`) ----------------------------------------------------------------

  onReady(listener: ContainerSlotsEvents['onReady']): void {
    this.#ready.add(listener);
  }

  onStarting(listener: ContainerSlotsEvents['onStarting']): void {
    this.#starting.add(listener);
  }

  onFailed(listener: ContainerSlotsEvents['onFailed']): void {
    this.#failed.add(listener);
  }

  onLog(listener: ContainerSlotsEvents['onLog']): void {
    this.#logged.add(listener);
  }

  onMustStop(listener: ContainerSlotsEvents['onMustStop']): void {
    this.#mustStop.add(listener);
  }

  onSuspect(listener: ContainerSlotsEvents['onSuspect']): void {
    this.#suspect.add(listener);
  }

  onViolation(listener: ContainerSlotsEvents['onViolation']): void {
    this.#violated.add(listener);
  }

  onSlots(listener: ContainerSlotsEvents['onSlots']): void {
    this.#slotsChanged.add(listener);
  }

  // ---- containers ---------------------------------------------------------------------------------------------------

  /** Listens for a container's runner processes. */
  async add(facts: SlotFacts): Promise<void> {
    this.#containers.get(facts.containerId)?.close();
    const slots = new ContainerSlots(facts, this.#attempts, this.#events, this.#way, this.#log);
    this.#containers.set(facts.containerId, slots);
    await slots.listen();
  }

  get(containerId: string): ContainerSlots | undefined {
    return this.#containers.get(containerId);
  }

  /**
   * The container has ended: its attempts end, its socket closes.
   * @returns whether the log of a task says how it ended
   */
  async end(containerId: string, exit: ContainerExit): Promise<boolean> {
    const slots = this.#containers.get(containerId);
    if (slots === undefined) return false;
    const isTold = await slots.containerEnded(exit);
    if (this.#containers.get(containerId) === slots) this.#containers.delete(containerId);
    return isTold;
  }

  /** Whether every listed container's processes have dialled again after a restart of the agent. */
  areRunnersConnected(containerIds: readonly string[]): boolean {
    return containerIds.every((id) => this.#containers.get(id)?.areRunnersConnected ?? true);
  }

  /** Number of attempts that this process ever took. */
  get taken(): number {
    return this.#attempts.taken;
  }

  liveAttempts(): ReturnType<UnacknowledgedAttempts['live']> {
    return this.#attempts.live();
  }

  /** Reads what the processes of containers have sent, and lets them go: the agent stops. */
  async leave(): Promise<void> {
    await Promise.all([...this.#containers.values()].map((slots) => slots.leave(LEAVE_MS)));
  }

  /** Closes every socket; containers and their attempts live on. */
  close(): void {
    for (const slots of this.#containers.values()) slots.close();
    this.#containers.clear();
    this.#attempts.stop();
  }

  // ---- the task stream ----------------------------------------------------------------------------------------------

  connect(sink: TaskSink): void {
    this.#attempts.connect(sink);
  }

  disconnect(sink: TaskSink): void {
    this.#attempts.disconnect(sink);
  }

  run(task: RunTask__Output): void {
    let refused: string | undefined;
    try {
      const slots = this.#containers.get(task.containerId);
      refused = slots === undefined ? 'no_such_container' : slots.run(task);
    } catch (error) {
      this.#log.warn({ err: error, taskId: task.taskId }, 'task cannot be handed to its runner');
      refused = messageOf(error);
    }
    if (refused !== undefined)
      this.#attempts.send({ refused: { taskId: task.taskId, token: task.token, reason: refused } });
  }

  cancel(taskId: string, token: string, reason: string): void {
    const attempt = this.#attempts.get(keyOf(taskId, token));
    if (attempt === undefined) {
      // The attempt ended long ago and was acknowledged, or never existed here: the scheduler may count its slot as
      // free.
      this.#attempts.send({ refused: { taskId, token, reason: 'no_such_attempt' } });
      return;
    }
    this.#containers.get(attempt.containerId)?.cancel(attempt, reason);
  }

  acked(taskId: string, token: string): void {
    const attempt = this.#attempts.acknowledge(keyOf(taskId, token));
    if (attempt !== undefined) this.#containers.get(attempt.containerId)?.acked(attempt);
  }

  /** The answer to our report: attempts that the scheduler refused end here. */
  known(answer: AttemptsKnown__Output): void {
    for (const { taskId, token } of answer.refused) {
      const attempt = this.#attempts.get(keyOf(taskId, token));
      if (attempt === undefined) continue;
      if (attempt.result !== undefined) this.acked(taskId, token);
      else this.#containers.get(attempt.containerId)?.cancel(attempt, 'superseded');
    }
  }
}
