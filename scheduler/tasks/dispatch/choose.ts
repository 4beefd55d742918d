import type { ContainerId } from '#shared/domain/ids.ts';

/** Container that may take a task. */
export interface Candidate {
  readonly containerId: ContainerId;
  readonly slots: number;
  readonly inFlight: number;
  /** True when the container is ready, not leaving, and on a machine whose link is alive. */
  readonly accepting: boolean;
}

/** The accepting container with a free slot and the fewest in flight; ties at random. `random` gives [0, 1). */
export function chooseContainer<T extends Candidate>(candidates: Iterable<T>, random: () => number): T | undefined {
  let best: T | undefined;
  let ties = 0;
  for (const candidate of candidates) {
    if (!candidate.accepting || candidate.inFlight >= candidate.slots) continue;
    if (best === undefined || candidate.inFlight < best.inFlight) {
      best = candidate;
      ties = 1;
    } else if (candidate.inFlight === best.inFlight) {
      ties += 1;
      if (random() * ties < 1) best = candidate;
    }
  }
  return best;
}
