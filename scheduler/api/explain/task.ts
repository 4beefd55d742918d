// A task's explanation: its place, the containers that could take it, and the
// outcome of its attempts. Also the event that it waits for, with its time.
import { shellWord } from '#shared/shell-word.ts';
import { timestampOf } from '#shared/api/fields.ts';
import type { ExplainedAttempt, ExplainedScaling, ExplainedServer, Explanation } from '#shared/api/explain.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import { cureOf, cureOfTask, errorOf } from '#shared/domain/task-failures.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { HeldBy, JobPlace } from '../../stores/queues/task-queues.ts';
import { keyOfControl, kindOfControl } from '../../domain/flow.ts';
import type { QueueControl, TaskFlow } from '../../domain/flow.ts';
import type { NamedPool } from '../../domain/named-pool.ts';
import type { ContainerRow } from '../../stores/store/queries/containers.ts';
import type { DeliveryRow } from '../../stores/store/queries/deliveries.ts';
import type { TaskRecord } from '../../tasks/records/task-record.ts';
import { failedSteps, reasonText } from './container.ts';
import type { WaitTexts } from './deployment.ts';
import {
  NO_WAIT,
  boundSteps,
  growthTexts,
  lastLine,
  placeTexts,
  resumeStep,
  waitSteps,
  waitingOf as scalingWaits,
} from './deployment.ts';
import { attemptRecord, attemptsOf as knownAttempts, errorLine } from '../../tasks/records/attempts-of.ts';
import { failureLogs, unbegunStep } from './failed-calls.ts';
import { hostOf } from '../../tasks/webhooks/deliveries.ts';
import { startTimes } from './starts.ts';
import type { ContainerStart } from './starts.ts';
import { containers, counted } from './texts.ts';
import { MOST_PREEMPTIONS } from '../../tasks/state.ts';

export interface TaskFacts {
  readonly record: TaskRecord;
  /** The job in the task's queue; undefined: the queue does not have it. */
  readonly job: TaskJob | undefined;
  readonly place: JobPlace;
  readonly queueDepth: number | null;
  /** Retries that its stub allows. */
  readonly retries: number;
  /** Execution limit of one attempt, milliseconds; 0: none. */
  readonly timeoutMs: number;
  /**
   * The last container that had the task, or the one whose failed
   * start failed it; undefined: none did, or the row is gone.
   */
  readonly container: ContainerRow | undefined;
  /** The start of that container, where the task was there before it was ready; undefined: none is told. */
  readonly start?: ContainerStart | undefined;
  readonly deploymentName: string;
  /** Control of its queue by an operator. Absent: none. */
  readonly queueControl?: QueueControl | undefined;
  readonly servers: readonly ExplainedServer[];
  readonly scaling: ExplainedScaling | null;
  /** The pool that its stub names. */
  readonly pool: NamedPool;
  /** Limits of the workspace that its containers wait for. */
  readonly quota: readonly string[];
  readonly leaderAnswered: boolean;
  /** Deliveries of its callback, the newest first. */
  readonly callbacks: readonly DeliveryRow[];
}

