// The path of a task on this replica: accepted, queued, sent, ended, answered. `openTasks` takes the parts of other
// rooms; `buildTasks` builds the path from them, for tests as well. task-maintenance.ts has the upkeep of the leader.
import type { Redis } from 'ioredis';
import type { ContainerId, InstanceId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Registry } from '#shared/metrics.ts';
import { outcomes } from '../api/http/invoke/outcomes.ts';
import { SCHEDULER_STOPPING } from '../domain/endings.ts';
import { DueTimes } from '../stores/queues/due.ts';
import { FlowPaces } from '../stores/queues/flow-paces.ts';
import type { TaskJob } from '../stores/queues/jobs.ts';
import type { Keys } from '../stores/queues/keys.ts';
import { AddedMarks } from '../stores/queues/added-marks.ts';
import type { RedisData } from '../stores/queues/redis-data.ts';
import type { RedisMemory } from '../stores/queues/redis-memory.ts';
import type { TaskQueues } from '../stores/queues/task-queues.ts';
import { queueBytes } from '../stores/store/queries/quotas.ts';
import type { AcceptedTask } from '../stores/store/queries/tasks.ts';
import { keptJobOf, openJobOf } from '../stores/store/queries/task-inputs.ts';
import { listTasks } from '../stores/store/queries/tasks.ts';
import { Commits, GroupCommit } from '../tasks/admission/accepting.ts';
import type { CommitsParts } from '../tasks/admission/accepting.ts';
import { Callers } from '../tasks/admission/callers.ts';
import { CommitFirst } from '../tasks/admission/commit-first.ts';
import { FlowAdmission } from '../tasks/admission/flow-admission.ts';
import { Idempotency } from '../tasks/admission/idempotency.ts';
import { IdempotencyKeys } from '../tasks/admission/idempotency-keys.ts';
import { PendingBound } from '../tasks/admission/pending-bound.ts';
import { Queueing } from '../tasks/admission/queueing.ts';
import type { QueueingParts } from '../tasks/admission/queueing.ts';
import { QueueQuota } from '../tasks/admission/queue-quota.ts';
import { LostCallers } from '../tasks/admission/lost-callers.ts';
import type { SubmissionsParts } from '../tasks/admission/submissions.ts';
import { Submissions } from '../tasks/admission/submissions.ts';
import { Singles } from '../tasks/admission/singles.ts';
import type { SingleRows } from '../tasks/admission/singles.ts';
import { Unanswered } from '../tasks/admission/unanswered.ts';
import type { UnansweredParts } from '../tasks/admission/unanswered.ts';
import { Completion } from '../tasks/completion/completion.ts';
import { ADMIN_PREEMPTED_WITH_CALLS, isPreempted } from '../fleet/containers/spec.ts';
import type { SharingSetting } from '../workspaces/identity/sharing.ts';
import { DrainCutoff } from '../tasks/completion/drain-cutoff.ts';
import { LateResults } from '../tasks/completion/late-results.ts';
import { OrphanedAttempts } from '../tasks/completion/orphaned-attempts.ts';
import { Reports } from '../tasks/completion/reports.ts';
import type { ReportsParts } from '../tasks/completion/reports.ts';
import { Attempts } from '../tasks/dispatch/attempts.ts';
import type { TaskBodies } from '../tasks/dispatch/bodies.ts';
import { Dispatcher } from '../tasks/dispatch/dispatcher.ts';
import { EarlierJobs } from '../tasks/dispatch/earlier-jobs.ts';
import { FailedInputs } from '../tasks/inputs/failed-inputs.ts';
import { TaskInputs } from '../tasks/inputs/inputs.ts';
import { DeadLetters } from '../tasks/inputs/dead-letters.ts';
import { Reruns } from '../tasks/inputs/reruns.ts';
import { LastAttempts } from '../tasks/dispatch/last-attempts.ts';
import type { Leases } from '../tasks/dispatch/leases.ts';
import type { Replies } from '../tasks/dispatch/replies.ts';
import { Sender } from '../tasks/dispatch/sending.ts';
import type { SlotTable } from '../tasks/dispatch/slots.ts';
import type { Lines } from '../tasks/lines/lines.ts';
import type { GracePeriods } from '../tasks/maintenance/grace-periods.ts';
import { GRACE_PERIODS } from '../tasks/maintenance/grace-periods.ts';
import { Reaper } from '../tasks/maintenance/reaper.ts';
import { Renewal } from '../tasks/maintenance/renewal.ts';
import { StartDeadline } from '../tasks/maintenance/start-deadline.ts';
import { registerTaskGauges, TaskMetrics } from '../tasks/metrics.ts';
import { Changes } from '../tasks/records/changes.ts';
import { recordOfRow } from '../tasks/records/recording.ts';
import type { TaskReadsParts } from '../tasks/records/reads.ts';
import { TaskReads } from '../tasks/records/reads.ts';
import type { TaskRecords } from '../tasks/records/records.ts';
import { Streams } from '../tasks/streams/streams.ts';
import type { Directory } from '../workspaces/deployments/directory.ts';
import type { ServeLeases } from '../workspaces/deployments/serve-leases.ts';
import type { Targets } from '../workspaces/deployments/targets.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { Identity } from './identity.ts';
import { inputDaysOf } from './retention.ts';
import type { LineParts, PeerNeeds, Peers } from './lines.ts';
import { joinPeers, peerNeeds } from './lines.ts';
import type { Records } from './records.ts';
import { taskRows } from './records.ts';

