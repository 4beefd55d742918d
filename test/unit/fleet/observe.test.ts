import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ContainerState } from '#shared/domain/status.ts';
import { CONTAINER_STATES } from '#shared/domain/status.ts';
import type { ObservedContainer__Output } from '#shared/protocol/generated/messages.ts';
import { containerTransition } from '#scheduler/fleet/containers/state.ts';
import type { ObservedEntry } from '#scheduler/fleet/observe.ts';
import { isUserCause, stepsFor, stepsWhenAbsent } from '#scheduler/fleet/observe.ts';
import { stories } from '../../helpers/stories.ts';

const PHASES = ['accepted', 'pulling', 'creating', 'starting', 'running', 'stopping', 'exited', 'removed'] as const;

function observed(changes: Partial<ObservedContainer__Output> = {}): ObservedContainer__Output {
  return {
    containerId: 'c-1',
    assignmentId: 'a-1',
    epoch: 1,
    phase: 'running',
    slots: 1,
    mode: 'single',
    onStartMs: 0,
    exitCode: 0,
    oomKilled: false,
    reason: '',
    message: '',
    startedAtMs: 5,
    finishedAtMs: 0,
    gpuUuids: [],
    cpuMillicores: 0,
    memoryBytes: 0,
    restartingSlots: 0,
    startPhases: [],
    ...changes,
  };
}
const anEntry = (state: ContainerState, changes: Partial<ObservedEntry> = {}): ObservedEntry => ({
  state,
  stateBefore: null,
  startFailures: 0,
  ...changes,
});

/** State after the steps; fails when one of them is refused. */
function after(entry: ObservedEntry, steps: ReturnType<typeof stepsFor>): ContainerState {
  let { state } = entry;
  for (const { event } of steps) {
    const step = containerTransition(state, event);
    if (step.kind !== 'moved') throw new Error(`${event} from ${state} is ${step.kind}`);
    state = step.to;
  }
  return state;
}
const see = (entry: ObservedEntry, changes: Partial<ObservedContainer__Output>): ContainerState =>
  after(entry, stepsFor(entry, observed(changes)));

const entry = fc.record({
  state: fc.constantFrom(...CONTAINER_STATES),
  stateBefore: fc.constantFrom<ContainerState | null>(null, 'STARTING', 'RUNNING', 'DRAINING', 'STOPPING'),
  startFailures: fc.nat({ max: 3 }),
});
const report = fc
  .record({
    phase: fc.constantFrom<string>(...PHASES, 'something newer'),
    exitCode: fc.constantFrom(0, 1, 137),
    oomKilled: fc.boolean(),
    reason: fc.constantFrom('', 'completed', 'user_error', 'lost', 'mount_error', 'oom'),
  })
  .map((one) => observed(one));

describe('whatever an agent says', () => {
  test('every step is a transition that the table has', () => {
    fc.assert(
      fc.property(entry, report, (given, said) => {
        after(given, stepsFor(given, said));
        after(given, stepsWhenAbsent(given));
      }),
      { numRuns: stories(2_000) },
    );
  });

  test('the same report again changes nothing more, except that a container sent back to its queue may be placed again', () => {
    fc.assert(
      fc.property(entry, report, (given, said) => {
        const state = after(given, stepsFor(given, said));
        if (state === 'PENDING') return;
        const later = { ...given, state, stateBefore: null };
        expect(after(later, stepsFor(later, said))).toBe(state);
      }),
      { numRuns: stories(2_000) },
    );
  });

  test('a container that ended stays as it ended', () => {
    for (const state of ['STOPPED', 'FAILED', 'LOST'] as const) {
      for (const phase of PHASES) expect(stepsFor(anEntry(state), observed({ phase }))).toEqual([]);
      expect(stepsWhenAbsent(anEntry(state))).toEqual([]);
    }
  });

  test('one that is stopping is never running again', () => {
    for (const phase of PHASES) {
      expect(['STOPPING', 'STOPPED']).toContain(see(anEntry('STOPPING'), { phase }));
      const unknown = anEntry('UNKNOWN', { stateBefore: 'STOPPING' });
      expect(['STOPPING', 'STOPPED', 'FAILED'], phase).toContain(see(unknown, { phase }));
    }
  });
});

