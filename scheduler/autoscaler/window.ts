/** How many were wanted, and until when that was the newest answer (epoch milliseconds). */
export interface WantedFor {
  readonly wanted: number;
  readonly untilMs: number;
}

/**
 * What was wanted within the last `windowMs`, largest first: only what a later, larger answer has not overtaken is kept, so its length is bounded by the largest number of containers.
 * The last entry is the newest answer; it holds until another comes.
 */
export type WantedWindow = readonly WantedFor[];

export function rememberWanted(window: WantedWindow, wanted: number, windowMs: number, nowMs: number): WantedWindow {
  const newest = window.length - 1;
  const replaced = window.map((one, index) => (index === newest ? { ...one, untilMs: nowMs } : one));
  const kept = replaced.filter((one) => one.wanted > wanted && one.untilMs + windowMs > nowMs);
  return [...kept, { wanted, untilMs: nowMs }];
}

/** The largest of the window; 0 before the first answer. */
export const largestWanted = (window: WantedWindow): number => window[0]?.wanted ?? 0;

/** When the largest leaves the window; undefined: it is the newest answer. */
export function nextLeaves(window: WantedWindow, windowMs: number): number | undefined {
  const [first] = window;
  return first === undefined || window.length === 1 ? undefined : first.untilMs + windowMs;
}
