// A deployment's explanation: the reason for its number of containers,
// the event it waits for, and steps that a person could take.
import { shellWord } from '#shared/shell-word.ts';
import type { ExplainedContainer, ExplainedScaling, Explanation } from '#shared/api/explain.ts';
import { timestampOf } from '#shared/api/fields.ts';
import { MOST_UNPLACED } from '../../control/autoscaler/decide.ts';
import type { NamedPool } from '../../domain/named-pool.ts';
import { admitTo } from '../../domain/named-pool.ts';
import type { QueueControl } from '../../domain/flow.ts';
import type { DeploymentRow } from '../../stores/store/queries/deployments.ts';
import type { CallsThatEnded } from './failed-calls.ts';
import { failedCallTexts } from './failed-calls.ts';
import type { RolloutTexts } from './rollout.ts';
import {
  KEPT_FOREVER,
  containers,
  counted,
  holdEnds,
  keptFor,
  oneWorkerTexts,
  rejectionStep,
  rejectionTexts,
  rejectionWords,
  warmSecondsOf,
  withoutNumbers,
} from './texts.ts';

export interface WaitTexts {
  /** Awaited event; empty: none. */
  readonly waits_for: string;
  readonly until: string | null;
}
export const NO_WAIT: WaitTexts = { waits_for: '', until: null };

export function explainDeployment(
  row: Pick<DeploymentRow, 'id' | 'workspaceId' | 'name' | 'version' | 'stubType' | 'active'>,
  keepWarmSeconds: number,
  scaling: ExplainedScaling | null,
  calls: CallFacts,
  schedule?: NextTick,
): Explanation {
  const { refusal, pool, quota, oneWorkerInsteadOf, rollout, ended, queueControl } = calls;
  const oneWorker = oneWorkerInsteadOf === undefined ? undefined : oneWorkerTexts(oneWorkerInsteadOf);
  // The name alone means the version that serves it.
  const reference = rollout?.isOther === true ? `${row.name}/v${row.version}` : row.name;
  const failures = ended === undefined ? undefined : failedCallTexts(ended, reference);
  const isFailing = failures?.isFailing === true && SATISFIED.has(scaling?.state ?? '');
  const notStarted = scaling?.state === 'IDLE' && scaling.live === 0 ? rollout?.failed : undefined;
  const state =
    isFailing || notStarted !== undefined ? 'FAILING' : (scaling?.state ?? (row.active ? 'ACTIVE' : 'STOPPED'));
  const isRefused = refusal !== '' && row.active;
  const isPaused = queueControl?.paused === true && row.active;
  const words = [
    ...(isPaused ? ['its queue is paused'] : []),
    ...(isRefused ? callTexts(calls) : []),
    ...(isFailing ? [failures.count] : []),
    ...(notStarted === undefined ? [] : [`its rollout failed: ${notStarted.why}`]),
    ...(scaling === null || notStarted !== undefined || (isPaused && scaling.state === 'IDLE')
      ? []
      : [summaryOf(scaling), ...placelessBecause(scaling, pool)]),
  ].join('; ');
  const tick = row.active ? schedule : undefined;
  return {
    kind: 'deployment',
    id: row.id,
    workspace_id: row.workspaceId,
    state,
    since: isFailing ? failures.section.failing_since : (notStarted?.since ?? scaling?.state_since ?? null),
    summary: `${row.name} v${row.version} is ${state}${words === '' ? '' : `: ${words}`}`,
    ...(isPaused ? RESUMED : orTick(orRollout(scaling === null ? NO_WAIT : waitingOf(scaling), rollout), tick)),
    details: [
      ...(rollout?.details ?? []),
      ...(tick === undefined ? [] : [tickText(tick)]),
      ...callTexts(calls),
      ...queueTexts(queueControl),
      ...(failures?.details ?? []),
      ...(scaling === null ? ['the leader did not answer, so the numbers are missing'] : detailsOf(scaling, pool)),
      ...(oneWorker === undefined ? [] : [`each container ${oneWorker.says}`]),
      ...quota,
    ],
    next_steps: [
      ...new Set([
        ...callSteps(calls),
        ...(isPaused ? [resumeStep(row.name)] : []),
        ...(failures?.steps ?? []),
        ...(rollout?.steps ?? []),
        ...(scaling === null ? ['ask again: a leader is chosen within 15 s'] : stepsOf(scaling, reference, pool)),
        ...(oneWorker === undefined ? [] : [oneWorker.step]),
      ]),
    ],
    leader_answered: scaling !== null,
    task: null,
    container: null,
    deployment: {
      name: row.name,
      version: row.version,
      stub_type: row.stubType,
      active: row.active,
      keep_warm_seconds: keepWarmSeconds,
      calls: failures?.section ?? null,
    },
    scaling,
  };
}