test('why a container was told to stop stays, whatever an agent that was started again meanwhile makes of its exit', () => {
  const report = observed({ phase: 'removed', exitCode: 143, reason: 'user_error', message: 'process exited' });
  expect(stepsFor(anEntry('STOPPING', { reason: 'scaled_in' }), report)).toEqual([
    { event: 'gone', change: { exitCode: 143 } },
  ]);
  expect(stepsFor(anEntry('STOPPING', { reason: null }), report)).toMatchObject([
    { event: 'gone', change: { reason: 'user_error' } },
  ]);
});

describe('a start', () => {
  test('is over when its container runs, also when the acknowledgement was lost', () => {
    expect(see(anEntry('STARTING'), { phase: 'running' })).toBe('RUNNING');
    expect(see(anEntry('ASSIGNED'), { phase: 'running' })).toBe('RUNNING');
  });

  test('that fails by the user’s cause is final, with the last lines', () => {
    const steps = stepsFor(
      anEntry('STARTING'),
      observed({ phase: 'exited', exitCode: 1, reason: 'user_error', message: 'KeyError' }),
    );
    expect(steps).toEqual([{ event: 'fail', change: { exitCode: 1, reason: 'user_error', message: 'KeyError' } }]);
  });

  test('that fails by the infrastructure is tried three times in all', () => {
    for (const report of [
      (given: ObservedEntry) => stepsFor(given, observed({ phase: 'exited', exitCode: 1, reason: 'mount_error' })),
      stepsWhenAbsent,
    ]) {
      expect(report(anEntry('STARTING', { startFailures: 0 }))).toMatchObject([
        { event: 'retry', change: { startFailures: 1, machineId: null } },
      ]);
      expect(report(anEntry('STARTING', { startFailures: 1 }))).toMatchObject([
        { event: 'retry', change: { startFailures: 2 } },
      ]);
      expect(report(anEntry('STARTING', { startFailures: 2 }))).toMatchObject([{ event: 'fail' }]);
    }
  });

  test('the last lines kept of it are bounded', () => {
    const [step] = stepsFor(
      anEntry('STARTING'),
      observed({ phase: 'exited', reason: 'user_error', message: 'x'.repeat(100_000) }),
    );
    expect(step?.change.message?.length).toBe(16_384);
  });
});

describe('a running container', () => {
  test.each([
    [0, false, 'STOPPED'],
    [3, false, 'FAILED'],
    [0, true, 'FAILED'],
  ] as const)('that exits with %d (out of memory: %s) is %s', (exitCode, oomKilled, state) => {
    expect(see(anEntry('RUNNING'), { phase: 'exited', exitCode, oomKilled })).toBe(state);
  });

  test('that its machine does not have any more has failed', () => {
    expect(after(anEntry('RUNNING'), stepsWhenAbsent(anEntry('RUNNING')))).toBe('FAILED');
  });

  test('that was told to stop is gone when the agent says removed, not when it says exited', () => {
    expect(see(anEntry('STOPPING'), { phase: 'exited' })).toBe('STOPPING');
    expect(see(anEntry('STOPPING'), { phase: 'removed' })).toBe('STOPPED');
    expect(after(anEntry('STOPPING'), stepsWhenAbsent(anEntry('STOPPING')))).toBe('STOPPED');
  });
});

test('an assignment the machine does not know yet is left alone: the snapshot brings it', () => {
  expect(stepsWhenAbsent(anEntry('ASSIGNED'))).toEqual([]);
});

test('a machine that comes back has its containers as they were', () => {
  const unknown = (stateBefore: ContainerState): ObservedEntry => anEntry('UNKNOWN', { stateBefore });
  expect(see(unknown('RUNNING'), { phase: 'running' })).toBe('RUNNING');
  expect(see(unknown('STARTING'), { phase: 'pulling' })).toBe('STARTING');
  expect(see(unknown('STOPPING'), { phase: 'running' })).toBe('STOPPING');
  expect(see(unknown('RUNNING'), { phase: 'stopping' })).toBe('STOPPING');
});

test('what fails everywhere is the user’s, what may work elsewhere is not', () => {
  expect(['user_error', 'image_error', 'start_timeout', 'oom'].every(isUserCause)).toBe(true);
  const machines = [
    'lost',
    'mount_error',
    'gpu_fault',
    'host_reboot',
    'drained',
    'engine_restarted',
    'killed',
    'registry_busy',
  ];
  expect(machines.some(isUserCause)).toBe(false);
});

