// Reports of agents on attempts: started, ended, refused, still running after a reconnect, gone with
// their container or machine. Invariants: a message with another token than the attempt's changes
// nothing. An attempt of another process is taken over by the token that holds its task (asynchronous), or by the facts
// that its agent kept, if its container's row agrees with them (synchronous).
import type { AttemptToken, ContainerId, InstanceId, MachineId, QueueName, TaskId } from '#shared/domain/ids.ts';
import { isWholeEvent } from '#shared/domain/event-stream.ts';
import { attemptHashOf, lockTokenOf, sha256Hex } from '#shared/domain/ids.ts';
import { sleep, withDeadline } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Lease, Leases } from '../dispatch/leases.ts';
import type { Replies } from '../dispatch/replies.ts';
import type { ReadyContainer, SlotTable } from '../dispatch/slots.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import type { Sender } from '../dispatch/sending.ts';
import type { Attempt, AttemptResult, Attempts } from '../dispatch/attempts.ts';
import { adoptedOf, attemptOf } from '../dispatch/attempts.ts';
import { CANCELLED } from '../../domain/endings.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { ContainerRow } from '../../stores/store/queries/containers.ts';
import { agrees, parseFacts } from '../lines/facts.ts';
import type { Facts } from '../lines/facts.ts';
import type { Lines } from '../lines/lines.ts';
import type { Moves } from '../lines/moves.ts';
import type { Changes } from '../records/changes.ts';
import type { TaskRecords } from '../records/records.ts';
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
  /** Facts of its order. Absent or empty: the agent has none. */
  readonly facts?: Uint8Array | undefined;
}

/** Attempts that a machine's agent has when its task stream begins. */
export interface MachineReport {
  readonly agentInstance: string;
  /** Number of the machine's session; each one has a higher number. */
  readonly sessionEpoch: number;
  readonly running: readonly LiveReport[];
  /** Attempts that ended and whose results were not acknowledged; the results follow. Absent: none. */
  readonly finished?: readonly LiveReport[];
  /** Whether no newer session speaks for the machine. Absent: none does. */
  readonly isCurrent?: () => Promise<boolean>;
}

/** Most ended attempts of a container whose results wait to be acknowledged. */
const MOST_FINISHED = 10_000;

/** Attempts of a report that are looked up together. */
const PAGE = 500;

/** Longest wait for the rows of a page; without them its starts are recorded again. */
const ROWS_MS = 2_000;

/** Attempts whose starts are in their rows. */
type RecordedStarts = ReadonlyMap<TaskId, number>;
const NO_STARTS: RecordedStarts = new Map();

/** Rows of containers, as far as adopting needs them. */
export type ContainersOf = (
  containerIds: Iterable<ContainerId>,
) => Promise<ReadonlyMap<ContainerId, Pick<ContainerRow, 'machineId' | 'workspaceId' | 'deploymentId' | 'stubId'>>>;

export interface ReportsParts {
  readonly attempts: Attempts;
  readonly completion: Pick<
    Completion,
    'ended' | 'finish' | 'lost' | 'backToQueue' | 'freeRevoked' | 'handOver' | 'revoke'
  >;
  readonly sender: Pick<Sender, 'pause' | 'armLimit'>;
  readonly late: Pick<LateResults, 'take'>;
  readonly orphaned: Pick<OrphanedAttempts, 'find' | 'takeBack' | 'lookAgain' | 'named' | 'machineLost'>;
  readonly leases: Pick<Leases, 'readAll'>;
  readonly changes: Pick<Changes, 'apply'>;
  readonly queues: Pick<TaskQueues, 'locksOf'>;
  readonly lines: Pick<Lines, 'adopt' | 'line'>;
  readonly moves: Pick<Moves, 'reported' | 'named' | 'moved' | 'judged' | 'isLeaving'>;
  readonly records: Pick<TaskRecords, 'ended' | 'running'>;
  readonly containersOf: ContainersOf;
  readonly instance: InstanceId;
  readonly slots: Pick<SlotTable, 'get'>;
  readonly replies: Pick<Replies, 'item'>;
  readonly graces: Pick<GracePeriods, 'reportMs' | 'restartedAgentMs'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Pick<TaskMetrics, 'attemptsLost'>;
  readonly signal: AbortSignal;
  readonly maxResultBytes: number;
}