export function explainDeleted(
  row: Pick<DeploymentRow, 'id' | 'workspaceId' | 'name' | 'version' | 'stubType' | 'deletedAtMs'>,
): Explanation {
  const since = timestampOf(row.deletedAtMs);
  return {
    kind: 'deployment',
    id: row.id,
    workspace_id: row.workspaceId,
    state: 'DELETED',
    since,
    summary: `${row.name} v${row.version} is DELETED: it was deleted at ${since}`,
    ...NO_WAIT,
    details: [],
    next_steps: ['`longshore deploy` makes the name again, with a new version'],
    leader_answered: true,
    task: null,
    container: null,
    deployment: {
      name: row.name,
      version: row.version,
      stub_type: row.stubType,
      active: false,
      keep_warm_seconds: 0,
      calls: null,
    },
    scaling: null,
  };
}

const RESUMED: WaitTexts = { waits_for: 'its queue to be resumed', until: null };

/** Says how an operator controls its queue. */
const queueTexts = (control: CallFacts['queueControl']): string[] => [
  ...(control?.paused === true ? ['its queue is paused: calls are accepted, and their tasks wait'] : []),
  ...(typeof control?.limit === 'number'
    ? [`at most ${counted(control.limit, 'task')} of its queue run at a time`]
    : []),
];

export const resumeStep = (name: string): string =>
  `\`longshore deployment queue resume ${shellWord(name)}\` lets its queue go on`;

/** States of a deployment that has what it wants. */
const SATISFIED: ReadonlySet<string> = new Set(['IDLE', 'HEALTHY']);

/** Facts that concern calls before they reach any queue, and after they ended. */
export interface CallFacts {
  /** Why calls are refused; empty: they are not. */
  readonly refusal: string;
  readonly pool: NamedPool;
  /** Limits of the workspace that its containers wait for, and conditions of machines that keep them away. */
  readonly quota: readonly string[];
  /**
   * Number of workers that were asked for where a container
   * serves, or will serve, with one; absent: it serves as asked.
   */
  readonly oneWorkerInsteadOf?: number;
  /** Which version calls of the name reach, where that is worth a word. */
  readonly rollout?: RolloutTexts;
  /** Control of its queue by an operator. Absent: none. */
  readonly queueControl?: QueueControl | undefined;
  /** Calls of the last day that ended; absent: not known. */
  readonly ended?: CallsThatEnded;
}

/** Why calls are refused; a lack in the deployment's own pool says more than the missing machine. */
function callTexts({ refusal, pool: { lack } }: CallFacts): string[] {
  if (refusal !== '') return [`calls are refused: ${lack?.says ?? refusal}`];
  return lack === undefined ? [] : [lack.says];
}

function callSteps({ refusal, pool: { name, lack } }: CallFacts): string[] {
  if (lack !== undefined) return [lack.step];
  return refusal === ''
    ? []
    : [`ask for what a machine has (\`longshore machine list\`), or admit one that has it: ${admitTo(name)}`];
}

/** Next tick of a schedule. `nextAt`: null: never. */
export interface NextTick {
  readonly when: string;
  readonly timezone: string;
  readonly nextAt: string | null;
}