export function explainTask(facts: TaskFacts): Explanation {
  const { record, job, place, scaling } = facts;
  const deadlineMs = record.deadlineMs === 0 ? null : record.deadlineMs;
  return {
    kind: 'task',
    id: record.taskId,
    workspace_id: record.workspaceId,
    state: record.status,
    since: timestampOf(record.endedAtMs ?? record.startedAtMs ?? record.createdAtMs),
    summary: `task ${record.taskId}${facts.deploymentName === '' ? '' : ` of ${facts.deploymentName}`} ${summaryOf(facts)}`,
    ...waitingOf(facts),
    details: detailsOf(facts),
    next_steps: stepsOf(facts),
    leader_answered: facts.leaderAnswered,
    task: {
      status: record.status,
      failure_reason: record.failureReason,
      synchronous: record.sync,
      deployment_id: record.deploymentId ?? '',
      stub_id: record.stubId,
      position: place.kind === 'waiting' ? (place.position ?? null) : null,
      queue_depth: facts.queueDepth,
      created_at: timestampOf(record.createdAtMs),
      started_at: timestampOf(record.startedAtMs),
      ended_at: timestampOf(record.endedAtMs),
      deadline: timestampOf(deadlineMs),
      next_retry_at: timestampOf(place.kind === 'delayed' && flowWaitOf(facts) === undefined ? place.dueMs : null),
      retries_used: job?.retriesUsed ?? 0,
      retries: facts.retries,
      losses: job?.losses ?? 0,
      attempts: attemptsOf(facts),
      containers: [...facts.servers],
    },
    container: null,
    deployment: null,
    scaling,
  };
}

/** Attempts that a container had: the earlier ones, and the last one. */
const attemptsOf = ({ record, job, container }: TaskFacts): ExplainedAttempt[] =>
  knownAttempts(record, record.result, job?.past, container?.machineId ?? '').map(attemptRecord);

function summaryOf(facts: TaskFacts): string {
  const { record, place, servers } = facts;
  const why = record.failureReason === '' ? '' : ` (${record.failureReason})`;
  if (isFailedStart(record)) return `is ${record.status}${why}: no container could start for it`;
  if (isTerminalTask(record.status)) {
    // The number of an attempt counts also those that their containers never began.
    const began = attemptsOf(facts).length;
    return `is ${record.status}${why}${began === 0 ? ': no container began it' : `, after ${counted(began, 'attempt')}`}`;
  }
  if (place.kind === 'active' || record.status === 'RUNNING') {
    return `runs, attempt ${record.attempt}`;
  }
  const held = flowWaitOf(facts);
  if (held !== undefined) return held.does;
  if (place.kind === 'delayed') return `failed${why} and is tried again`;
  if (place.kind === 'gone') return 'is in no queue now: it was accepted a moment ago, or changes hands';
  const taking = servers.filter((one) => one.takes).length;
  const where =
    place.kind === 'held' || place.position === undefined ? 'waits' : `is number ${place.position} in its queue`;
  return `${where}; ${taking === 0 ? 'no container can take it now' : `${containers(taking)} can take it`}`;
}

/** Why flow control holds a task. */
function heldText({ name, most, running, waiting }: HeldBy): string {
  const of = keyOfControl(name);
  const isLimit = kindOfControl(name) === 'limit';
  const what = isLimit ? `Limit ${of} has` : of === '' ? 'The tasks without a key have' : `Key ${of} has`;
  const whose = isLimit ? 'for it' : of === '' ? 'of them' : 'of it';
  const wait = waiting === 1 ? 'waits' : 'wait';
  return `${what} ${running} of ${most} running; ${counted(waiting, 'task')} ${isLimit ? `${wait} ${whose}` : `${whose} ${wait}`}`;
}

/** Why flow control lets a task wait. */
interface FlowWait {
  readonly does: string;
  readonly says: string;
  readonly waitsFor: string;
  /** null: until its deadline at the latest. */
  readonly untilMs: number | null;
}

const IN_TURN = 'waits for its turn under the flow control of its deployment';

/** @returns undefined: flow control does not hold the task */
function flowWaitOf({ record, job, place }: TaskFacts): FlowWait | undefined {
  if (place.kind === 'held') {
    const says = heldText(place.control);
    return { does: IN_TURN, says, waitsFor: says, untilMs: null };
  }
  if (place.kind !== 'delayed' || record.status !== 'PENDING' || job?.flow === undefined) return undefined;
  const { flow } = job;
  const untilMs = place.dueMs;
  if (flow.isGathered === true) {
    const says = gatheredText(flow);
    return { does: 'waits for further calls of its key', says, waitsFor: says, untilMs };
  }
  if (flow.everyMs === undefined) return undefined;
  const says = throttledText(flow);
  return { does: IN_TURN, says, waitsFor: `${says}; it waits for its turn`, untilMs };
}

