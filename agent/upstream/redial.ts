// When an agent dials again. Alone it is back within half a second. Where nobody answers, many may wait with it: then each dials at a random moment of the window that the scheduler told, which follows how many it can take up.

/** The longest wait after a link that stood; also the shortest window. */
export const RECONNECT_MS = 500;

/**
 * Pure.
 * @param wasLinked - the last dial led to a session, which ended since
 * @param windowMs - as the last welcome said
 * @param random - from 0 to 1
 */
export function redialWaitMs(wasLinked: boolean, windowMs: number, random: number): number {
  return random * (wasLinked ? RECONNECT_MS : Math.max(RECONNECT_MS, windowMs));
}