const tickText = ({ when, timezone, nextAt }: NextTick): string =>
  `its times are ${JSON.stringify(when)} in ${timezone}; ${nextAt === null ? 'none comes any more' : `the next is ${nextAt}`}`;

/** A wait of the containers says more than that of the rollout. */
const orRollout = (waiting: WaitTexts, rollout: RolloutTexts | undefined): WaitTexts =>
  waiting.waits_for !== '' ? waiting : (rollout?.wait ?? waiting);

const orTick = (waiting: WaitTexts, tick: NextTick | undefined): WaitTexts =>
  waiting.waits_for !== '' || tick === undefined || tick.nextAt === null
    ? waiting
    : { waits_for: 'its next time', until: tick.nextAt };

function summaryOf(scaling: ExplainedScaling): string {
  const { breaker, ready, live, present, wanted } = scaling;
  switch (scaling.state) {
    case 'STOPPED':
      return 'it takes no calls and runs nothing; queued tasks wait until their time is over';
    case 'STOPPING':
      return `it takes no calls; ${containers(present)} end`;
    case 'DEGRADED':
      return `${breaker.failures} starts in a row failed (${breaker.last_reason}), so nothing is started for now`;
    case 'IDLE':
      return live === 0
        ? 'no task waits, so no container runs'
        : `no task waits; ${containers(live)} ready, ${idleBecause(scaling)}`;
    case 'BUSY':
      return `${counted(scaling.waiting, 'call')} ${scaling.waiting === 1 ? 'waits' : 'wait'} for a free place in ${containers(ready)}${atBound(scaling)}`;
    case 'HEALTHY':
      return `${ready} of ${wanted ?? ready} wanted containers are ready`;
    default:
      return wanted === null || live <= wanted
        ? `${ready} of ${wanted ?? live} wanted containers are ready`
        : `${thereText(scaling)}, ${wanted} wanted: ${withoutNumbers(scaling.decision.text)}`;
  }
}

/** The bound at which calls wait, behind their number. */
function atBound({ bound, max_containers: most, tasks_per_container: tasks }: ExplainedScaling): string {
  if (bound === 'max_containers') return `, and there are no more: max_containers is ${most}`;
  return bound === 'tasks_per_container'
    ? `, and one is enough for ${tasks} calls: tasks_per_container is ${tasks}`
    : '';
}

/** Steps by which calls that wait at a bound would be served. */
export function boundSteps(
  { bound, bounds_from: from, max_containers: most }: ExplainedScaling,
  name: string,
): string[] {
  if (bound === 'max_containers') {
    const raise =
      from === 'scale'
        ? `\`longshore deployment scale ${shellWord(name)} ${most * 2}\` keeps more containers, and 0 there lets the queue decide`
        : `raise max_containers, as autoscaler=QueueDepthAutoscaler(max_containers=${Math.max(10, most * 2)}), and deploy; the workspace's bound is stub.max_replicas in \`longshore workspace limits\``;
    return [
      raise,
      'or have each container serve more calls side by side: concurrent_requests (threads, or an `async def`), workers (processes)',
    ];
  }
  if (bound !== 'tasks_per_container') return [];
  return [
    'lower tasks_per_container to what a container serves side by side (workers × concurrent_requests), or raise those',
  ];
}

/** Why unwanted containers are still there; the remaining time stands in the details. */
function idleBecause({ decision }: ExplainedScaling): string {
  if (decision.why === 'busy_or_warm') return 'kept warm';
  return decision.decision === 'hold' ? withoutNumbers(decision.text) : 'about to go';
}

/** Text of the present containers; one without a machine is not live yet. */
function thereText({ live, containers: all }: ExplainedScaling): string {
  const placeless = placelessOf(all);
  const wait = `${containers(placeless)} ${placeless === 1 ? 'waits' : 'wait'} for a machine`;
  if (placeless === 0) return `${containers(live)} live`;
  return live <= placeless ? wait : `${containers(live - placeless)} live, ${wait}`;
}

