// Calls of models that are answered later: accepted and carried out on every replica, looked after by the leader.
import type { Part } from '#shared/lifecycle.ts';
import { DeferredCalls } from '../tasks/deferred-calls/deferred-calls.ts';
import { DeferredExecutor } from '../tasks/deferred-calls/executor.ts';
import { DeferredCallMetrics } from '../tasks/deferred-calls/metrics.ts';
import type { TaskBodies } from '../tasks/dispatch/bodies.ts';
import type { ClusterState } from './cluster-state.ts';
import type { CreditParts } from './credits.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { Records } from './records.ts';
import type { TaskParts } from './tasks.ts';

/** Interval of the leader's rounds; holds of calls that wait are renewed in each. */
const UPKEEP_MS = 5_000;

export interface DeferredParts {
  readonly deferredCalls: DeferredCalls;
  readonly deferredExecutor: DeferredExecutor;
  readonly deferredUpkeep: Part;
}

export function openDeferredCalls(setup: {
  readonly infrastructure: Infrastructure;
  readonly clusterState: Pick<ClusterState, 'leaderLoop'>;
  readonly records: Records;
  readonly credits: CreditParts;
  readonly bodies: TaskBodies;
  readonly taskParts: TaskParts;
}): DeferredParts {
  const { db, instance, log, registry } = setup.infrastructure;
  const { changes } = setup.taskParts;
  const metrics = new DeferredCallMetrics(registry);
  const { charges: holds } = setup.credits;
  const deferredCalls = new DeferredCalls({ db, records: setup.records.records, changes, holds, metrics, log });
  const deferredExecutor = new DeferredExecutor({
    db,
    calls: deferredCalls,
    changes,
    bodies: setup.bodies,
    instance,
    metrics,
    log,
  });
  const deferredUpkeep = setup.clusterState.leaderLoop({
    name: 'upkeep of deferred calls',
    everyMs: UPKEEP_MS,
    round: () => deferredCalls.upkeep(),
    failed: 'calls that are answered later are looked after later',
  });
  return { deferredCalls, deferredExecutor, deferredUpkeep };
}
