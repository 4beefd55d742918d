import type { ContainerId } from '#shared/domain/ids.ts';
import type { ServingCall } from '../../domain/serving.ts';

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

/** Container of a model server. */
export interface ServingCandidate extends Candidate {
  /** Estimated tokens of the calls in flight. */
  readonly tokens: number;
  /** Requests that wait inside its engine; 0 where that is not known. */
  readonly engineWaiting: number;
}

/** Streams by which the preferred container may exceed the least loaded one. */
export const AFFINITY_SLACK = 2;

/** Load of a model server in streams: those in flight, those that wait in the engine, and its tokens as streams. */
export const servingLoad = (
  { inFlight, engineWaiting, tokens }: Pick<ServingCandidate, 'inFlight' | 'engineWaiting' | 'tokens'>,
  tokensPerStream: number,
): number => inFlight + engineWaiting + tokens / Math.max(1, tokensPerStream);

/**
 * The accepting container with a free slot that is loaded least; ties at random. The preferred container comes first,
 * while its load is within {@link AFFINITY_SLACK} of the least, and some other accepting one is loaded as much. Its
 * load counts without one call like this: the conversation's last call may just be ending.
 * @param preferred - container that served the same conversation last; undefined: none
 * @param random - gives [0, 1)
 */
export function chooseServing<T extends ServingCandidate>(
  candidates: Iterable<T>,
  { tokens, tokensPerStream }: Pick<ServingCall, 'tokens' | 'tokensPerStream'>,
  preferred: ContainerId | undefined,
  random: () => number,
): T | undefined {
  let best: T | undefined;
  let least = Number.POSITIVE_INFINITY;
  let ties = 0;
  let held: T | undefined;
  let heldLoad = 0;
  let busiestOther = Number.NEGATIVE_INFINITY;
  let others = 0;
  for (const candidate of candidates) {
    if (!candidate.accepting) continue;
    const load = servingLoad(candidate, tokensPerStream);
    const isPreferred = candidate.containerId === preferred;
    if (!isPreferred) {
      others += 1;
      busiestOther = Math.max(busiestOther, load);
    }
    if (candidate.inFlight >= candidate.slots) continue;
    if (isPreferred) {
      held = candidate;
      heldLoad = load;
    }
    if (load < least) {
      best = candidate;
      least = load;
      ties = 1;
    } else if (load === least) {
      ties += 1;
      if (random() * ties < 1) best = candidate;
    }
  }
  if (held === undefined) return best;
  const lastCall = servingLoad({ inFlight: 1, engineWaiting: 0, tokens }, tokensPerStream);
  const isBusiest = others > 0 && heldLoad - lastCall > busiestOther;
  return !isBusiest && heldLoad <= least + AFFINITY_SLACK ? held : best;
}
