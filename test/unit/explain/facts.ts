// Deployments, queues and containers as explanations see them.
import { expect } from 'vitest';
import { Value } from 'typebox/value';
import { ExplainedScaling } from '#shared/api/explain.ts';
import type { Explanation } from '#shared/api/explain.ts';
import type { ContainerId } from '#shared/domain/ids.ts';
import { CLOSED_BREAKER } from '#scheduler/control/autoscaler/breaker.ts';
import type { ScaleContainer, ScaleInput } from '#scheduler/control/autoscaler/decide.ts';
import { decideScale } from '#scheduler/control/autoscaler/decide.ts';
import { scaleFacts } from '#scheduler/control/autoscaler/scale-input-reader.ts';
import type { QueueScaling } from '#scheduler/control/autoscaler/loop.ts';
import type { QueueHistory } from '#scheduler/control/autoscaler/history.ts';
import { explainDeployment } from '#scheduler/api/explain/deployment.ts';
import type { ContainerPlace } from '#scheduler/api/explain/scaling.ts';
import { explainScaling } from '#scheduler/api/explain/scaling.ts';
import { NO_POOL } from '#scheduler/domain/named-pool.ts';

export const NOW = Date.parse('2026-01-02T00:00:00Z');
export const at = (ms: number): string => new Date(NOW + ms).toISOString();
/** A deployment's row. */
export const ROW = {
  id: 'd',
  workspaceId: 'w',
  name: 'hello',
  version: 3,
  stubType: 'endpoint/deployment',
  active: true,
};
/** The explanation of that deployment. */
export const deploymentOf = (scaling: ExplainedScaling | null, refusal = '', pool = NO_POOL): Explanation =>
  explainDeployment(ROW as Parameters<typeof explainDeployment>[0], 10, scaling, { refusal, pool, quota: [] });

export function aContainer(changes: Partial<ScaleContainer> = {}): ScaleContainer {
  const times = { idleSinceMs: NOW - 4000, createdAtMs: NOW - 60_000 };
  const id = 'c-1' as ContainerId;
  return {
    id,
    state: 'RUNNING',
    attempts: 0,
    ...times,
    keepWarmMs: 0,
    warmUp: false,
    returned: false,
    found: false,
    ...changes,
  };
}

export function scalingOf(
  changes: Partial<ScaleInput>,
  more: { readonly history?: Partial<QueueHistory>; readonly place?: Partial<ContainerPlace>; windowMs?: number } = {},
): ExplainedScaling {
  const input: ScaleInput = {
    active: true,
    inFlight: 0,
    waiting: 0,
    tasksPerContainer: 1,
    minContainers: 0,
    maxContainers: 3,
    keepWarmMs: 10_000,
    containers: [],
    breaker: CLOSED_BREAKER,
    wantedInWindow: 0,
    ...changes,
  };
  const history: QueueHistory = {
    window: [],
    samples: 3,
    badSinceMs: null,
    endedAtMs: [],
    decisions: [],
    state: null,
    stateSinceMs: 0,
    ...more.history,
  };
  const queueScaling: QueueScaling = {
    target: undefined,
    depth:
      input.inFlight === undefined
        ? undefined
        : { waiting: input.waiting, active: 0, delayed: 0, prioritized: 0, held: 0, soon: 0 },
    input,
    decision: decideScale(input, NOW),
    windowMs: more.windowMs ?? 0,
    history,
  };
  const place: ContainerPlace = { machineId: '', slots: 1, isKnown: true, wait: undefined, ...more.place };
  const scaling = explainScaling(queueScaling, scaleFacts(input, 0, NOW), () => place, NOW);
  expect([...Value.Errors(ExplainedScaling, scaling)]).toEqual([]);
  return scaling;
}
