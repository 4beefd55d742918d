// Plans which devices are probed now, and when to look again. Pure. Must stay true: a device that a container holds is
// not probed; one probe runs per device, two per machine; a device that failed waits longer each time.
import type { ProbeResult } from './probe-outcome.ts';

/** Bound on concurrent probes of a machine: each may take memory of the host. */
export const MOST_PROBES = 2;
/** Wait until a held device is looked at again. */
const HELD_MS = 5000;
/** Rest after an error without a named recovery: a driver takes a moment to ask for one. */
const REST_MS = 60_000;
const MOST_REST_MS = 3_600_000;

/** First wait after a result, and the longest; waits double in between. */
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
  /** A container has the device, or silicon of it. */
  readonly isHeld: boolean;
  /** The device had an error; otherwise it was never probed. */
  readonly isBroken: boolean;
}

/** Notes about one device, since the agent's start. */
export interface ProbeNotes {
  /** Probes in a row with that result. */
  readonly tries: number;
  readonly result: ProbeResult | undefined;
  /** Errors of the device that named no recovery. */
  readonly faults: number;
  /** Earliest time of the next probe after one that did not pass. */
  readonly notBeforeMs: number;
  /** Earliest time of a probe after an error. */
  readonly restUntilMs: number;
}

export const NO_NOTES: ProbeNotes = { tries: 0, result: undefined, faults: 0, notBeforeMs: 0, restUntilMs: 0 };

export function notesAfterProbe(notes: ProbeNotes, result: ProbeResult, nowMs: number): ProbeNotes {
  if (result === 'passed') return { ...notes, tries: 0, result, notBeforeMs: 0 };
  const tries = notes.result === result ? notes.tries + 1 : 1;
  const [base, cap] = AGAIN[result];
  return { ...notes, tries, result, notBeforeMs: nowMs + Math.min(cap, base * 2 ** Math.min(tries - 1, 20)) };
}

/**
 * Notes after an error: repeated errors rest the device longer each time. An error is many lines in the kernel's log,
 * so a line during a rest only restarts the rest.
 */
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
    // Further probes wait: the end of a running one triggers the next plan.
    else if (running.size + start.length < MOST_PROBES) start.push(uuid);
  }
  return { start, lookAtMs };
}
