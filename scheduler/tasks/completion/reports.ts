// Reports of agents on attempts: started, ended, refused, still running after a reconnect, gone with
// their container or machine. Invariants: a message with another token than the attempt's changes
// nothing. An attempt of another process is taken over only by the token that holds its task.
import type { AttemptToken, ContainerId, MachineId, QueueName, TaskId } from '#shared/domain/ids.ts';
import { isWholeEvent } from '#shared/domain/event-stream.ts';
import { attemptHashOf, sha256Hex } from '#shared/domain/ids.ts';
import { sleep } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Leases } from '../dispatch/leases.ts';
import type { Replies } from '../dispatch/replies.ts';
import type { ReadyContainer, SlotTable } from '../dispatch/slots.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import type { Sender } from '../dispatch/sending.ts';
import type { Attempt, AttemptResult, Attempts } from '../dispatch/attempts.ts';
import { attemptOf } from '../dispatch/attempts.ts';
import type { Changes } from '../records/changes.ts';
import type { Completion } from './completion.ts';
import type { GracePeriods } from '../maintenance/grace-periods.ts';
import type { LateResults } from './late-results.ts';
import type { TaskMetrics } from '../metrics.ts';
import { recordOf } from '../records/recording.ts';
import type { OrphanedAttempts } from './orphaned-attempts.ts';

export interface LiveReport {
  readonly taskId: TaskId;
  readonly token: AttemptToken;
  readonly containerId: ContainerId;
}

/** Attempts that a machine's agent has when its task stream begins. */
export interface MachineReport {
  readonly agentInstance: string;
  readonly running: readonly LiveReport[];
  /** Attempts that ended and whose results were not acknowledged; the results follow. Absent: none. */
  readonly finished?: readonly LiveReport[];
  /** Whether no newer session speaks for the machine. Absent: none does. */
  readonly isCurrent?: () => Promise<boolean>;
}

export interface ReportsParts {
  readonly attempts: Attempts;
  readonly completion: Pick<Completion, 'ended' | 'finish' | 'lost' | 'backToQueue' | 'freeRevoked' | 'handOver'>;
  readonly sender: Pick<Sender, 'pause' | 'armLimit'>;
  readonly late: Pick<LateResults, 'take'>;
  readonly orphaned: Pick<OrphanedAttempts, 'find' | 'takeBack' | 'lookAgain' | 'named' | 'machineLost'>;
  readonly leases: Pick<Leases, 'read' | 'list'>;
  readonly changes: Pick<Changes, 'apply'>;
  readonly queues: Pick<TaskQueues, 'lockOf'>;
  readonly slots: Pick<SlotTable, 'get'>;
  readonly replies: Pick<Replies, 'item'>;
  readonly graces: Pick<GracePeriods, 'reportMs' | 'restartedAgentMs'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Pick<TaskMetrics, 'attemptsLost'>;
  readonly signal: AbortSignal;
  readonly maxResultBytes: number;
}

export class Reports {
  readonly #parts: ReportsParts;

  constructor(parts: ReportsParts) {
    this.#parts = parts;
  }

  /** Most bytes of a result. */
  get maxResultBytes(): number {
    return this.#parts.maxResultBytes;
  }

  started(taskId: TaskId, token: AttemptToken): void {
    const attempt = this.#parts.attempts.find(taskId, token);
    if (attempt !== undefined) attempt.startedAtMs = this.#parts.clock.nowMs();
  }

  /** Passes a generator's item to its caller; an item lost on the way is in the result. */
  item(taskId: TaskId, token: AttemptToken, seq: number, event: Buffer): void {
    const { attempts, replies } = this.#parts;
    const attempt = attempts.find(taskId, token);
    if (attempt === undefined || attempt.ending !== undefined || !attempt.job.sync || !isWholeEvent(event)) return;
    replies.item(attempt.job.replica, taskId, seq, event.toString('utf8'));
  }