interface ReportAnswer {
  readonly adopted: LiveReport[];
  readonly refused: LiveReport[];
}

export class Reports {
  readonly #parts: ReportsParts;
  /** Reports of machines that are being handled. */
  readonly #reporting = new Map<MachineId, Promise<unknown>>();

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
    replies.item(attempt.job, seq, event.toString('utf8'));
  }

  /**
   * Takes the result of an attempt.
   * @param onDecided - called when the end is decided and its caller answered: more results may come
   * @returns true once the agent may forget the result, because the database or the spill has the record
   */
  async result(machineId: MachineId, result: AttemptResult, onDecided?: () => void): Promise<boolean> {
    const { attempts, completion, late, maxResultBytes } = this.#parts;
    const find = (): Attempt | undefined =>
      attempts.find(result.taskId, result.token) ?? attempts.recorded(result.token);
    let known = find();
    // An agent sends its results right behind its report, by which the attempt of a synchronous task is adopted.
    if (known === undefined && this.#reporting.has(machineId)) {
      await this.#reporting.get(machineId);
      known = find();
    }
    // The attempt is another machine's, whose token this machine should not know: its report is ignored.
    if (known !== undefined && known.machineId !== machineId) return true;
    const adopted = known ?? (await this.#adoptLeased(machineId, [result])).get(result);
    // A revoked attempt is over for its agent, even while its end is still being written.
    completion.freeRevoked(result.token);
    // A restarted agent has no facts: the replica that sent the attempt, or its row, tells what it is.
    if (adopted === undefined) await this.#parts.moves.judged(machineId, result.token);
    const attempt = adopted ?? attempts.find(result.taskId, result.token);
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
  async refused(machineId: MachineId, taskId: TaskId, token: AttemptToken, reason: string): Promise<void> {
    const { attempts, completion, metrics, log } = this.#parts;
    await this.#reporting.get(machineId)?.catch(() => undefined);
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
  async machineReported(machineId: MachineId, report: MachineReport): Promise<ReportAnswer> {
    const isNewest = (): boolean => this.#reporting.get(machineId) === answer;
    // A report of nothing asks at once whether it is the newest.
    const answer = Promise.resolve().then(() => this.#reported(machineId, report, isNewest));
    this.#reporting.set(machineId, answer);
    try {
      return await answer;
    } finally {
      if (isNewest()) this.#reporting.delete(machineId);
    }
  }

  /** @param isNewest - whether no report of the machine has come since; the rest of an older one says nothing (R5) */
  async #reported(machineId: MachineId, report: MachineReport, isNewest: () => boolean): Promise<ReportAnswer> {
    const { attempts, slots, completion, graces, orphaned, clock, moves } = this.#parts;
    const { agentInstance, sessionEpoch, running, finished = [] } = report;
    const beganAtMs = clock.monotonicMs();
    const known = new Set<LiveReport>();
    const note = (live: LiveReport, attempt: Attempt): void => {
      known.add(live);
      attach(attempt, slots.get(live.containerId));
      attempt.seenAtMs = clock.monotonicMs();
      attempt.startedAtMs ??= clock.nowMs();
      attempt.sessionEpoch = sessionEpoch;
    };
    const taken: Attempt[] = [];
    for (const page of pagesOf(running)) {
      const others = page.filter((live) => {
        const own = attempts.find(live.taskId, live.token);
        if (own !== undefined) note(live, own);
        return own === undefined;
      });
      // First, because no other answer may grow old while the database is slow.
      const recorded = await this.#recorded(others);
      const byFacts = await this.#adoptByFacts(machineId, others, report, { recorded });
      for (const [live, attempt] of byFacts) {
        note(live, attempt);
        taken.push(attempt);
      }
      const left = others.filter((live) => !byFacts.has(live));
      for (const [live, attempt] of await this.#adoptLeased(machineId, left, recorded)) note(live, attempt);
    }
    const unknownFinished: LiveReport[] = [];
    for (const page of pagesOf(finished)) {
      const isHere = (live: LiveReport): boolean =>
        attempts.find(live.taskId, live.token) !== undefined || this.#isOver(live);
      const others = page.filter((live) => !isHere(live));
      const byFacts = await this.#adoptByFacts(machineId, others, report, { most: MOST_FINISHED });
      unknownFinished.push(...others.filter((live) => !byFacts.has(live)));
    }
    const adopted = running.filter((live) => known.has(live));
    if (!isNewest()) return { adopted, refused: [] };
    const unknown = running.filter((live) => !known.has(live));
    const refused = moves.reported(machineId, report, { running: unknown, finished: unknownFinished });
    const reported: Set<AttemptToken> = new Set(running.map((live) => live.token));
    for (const { token } of [...attempts.revokedOf({ machineId })]) {
      if (!reported.has(token)) completion.freeRevoked(token);
    }
    for (const live of finished) {
      reported.add(live.token);
      const attempt = attempts.find(live.taskId, live.token);
      if (attempt !== undefined) {
        attempt.seenAtMs = clock.monotonicMs();
        attempt.sessionEpoch = sessionEpoch;
      }
    }
    // The report knows nothing of an order that left after it.
    const missing = [...attempts.ofMachine(machineId)].filter(
      ({ token, handedOverAtMs }) => !reported.has(token) && handedOverAtMs < beganAtMs,
    );
    for (const attempt of missing) {
      const sameAgent = attempt.agentInstance === agentInstance;
      void this.#missingAfter(attempt, sameAgent ? graces.reportMs : graces.restartedAgentMs, sameAgent);
    }
    const isCurrent = report.isCurrent ?? (() => Promise.resolve(true));
    const found = await orphaned.find(machineId, reported);
    if (found.length > 0) void orphaned.takeBack(found, agentInstance, isCurrent);
    void orphaned.lookAgain(machineId, reported, agentInstance, isCurrent);
    void this.#stopEnded(taken);
    return { adopted, refused };
  }

  async #missingAfter(attempt: Attempt, graceMs: number, neverReached: boolean): Promise<void> {
    const { attempts, clock, completion, moves, signal } = this.#parts;
    const reportedAtMs = clock.monotonicMs();
    const slept = await sleep(graceMs, signal);
    if (!slept || attempts.current(attempt.job.taskId) !== attempt || attempt.ending !== undefined) return;
    // A runner that dialled the restarted agent after its report is named by a heartbeat.
    if (attempt.seenAtMs > reportedAtMs) return;
    // The machine has dialled another replica since, whose report judges.
    if (attempt.job.sync && moves.isLeaving(attempt.machineId)) return;
    if (neverReached) await completion.backToQueue(attempt, 'not_received');
    else await this.#lost(attempt, 'agent_restarted');
  }

  /**
   * Notes a machine's heartbeat, which names the attempts that it still has. An attempt that
   * no process has is adopted: its runner dialled the restarted agent after its report.
   */
  heartbeat(machineId: MachineId, live: readonly LiveReport[]): void {
    const { attempts, orphaned, moves, clock, log } = this.#parts;
    attempts.named(live, clock);
    const inGrace: LiveReport[] = [];
    for (const one of live) {
      if (attempts.current(one.taskId) !== undefined || this.#isOver(one)) continue;
      moves.named(machineId, one);
      if (orphaned.named(one.token)) inGrace.push(one);
    }
    for (const page of pagesOf(inGrace)) {
      void this.#adoptLeased(machineId, page).catch((error: unknown) => {
        log.warn({ err: error, machineId, attempts: page.length }, 'attempts of a heartbeat are not adopted yet');
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
   * Hands over the attempts of a machine whose agent has dialled another replica. Those of asynchronous tasks go at
   * once: that replica adopts by token, and a task that never reached its agent comes back when its lock runs out.
   * Synchronous ones stay until the other replica has judged them.
   */
  machineMoved(machineId: MachineId): void {
    const { attempts, completion, moves } = this.#parts;
    for (const { token } of [...attempts.revokedOf({ machineId })]) completion.freeRevoked(token);
    for (const attempt of [...attempts.ofMachine(machineId)])
      if (attempt.ending === undefined && !attempt.job.sync) completion.handOver(attempt);
    moves.moved(machineId);
  }

  async #lost(attempt: Attempt, reason: string, died = false): Promise<void> {
    this.#parts.metrics.attemptsLost.inc({ reason });
    await this.#parts.completion.lost(attempt, died);
  }

  /**
   * Takes over attempts of synchronous tasks that another process of ours sent, in the order given.
   * @param more - `most`: attempts that each container may have; absent: as many as it has slots. `recorded`: starts
   * that need no record
   * @returns those that are this replica's now
   */
  async #adoptByFacts(
    machineId: MachineId,
    named: readonly LiveReport[],
    { agentInstance, sessionEpoch }: Pick<MachineReport, 'agentInstance' | 'sessionEpoch'>,
    { most, recorded = NO_STARTS }: { readonly most?: number; readonly recorded?: RecordedStarts },
  ): Promise<ReadonlyMap<LiveReport, Attempt>> {
    const { attempts, containersOf, slots, log } = this.#parts;
    const adopted = new Map<LiveReport, Attempt>();
    const shown: (readonly [LiveReport, Facts])[] = [];
    for (const live of named) {
      const facts = live.facts === undefined ? undefined : parseFacts(live.facts);
      if (facts !== undefined) shown.push([live, facts]);
    }
    if (shown.length === 0) return adopted;
    const rows = await containersOf(new Set(shown.map(([{ containerId }]) => containerId)));
    for (const [live, facts] of shown) {
      const { taskId, token, containerId } = live;
      const room = most ?? slots.get(containerId)?.slots ?? MOST_FINISHED;
      const isFull = attempts.ofContainer(containerId).size >= room && attempts.find(taskId, token) === undefined;
      if (isFull || this.#isOver(live)) continue;
      if (facts.job.taskId !== taskId || !agrees(facts, machineId, rows.get(containerId))) {
        log.warn({ taskId, containerId, machineId }, 'an agent names an attempt that its container cannot have');
        continue;
      }
      const isRecorded = recorded.get(taskId) === facts.attempt;
      const attempt = this.adopt(machineId, live, { ...facts, agentInstance, sessionEpoch }, isRecorded);
      if (attempt !== undefined) adopted.set(live, attempt);
    }
    return adopted;
  }

  /** Whether the attempt ended here, and its record, or its agent's word, is on its way. */
  #isOver({ token }: LiveReport): boolean {
    const { attempts } = this.#parts;
    return attempts.recorded(token) !== undefined || attempts.revoked(token) !== undefined;
  }

  /**
   * Makes the attempt of a synchronous task this replica's.
   * @param isRecorded - whether its row says that it runs
   * @returns undefined: it ended here, this replica has another attempt of the task, or it is another workspace's
   */
  adopt(
    machineId: MachineId,
    live: LiveReport,
    facts: Facts & Pick<Attempt, 'agentInstance' | 'sessionEpoch'>,
    isRecorded = false,
  ): Attempt | undefined {
    const { attempts, slots, lines, instance, clock, log } = this.#parts;
    const { taskId, token, containerId } = live;
    const { attempt: number, queue, sentAtMs, agentInstance, sessionEpoch } = facts;
    const job: TaskJob = facts.job;
    const current = attempts.current(taskId);
    if (current !== undefined) return current.token === token ? current : undefined;
    if (this.#isOver(live)) return undefined;
    const own = lines.line.get(taskId)?.job.workspaceId ?? job.workspaceId;
    if (own !== job.workspaceId) return undefined;
    const lock = lockTokenOf(instance, token);
    const made = { job, queue, token, lock, number, machineId, containerId, sentAtMs, agentInstance, sessionEpoch };
    const attempt = adoptedOf(made, clock.monotonicMs());
    attach(attempt, slots.get(containerId));
    lines.adopt({ queue, job, attempt: number, lock });
    this.#add(attempt, isRecorded);
    log.info({ taskId, containerId }, 'attempt adopted');
    return attempt;
  }

  #add(attempt: Attempt, isRecorded: boolean): void {
    const { attempts, sender, changes } = this.#parts;
    attempts.add(attempt);
    sender.armLimit(attempt);
    if (isRecorded) {
      attempt.status = 'RUNNING';
      return;
    }
    // The process that sent the attempt may have died before it recorded that.
    const running = {
      ...recordOf(attempt.job, attempt.queue, 'RUNNING', attempt.number),
      containerId: attempt.containerId,
      startedAtMs: attempt.sentAtMs,
    };
    if (changes.apply(attempt.status, 'start', running)) attempt.status = 'RUNNING';
  }

  /** Stops adopted attempts whose tasks ended before: the process that had them could not tell their agent. */
  async #stopEnded(taken: readonly Attempt[]): Promise<void> {
    const { records, completion, log } = this.#parts;
    if (taken.length === 0) return;
    try {
      const ended = new Set(await records.ended(taken.map(({ job }) => job.taskId)));
      for (const attempt of taken)
        if (ended.has(attempt.job.taskId)) void completion.revoke(attempt, 'cancelled', CANCELLED, 0);
    } catch (error) {
      log.info({ err: error }, 'attempts of tasks that ended may run on');
    }
  }

  /**
   * Takes over attempts that another process of ours sent, where their tokens are those that hold the tasks.
   * @param named - at most a page: one command reads their leases, and one their locks
   * @param recorded - starts that need no record
   * @returns those that are this replica's now
   */
  async #adoptLeased<Live extends Pick<LiveReport, 'taskId' | 'token'>>(
    machineId: MachineId,
    named: readonly Live[],
    recorded: RecordedStarts = NO_STARTS,
  ): Promise<ReadonlyMap<Live, Attempt>> {
    const { leases, queues } = this.#parts;
    const adopted = new Map<Live, Attempt>();
    const open = named.filter(({ token }) => this.#parts.attempts.recorded(token) === undefined);
    if (open.length === 0) return adopted;
    const read = await leases.readAll(open.map(({ taskId }) => taskId));
    const held = open.flatMap((live) => {
      const lease = read.get(live.taskId);
      const isItsOwn = lease?.machineId === machineId && attemptHashOf(lease.lock) === sha256Hex(live.token);
      return isItsOwn ? [{ live, lease, queue: lease.queue as QueueName, taskId: live.taskId }] : [];
    });
    if (held.length === 0) return adopted;
    const locks = await queues.locksOf(held);
    for (const [at, { live, lease }] of held.entries()) {
      const lock = locks[at];
      if (lock !== undefined && lock !== lease.lock) continue;
      const attempt = this.#ofLease(live, lease, recorded.get(live.taskId) === lease.attempt);
      if (attempt !== undefined) adopted.set(live, attempt);
    }
    return adopted;
  }

  /** The attempts that rows say run; none while the database does not answer: each that is adopted is recorded then. */
  async #recorded(named: readonly LiveReport[]): Promise<RecordedStarts> {
    const { records, log } = this.#parts;
    if (named.length === 0) return NO_STARTS;
    const late = (): Error => new Error('the database does not answer');
    try {
      return await withDeadline(records.running(named.map(({ taskId }) => taskId)), ROWS_MS, late);
    } catch (error) {
      log.info({ err: error }, 'rows of attempts that an agent names are not read');
      return NO_STARTS;
    }
  }

  /** @returns undefined: it ended here, or this replica has another attempt of the task */
  #ofLease(
    { taskId, token }: Pick<LiveReport, 'taskId' | 'token'>,
    lease: Lease,
    isRecorded: boolean,
  ): Attempt | undefined {
    const { attempts, slots, clock, log } = this.#parts;
    if (attempts.recorded(token) !== undefined) return undefined;
    // The report and the result of the attempt may be handled side by side.
    const current = attempts.current(taskId);
    if (current !== undefined) return current.token === token ? current : undefined;
    const attempt = attemptOf(lease, token, clock.monotonicMs());
    attach(attempt, slots.get(lease.containerId));
    this.#add(attempt, isRecorded);
    log.info({ taskId, containerId: lease.containerId }, 'attempt adopted');
    return attempt;
  }
}

/** Pages of attempts that are looked up together. */
function* pagesOf(named: readonly LiveReport[]): Iterable<readonly LiveReport[]> {
  for (let at = 0; at < named.length; at += PAGE) yield named.slice(at, at + PAGE);
}

function attach(attempt: Attempt, container: ReadyContainer | undefined): void {
  if (attempt.container !== undefined || container === undefined || attempt.ending !== undefined) return;
  attempt.container = container;
  container.inFlight += 1;
  container.served = true;
  container.tokens += attempt.job.serving?.tokens ?? 0;
}