/** Why a throttle lets a task wait. */
function throttledText({ key, everyMs = 0 }: TaskFlow): string {
  const pace =
    everyMs >= 1_000
      ? `one every ${Number((everyMs / 1_000).toFixed(1))} s`
      : `${Math.floor(1_000 / everyMs)} a second`;
  return `${key === '' ? 'The tasks' : `Tasks of key ${key}`} start at most ${pace}`;
}

const gatheredText = ({ key }: TaskFlow): string =>
  `Calls ${key === '' ? '' : `of key ${key} `}are gathered: the input of the last one counts`;

function waitingOf(facts: TaskFacts): WaitTexts {
  const { record, place, scaling, servers, timeoutMs } = facts;
  if (isTerminalTask(record.status)) return NO_WAIT;
  if (place.kind === 'active' || record.status === 'RUNNING') {
    const startedMs = record.startedAtMs;
    return {
      waits_for: 'its handler to end',
      until: timestampOf(timeoutMs === 0 || startedMs === null ? null : startedMs + timeoutMs),
    };
  }
  const held = flowWaitOf(facts);
  const deadline = timestampOf(record.deadlineMs === 0 ? null : record.deadlineMs);
  if (held !== undefined)
    return { waits_for: held.waitsFor, until: held.untilMs === null ? deadline : timestampOf(held.untilMs) };
  if (place.kind === 'delayed') return { waits_for: 'its back-off, then a free slot', until: timestampOf(place.dueMs) };
  if (facts.queueControl?.paused === true) return { waits_for: 'its queue to be resumed', until: deadline };
  const serving = servers.some((one) => one.state === 'RUNNING');
  if (serving || scaling === null) return { waits_for: 'a free slot in a container', until: deadline };
  const own = scalingWaits(scaling);
  return { waits_for: own.waits_for === '' ? 'a container' : own.waits_for, until: own.until ?? deadline };
}

function detailsOf(facts: TaskFacts): string[] {
  const { record, job, place, scaling, servers, queueDepth } = facts;
  const details: string[] = [];
  const error = errorLine(record, record.result);
  if (isFailedStart(record)) details.push(startText(facts));
  else if (error !== '') details.push(`its error: ${error}`);
  if (facts.start !== undefined)
    details.push(`the start of container ${record.containerId}, for which it waited, ${startTimes(facts.start)}`);
  if (queueDepth !== null && !isTerminalTask(record.status))
    details.push(`${counted(queueDepth, 'task')} in its queue, this one included`);
  // Other containers that could take a task matter only while it waits.
  const held = flowWaitOf(facts);
  if (held !== undefined) details.push(held.says);
  const waits =
    !isTerminalTask(record.status) && record.status !== 'RUNNING' && place.kind !== 'active' && held === undefined;
  if (waits && facts.pool.lack !== undefined) details.push(facts.pool.lack.says);
  if (scaling !== null && waits) {
    details.push(scaling.formula);
    if (scaling.decision.why !== 'at_target') details.push(scaling.decision.text);
    details.push(
      ...placeTexts(scaling.containers, facts.pool),
      ...(scaling.line ?? []),
      ...growthTexts(scaling),
      ...facts.quota,
    );
  }
  if (waits && facts.queueControl?.paused === true) details.push('its queue is paused');
  if (waits && typeof facts.queueControl?.limit === 'number')
    details.push(`at most ${counted(facts.queueControl.limit, 'task')} of its queue run at a time`);
  const refusing = waits ? servers.filter((one) => !one.takes) : [];
  for (const why of new Set(refusing.map((one) => one.why_not))) {
    const count = refusing.filter((one) => one.why_not === why).length;
    details.push(`${containers(count)} cannot take it: ${why}`);
  }
  if (job !== undefined && job.retriesUsed > 0) details.push(`${job.retriesUsed} of ${facts.retries} retries are used`);
  if ((job?.losses ?? 0) > 0)
    details.push(`${counted(job?.losses ?? 0, 'attempt')} lost by causes of the infrastructure`);
  if ((job?.preemptions ?? 0) > 0)
    details.push(
      `${counted(job?.preemptions ?? 0, 'attempt')} ended with interruptible containers, for other workspaces, at no cost${(job?.preemptions ?? 0) < MOST_PREEMPTIONS ? '' : '; it is not interrupted again'}`,
    );
  details.push(...facts.callbacks.map(callbackText));
  if (!facts.leaderAnswered) details.push('the leader did not answer, so what it knows is missing');
  return details;
}