/** Parts of other rooms, and questions to them, that the path of a task needs. */
export interface TaskNeeds
  extends
    Pick<
      SubmissionsParts,
      'isActive' | 'refusalOf' | 'limitsOf' | 'queueQuota' | 'redisMemory' | 'rates' | 'reservedTokens'
    >,
    Pick<ReportsParts, 'containersOf'>,
    Pick<QueueingParts, 'mostWaiting' | 'stopMs'>,
    Pick<UnansweredParts, 'latestMs' | 'rowsOf' | 'jobsOf'>,
    Pick<TaskReadsParts, 'caughtUp' | 'listRows' | 'stubsOf'> {
  readonly client: Redis;
  readonly keys: Keys;
  readonly instance: InstanceId;
  readonly clock: Clock;
  readonly log: Log;
  readonly registry: Registry;
  /** Queues of asynchronous tasks. */
  readonly queues: TaskQueues;
  readonly lines: Lines;
  readonly replies: Replies;
  /** Other replicas. */
  readonly peerNeeds: PeerNeeds;
  readonly records: TaskRecords;
  readonly leases: Leases;
  readonly slots: SlotTable;
  readonly bodies: TaskBodies;
  /** Most bytes of an input that outlives its task. */
  readonly maxKeptInputBytes: number;
  /** Commits rows of asynchronous tasks. */
  readonly commit: (batch: readonly AcceptedTask[]) => Promise<void>;
  /** Writes the changed queue entry of an asynchronous task to its row: a job rebuilt from the row has its budgets. */
  readonly keepJob: (job: TaskJob) => Promise<void>;
  /** Claims of keys that have one task. Absent: calls of such deployments are refused. */
  readonly singleRows?: SingleRows | undefined;
  /** Whether no other process adds to the queues. Absent: others may. */
  readonly isAlone?: boolean | undefined;
  /** Commits rows of tasks that stand for dead ones. Absent: they are refused. */
  readonly redrives?: CommitsParts['redrives'];
  /** Idempotency keys. Absent: calls with a key are refused. */
  readonly idempotencyKeys?: IdempotencyKeys | undefined;
  readonly isCutOff: (containerId: ContainerId) => boolean;
  readonly isPreempted: (containerId: ContainerId) => boolean;
  readonly endsCalls: (containerId: ContainerId) => boolean;
  readonly stopContainer: (containerId: ContainerId) => Promise<unknown>;
  readonly noticeMs: () => number;
  readonly graces?: Partial<GracePeriods> | undefined;
  /** Milliseconds since this process last stood still. Absent: it never did. */
  readonly sinceStallMs?: (() => number) | undefined;
  /** Whether Redis has the data that this process knows. Absent: it always has. */
  readonly redisData?: Pick<RedisData, 'isSure' | 'sure' | 'brokenAtMs' | 'knownSinceMs'> | undefined;
}

