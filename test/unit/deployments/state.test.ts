import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { DeploymentFacts, DeploymentState } from '#scheduler/workspaces/deployments/state.ts';
import { DEPLOYMENT_TRANSITIONS, deploymentStateOf, deploymentSteps } from '#scheduler/workspaces/deployments/state.ts';

const aFact = (changes: Partial<DeploymentFacts> = {}): DeploymentFacts => ({
  active: true,
  deleted: false,
  desired: 0,
  live: 0,
  ready: 0,
  present: 0,
  cooling: false,
  waiting: 0,
  ...changes,
});

describe('a deployment is', () => {
  test.each([
    ['STOPPED', { active: false }],
    ['STOPPING', { active: false, present: 1 }],
    ['IDLE', {}],
    ['IDLE', { present: 1 }],
    ['SCALING', { desired: 2, live: 1, ready: 1, present: 1 }],
    ['SCALING', { desired: 1, live: 1, present: 1 }],
    ['IDLE', { desired: 0, live: 1, ready: 1, present: 1 }],
    ['SCALING', { desired: 0, live: 2, ready: 1, present: 2 }],
    ['HEALTHY', { desired: 2, live: 2, ready: 2, present: 3 }],
    ['BUSY', { desired: 2, live: 2, ready: 2, present: 2, waiting: 1 }],
    ['SCALING', { desired: 2, live: 2, ready: 1, present: 2, waiting: 1 }],
    ['DEGRADED', { desired: 2, cooling: true, waiting: 1 }],
    ['DELETING', { deleted: true, active: false, present: 1 }],
    ['DELETED', { deleted: true, active: false }],
  ] as const)('%s with %o', (state, changes) => {
    expect(deploymentStateOf(aFact(changes))).toBe(state);
  });
});

test('one that was healthy and has nothing left has been scaling in between', () => {
  expect(deploymentSteps('HEALTHY', aFact())).toEqual(['SCALING', 'IDLE']);
  expect(deploymentSteps('HEALTHY', aFact({ cooling: true }))).toEqual(['DEGRADED']);
  expect(deploymentSteps('DEGRADED', aFact({ desired: 1, live: 1, present: 1 }))).toEqual(['SCALING']);
  expect(deploymentSteps('STOPPING', aFact({ desired: 1 }))).toEqual(['SCALING']);
  expect(deploymentSteps('IDLE', aFact())).toEqual([]);
});

test('whatever happens, it gets from state to state by listed moves only, and nothing leaves DELETED', () => {
  const facts = fc
    .record({
      active: fc.boolean(),
      deleted: fc.boolean(),
      desired: fc.nat({ max: 3 }),
      ready: fc.nat({ max: 3 }),
      starting: fc.nat({ max: 2 }),
      leaving: fc.nat({ max: 2 }),
      cooling: fc.boolean(),
      waiting: fc.nat({ max: 1 }),
    })
    .map(({ starting, leaving, ready, ...rest }) => ({
      ...rest,
      ready,
      live: ready + starting,
      present: ready + starting + leaving,
    }));
  fc.assert(
    fc.property(fc.array(facts, { maxLength: 12 }), (given) => {
      let state: DeploymentState = 'STOPPED';
      for (const one of given) {
        const steps = deploymentSteps(state, one);
        if (state === 'DELETED' || (state === 'DELETING' && !one.deleted)) {
          if (deploymentStateOf(one) !== state) expect(steps === undefined || steps.at(-1) === 'DELETED').toBe(true);
          continue;
        }
        expect(steps).toBeDefined();
        for (const next of steps ?? []) {
          expect(DEPLOYMENT_TRANSITIONS[state]).toContain(next);
          state = next;
        }
        expect(state).toBe(deploymentStateOf(one));
      }
    }),
    { numRuns: 10_000 },
  );
});