test('a start that failed on an engine that starts nothing costs its container none of its tries, however often', () => {
  const report = observed({ phase: 'removed', exitCode: 1, reason: 'engine_cannot_start', message: 'OCI runtime' });
  for (const startFailures of [0, 2, 50])
    expect(stepsFor(anEntry('STARTING', { startFailures }), report)).toEqual([
      { event: 'retry', change: { machineId: null, assignmentId: null } },
    ]);
});

test('a container that broke the rules of its sockets has failed by its user’s cause, whatever code it ended with', () => {
  const broke = { phase: 'exited', reason: 'protocol_violation', exitCode: 0 };
  expect(see(anEntry('RUNNING'), broke)).toBe('FAILED');
  // Another start would end the same way.
  expect(see(anEntry('STARTING'), broke)).toBe('FAILED');
  expect(isUserCause('protocol_violation')).toBe(true);
});

test('a registry that a machine does not reach is asked by other machines first, since name servers differ', () => {
  const report = observed({ phase: 'removed', exitCode: 1, reason: 'registry_unreachable' });
  const at = (startFailures: number) => stepsFor(anEntry('STARTING', { startFailures }), report)[0]?.event;
  expect([0, 1].map(at)).toEqual(['retry', 'fail']);
});

test('an image that needs a newer GPU driver is tried on other machines, and then counts as its author’s fault', () => {
  const report = observed({ phase: 'removed', exitCode: 1, reason: 'gpu_driver' });
  const at = (startFailures: number) => stepsFor(anEntry('STARTING', { startFailures }), report)[0]?.event;
  expect([0, 1, 2].map(at)).toEqual(['retry', 'retry', 'fail']);
  expect(isUserCause('gpu_driver')).toBe(true);
});

test('a container that its engine took along has failed, also with exit code 0, and its start is tried again', () => {
  expect(see(anEntry('RUNNING'), { phase: 'exited', reason: 'engine_restarted', exitCode: 0 })).toBe('FAILED');
  const report = observed({ phase: 'removed', exitCode: 143, reason: 'engine_restarted' });
  expect(stepsFor(anEntry('STARTING'), report)).toMatchObject([{ event: 'retry' }]);
});

test('a container that ended at its disk limit is its own fault, and is not placed again', () => {
  const report = observed({ phase: 'removed', exitCode: 143, reason: 'disk_limit', message: 'it wrote 30 GiB' });
  expect(stepsFor(anEntry('STARTING'), report)).toMatchObject([{ event: 'fail', change: { reason: 'disk_limit' } }]);
  // An idle runner leaves at its first signal, and with 0.
  expect(see(anEntry('RUNNING'), { phase: 'exited', reason: 'disk_limit', exitCode: 0 })).toBe('FAILED');
});

test('a container that is ready has the slots that its runner serves, within the column', () => {
  const slotsIn = (entry: ObservedEntry, slots: number): unknown[] =>
    stepsFor(entry, observed({ slots })).map(({ event, change }) => [event, change.slots]);
  expect(slotsIn(anEntry('STARTING'), 1)).toEqual([['ready', 1]]);
  expect(slotsIn(anEntry('ASSIGNED'), 3)).toEqual([
    ['ack', undefined],
    ['ready', 3],
  ]);
  expect(slotsIn(anEntry('UNKNOWN', { stateBefore: 'STARTING' }), 2)).toEqual([['back_running', 2]]);
  expect(slotsIn(anEntry('STARTING'), 2 ** 32 - 1)).toEqual([['ready', 1_000_000]]);
  // An agent that reports no slots leaves the stub's number in place.
  expect(slotsIn(anEntry('STARTING'), 0)).toEqual([['ready', undefined]]);
});

test('the sentence of a failed start is kept while it is tried elsewhere, and gone once it succeeded', () => {
  const message = 'the image needs CUDA 12.8 or newer; the driver of this machine is 535.183.01 (CUDA 12.2)';
  const refused = observed({ phase: 'exited', exitCode: 1, reason: 'gpu_driver', message });
  expect(stepsFor(anEntry('STARTING'), refused)).toMatchObject([{ event: 'retry', change: { message } }]);
  const running = stepsFor(anEntry('STARTING'), observed({ phase: 'running' }));
  expect(running).toMatchObject([{ event: 'ready', change: { message: null } }]);
  // Another end says nothing of its own, and must not be shown with the words of the start before.
  const oom = observed({ phase: 'exited', exitCode: 137, reason: 'oom', message: '' });
  expect(stepsFor(anEntry('STARTING'), oom)).toMatchObject([
    { event: 'fail', change: { reason: 'oom', message: null } },
  ]);
});
