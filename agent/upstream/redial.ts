// When an agent dials again. After a working link, within half a second. While nobody answers, or when
// the scheduler says so, many agents may wait: each dials at a random moment of the scheduler's window.
// The window follows the number of agents that the scheduler can accept.

/** The longest wait after a working link; also the shortest window. */
export const RECONNECT_MS = 500;

/**
 * Wait before the next dial. Pure.
 * @param wasLinked - the last dial led to a session, which ended since
 * @param windowMs - the window in the last welcome
 * @param random - from 0 to 1
 */
export function redialWaitMs(wasLinked: boolean, windowMs: number, random: number): number {
  return random * (wasLinked ? RECONNECT_MS : Math.max(RECONNECT_MS, windowMs));
}
