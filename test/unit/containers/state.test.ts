import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ContainerState } from '#shared/domain/status.ts';
import { CONTAINER_STATES, isTerminalContainer } from '#shared/domain/status.ts';
import type { ContainerEvent } from '#scheduler/fleet/containers/state.ts';
import { CONTAINER_TRANSITIONS, containerTransition, publicStatus } from '#scheduler/fleet/containers/state.ts';

const EVENTS = [
  ...new Set(Object.values(CONTAINER_TRANSITIONS).flatMap((row) => Object.keys(row))),
] as readonly ContainerEvent[];

// Allowed next states by state. UNKNOWN does not go to DRAINING: scale-in is decided anew there.
const REFERENCE: Readonly<Record<ContainerState, readonly ContainerState[]>> = {
  PENDING: ['ASSIGNED', 'STOPPED', 'FAILED'],
  ASSIGNED: ['STARTING', 'PENDING', 'STOPPED'],
  STARTING: ['RUNNING', 'PENDING', 'FAILED', 'STOPPING', 'UNKNOWN', 'LOST'],
  RUNNING: ['DRAINING', 'STOPPING', 'STOPPED', 'FAILED', 'UNKNOWN', 'LOST'],
  DRAINING: ['RUNNING', 'STOPPING', 'STOPPED', 'FAILED', 'UNKNOWN', 'LOST'],
  STOPPING: ['STOPPED', 'UNKNOWN', 'LOST'],
  UNKNOWN: ['STARTING', 'RUNNING', 'STOPPING', 'STOPPED', 'FAILED', 'LOST'],
  STOPPED: [],
  FAILED: [],
  LOST: [],
};

test.each(CONTAINER_STATES)('from %s it goes where the reference says, and nowhere else', (state) => {
  const reached = EVENTS.map((event) => containerTransition(state, event)).flatMap((step) =>
    step.kind === 'moved' ? [step.to] : [],
  );
  expect([...new Set(reached)].sort()).toEqual([...REFERENCE[state]].sort());
});

test('a terminal state is never left, whatever happens to the container', () => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...EVENTS), { maxLength: 30 }), (events) => {
      let state: ContainerState = 'PENDING';
      let ended: ContainerState | undefined;
      for (const event of events) {
        const step = containerTransition(state, event);
        if (step.kind === 'moved') state = step.to;
        if (ended !== undefined) expect(state).toBe(ended);
        if (isTerminalContainer(state)) ended = state;
      }
    }),
    { numRuns: 10_000 },
  );
});

test('a transition made twice is a success that changes nothing', () => {
  for (const state of CONTAINER_STATES) {
    for (const event of EVENTS) {
      const first = containerTransition(state, event);
      if (first.kind !== 'moved') continue;
      const again = containerTransition(first.to, event);
      // A repeated event moves the container neither on nor back.
      expect(again.kind, `${event} after ${state}`).toBe('already');
    }
  }
});

describe('what the surfaces show', () => {
  const ORDER = ['PENDING', 'RUNNING', 'STOPPING', undefined];

  test('a status for every live state, none for an ended one', () => {
    for (const state of CONTAINER_STATES) {
      expect(publicStatus(state, 'RUNNING') === undefined, state).toBe(isTerminalContainer(state));
    }
  });

  test('unknown keeps the status before it', () => {
    for (const before of ['STARTING', 'RUNNING', 'STOPPING'] as const) {
      expect(publicStatus('UNKNOWN', before)).toBe(publicStatus(before, null));
    }
  });

  test('stopping never shows as running again', () => {
    for (const event of EVENTS) {
      const step = containerTransition('STOPPING', event);
      if (step.kind !== 'moved') continue;
      expect(ORDER.indexOf(publicStatus(step.to, 'STOPPING'))).toBeGreaterThanOrEqual(ORDER.indexOf('STOPPING'));
    }
  });
});