const tries = (count: number): string => (count === 1 ? '1 try' : `${count} tries`);

/** The delivery's text. The address may carry secrets, so only its host is shown. */
function callbackText({ url, event, state, attempts, outcome, httpStatus, dueAtMs }: DeliveryRow): string {
  const what = `its callback to ${hostOf(url)} (${event})`;
  const last = outcome === '' ? '' : `, ${outcome}${httpStatus === null ? '' : ` with ${httpStatus}`}`;
  if (state === 'waiting')
    return `${what} waits to be sent until ${timestampOf(dueAtMs)}, after ${tries(attempts)}${last}`;
  if (state === 'superseded') return `${what} was not sent: a newer one took its place`;
  return `${what} ${state === 'delivered' ? 'was delivered' : 'was not delivered'} after ${tries(attempts)}${last}`;
}

/** Whether no attempt was sent: the task waited for a container that did not start. */
const isFailedStart = ({ status, failureReason }: TaskRecord): boolean =>
  isTerminalTask(status) && failureReason === 'start_failed';

function startText({ record, container }: TaskFacts): string {
  const which = record.containerId === null ? 'its container' : `container ${record.containerId}`;
  return `${which} did not start${container === undefined ? '' : reasonText(container)}${lastLine(errorOf(record.result))}`;
}

function startSteps({ container, deploymentName, record }: TaskFacts): string[] {
  const logs = `\`longshore logs ${shellWord(deploymentName)}\` shows what its containers wrote`;
  const known = deploymentName === '' ? [] : [logs];
  const cure = cureOf(errorOf(record.result)) ?? 'correct what failed, and deploy again';
  return [...(container === undefined ? known : failedSteps(container)), cure];
}

function stepsOf(facts: TaskFacts): string[] {
  const { record, scaling, deploymentName, pool } = facts;
  if (isFailedStart(record)) return startSteps(facts);
  const logs = failureLogs(record);
  if (record.status === 'COMPLETE') return [`\`longshore task get ${record.taskId}\` shows its result`];
  if (isTerminalTask(record.status)) {
    const cure = cureOfTask(record.failureReason, record.result);
    if (attemptsOf(facts).length > 0) return [...(cure === undefined ? [] : [cure]), logs];
    return record.status === 'CANCELLED' || deploymentName === '' ? [] : [unbegunStep(deploymentName)];
  }
  if (record.status === 'RUNNING') return [logs];
  if (facts.queueControl?.paused === true) return [resumeStep(deploymentName)];
  if (scaling === null) return [];
  if (scaling.state === 'STOPPED' || scaling.state === 'STOPPING') {
    return [`its deployment is stopped: \`longshore deployment start ${shellWord(deploymentName)}\``];
  }
  if (scaling.breaker.phase !== 'closed')
    return [`\`longshore explain ${shellWord(deploymentName)}\` shows why starts fail`];
  const steps = [...boundSteps(scaling, deploymentName), ...waitSteps(scaling, scaling.containers, pool)];
  return pool.lack === undefined ? steps : [...new Set([pool.lack.step, ...steps])];
}