  /**
   * Takes the result of an attempt.
   * @param onDecided - called when the end is decided and its caller answered: more results may come
   * @returns true once the agent may forget the result, because the database or the spill has the record
   */
  async result(machineId: MachineId, result: AttemptResult, onDecided?: () => void): Promise<boolean> {
    const { attempts, completion, late, maxResultBytes } = this.#parts;
    const known = attempts.find(result.taskId, result.token) ?? attempts.recorded(result.token);
    // The attempt is another machine's, whose token this machine should not know: its report is ignored.
    if (known !== undefined && known.machineId !== machineId) return true;
    const attempt = known ?? (await this.#adopt(machineId, result));
    // A revoked attempt is over for its agent, even while its end is still being written.
    completion.freeRevoked(result.token);
    // The attempt is superseded, finished or unknown: only a late COMPLETE of it may still count.
    if (attempt === undefined || attempt.ending !== undefined) {
      onDecided?.();
      if (attempt?.ending !== undefined && !(await attempt.ending)) return false;
      return await late.take(machineId, result);
    }
    if (onDecided !== undefined) attempt.onDecided = onDecided;
    // The agent was told to end the attempt because it had not
    // reported a start; a cancelled attempt then counts as lost.
    const outcome = attempt.unclaimed && result.outcome === 'cancelled' ? 'lost' : result.outcome;
    if (result.body !== undefined) return await completion.ended(attempt, outcome, result.body, result.durationMs);
    const detail = `result is larger than ${maxResultBytes} bytes`;
    const ending = { status: 'ERROR', reason: 'result_too_large', detail } as const;
    return await completion.finish(attempt, ending, undefined, result.durationMs, true);
  }

  /** Returns a task that the agent never gave to a runner process: to its queue, first in line. */
  async refused(taskId: TaskId, token: AttemptToken, reason: string): Promise<void> {
    const { attempts, completion, metrics, log } = this.#parts;
    const attempt = attempts.find(taskId, token);
    completion.freeRevoked(token);
    if (attempt === undefined || attempt.ending !== undefined) return;
    metrics.attemptsLost.inc({ reason: 'refused' });
    log.info({ taskId, containerId: attempt.containerId, reason }, 'agent refused a task, giving it back');
    if (attempt.container !== undefined) this.#parts.sender.pause(attempt.container);
    await completion.backToQueue(attempt, 'refused');
  }

  /**
   * Called when a container takes tasks (again): attempts that were adopted before it was known here take its slots.
   */
  containerReady(container: ReadyContainer): void {
    for (const attempt of this.#parts.attempts.ofContainer(container.containerId)) attach(attempt, container);
  }

  /**
   * Handles the report at the start of a machine's task stream. Attempts that it still runs are adopted under the
   * same token. An attempt that it no longer knows is lost, or queued again when it never reached the agent. An
   * attempt that ended and was not acknowledged has reached the agent, however long its result takes to follow.
   */
  async machineReported(
    machineId: MachineId,
    report: MachineReport,
  ): Promise<{ adopted: LiveReport[]; refused: LiveReport[] }> {
    const { attempts, slots, completion, graces, orphaned, clock } = this.#parts;
    const { agentInstance, running, finished = [] } = report;
    const adopted: LiveReport[] = [];
    const refused: LiveReport[] = [];
    for (const live of running) {
      const known = attempts.find(live.taskId, live.token) ?? (await this.#adopt(machineId, live));
      if (known === undefined) refused.push(live);
      else {
        attach(known, slots.get(live.containerId));
        known.seenAtMs = clock.monotonicMs();
        known.startedAtMs ??= clock.nowMs();
        adopted.push(live);
      }
    }
    const reported: Set<AttemptToken> = new Set(running.map((live) => live.token));
    for (const { token } of [...attempts.revokedOf({ machineId })]) {
      if (!reported.has(token)) completion.freeRevoked(token);
    }
    for (const live of finished) {
      reported.add(live.token);
      const known = attempts.find(live.taskId, live.token);
      if (known !== undefined) known.seenAtMs = clock.monotonicMs();
    }
    const missing = [...attempts.ofMachine(machineId)].filter((attempt) => !reported.has(attempt.token));
    for (const attempt of missing) {
      const sameAgent = attempt.agentInstance === agentInstance;
      void this.#missingAfter(attempt, sameAgent ? graces.reportMs : graces.restartedAgentMs, sameAgent);
    }
    const isCurrent = report.isCurrent ?? (() => Promise.resolve(true));
    const found = await orphaned.find(machineId, reported);
    if (found.length > 0) void orphaned.takeBack(found, agentInstance, isCurrent);
    void orphaned.lookAgain(machineId, reported, agentInstance, isCurrent);
    return { adopted, refused };
  }

  async #missingAfter(attempt: Attempt, graceMs: number, neverReached: boolean): Promise<void> {
    const { attempts, clock, completion, signal } = this.#parts;
    const reportedAtMs = clock.monotonicMs();
    const slept = await sleep(graceMs, signal);
    if (!slept || attempts.current(attempt.job.taskId) !== attempt || attempt.ending !== undefined) return;
    // A runner that dialled the restarted agent after its report is named by a heartbeat.
    if (attempt.seenAtMs > reportedAtMs) return;
    if (neverReached) await completion.backToQueue(attempt, 'not_received');
    else await this.#lost(attempt, 'agent_restarted');
  }

  /**
   * Notes a machine's heartbeat, which names the attempts that it still has. An attempt that
   * no process has is adopted: its runner dialled the restarted agent after its report.
   */
  heartbeat(machineId: MachineId, live: readonly LiveReport[]): void {
    const { attempts, orphaned, clock, log } = this.#parts;
    attempts.named(live, clock);
    for (const one of live) {
      if (attempts.current(one.taskId) !== undefined || !orphaned.named(one.token)) continue;
      void this.#adopt(machineId, one).catch((error: unknown) => {
        log.warn({ err: error, taskId: one.taskId }, 'an attempt that a heartbeat names is not adopted yet');
      });
    }
  }