const placelessOf = (all: ExplainedScaling['containers']): number =>
  all.filter((one) => one.state === 'PENDING').length;

/** The next change that happens without an operator, and its time. */
export function waitingOf(scaling: ExplainedScaling): WaitTexts {
  const { breaker, decision } = scaling;
  if (scaling.state === 'STOPPED') return NO_WAIT;
  if (scaling.state === 'STOPPING') return { waits_for: 'its containers to end', until: null };
  if (breaker.phase === 'cooling') {
    return { waits_for: 'the end of the cooldown; then one container probes', until: breaker.cools_until };
  }
  if (breaker.phase === 'probing') {
    return { waits_for: 'the probe to complete a task, or to stay up for a minute', until: null };
  }
  if (decision.why === 'bad_sample')
    return { waits_for: 'the queue to be readable again', until: scaling.look_again_at };
  const placeless = scaling.containers.filter((one) => one.state === 'PENDING');
  const givesUpAt = placeless
    .map((one) => one.gives_up_at ?? '')
    .filter((at) => at !== '')
    .toSorted()[0];
  if (placeless.length > 0) {
    return { waits_for: `a machine for ${containers(placeless.length)}`, until: givesUpAt ?? null };
  }
  const starting = scaling.live - scaling.ready;
  if (starting > 0) return { waits_for: `${containers(starting)} to be ready`, until: null };
  if (decision.decision === 'hold' && decision.why !== 'at_target') {
    const warm = scaling.state === 'IDLE' && decision.why === 'busy_or_warm';
    const ends = warm ? 'work; what is kept warm may go after that time' : holdEnds(decision.why);
    return { waits_for: ends || decision.text, until: scaling.look_again_at };
  }
  return NO_WAIT;
}

export function detailsOf(scaling: ExplainedScaling, pool: NamedPool): string[] {
  const details = [...placeTexts(scaling.containers, pool), ...(scaling.line ?? []), ...growthTexts(scaling)];
  details.push(scaling.formula);
  const { decision, wanted, live } = scaling;
  if (decision.why === 'unplaced' && wanted !== null) {
    // Only the first hundred containers are listed.
    const waiting = Math.max(placelessOf(scaling.containers), Math.min(live, MOST_UNPLACED));
    details.push(`wants ${wanted}: ${live - waiting} run, ${waiting} wait, ${wanted - live} follow`);
  }
  if (scaling.bounds_from === 'scale')
    details.push(
      'the number of its containers was set by hand; `longshore deployment scale` sets it, and a new version forgets it',
    );
  if (scaling.in_flight !== null) {
    const { waiting, running, delayed } = scaling;
    details.push(`in its queue: ${waiting} waiting, ${running} running, ${delayed} delayed`);
  }
  if (scaling.window_seconds > 0) {
    details.push(`within the last ${scaling.window_seconds} s up to ${scaling.wanted_in_window} were wanted`);
  }
  for (const condition of scaling.conditions)
    details.push(`condition ${condition}: its queue could not be read for a minute`);
  // No container goes while as many are wanted.
  if (wanted === null || live > wanted) details.push(...keepWarmTexts(scaling.containers));
  const { breaker } = scaling;
  if (breaker.failures > 0) {
    details.push(
      `the last start that failed: ${breaker.last_container}, ${breaker.last_reason}${lastLine(breaker.last_message)}`,
    );
  }
  return details;
}

/** The last of some lines, after `: `; empty where there is none. */
export const lastLine = (message: string): string => {
  const line = message.trimEnd().split('\n').at(-1) ?? '';
  return line === '' ? '' : `: ${line}`;
};

/** Why pools make machines or do not. */
export const growthTexts = ({ growth }: Pick<ExplainedScaling, 'growth'>): string[] =>
  growth.map(({ text, verdict, until }) =>
    until === null ? text : `${text}, ${verdict === 'too_young' ? 'at' : 'until'} ${until}`,
  );

/**
 * Steps that would give the PENDING containers a place: for pools to make machines, and for the machines that are
 * there. None where a pool makes a machine without trouble: the wait is the cure.
 */
