// States of a deployment: what is shown of it, computed from what is true, and the moves between them that there are.
export type DeploymentState =
  | 'STOPPED'
  | 'IDLE'
  | 'SCALING'
  | 'HEALTHY'
  | 'DEGRADED'
  | 'STOPPING'
  | 'DELETING'
  | 'DELETED';

/** `active` is true in IDLE, SCALING, HEALTHY and DEGRADED. What is deleted never comes back. */
export const DEPLOYMENT_TRANSITIONS = {
  STOPPED: ['IDLE', 'SCALING', 'DELETING'],
  IDLE: ['SCALING', 'STOPPING', 'DELETING'],
  SCALING: ['HEALTHY', 'IDLE', 'DEGRADED', 'STOPPING', 'DELETING'],
  HEALTHY: ['SCALING', 'DEGRADED', 'STOPPING', 'DELETING'],
  DEGRADED: ['SCALING', 'STOPPING', 'DELETING'],
  STOPPING: ['STOPPED', 'SCALING', 'IDLE', 'DELETING'],
  DELETING: ['DELETED'],
  DELETED: [],
} as const satisfies Record<DeploymentState, readonly DeploymentState[]>;

export interface DeploymentFacts {
  readonly active: boolean;
  readonly deleted: boolean;
  /** Containers that are wanted: what the queue and the bounds ask for. */
  readonly desired: number;
  /** Pending, starting and ready ones; of these, the ready. */
  readonly live: number;
  readonly ready: number;
  /** Every container that has not ended, the leaving and the lost included. */
  readonly present: number;
  /** The breaker of its starts cools down. */
  readonly cooling: boolean;
}

/** What the facts say, wherever it came from. */
export function deploymentStateOf(facts: DeploymentFacts): DeploymentState {
  if (facts.deleted) return facts.present === 0 ? 'DELETED' : 'DELETING';
  if (!facts.active) return facts.present === 0 ? 'STOPPED' : 'STOPPING';
  if (facts.cooling) return 'DEGRADED';
  // What is ready and not wanted is kept warm, or about to go: nothing is on its way.
  if (facts.desired === 0) return facts.ready === facts.live ? 'IDLE' : 'SCALING';
  return facts.live === facts.desired && facts.ready === facts.live ? 'HEALTHY' : 'SCALING';
}

/**
 * The states from one to what the facts say, by listed moves only: a deployment that was seen HEALTHY and is found without work and containers has been SCALING in between.
 * Empty: it is there. undefined: there is no such way (nothing leaves DELETED).
 */
export function deploymentSteps(from: DeploymentState, facts: DeploymentFacts): readonly DeploymentState[] | undefined {
  const to = deploymentStateOf(facts);
  let paths: readonly (readonly DeploymentState[])[] = [[from]];
  const seen = new Set<DeploymentState>([from]);
  while (paths.length > 0) {
    const found = paths.find((path) => path.at(-1) === to);
    if (found !== undefined) return found.slice(1);
    paths = paths.flatMap((path) => nextOf(path.at(-1) ?? from, seen).map((state) => [...path, state]));
  }
  return undefined;
}

function nextOf(state: DeploymentState, seen: Set<DeploymentState>): readonly DeploymentState[] {
  const next = DEPLOYMENT_TRANSITIONS[state].filter((candidate) => !seen.has(candidate));
  for (const candidate of next) seen.add(candidate);
  return next;
}
