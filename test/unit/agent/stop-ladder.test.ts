// The ladder to its last rung, on an engine whose container does not die; real time is too long for it.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createLog } from '#shared/log.ts';
import type { ContainerRuntime } from '../../../agent/containers/runtime.ts';
import { EngineError } from '../../../agent/containers/runtime.ts';
import type { AgentState } from '../../../agent/reconcile/agent-state.ts';
import type { LadderInput } from '../../../agent/reconcile/stop-ladder.ts';
import { climbStopLadder } from '../../../agent/reconcile/stop-ladder.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

interface World {
  readonly steps: string[];
  readonly climb: Promise<string>;
  readonly die: () => void;
}

/** A climb on a container that dies when it is told to here, and not before. */
function climbing(input: Partial<LadderInput> = {}): World {
  const steps: string[] = [];
  const from = performance.now();
  const note = (what: string): void => void steps.push(`${Math.round((performance.now() - from) / 1000)} s ${what}`);
  let over = false;
  const waiting = new Set<() => void>();
  const runtime = {
    signal: async (_id: string, signal: string) => note(signal),
    remove: async () => {
      note('remove');
      if (!over) throw new EngineError('refused', 'could not kill');
    },
    inspect: async () => ({ state: over ? 'exited' : 'running' }),
  } as unknown as ContainerRuntime;
  const agentState = {
    isOver: () => over,
    onceOver: (_id: string, callback: () => void) => {
      waiting.add(callback);
      return () => waiting.delete(callback);
    },
    learn: () => undefined,
    forgetSeen: () => undefined,
  } as unknown as AgentState;
  const climb = climbStopLadder({
    runtime,
    agentState,
    log: createLog({ name: 'test', level: 'silent' }),
    containerId: 'c',
    dockerId: 'd',
    graceMs: 30_000,
    wasReady: true,
    signal: new AbortController().signal,
    ...input,
  });
  return {
    steps,
    climb,
    die: () => {
      over = true;
      for (const callback of waiting) callback();
    },
  };
}

test('what does not die hears TERM, KILL twice, is removed by force, and is stuck after 80 seconds', async () => {
  const { steps, climb } = climbing();
  await vi.advanceTimersByTimeAsync(79_000);
  expect(steps).toEqual(['0 s SIGTERM', '30 s SIGKILL', '40 s SIGKILL', '50 s remove']);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(await climb).toBe('stuck');
});

test('what leaves at TERM hears nothing more', async () => {
  const { steps, climb, die } = climbing();
  await vi.advanceTimersByTimeAsync(3_000);
  die();
  expect(await climb).toBe('term');
  expect(steps).toEqual(['0 s SIGTERM']);
});

test('what leaves at the second KILL is not removed by force', async () => {
  const { steps, climb, die } = climbing();
  await vi.advanceTimersByTimeAsync(41_000);
  die();
  expect(await climb).toBe('kill');
  expect(steps).toHaveLength(3);
});

test('a climb that is given up sends nothing more', async () => {
  const abort = new AbortController();
  const { steps, climb } = climbing({ signal: abort.signal });
  await vi.advanceTimersByTimeAsync(1_000);
  abort.abort();
  expect(await climb).toBe('given_up');
  await vi.advanceTimersByTimeAsync(100_000);
  expect(steps).toEqual(['0 s SIGTERM']);
});

test('what was never ready gets TERM twice and two seconds', async () => {
  const { steps } = climbing({ wasReady: false });
  await vi.advanceTimersByTimeAsync(2_500);
  expect(steps).toEqual(['0 s SIGTERM', '1 s SIGTERM', '2 s SIGKILL']);
});