  /**
   * Counts the attempts of a container that is gone as lost, after
   * a moment: its agent's reports on them travel on another stream.
   */
  async containerGone(containerId: ContainerId): Promise<void> {
    const { attempts, signal, graces } = this.#parts;
    for (const { token } of [...attempts.revokedOf({ containerId })]) attempts.takeRevoked(token);
    if ([...attempts.ofContainer(containerId)].length === 0) return;
    // A scheduler that stops leaves them to the process that adopts them.
    if (!(await sleep(graces.reportMs, signal))) return;
    const left = [...attempts.ofContainer(containerId)];
    await Promise.all(
      left.map((attempt) => this.#lost(attempt, 'container_gone', !(attempt.container?.leaving ?? false))),
    );
  }

  /**
   * Counts the attempts of a machine that is LOST, 90 s without a session, as lost.
   * @param isStillLost - given by the leader, which also handles attempts that dead processes had sent there
   */
  async machineLost(machineId: MachineId, isStillLost?: () => boolean): Promise<void> {
    const { attempts, orphaned } = this.#parts;
    const all = [...attempts.ofMachine(machineId)];
    await Promise.all(all.map((attempt) => this.#lost(attempt, 'machine_lost')));
    if (isStillLost !== undefined) void orphaned.machineLost(machineId, isStillLost);
  }

  /**
   * Hands over the attempts of a machine whose agent has dialled another replica, which
   * adopts by token. An attempt kept here would be renewed for ever, and its caller never
   * answered. A task that never reached its agent comes back when its lock runs out.
   */
  machineMoved(machineId: MachineId): void {
    const { attempts, completion } = this.#parts;
    for (const { token } of [...attempts.revokedOf({ machineId })]) completion.freeRevoked(token);
    for (const attempt of [...attempts.ofMachine(machineId)])
      if (attempt.ending === undefined) completion.handOver(attempt);
  }

  async #lost(attempt: Attempt, reason: string, died = false): Promise<void> {
    this.#parts.metrics.attemptsLost.inc({ reason });
    await this.#parts.completion.lost(attempt, died);
  }

  /** Takes over an attempt that another process of ours sent, if its token is the one that holds the task. */
  async #adopt(machineId: MachineId, live: LiveReport): Promise<Attempt | undefined> {
    const { leases, queues, attempts, slots, changes, log } = this.#parts;
    if (attempts.recorded(live.token) !== undefined) return undefined;
    const lease = await leases.read(live.taskId);
    if (lease === undefined || attemptHashOf(lease.lock) !== sha256Hex(live.token)) return undefined;
    if (lease.machineId !== machineId) return undefined;
    const held = await queues.lockOf(lease.queue as QueueName, live.taskId);
    if (held !== undefined && held !== lease.lock) return undefined;
    if (attempts.recorded(live.token) !== undefined) return undefined;
    // The report and the result of the attempt may be handled side by side.
    const adopted = attempts.current(live.taskId);
    if (adopted !== undefined) return adopted.token === live.token ? adopted : undefined;
    const attempt = attemptOf(lease, live.token, this.#parts.clock.monotonicMs());
    attach(attempt, slots.get(lease.containerId));
    attempts.add(attempt);
    leases.list(machineId, live.taskId).catch((error: unknown) => {
      log.debug({ err: error, taskId: live.taskId }, 'an adopted attempt is not listed by its machine');
    });
    this.#parts.sender.armLimit(attempt);
    // The process that sent the attempt may have died before it recorded that.
    const running = {
      ...recordOf(attempt.job, attempt.queue, 'RUNNING', attempt.number),
      containerId: lease.containerId,
      startedAtMs: lease.startedAtMs,
    };
    if (changes.apply(attempt.status, 'start', running)) attempt.status = 'RUNNING';
    log.info({ taskId: live.taskId, containerId: lease.containerId }, 'attempt adopted');
    return attempt;
  }
}

function attach(attempt: Attempt, container: ReadyContainer | undefined): void {
  if (attempt.container !== undefined || container === undefined || attempt.ending !== undefined) return;
  attempt.container = container;
  container.inFlight += 1;
  container.served = true;
  container.tokens += attempt.job.serving?.tokens ?? 0;
}
