/** Number that was wanted, and until when it was the newest answer (epoch milliseconds). */
export interface WantedFor {
  readonly wanted: number;
  readonly untilMs: number;
}

/**
 * Numbers wanted within the last `windowMs`, largest first. A number is dropped when a later
 * one is at least as large, so the length is bounded by the largest number of containers.
 * The last entry is the newest answer; it holds until another comes.
 */
export type WantedWindow = readonly WantedFor[];

export function rememberWanted(window: WantedWindow, wanted: number, windowMs: number, nowMs: number): WantedWindow {
  const newest = window.length - 1;
  const replaced = window.map((one, index) => (index === newest ? { ...one, untilMs: nowMs } : one));
  const kept = replaced.filter((one) => one.wanted > wanted && one.untilMs + windowMs > nowMs);
  return [...kept, { wanted, untilMs: nowMs }];
}

/** Largest number of the window; 0 before the first answer. */
export const largestWanted = (window: WantedWindow): number => window[0]?.wanted ?? 0;

/** Time when the largest number leaves the window; undefined: it is the newest answer. */
export function nextLeaves(window: WantedWindow, windowMs: number): number | undefined {
  const [first] = window;
  return first === undefined || window.length === 1 ? undefined : first.untilMs + windowMs;
}
