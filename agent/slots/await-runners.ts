import { sleep } from '#shared/backoff.ts';
import type { RunnerSlots } from './slots.ts';

/** Time for runners to dial again after a restart of the agent; until then nothing is reported about attempts. */
const REDIAL_WAIT_MS = 1500;

/** Resolves when the runner processes of these containers have dialled again, or the time is over. */
export async function awaitRunners(
  slots: RunnerSlots,
  containerIds: readonly string[],
  signal: AbortSignal,
): Promise<void> {
  const until = performance.now() + REDIAL_WAIT_MS;
  while (!slots.areRunnersConnected(containerIds) && performance.now() < until && (await sleep(20, signal)));
}