export interface TaskPath {
  readonly dispatcher: Dispatcher;
  readonly due: DueTimes;
  readonly attempts: Attempts;
  readonly changes: Changes;
  readonly completion: Completion;
  readonly callers: Callers;
  readonly submissions: Submissions;
  /** Absent: nothing keeps the claims of keys that have one task. */
  readonly singles: Singles | undefined;
  /** Acceptance of asynchronous tasks. */
  readonly asynchronous: CommitFirst;
  /** Accepted tasks on their way to their queues; a part that stops before the tasks do. */
  readonly queueing: Queueing;
  readonly sender: Sender;
  readonly reports: Reports;
  readonly drainCutoff: DrainCutoff;
  readonly renewal: Renewal;
  /** Ways to other replicas. */
  readonly peers: Peers;
  readonly reads: TaskReads;
  readonly streams: Streams;
  /** Starts the upkeep of this replica's attempts and callers; stopped, it answers all waiting callers. */
  readonly tasks: { readonly name: string; start(): void; stop(): void };
}

/** Builds the path of a task; `wireTasks` connects it. */
export function buildTasks(needs: TaskNeeds): TaskPath {
  const { client, keys, instance, clock, log, queues, lines, replies, slots, bodies } = needs;
  const abort = new AbortController();
  const dispatcher = new Dispatcher({ queues, lines, slots, instance, log });
  const due = new DueTimes(clock);
  const attempts = new Attempts();
  const metrics = new TaskMetrics(needs.registry);
  const changes = new Changes({ records: needs.records, metrics, log });
  const common = {
    ...needs,
    // Synchronous tasks end in memory there, and the others in BullMQ behind it.
    queues: lines,
    textOf: outcomes.textOf,
    graces: { ...GRACE_PERIODS, ...needs.graces },
    sinceStallMs: needs.sinceStallMs ?? (() => Infinity),
    failedInputs: new FailedInputs(clock),
    lastAttempts: new LastAttempts(client, keys),
    accepting: new GroupCommit(needs.commit),
    maxResultBytes: bodies.maxResultBytes,
    dispatcher,
    due,
    attempts,
    metrics,
    changes,
    /** Aborted when the process stops: attempts go on in their containers. */
    signal: abort.signal,
  };
  const completion = new Completion(common);
  const onward = { ...common, completion };
  const callers = new Callers(onward);
  const { idempotencyKeys } = needs;
  const queueing = new Queueing({ ...common, queues, marks: new AddedMarks(client, keys) });
  registerTaskGauges(needs.registry, { replies, queueing, attempts });
  const asynchronous = new CommitFirst({
    ...onward,
    commits: new Commits(common),
    bound: new PendingBound(queues, needs.isAlone ?? false),
    queueing,
    unanswered: new Unanswered({ ...onward, queueing }),
  });
  const { singleRows } = needs;
  const singles = singleRows && new Singles({ ...onward, queues, rows: singleRows });
  const submissions = new Submissions({
    ...onward,
    asynchronous,
    singles,
    flow: new FlowAdmission({ paces: new FlowPaces(client, keys), clock, metrics, log }),
    callers,
    idempotency:
      idempotencyKeys &&
      new Idempotency({ ...onward, keys: idempotencyKeys, whoHas: (taskIds) => peers.questions.whoHas(taskIds) }),
  });
  const earlier = new EarlierJobs({ ...onward, whoHas: (taskIds) => peers.questions.whoHas(taskIds) });
  const sender = new Sender({ ...onward, earlier });
  const late = new LateResults(onward);
  const orphaned = new OrphanedAttempts(onward);
  const peers = joinPeers(needs.peerNeeds, { ...onward, adopt: (...named) => reports.adopt(...named) });
  const reports: Reports = new Reports({ ...onward, sender, late, orphaned, moves: peers.moves });
  const drainCutoff = new DrainCutoff(onward);
  const renewal = new Renewal({ ...onward, queues });
  lines.onDropped((taskId, lock) => {
    const attempt = attempts.current(taskId);
    if (attempt?.lock === lock) completion.handOver(attempt);
  });
  dispatcher.onClaimed(({ job }) => {
    // Another replica judged the earlier order of this task, and its word that it did is still on its way.
    const earlier = job.sync ? attempts.current(job.taskId) : undefined;
    if (earlier !== undefined) completion.handOver(earlier);
  });
  const { others, crossing, moves } = peers;
  const upkeep = [renewal, new StartDeadline(onward), new Reaper(onward), drainCutoff, others, crossing, moves];
  return {
    dispatcher,
    due,
    attempts,
    changes,
    completion,
    callers,
    submissions,
    singles,
    asynchronous,
    queueing,
    sender,
    reports,
    drainCutoff,
    renewal,
    peers,
    reads: new TaskReads(needs),
    streams: new Streams(instance),
    tasks: {
      name: 'tasks',
      start: () => {
        for (const part of upkeep) part.start();
      },
      stop: () => {
        abort.abort();
        attempts.dropLimits();
        others.stop();
        crossing.stop();
        replies.settleAll(completion.answerOf(SCHEDULER_STOPPING));
      },
    },
  };
}

