// The state of one queue in the leader's scaling loop, as it is shown: numbers, the formula, the breaker, the last
// decisions. Made on the leader, and sent to the replica that asked.
import type {
  ExplainedBreaker,
  ExplainedContainer,
  ExplainedDecision,
  ExplainedGrowth,
  ExplainedScaling,
} from '#shared/api/explain.ts';
import { timestampOf } from '#shared/api/fields.ts';
import type { ContainerId } from '#shared/domain/ids.ts';
import type { Breaker } from '../../control/autoscaler/breaker.ts';
import { breakerPhase } from '../../control/autoscaler/breaker.ts';
import type { ScaleContainer, ScaleDecision, ScaleInput } from '../../control/autoscaler/decide.ts';
import { demandsOf, keepWarmEndsMs, wantedContainers } from '../../control/autoscaler/decide.ts';
import type { QueueScaling } from '../../control/autoscaler/loop.ts';
import { METRICS_UNAVAILABLE_MS } from '../../control/autoscaler/loop.ts';
import type { Decided } from '../../control/autoscaler/history.ts';
import type { DeploymentFacts } from '../../workspaces/deployments/state.ts';
import { deploymentStateOf } from '../../workspaces/deployments/state.ts';
import type { PlacementWait } from '../../control/placement/waiting.ts';
import { counted, decisionText } from './texts.ts';

/** Facts from the container registry about a container that the scaling loop looked at. */
export interface ContainerPlace {
  readonly machineId: string;
  readonly slots: number;
  /** Whether the container's attempts are known. */
  readonly isKnown: boolean;
  /** Placement wait of a PENDING container. */
  readonly wait: PlacementWait | undefined;
}

const MAX_CONTAINERS = 100;
const NO_WAITING = { growth: [], line: [] };

export function explainScaling(
  queueScaling: QueueScaling,
  facts: DeploymentFacts,
  place: (id: ContainerId) => ContainerPlace | undefined,
  nowMs: number,
  { growth, line }: { readonly growth: readonly ExplainedGrowth[]; readonly line: readonly string[] } = NO_WAITING,
): ExplainedScaling {
  const { input, depth, history, decision } = queueScaling;
  const state = deploymentStateOf(facts);
  const wanted = input.inFlight === undefined ? null : wantedContainers(input, input.inFlight);
  const badForMs = nowMs - (history?.badSinceMs ?? nowMs);
  return {
    state,
    state_since: history?.state === state ? timestampOf(history.stateSinceMs) : null,
    in_flight: input.inFlight ?? null,
    waiting: input.waiting,
    running: depth?.active ?? 0,
    delayed: depth?.delayed ?? 0,
    tasks_per_container: input.tasksPerContainer,
    min_containers: input.minContainers,
    max_containers: input.maxContainers,
    bounds_from: (queueScaling.target?.scale ?? null) === null ? 'stub' : 'scale',
    bound: state === 'BUSY' ? boundOf(input, place) : '',
    wanted,
    formula: formulaOf(input, wanted),
    window_seconds: queueScaling.windowMs / 1000,
    wanted_in_window: input.wantedInWindow,
    live: facts.live,
    ready: facts.ready,
    present: facts.present,
    decision: shownDecision({
      atMs: nowMs,
      untilMs: nowMs,
      times: 1,
      decision,
      inFlight: input.inFlight ?? null,
      live: facts.live,
    }),
    look_again_at: timestampOf('againAtMs' in decision ? finite(decision.againAtMs) : null),
    conditions: badForMs >= METRICS_UNAVAILABLE_MS ? ['MetricsUnavailable'] : [],
    breaker: shownBreaker(input.breaker, nowMs),
    containers: input.containers.slice(0, MAX_CONTAINERS).map((one) => shownContainer(one, input, place(one.id))),
    line: [...line],
    growth: [...growth],
    decisions: (history?.decisions ?? []).toReversed().map(shownDecision),
  };
}

/** Leaves what a sentence on the deployment needs: containers without a place, one that starts, one that is ready. */
export function briefScaling(scaling: ExplainedScaling): ExplainedScaling {
  const { containers } = scaling;
  const kept = [
    ...containers.filter(({ state }) => state === 'PENDING'),
    ...['STARTING', 'RUNNING'].flatMap((state) => containers.find((one) => one.state === state) ?? []),
  ];
  return { ...scaling, containers: kept, decisions: [] };
}

