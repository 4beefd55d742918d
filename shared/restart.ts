// Decides about a child that died. Pure: the supervisor keeps the times.

export type RestartDecision =
  | { readonly kind: 'restart'; readonly delayMs: number }
  | { readonly kind: 'give_up'; readonly deaths: number; readonly withinMs: number };

/** Deaths within the window after which another start would not help. */
export const MAX_DEATHS = 5;
export const DEATH_WINDOW_MS = 60_000;
const FIRST_DELAY_MS = 200;
const LONGEST_DELAY_MS = 5_000;

/** @param deathsMs - times of all deaths so far, the newest (now) included */
export function decideRestart(deathsMs: readonly number[], nowMs: number): RestartDecision {
  const recent = deathsMs.filter((atMs) => nowMs - atMs < DEATH_WINDOW_MS).length;
  if (recent >= MAX_DEATHS) return { kind: 'give_up', deaths: recent, withinMs: DEATH_WINDOW_MS };
  return { kind: 'restart', delayMs: Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** Math.max(0, recent - 1)) };
}