export interface TasksSetup {
  readonly infrastructure: Infrastructure;
  readonly identity: Identity;
  readonly clusterState: ClusterState;
  readonly targets: Targets;
  readonly directory: Directory;
  readonly lineParts: LineParts;
  readonly records: Records;
  readonly bodies: TaskBodies;
  readonly redisMemory: RedisMemory;
  readonly serves: Pick<ServeLeases, 'refusal'>;
  readonly sharing: SharingSetting;
}

export interface TaskParts extends TaskPath {
  readonly inputs: TaskInputs;
  readonly reruns: Reruns;
  readonly deadLetters: DeadLetters;
  readonly lostCallers: LostCallers;
}

export function openTasks(setup: TasksSetup): TaskParts {
  const { identity, clusterState, targets, directory, bodies, redisMemory } = setup;
  const { queues, lines, replies } = setup.lineParts;
  const { records } = setup.records;
  const { db, general: client, keys, instance, clock, stall, log, registry, settings } = setup.infrastructure;
  const { containers, machines, slots, leases, feasibility } = clusterState;
  const { limits, rates } = identity;
  const path = buildTasks({
    client,
    keys,
    instance,
    clock,
    log,
    registry,
    queues,
    lines,
    replies,
    peerNeeds: peerNeeds(setup.infrastructure, clusterState),
    containersOf: (ids) => containers.rowsOf(ids),
    records,
    leases,
    slots,
    bodies,
    maxKeptInputBytes: settings.LONGSHORE_INPUT_BYTES,
    redisMemory,
    rates,
    reservedTokens: clusterState.reservedTokens,
    redisData: clusterState.redisData,
    ...taskRows(db),
    isAlone: clusterState.isAlone,
    idempotencyKeys: new IdempotencyKeys({ db, log }),
    sinceStallMs: () => stall.sinceStallMs(),
    refusalOf: (target) => setup.serves.refusal(target) ?? feasibility.refusal(target),
    limitsOf: (workspaceId) => limits.of(workspaceId),
    queueQuota: new QueueQuota({ ask: (workspaceId) => queueBytes(db, workspaceId), log }),
    isActive: async (target) => (await targets.byQueue(target.queue))?.active === true,
    isCutOff: (id) => {
      const row = containers.get(id)?.row;
      if (row?.state !== 'STOPPING' || row.reason !== 'drained' || row.machineId === null) return false;
      return machines.get(row.machineId)?.health === 'READY';
    },
    isPreempted: (id) => {
      const row = containers.get(id)?.row;
      if (row === undefined || !isPreempted(row) || row.machineId === null) return false;
      return machines.get(row.machineId)?.health === 'READY';
    },
    endsCalls: (id) => containers.get(id)?.row.reason === ADMIN_PREEMPTED_WITH_CALLS,
    stopContainer: (id) => containers.transition(id, 'stop'),
    noticeMs: () => setup.sharing.noticeMs,
    caughtUp: () => records.caughtUp(),
    listRows: async (workspaceId, filter) => {
      const { taskIds, ...rest } = filter;
      const rows = await listTasks(db.reads.of(workspaceId), {
        workspaceId,
        ...rest,
        ...(taskIds === undefined ? {} : { ids: taskIds }),
      });
      return rows.map(recordOfRow);
    },
    stubsOf: (ids) => directory.stubs(ids),
  });
  const inputs = new TaskInputs({
    bodies,
    jobOf: (taskId) => openJobOf(db, taskId),
    keptJobOf: (taskId) => keptJobOf(db, taskId),
    caughtUp: () => records.caughtUp(),
    bounds: {
      days: inputDaysOf(settings),
      bytes: settings.LONGSHORE_INPUT_BYTES,
      workspaceBytes: settings.LONGSHORE_WORKSPACE_INPUT_BYTES,
    },
  });
  return {
    ...path,
    inputs,
    reruns: new Reruns({ inputs, targets, submissions: path.submissions }),
    lostCallers: new LostCallers({ bus: clusterState.bus, channel: keys.lostCallersChannel }),
    deadLetters: new DeadLetters({ db, caughtUp: () => records.caughtUp() }),
  };
}