/** The setting that keeps further containers away while tasks wait; empty: a slot is free, and takes the next one. */
function boundOf(input: ScaleInput, place: (id: ContainerId) => ContainerPlace | undefined): string {
  const { inFlight = 0, tasksPerContainer, minContainers, maxContainers } = input;
  const most = Math.max(minContainers, maxContainers);
  if (inFlight > most * tasksPerContainer) return 'max_containers';
  const isFull = input.containers.every((one) => one.attempts >= (place(one.id)?.slots ?? 0));
  return isFull ? 'tasks_per_container' : '';
}

function formulaOf(input: ScaleInput, wanted: number | null): string {
  if (!input.active) return 'stopped: no container is wanted';
  const { warm } = input;
  const bySchedule =
    warm === undefined || warm.least === 0
      ? ''
      : ` (${counted(warm.least, 'container')} until ${warm.until} by schedule)`;
  const bounds = `between ${input.minContainers} and ${Math.max(input.minContainers, input.maxContainers)}${bySchedule}`;
  if (input.inFlight === undefined || wanted === null) return `the queue could not be read; the bounds are ${bounds}`;
  const demands = demandsOf(input, input.inFlight);
  const byTasks = `${counted(input.inFlight, 'task')} / ${input.tasksPerContainer} per container = ${demands.tasks}`;
  const { tokens } = input;
  const byTokens =
    tokens === undefined
      ? ''
      : `, ${counted(tokens.reserved, 'reserved token')} / ${tokens.perContainer} per container = ${demands.tokens}`;
  const engines = tokens?.engines;
  const byEngines =
    engines === undefined || demands.engines === 0
      ? ''
      : `, ${engines.running} running and ${engines.waiting} waiting in ${counted(engines.containers, 'engine')} = ${demands.engines}`;
  return `${byTasks}${byTokens}${byEngines}, ${bounds}: ${wanted} wanted`;
}

function shownDecision(made: Decided): ExplainedDecision {
  const { decision } = made;
  return {
    at: timestampOf(made.atMs),
    until: timestampOf(made.untilMs),
    times: made.times,
    decision: decision.kind,
    why: decision.kind === 'hold' ? decision.why : '',
    text: decisionText(decision),
    containers: movedBy(decision),
    wanted: decision.wanted ?? null,
    live: made.live,
    in_flight: made.inFlight,
  };
}

function movedBy(decision: ScaleDecision): number {
  if (decision.kind === 'hold') return 0;
  return decision.kind === 'start' ? decision.count : decision.containers.length;
}

function shownBreaker(breaker: Breaker, nowMs: number): ExplainedBreaker {
  const { last } = breaker;
  return {
    phase: breakerPhase(breaker, nowMs),
    failures: breaker.failures,
    opened: breaker.opened,
    cools_until: breaker.opened === 0 ? null : timestampOf(breaker.coolsUntilMs),
    probe: breaker.probe ?? '',
    last_container: last?.containerId ?? '',
    last_at: timestampOf(last?.atMs),
    last_reason: last?.reason ?? '',
    last_message: last?.message ?? '',
  };
}

function shownContainer(
  container: ScaleContainer,
  input: ScaleInput,
  place: ContainerPlace | undefined,
): ExplainedContainer {
  const isIdle = container.state === 'RUNNING' && container.attempts === 0;
  const keptUntilMs = keepWarmEndsMs(container, input.keepWarmMs);
  const wait = place?.wait;
  return {
    container_id: container.id,
    state: container.state,
    machine_id: place?.machineId ?? '',
    attempts: place?.isKnown === true || container.state !== 'RUNNING' ? container.attempts : null,
    slots: place?.slots ?? 0,
    idle_since: isIdle ? timestampOf(container.idleSinceMs) : null,
    keep_warm_until: isIdle ? timestampOf(finite(keptUntilMs)) : null,
    kept_forever: isIdle && !Number.isFinite(keptUntilMs),
    rejections: countsOf(wait?.rejections),
    main_rejection: wait?.mainReason ?? '',
    gives_up_at: timestampOf(wait?.givesUpAtMs),
    gives_up_with: wait?.givesUpWith ?? '',
  };
}

const finite = (ms: number | undefined): number | null => (ms !== undefined && Number.isFinite(ms) ? ms : null);

/** Counts of the reasons that were given. */
export function countsOf(
  rejections: Readonly<Partial<Record<string, number>>> | null | undefined,
): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const [reason, count] of Object.entries(rejections ?? {}))
    if (count !== undefined && count > 0) counts[reason] = count;
  return counts;
}
