// History of one queue in the scaling loop: the window of wanted numbers, the run of its samples, its
// last state, and the last decisions for explanations. Bounded; forgotten facts are learned again.
import type { QueueName } from '#shared/domain/ids.ts';
import type { DeploymentFacts, DeploymentState } from '../../workspaces/deployments/state.ts';
import { deploymentStateOf, deploymentSteps } from '../../workspaces/deployments/state.ts';
import { BoundedMap } from '../../workspaces/deployments/bounded-map.ts';
import type { ScaleDecision } from './decide.ts';
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
  /** Last decisions, oldest first. */
  decisions: readonly Decided[];
  state: DeploymentState | null;
  stateSinceMs: number;
}

/** A fleet of 5,000 machines has fewer queues with containers: each sweep looks at all of those. */
const MAX_QUEUES = 50_000;
const MAX_DECISIONS = 20;

export class QueueHistories {
  readonly #queues = new BoundedMap<QueueName, QueueHistory>(MAX_QUEUES);

  of(queue: QueueName): QueueHistory {
    let history = this.#queues.get(queue);
    if (history === undefined) {
      history = { window: [], samples: 0, badSinceMs: null, decisions: [], state: null, stateSinceMs: 0 };
      this.#queues.set(queue, history);
    }
    return history;
  }

  peek(queue: QueueName): QueueHistory | undefined {
    return this.#queues.get(queue);
  }

  forget(queue: QueueName): void {
    this.#queues.delete(queue);
  }

  /** Forgets all queues, because another replica may have led meanwhile. */
  clear(): void {
    this.#queues.clear();
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
