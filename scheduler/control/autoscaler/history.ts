// History of one queue in the scaling loop: the window of wanted numbers, the run of its samples, its
// last state, and the last decisions for explanations. Forgotten facts are learned again.
import type { QueueName } from '#shared/domain/ids.ts';
import type { DeploymentFacts, DeploymentState } from '../../workspaces/deployments/state.ts';
import { deploymentStateOf, deploymentSteps } from '../../workspaces/deployments/state.ts';
import { BoundedMap } from '../../workspaces/deployments/bounded-map.ts';
import type { ContainerId } from '#shared/domain/ids.ts';
import type { ScaleDecision, ScaleInput } from './decide.ts';
import { isUnderRate, MINUTE_MS } from './decide.ts';
import type { WantedWindow } from './window.ts';

/** Decision that was made, with the numbers it came from. */
export interface Decided {
  readonly atMs: number;
  /** Time of the last round with the same decision. */
  readonly untilMs: number;
  readonly times: number;
  readonly decision: ScaleDecision;
  /** Number of tasks that counted; null: the sample failed. */
  readonly inFlight: number | null;
  readonly live: number;
}

export interface QueueHistory {
  window: WantedWindow;
  /** Good samples since this process leads. */
  samples: number;
  /** Time when samples began to fail (epoch milliseconds); null: the last one was good. */
  badSinceMs: number | null;
  /** Times of ends for want of work in the last minute, where their number is bounded; oldest first. */
  endedAtMs: readonly number[];
  /** Last decisions, oldest first. */
  decisions: readonly Decided[];
  state: DeploymentState | null;
  stateSinceMs: number;
}

/** Queues at rest whose last decisions are kept for explanations. */
export const MOST_AT_REST = 10_000;
const MAX_DECISIONS = 20;

/**
 * Histories of all queues. Those of queues that have or want containers are never evicted, because a sweep over more
 * queues than a bound would forget every window. So there are as many as such queues, and {@link MOST_AT_REST} others.
 */
export class QueueHistories {
  readonly #busy = new Map<QueueName, QueueHistory>();
  readonly #atRest = new BoundedMap<QueueName, QueueHistory>(MOST_AT_REST);

  of(queue: QueueName): QueueHistory {
    const known = this.#busy.get(queue);
    if (known !== undefined) return known;
    const history = this.#atRest.get(queue) ?? {
      window: [],
      samples: 0,
      badSinceMs: null,
      endedAtMs: [],
      decisions: [],
      state: null,
      stateSinceMs: 0,
    };
    this.#atRest.delete(queue);
    this.#busy.set(queue, history);
    return history;
  }

  peek(queue: QueueName): QueueHistory | undefined {
    return this.#busy.get(queue) ?? this.#atRest.get(queue);
  }

  /** The queue has no containers and wants none. */
  rest(queue: QueueName): void {
    const history = this.#busy.get(queue);
    if (history === undefined) return;
    this.#busy.delete(queue);
    this.#atRest.set(queue, history);
  }

  forget(queue: QueueName): void {
    this.#busy.delete(queue);
    this.#atRest.delete(queue);
  }

  /** Forgets all queues, because another replica may have led meanwhile. */
  clear(): void {
    this.#busy.clear();
    this.#atRest.clear();
  }
}

/** Remembers a decision; repetitions are one entry. */
export function recordDecision(history: QueueHistory, made: Omit<Decided, 'untilMs' | 'times'>): void {
  const last = history.decisions.at(-1);
  if (last !== undefined && sameDecision(last, made)) {
    const { atMs: untilMs, ...newer } = made;
    const repeated = { ...last, ...newer, untilMs, times: last.times + 1 };
    history.decisions = [...history.decisions.slice(0, -1), repeated];
    return;
  }
  history.decisions = [...history.decisions, { ...made, untilMs: made.atMs, times: 1 }].slice(-MAX_DECISIONS);
}

/** Remembers when containers were told to end for want of work, where their number in a minute is bounded. */
export function rememberEnds(
  history: QueueHistory,
  { active, scaleInPerMinute, containers }: ScaleInput,
  ended: readonly ContainerId[],
  nowMs: number,
): void {
  if (scaleInPerMinute === undefined || !active) return;
  const counted = containers.filter((one) => isUnderRate(one) && ended.includes(one.id));
  history.endedAtMs = [...history.endedAtMs.filter((atMs) => atMs > nowMs - MINUTE_MS), ...counted.map(() => nowMs)];
}

/**
 * Remembers the state of the deployment.
 * @returns the states it passed through, the present one last; empty: nothing changed
 */
export function recordState(history: QueueHistory, facts: DeploymentFacts, nowMs: number): readonly DeploymentState[] {
  const state = deploymentStateOf(facts);
  if (history.state === state) return [];
  const steps = history.state === null ? [state] : (deploymentSteps(history.state, facts) ?? [state]);
  history.state = state;
  history.stateSinceMs = nowMs;
  return steps;
}

function sameDecision(a: Omit<Decided, 'untilMs' | 'times'>, b: Omit<Decided, 'untilMs' | 'times'>): boolean {
  if (a.live !== b.live || a.decision.wanted !== b.decision.wanted) return false;
  return a.decision.kind === 'hold' && b.decision.kind === 'hold' && a.decision.why === b.decision.why;
}
