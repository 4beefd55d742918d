// Stops a container in steps: TERM, KILL, removal by force. Used by ends.ts.
import type { Log } from '#shared/log.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import type { AgentState } from './agent-state.ts';

/** Waits between the first KILL, the second one, and force. */
const KILL_WAIT_MS = 10_000;
const STUCK_WAIT_MS = 30_000;
const INSPECT_EVERY_MS = 1000;
/** Grace of a container that was never ready: it has no work that could need more. */
const UNREADY_GRACE_MS = 2000;
/**
 * A container that was never ready gets TERM twice. The engine reports `started` before the container's init runs, and
 * the kernel drops a signal to a container's first process before that process blocks or handles it. Measured for a
 * TERM right after the start: 2 of 30 were lost.
 */
const TERM_AGAIN_MS = 500;

export interface LadderInput {
  readonly runtime: ContainerRuntime;
  readonly agentState: AgentState;
  readonly log: Log;
  readonly containerId: string;
  readonly dockerId: string;
  readonly graceMs: number;
  /** Whether the container was ever ready: only then it may have work to finish. */
  readonly wasReady: boolean;
  readonly signal: AbortSignal;
}

type Step = readonly [() => Promise<void>, number, 'term' | 'kill' | 'forced'];

/**
 * TERM, grace, KILL, 10 s, KILL, 10 s, force, 30 s, stuck. The grace of a container that was never ready is at most 2
 * s, with a second TERM in it.
 * @returns the step at which the container ended; `given_up` when the signal came first
 */
export async function climbStopLadder(input: LadderInput): Promise<'term' | 'kill' | 'forced' | 'stuck' | 'given_up'> {
  const { runtime, agentState, log, containerId, dockerId, signal } = input;
  const steps: readonly Step[] = [
    ...termSteps(input),
    [() => runtime.signal(dockerId, 'SIGKILL'), KILL_WAIT_MS, 'kill'],
    [() => runtime.signal(dockerId, 'SIGKILL'), KILL_WAIT_MS, 'kill'],
    [() => runtime.remove(dockerId).then(() => agentState.forgetSeen(dockerId)), STUCK_WAIT_MS, 'forced'],
  ];
  for (const [step, waitMs, result] of steps) {
    // An engine that fails one step may succeed at the next.
    await step().catch((error: unknown) =>
      log.warn({ containerId, err: error }, 'a step of stopping a container failed'),
    );
    if (await waitOver(input, waitMs)) return result;
    if (signal.aborted) return 'given_up';
  }
  return 'stuck';
}

function termSteps({ runtime, dockerId, graceMs, wasReady }: LadderInput): readonly Step[] {
  const term = (): Promise<void> => runtime.signal(dockerId, 'SIGTERM');
  if (wasReady) return [[term, graceMs, 'term']];
  const grace = Math.min(graceMs, UNREADY_GRACE_MS);
  const first = Math.min(grace, TERM_AGAIN_MS);
  return [
    [term, first, 'term'],
    [term, grace - first, 'term'],
  ];
}

async function waitOver({ runtime, agentState, dockerId, signal }: LadderInput, ms: number): Promise<boolean> {
  const until = performance.now() + ms;
  while (!agentState.isOver(dockerId)) {
    const left = until - performance.now();
    if (left <= 0 || signal.aborted) return false;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        takeBack();
        signal.removeEventListener('abort', done);
        resolve();
      };
      const timer = setTimeout(done, Math.min(left, INSPECT_EVERY_MS));
      const takeBack = agentState.onceOver(dockerId, done);
      signal.addEventListener('abort', done, { once: true });
    });
    if (agentState.isOver(dockerId)) return true;
    // The event may have been lost: inspect.
    const now = await runtime.inspect(dockerId).catch(() => 'unknown' as const);
    if (now === undefined) agentState.forgetSeen(dockerId);
    else if (now !== 'unknown') agentState.learn(now);
  }
  return true;
}
