// Which devices are probed now, and when to look again. Pure. What must stay true: a device that somebody has is not probed; one probe runs per device, two per machine; a device that failed waits longer each time.
import type { ProbeResult } from './probe-outcome.ts';

/** Probes of one machine at once: each may take memory of the host. */
export const MOST_PROBES = 2;
/** Until a held device is looked at again. */
const HELD_MS = 5000;
/** After an error that the driver names no recovery for, the device rests: a driver takes a moment to ask for one. */
const REST_MS = 60_000;
const MOST_REST_MS = 3_600_000;

/** First wait after a result, and the longest; they double in between. */
const AGAIN: Readonly<Record<Exclude<ProbeResult, 'passed'>, readonly [number, number]>> = {
  failed: [30_000, 1_800_000],
  stuck: [60_000, 1_800_000],
  host: [5000, 60_000],
  unable: [5000, 60_000],
  absent: [60_000, 60_000],
};

/** A device that a probe may make healthy. */
export interface Candidate {
  readonly uuid: string;
  /** A container has it, or silicon of it. */
  readonly isHeld: boolean;
  /** The device had an error, rather than never having been probed. */
  readonly isBroken: boolean;
}

/** About one device, since the agent's start. */
export interface ProbeNotes {
  /** Probes in a row with that result. */
  readonly tries: number;
  readonly result: ProbeResult | undefined;
  /** Errors of the device that named no recovery. */
  readonly faults: number;
  /** A probe that did not pass is not run again before. */
  readonly notBeforeMs: number;
  /** A device with an error is not probed before. */
  readonly restUntilMs: number;
}

export const NO_NOTES: ProbeNotes = { tries: 0, result: undefined, faults: 0, notBeforeMs: 0, restUntilMs: 0 };

export function notesAfterProbe(notes: ProbeNotes, result: ProbeResult, nowMs: number): ProbeNotes {
  if (result === 'passed') return { ...notes, tries: 0, result, notBeforeMs: 0 };
  const tries = notes.result === result ? notes.tries + 1 : 1;
  const [base, cap] = AGAIN[result];
  return { ...notes, tries, result, notBeforeMs: nowMs + Math.min(cap, base * 2 ** Math.min(tries - 1, 20)) };
}

/** A device that breaks again and again comes back later each time. One error is many lines in the kernel's log: while the device rests, a line begins the rest anew and no more. */
export function notesAfterFault(notes: ProbeNotes, nowMs: number): ProbeNotes {
  const faults = Math.max(1, nowMs < notes.restUntilMs ? notes.faults : notes.faults + 1);
  const restMs = Math.min(MOST_REST_MS, REST_MS * 2 ** Math.min(faults - 1, 20));
  return { ...notes, faults, restUntilMs: nowMs + restMs };
}

export function planProbes(
  candidates: readonly Candidate[],
  notesOf: (uuid: string) => ProbeNotes,
  running: ReadonlySet<string>,
  nowMs: number,
): { readonly start: readonly string[]; readonly lookAtMs: number | undefined } {
  const start: string[] = [];
  let lookAtMs: number | undefined;
  const lookBy = (atMs: number): void => {
    lookAtMs = Math.min(lookAtMs ?? atMs, atMs);
  };
  for (const { uuid, isHeld, isBroken } of candidates) {
    if (running.has(uuid)) continue;
    const { notBeforeMs, restUntilMs } = notesOf(uuid);
    const dueMs = isBroken ? Math.max(notBeforeMs, restUntilMs) : notBeforeMs;
    if (isHeld) lookBy(Math.max(dueMs, nowMs + HELD_MS));
    else if (dueMs > nowMs) lookBy(dueMs);
    // The end of a running probe is a look, too.
    else if (running.size + start.length < MOST_PROBES) start.push(uuid);
  }
  return { start, lookAtMs };
}
