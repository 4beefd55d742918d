// Life of a task on this replica: accepted, queued, sent, ended, answered. Callers: the invoke
// surface (submit), the dispatcher (a claim) and fleet/ (reports of agents). Invariants: BullMQ's
// fenced call decides who ends an attempt. Our record is written in the same tick and follows its
// answer. A synchronous task never runs twice. Every caller is answered exactly once.
import type { AttemptToken, ContainerId, MachineId, QueueName, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { isUuid } from '#shared/domain/ids.ts';
import { SCHEDULER_STOPPING } from '../domain/endings.ts';
import type { Target } from '../domain/stub-config.ts';
import type { Claim } from './dispatch/dispatcher.ts';
import type { Waiting } from './dispatch/replies.ts';
import type { TaskJob } from '../stores/queues/jobs.ts';
import type { ReadyContainer } from './dispatch/slots.ts';
import { Listeners } from '#shared/listeners.ts';
import { Attempts } from './dispatch/attempts.ts';
import { StartDeadline } from './maintenance/start-deadline.ts';
import { DrainCutoff } from './completion/drain-cutoff.ts';
import { Callers } from './admission/callers.ts';
import type { FailedStart } from './admission/callers.ts';
import { Changes } from './records/changes.ts';
import { Completion } from './completion/completion.ts';
import { LateResults } from './completion/late.ts';
import type { TaskRecord } from './records/records.ts';
import { pickById } from './records/list-by-id.ts';
import { LostJobs } from './maintenance/lost-jobs.ts';
import { takeOutEnded } from '../stores/queues/older-jobs.ts';
import { Reaper } from './maintenance/reaper.ts';
import { Renewal } from './maintenance/renewal.ts';
import type { AttemptResult } from './dispatch/attempts.ts';
import type { LiveReport, MachineReport } from './completion/reports.ts';
import { GRACE_PERIODS } from './maintenance/grace-periods.ts';
import { Reports } from './completion/reports.ts';
import { Sender } from './dispatch/sending.ts';
import { Submissions } from './admission/submissions.ts';
import type { TaskContext, TaskServiceParts } from './task-parts.ts';
import type { Call, Submission, TaskFilter, TaskService } from './task-service.ts';
import { OrphanedAttempts } from './completion/orphaned-attempts.ts';

export class Tasks implements TaskService {
  readonly name = 'tasks';
  readonly attempts = new Attempts();
  readonly changes: Changes;
  readonly completion: Completion;
  readonly #parts: TaskServiceParts;
  readonly #submissions: Submissions;
  readonly #callers: Callers;
  readonly #sender: Sender;
  readonly #reports: Reports;
  readonly #renewal: Renewal;
  readonly #startDeadline: StartDeadline;
  readonly #reaper: Reaper;
  readonly #drainCutoff: DrainCutoff;
  readonly #lostJobs: LostJobs;
  readonly #abort = new AbortController();
  readonly #accepted = new Listeners<[TaskJob, QueueName]>();
  readonly #depth = new Listeners<[Target, number]>();
  readonly #attemptEnded = new Listeners<[QueueName, ContainerId]>();
  #readerLeft: TaskContext['readerLeft'] = () => Promise.resolve();

  constructor(parts: TaskServiceParts) {
    this.#parts = parts;
    this.changes = new Changes(parts);
    const shared = {
      ...parts,
      changes: this.changes,
      attempts: this.attempts,
      graces: { ...GRACE_PERIODS, ...parts.graces },
      sinceStallMs: parts.sinceStallMs ?? (() => Infinity),
      signal: this.#abort.signal,
    };
    this.completion = new Completion({
      ...shared,
      onAttemptEnded: (attempt) => this.#attemptEnded.tell(attempt.queue, attempt.containerId),
    });
    const context: TaskContext = {
      ...shared,
      completion: this.completion,
      onAccepted: (job, queue) => this.#accepted.tell(job, queue),
      onDepth: (target, depth) => this.#depth.tell(target, depth),
      readerLeft: (taskId, ending) => this.#readerLeft(taskId, ending),
    };
    this.#callers = new Callers(context);
    this.#submissions = new Submissions(context, this.#callers);
    this.#sender = new Sender(context);
    this.#renewal = new Renewal(context);
    this.#startDeadline = new StartDeadline(context);
    this.#reaper = new Reaper(context);
    this.#drainCutoff = new DrainCutoff(context);
    this.#lostJobs = new LostJobs(context);
    this.#reports = new Reports({
      ...context,
      late: new LateResults(context),
      orphaned: new OrphanedAttempts(context),
      maxResultBytes: parts.bodies.maxResultBytes,
      pause: (container) => this.#sender.pause(container),
      armLimit: (attempt) => this.#sender.armLimit(attempt),
    });
  }

  /** Told when a task's row is committed, for the leader's heap of deadlines. */
  onAccepted(listener: (job: TaskJob, queue: QueueName) => void): void {
    this.#accepted.add(listener);
  }

  /** Told when a queue grew. */
  onDepth(listener: (target: Target, depth: number) => void): void {
    this.#depth.add(listener);
  }

  /** Told when a container has one attempt less. */
  onAttemptEnded(listener: (queue: QueueName, containerId: ContainerId) => void): void {
    this.#attemptEnded.add(listener);
  }

  /** Called when a generator's caller left. The handler ends the task wherever it is. */
  onReaderLeft(handler: TaskContext['readerLeft']): void {
    this.#readerLeft = handler;
  }

  start(): void {
    this.#renewal.start();
    this.#startDeadline.start();
    this.#reaper.start();
    this.#drainCutoff.start();
    this.#lostJobs.start();
  }

  /** Answers all waiting callers. Attempts go on in their containers, and the next process adopts them. */
  stop(): void {
    this.#abort.abort();
    for (const attempt of this.attempts.all()) clearTimeout(attempt.limit);
    this.#parts.replies.settleAll(this.completion.answerOf(SCHEDULER_STOPPING));
  }

  /**
   * Restores Redis after it lost its data. Leases and records of attempts here
   * are written again, then recent ends; tasks that are over leave their queue.
   * @throws AppError `queues_unavailable`
   */
  async redisLost(): Promise<void> {
    await this.#renewal.restoreAll();
    const ended = await this.#parts.records.redisLost();
    for (const [queue, records] of Map.groupBy(ended, (record) => record.queue)) {
      await takeOutEnded(this.#parts.queues, queue, new Set(records.map(({ taskId }) => taskId)));
    }
  }

  /**
   * Queues tasks again that callers here wait for and no replica has; call it once every replica has said what it runs.
   */
  allHaveSaid(lostAtMs: number): Promise<void> {
    return this.#lostJobs.look(lostAtMs);
  }

  submit(target: Target, call: Call): Promise<Submission> {
    return this.#submissions.submit(target, call);
  }

  /** Job of a task without a caller, not accepted yet: `acceptedTaskOf` gives its row. */
  newJob(target: Target, taskId: TaskId): TaskJob {
    return this.#submissions.jobOf(target, taskId, this.#parts.clock.nowMs());
  }

  /** Queues a task whose row is committed. @throws AppError `queues_unavailable`: the sweep queues it later */
  queue(target: Target, job: TaskJob): Promise<void> {
    return this.#submissions.queue(target, job);
  }

  /**
   * Called when the wait limit of a caller ran out, and every few seconds until it is answered.
   * The answer is TIMEOUT when no container has the task; else its execution limit decides.
   */
  waitLimitReached(waiting: Waiting): void {
    this.#callers.waitLimitReached(waiting);
  }

  /**
   * Answers the waiting callers of a queue whose start failed by the user's cause while nothing else serves it.
   * @returns how many tasks were failed
   */
  failWaiting(queue: QueueName, lastLines: string, how?: FailedStart): Promise<number> {
    return this.#callers.failWaiting(queue, lastLines, how);
  }

  /** Writes the leases of run orders before the orders leave. */
  beforeRuns(): void {
    this.#parts.leases.flush();
  }

  /** Sends a job that the dispatcher fetched for a free slot. */
  begin(claim: Claim): void {
    this.#sender.begin(claim);
  }

  // ---- what agents say ----------------------------------------------------------------------------------------------

  started(taskId: TaskId, token: AttemptToken): void {
    this.#reports.started(taskId, token);
  }

  /** Passes a generator's item to its caller, while the generator runs. */
  item(taskId: TaskId, token: AttemptToken, seq: number, event: Buffer): void {
    this.#reports.item(taskId, token, seq, event);
  }

  get maxResultBytes(): number {
    return this.#parts.bodies.maxResultBytes;
  }

  /** Takes the result of an attempt. @returns true once the agent may forget the result */
  result(machineId: MachineId, result: AttemptResult): Promise<boolean> {
    return this.#reports.result(machineId, result);
  }

  refused(taskId: TaskId, token: AttemptToken, reason: string): Promise<void> {
    return this.#reports.refused(taskId, token, reason);
  }

  containerReady(container: ReadyContainer): void {
    this.#reports.containerReady(container);
  }

  machineReported(
    machineId: MachineId,
    report: MachineReport,
  ): Promise<{ adopted: LiveReport[]; refused: LiveReport[] }> {
    return this.#reports.machineReported(machineId, report);
  }

  /** Notes a machine's heartbeat, which names the attempts that it still has. */
  heartbeat(machineId: MachineId, live: readonly LiveReport[]): void {
    this.#reaper.seen(live);
    this.#reports.heartbeat(machineId, live);
  }

  /** Called when a container was told to stop. */
  containerStops(containerId: ContainerId): void {
    this.#drainCutoff.lookAt(containerId);
  }

  containerGone(containerId: ContainerId): Promise<void> {
    return this.#reports.containerGone(containerId);
  }

  machineMoved(machineId: MachineId): void {
    this.#reports.machineMoved(machineId);
  }

  machineLost(machineId: MachineId, isStillLost?: () => boolean): Promise<void> {
    return this.#reports.machineLost(machineId, isStillLost);
  }

  // ---- reads --------------------------------------------------------------------------------------------------------

  async read(workspaceId: WorkspaceId, taskId: string): Promise<TaskRecord | undefined> {
    if (!isUuid(taskId)) return undefined;
    const record = await this.#parts.records.read(taskId as TaskId);
    return record?.workspaceId === workspaceId ? record : undefined;
  }

  async list(workspaceId: WorkspaceId, filter: TaskFilter): Promise<readonly TaskRecord[]> {
    if (filter.taskIds === undefined) {
      await this.#parts.caughtUp?.();
      return await this.#parts.listRows(workspaceId, filter);
    }
    const ids = [...new Set(filter.taskIds)];
    const found = await Promise.all(ids.map((taskId) => this.read(workspaceId, taskId)));
    const records = found.filter((record) => record !== undefined);
    const stubs = await this.#parts.stubsOf([...new Set(records.map((record) => record.stubId))]);
    return pickById(records, stubs, filter);
  }

  resultText(record: TaskRecord): Promise<string | undefined> {
    return this.completion.resultText(record);
  }
}
