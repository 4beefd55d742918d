// States of a deployment, computed from its facts, and the moves that are possible between them.
export type DeploymentState =
  | 'STOPPED'
  | 'IDLE'
  | 'SCALING'
  | 'HEALTHY'
  | 'BUSY'
  | 'DEGRADED'
  | 'STOPPING'
  | 'DELETING'
  | 'DELETED';

/** `active` is true in IDLE, SCALING, HEALTHY, BUSY and DEGRADED. A deleted deployment never comes back. */
export const DEPLOYMENT_TRANSITIONS = {
  STOPPED: ['IDLE', 'SCALING', 'DELETING'],
  IDLE: ['SCALING', 'STOPPING', 'DELETING'],
  SCALING: ['HEALTHY', 'BUSY', 'IDLE', 'DEGRADED', 'STOPPING', 'DELETING'],
  HEALTHY: ['BUSY', 'SCALING', 'DEGRADED', 'STOPPING', 'DELETING'],
  BUSY: ['HEALTHY', 'SCALING', 'DEGRADED', 'STOPPING', 'DELETING'],
  DEGRADED: ['SCALING', 'STOPPING', 'DELETING'],
  STOPPING: ['STOPPED', 'SCALING', 'IDLE', 'DELETING'],
  DELETING: ['DELETED'],
  DELETED: [],
} as const satisfies Record<DeploymentState, readonly DeploymentState[]>;

export interface DeploymentFacts {
  readonly active: boolean;
  readonly deleted: boolean;
  /** Number of containers that the queue and the bounds ask for. */
  readonly desired: number;
  /** Number of pending, starting and ready containers; `ready` counts the ready ones among them. */
  readonly live: number;
  readonly ready: number;
  /** Number of containers that have not ended, with leaving and lost ones. */
  readonly present: number;
  /** Whether the breaker of its starts cools down. */
  readonly cooling: boolean;
  /** Number of tasks that no container works on yet. */
  readonly waiting: number;
}

/** The state that follows from the facts alone, from any earlier state. */
export function deploymentStateOf(facts: DeploymentFacts): DeploymentState {
  if (facts.deleted) return facts.present === 0 ? 'DELETED' : 'DELETING';
  if (!facts.active) return facts.present === 0 ? 'STOPPED' : 'STOPPING';
  if (facts.cooling) return 'DEGRADED';
  // Ready containers that are not wanted are kept warm, or about to go: nothing is starting.
  if (facts.desired === 0) return facts.ready === facts.live ? 'IDLE' : 'SCALING';
  if (facts.live !== facts.desired || facts.ready !== facts.live) return 'SCALING';
  // All that the bounds allow is there, and is not enough.
  return facts.waiting > 0 ? 'BUSY' : 'HEALTHY';
}

/**
 * The listed moves from a state to the one that follows from the facts. A deployment
 * seen HEALTHY and found without work and containers has been SCALING in between.
 * Empty: the deployment is in that state already. undefined: there is no such way (nothing leaves DELETED).
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
