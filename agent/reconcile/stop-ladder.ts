import type { Log } from '#shared/log.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import type { Books } from './books.ts';

/** Between the first KILL, the second one, and force. */
const KILL_WAIT_MS = 10_000;
const STUCK_WAIT_MS = 30_000;
const INSPECT_EVERY_MS = 1000;

export interface LadderInput {
  readonly runtime: ContainerRuntime;
  readonly books: Books;
  readonly log: Log;
  readonly containerId: string;
  readonly dockerId: string;
  readonly graceMs: number;
  readonly signal: AbortSignal;
}

/**
 * TERM, grace, KILL, 10 s, KILL, 10 s, force, 30 s, stuck.
 * @returns the step it ended at; `given_up` when the signal came first
 */
export async function climbStopLadder(input: LadderInput): Promise<'term' | 'kill' | 'forced' | 'stuck' | 'given_up'> {
  const { runtime, books, log, containerId, dockerId, signal } = input;
  const steps: readonly (readonly [() => Promise<void>, number, 'term' | 'kill' | 'forced'])[] = [
    [() => runtime.signal(dockerId, 'SIGTERM'), input.graceMs, 'term'],
    [() => runtime.signal(dockerId, 'SIGKILL'), KILL_WAIT_MS, 'kill'],
    [() => runtime.signal(dockerId, 'SIGKILL'), KILL_WAIT_MS, 'kill'],
    [() => runtime.remove(dockerId).then(() => books.forgetSeen(dockerId)), STUCK_WAIT_MS, 'forced'],
  ];
  for (const [step, waitMs, result] of steps) {
    // An engine that fails one step may manage the next.
    await step().catch((error: unknown) =>
      log.warn({ containerId, err: error }, 'a step of stopping a container failed'),
    );
    if (await waitOver(input, waitMs)) return result;
    if (signal.aborted) return 'given_up';
  }
  return 'stuck';
}

async function waitOver({ runtime, books, dockerId, signal }: LadderInput, ms: number): Promise<boolean> {
  const until = performance.now() + ms;
  while (!books.isOver(dockerId)) {
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
      const takeBack = books.onceOver(dockerId, done);
      signal.addEventListener('abort', done, { once: true });
    });
    if (books.isOver(dockerId)) return true;
    // The event may have been lost: ask.
    const now = await runtime.inspect(dockerId).catch(() => 'unknown' as const);
    if (now === undefined) books.forgetSeen(dockerId);
    else if (now !== 'unknown') books.learn(now, Date.now());
  }
  return true;
}
