/** Reason why no container is stopped for want of work now, regardless of the queue. */
export type ScaleInHold =
  | { readonly why: 'after_restart' | 'new_leader'; readonly leftMs: number }
  | { readonly why: 'mass_disconnect' };

export interface ScaleInHoldFacts {
  /** Milliseconds since this process started, and since it leads, by the monotonic clock. */
  readonly upMs: number;
  readonly leadingMs: number;
  /** Milliseconds after the start of a scheduler for which earlier containers are left alone. */
  readonly graceMs: number;
  /**
   * Whether the queue had containers when this process started:
   * attempts may run in them that no agent has reported yet.
   */
  readonly adopted: boolean;
  readonly windowMs: number;
  /** Successful samples of the queue since this process leads, the present one included. */
  readonly samples: number;
  /** Whether many machines went silent at once. */
  readonly guarded: boolean;
}

/** Interval until the next look when only the next sample is awaited. */
const NEXT_SAMPLE_MS = 1000;

/** Longest of the reasons that apply; undefined: containers may be stopped. */
export function scaleInHold(facts: ScaleInHoldFacts): ScaleInHold | undefined {
  if (facts.guarded) return { why: 'mass_disconnect' };
  const restartMs = facts.adopted ? facts.graceMs - facts.upMs : 0;
  const windowMs = facts.windowMs - facts.leadingMs;
  const sampleMs = facts.adopted && facts.samples < 2 ? NEXT_SAMPLE_MS : 0;
  if (restartMs > 0 && restartMs >= windowMs) return { why: 'after_restart', leftMs: restartMs };
  const leftMs = Math.max(windowMs, sampleMs);
  return leftMs > 0 ? { why: 'new_leader', leftMs } : undefined;
}