export function waitSteps(
  { growth }: Pick<ExplainedScaling, 'growth'>,
  all: readonly ExplainedContainer[],
  pool: NamedPool,
): string[] {
  const isComing = growth.some(
    ({ verdict, step }) => step === '' && (verdict === 'awaited' || verdict === 'too_young'),
  );
  const ofPools = growth.map(({ step }) => step).filter((step) => step !== '');
  return isComing ? [] : [...ofPools, ...placeSteps(all, pool)];
}

/** Why containers have no place, as the end of a sentence: what the first group of them lacks. */
const placelessBecause = ({ containers: all }: ExplainedScaling, pool: NamedPool): string[] =>
  placeTexts(all, pool, rejectionWords).slice(0, 1);

/** Texts of the PENDING containers, grouped by the thing they wait for. */
export function placeTexts(
  all: readonly ExplainedContainer[],
  pool: NamedPool,
  textsOf: typeof rejectionTexts = rejectionTexts,
): string[] {
  const groups = new Map<string, number>();
  for (const one of all) {
    if (one.state !== 'PENDING') continue;
    const text = Object.keys(one.rejections).length === 0 ? noMachine(one) : textsOf(one.rejections, pool).join(', ');
    groups.set(text, (groups.get(text) ?? 0) + 1);
  }
  return [...groups].map(([text, count]) => `${containers(count)} without a place: ${text}`);
}

const noMachine = (one: ExplainedContainer): string =>
  one.main_rejection === '' ? 'not tried yet' : 'there is no machine';

function keepWarmTexts(all: readonly ExplainedContainer[]): string[] {
  const forever = all.filter((one) => one.kept_forever).length;
  const ends = all
    .map((one) => one.keep_warm_until ?? '')
    .filter((at) => at !== '')
    .toSorted();
  const texts: string[] = [];
  if (forever > 0) texts.push(`${counted(forever, 'idle container')} kept without end (${KEPT_FOREVER})`);
  if (ends.length > 0) {
    const warm = Math.max(...all.map(warmSecondsOf));
    texts.push(`${counted(ends.length, 'idle container')} kept warm, the first until ${ends[0]} (${keptFor(warm)})`);
  }
  return texts;
}

function stepsOf(scaling: ExplainedScaling, name: string, pool: NamedPool): string[] {
  const { breaker } = scaling;
  if (scaling.state === 'STOPPED') return [`\`longshore deployment start ${shellWord(name)}\` lets it run again`];
  // A container that never had its image wrote no logs.
  const look =
    breaker.last_reason === 'image_error'
      ? `\`longshore explain ${breaker.last_container}\` says which machine could not get its image, and what to do`
      : `\`longshore logs ${shellWord(name)}\` shows what its containers wrote`;
  if (breaker.phase !== 'closed') {
    return [look, `correct it and deploy again, or \`longshore deployment start ${shellWord(name)}\` tries at once`];
  }
  const steps = [
    ...boundSteps(scaling, name),
    ...waitSteps(scaling, scaling.containers, pool),
    ...startSteps(scaling.containers),
  ];
  return breaker.failures > 0 ? [look, ...steps] : steps;
}

/** Where to look while nothing is ready: one of the containers that start. */
function startSteps(all: readonly ExplainedContainer[]): string[] {
  const starting = all.find((one) => one.state === 'STARTING');
  if (starting === undefined || all.some((one) => one.state === 'RUNNING')) return [];
  const id = starting.container_id;
  return [
    `\`longshore explain ${id}\` says what its start waits for, \`longshore logs --container ${id}\` what it wrote`,
  ];
}

/** Steps that would give the PENDING containers a place. */
function placeSteps(all: readonly ExplainedContainer[], pool: NamedPool): string[] {
  const reasons = all.filter((one) => one.state === 'PENDING').map((one) => one.main_rejection);
  return [...new Set(reasons)].map((reason) => rejectionStep(reason, pool)).filter((step) => step !== '');
}
